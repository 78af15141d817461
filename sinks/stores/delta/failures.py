"""Errors of delta-rs, classified by :mod:`sinks.stores.object_store_errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

from sinks.stores.object_store_errors import translated


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of delta-rs as UnreachableError or StoreError, except that of a commit that lost to another one."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        is_users = isinstance(error, DeltaProtocolError | SchemaMismatchError | PermissionError)
        raise translated(error, "Delta Lake", where, is_users=is_users) from None
