"""Errors of pyiceberg and its catalogs, classified by :mod:`sinks.stores.object_store_errors`."""

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

# Errors that only the user can mend. ImportError: the catalog or the object store needs a client that is not installed.
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
# Errors that may pass, for example because the table or its namespace is just being made or dropped.
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
# Texts of a ValueError that is about the settings of the catalog.
_SETTINGS_TEXTS = (
    "URI missing",
    "is not a valid CatalogType",
    "Could not infer the catalog type",
    "Could not initialize",
    "No default path is set",
)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of pyiceberg as UnreachableError or StoreError, except CommitFailedException: a commit that lost to another one."""
    try:
        yield
    except CommitFailedException:
        raise
    except (*_USERS, *_OTHERS) as error:
        is_users = isinstance(error, _USERS) or any(text in str(error) for text in _SETTINGS_TEXTS)
        raise translated(error, "Iceberg", where, is_users=is_users) from None
