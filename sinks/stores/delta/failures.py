"""
Errors of delta-rs: which may be repeated, and which only the user can mend.

Law: an error whose kind is not known is repeated: it may last, but nothing is lost by it. A commit that lost to another one
(CommitFailedError) is no error of the store: it passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

from ordering.errors import UnreachableError
from sinks.stores.base import StoreError
from tidegate.secret_masking import scrub

# What object stores, file systems and delta-rs say if only the user can mend it; delta-rs has no codes.
_USER_WORDS = (
    "access denied",
    "accessdenied",
    "does not exist or you don't have access",
    "forbidden",
    "invalidaccesskeyid",
    "invariant",
    "no space left",
    "nosuchbucket",
    "permission denied",
    "read-only file system",
    "signaturedoesnotmatch",
    "unauthorized",
    "unknown scheme",
    "unsupported",
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def words_of(error: BaseException) -> str:
    """Return what delta-rs said, on one line."""
    return scrub(" ".join(_COLOURS.sub("", str(error)).split()))


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of delta-rs as UnreachableError or StoreError; a commit that lost to another passes."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        raise _translated(error, where) from None


def _translated(error: Exception, where: str) -> StoreError | UnreachableError:
    words = words_of(error)
    is_users = isinstance(error, DeltaProtocolError | SchemaMismatchError | PermissionError)
    if is_users or any(part in words.lower() for part in _USER_WORDS):
        fix = "give the job what it lacks, or correct the settings of this output"
        return StoreError(f"Delta Lake refuses: {words}", code="TG-STORE-REFUSED", where=where, fix=fix)
    return UnreachableError(f"the Delta Lake table does not answer as it should: {words}", code="TG-STORE-UNREACHABLE", where=where)
