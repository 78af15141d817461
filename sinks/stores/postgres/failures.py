"""
Errors of PostgreSQL: which may be repeated, which are a row's fault, and which only the user can mend.

Law: an error whose kind is not known is repeated: it may last, but nothing is lost by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from sinks.stores.base import store_error
from tidegate.secret_masking import scrub

# By the first two signs of SQLSTATE: data exceptions, constraints, what a trigger raised, a row too large for an index.
_ROW_CLASSES = ("22", "23", "P0", "44", "54")
# What is not there or not allowed; the features that a server lacks; wrong names and passwords.
_USER_CLASSES = ("42", "0A", "3F", "3D", "28", "26", "34")
# Errors at connecting have no SQLSTATE, only the server's words.
_USER_WORDS = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "no password supplied",
    "certificate verify failed",
    "does not support SSL",
    "certificate file",
    "private key file",
    "valid client certificate",
    "does not match host name",
    "permission denied",
)


def is_about_rows(error: psycopg.Error) -> bool:
    """Return whether the rows are to blame, so that fewer of them may be taken."""
    return (error.sqlstate or "")[:2] in _ROW_CLASSES


def words_of(error: psycopg.Error) -> str:
    """Return what the server said, on one line: its message and detail, and the column of a value that it could not read."""
    diagnosis = error.diag
    column = re.search(r", column ([^:]+)", diagnosis.context or "")
    parts = [diagnosis.message_primary, diagnosis.message_detail] if diagnosis.message_primary else [str(error)]
    parts += [f"(column {column[1]})"] if column else []
    return scrub(" ".join(" ".join(part.split()) for part in parts if part))


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of psycopg as UnreachableError or StoreError; those about rows pass."""
    try:
        yield
    except psycopg.Error as error:
        if is_about_rows(error):
            raise
        words, state = words_of(error), error.sqlstate or ""
        is_users = state[:2] in _USER_CLASSES or (not state and any(part in words for part in _USER_WORDS))
        raise store_error("PostgreSQL", words, where, is_users=is_users) from None
