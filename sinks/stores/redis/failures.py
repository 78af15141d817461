"""
Errors of Redis: after which the call may be repeated, and which only the user can mend.

Law: after an unknown error the call is repeated. That may last, but nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from ordering.errors import RefusedError, SettingError, UnreachableError
from sinks.stores.base import USERS_FIX, StoreError, store_error
from tidegate.basics.secret_masking import scrub
from tidegate.platform.redis_client import is_denial

# The codes of a wrong password or certificate.
_USER_CODES = ("TG-REDIS-AUTH", "TG-REDIS-TLS")
_USER_ERRORS = (redis.AuthenticationError, redis.exceptions.MovedError, redis.exceptions.ClusterCrossSlotError)
_USER_WORDS = ("WRONGTYPE", "unknown command")
# maxmemory is reached; the disk of the append-only file or of the snapshots takes nothing.
_FULL_WORDS = ("OOM ", "MISCONF ")


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of the client, and those of :func:`tidegate.platform.redis_client.connect`, as UnreachableError or StoreError."""
    try:
        yield
    except UnreachableError as error:
        if error.code in _USER_CODES:
            raise StoreError(error.what, code="TG-STORE-REFUSED", where=where, fix=error.fix) from None
        raise UnreachableError(error.what, code="TG-STORE-UNREACHABLE", where=where) from None
    except (RefusedError, SettingError) as error:
        raise StoreError(error.what, code="TG-STORE-REFUSED", where=where, fix=USERS_FIX) from None
    except (redis.RedisError, OSError) as error:
        message = scrub(" ".join(str(error).rpartition("of pipeline caused error: ")[2].split()))
        is_users = isinstance(error, _USER_ERRORS) or (isinstance(error, redis.RedisError) and is_denial(error))
        is_full = isinstance(error, redis.exceptions.OutOfMemoryError) or any(word in message for word in _FULL_WORDS)
        is_users = is_users or any(word in message for word in _USER_WORDS)
        raise store_error("Redis", message, where, is_users=is_users, is_full=is_full) from None
