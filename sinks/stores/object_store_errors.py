"""
Errors of clients that keep tables in files, on a disk or in an object store: which may be repeated, and which only the user can mend. Also
repeats commits that lost to those of another writer.

Law: after an unknown error the call is repeated. That may last, but nothing is lost by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ordering.errors import UnreachableError
from sinks.stores.base import StoreError, store_error
from tidegate.basics.secret_masking import scrub

# Texts in errors of object stores, file systems and catalogs that only the user can mend; these errors have no codes.
_USER_WORDS = (
    "access denied",
    "accessdenied",
    "could not create local directory",
    "does not exist or you don't have access",
    "forbidden",
    "invalidaccesskeyid",
    "invalid table location",
    "invariant",
    "nosuchbucket",
    "password authentication failed",
    "permission denied",
    "read-only file system",
    "signaturedoesnotmatch",
    "unable to open database file",
    "unauthorized",
    "unknown scheme",
    "unrecognized filesystem type",
    "unsupported",
)
# How often a commit that lost to another one is tried again before the store counts as not answering.
_TRIES = 10
T = TypeVar("T")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def message_of(error: BaseException) -> str:
    """Return the client's message on one line."""
    return scrub(" ".join(_COLOURS.sub("", str(error)).split()))


def translated(error: Exception, store: str, where: str, *, is_users: bool) -> StoreError | UnreachableError:
    """Return Tidegate's error for an *error* of the client of *store*; *is_users*: only the user can mend it."""
    message = message_of(error) or type(error).__name__
    return store_error(store, message, where, is_users=is_users or any(part in message.lower() for part in _USER_WORDS))


def repeat_lost(attempt: Callable[[], T], lost: type[Exception], where: str, pause_s: float = 0) -> T:
    """
    Return the result of *attempt*. Call it again while it raises *lost*, because another writer's commit came first, after a random wait of
    up to *pause_s* at first and twice as long each time. Raises UnreachableError: it lost ten times.
    """
    calls = Retrying(
        retry=retry_if_exception_type(lost), stop=stop_after_attempt(_TRIES), wait=wait_random_exponential(multiplier=pause_s), reraise=True
    )
    try:
        return calls(attempt)
    except lost as error:
        what = f"other writers commit all the time: {message_of(error)}"
        raise UnreachableError(what, code="TG-STORE-UNREACHABLE", where=where) from None
