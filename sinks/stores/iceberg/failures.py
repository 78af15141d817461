"""Errors of pyiceberg and its catalogs, told apart by :mod:`sinks.stores.object_store_errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
)
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

from sinks.stores.object_store_errors import translated

# Only the user can mend them. An ImportError is a client that the catalog or the object store needs.
_USERS = (
    BadRequestError,
    ForbiddenError,
    ImportError,
    NoSuchModuleError,
    NoSuchPropertyException,
    NotInstalledError,
    OAuthError,
    PermissionError,
    UnauthorizedError,
    ValidationError,
)
# They may pass: the table or its namespace is just being made, or taken away.
_OTHERS = (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OSError,
    RESTError,
    SQLAlchemyError,
    TableAlreadyExistsError,
    ValidationException,
    ValueError,
)
# What a ValueError says if the settings of the catalog are to blame.
_SETTINGS_WORDS = (
    "URI missing",
    "is not a valid CatalogType",
    "Could not infer the catalog type",
    "Could not initialize",
    "No default path is set",
)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of pyiceberg as UnreachableError or StoreError; a commit that lost to another (CommitFailedException) passes."""
    try:
        yield
    except CommitFailedException:
        raise
    except (*_USERS, *_OTHERS) as error:
        is_users = isinstance(error, _USERS) or any(words in str(error) for words in _SETTINGS_WORDS)
        raise translated(error, "Iceberg", where, is_users=is_users) from None
