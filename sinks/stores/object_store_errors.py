"""
Errors of clients that keep tables in files, on a disk or in an object store: which may be repeated, and which only the user can mend.

Law: an error whose kind is not known is repeated: it may last, but nothing is lost by it.
"""

from __future__ import annotations

import re

from ordering.errors import UnreachableError
from sinks.stores.base import StoreError
from tidegate.secret_masking import scrub

# What object stores, file systems and catalogs say if only the user can mend it; there are no codes.
_USER_WORDS = (
    "access denied",
    "accessdenied",
    "does not exist or you don't have access",
    "forbidden",
    "invalidaccesskeyid",
    "invariant",
    "no space left",
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
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def words_of(error: BaseException) -> str:
    """Return what the client said, on one line."""
    return scrub(" ".join(_COLOURS.sub("", str(error)).split()))


def translated(error: Exception, store: str, where: str, *, is_users: bool = False) -> StoreError | UnreachableError:
    """Return an error of the client of *store* as ours; *is_users*: only the user can mend it."""
    words = words_of(error) or type(error).__name__
    if is_users or any(part in words.lower() for part in _USER_WORDS):
        fix = "give the job what it lacks, or correct the settings of this output"
        return StoreError(f"{store} refuses: {words}", code="TG-STORE-REFUSED", where=where, fix=fix)
    return UnreachableError(f"the {store} table does not answer as it should: {words}", code="TG-STORE-UNREACHABLE", where=where)
