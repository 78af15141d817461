"""
Errors of PostgreSQL: after which the call may be repeated, which are about rows, and which only the user can mend.

Law: after an unknown error the call is repeated. That may last, but nothing is lost by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from sinks.stores.base import StoreLocked, store_error
from tidegate.basics.secret_masking import scrub

# Classes of SQLSTATE, its first two characters: data exceptions, constraints, errors raised by triggers, rows too large for an index.
_ROW_CLASSES = ("22", "23", "P0", "44", "54")
# Missing objects and rights, features that the server lacks, wrong names and passwords.
_USER_CLASSES = ("42", "0A", "3F", "3D", "28", "26", "34")
# A lock that was not given in time, a deadlock.
_LOCK_STATES = ("55P03", "40P01")
_FIND_LOCKS = (
    "end what holds it: SELECT pid, state, query FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE relation IS NOT NULL AND granted "
    "AND pid <> pg_backend_pid(); then SELECT pg_terminate_backend(pid)"
)
# The disk, the memory, the room for configured things.
_FULL_STATES = ("53100", "53200", "53400")
# Errors of connecting have no SQLSTATE, only the server's message.
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
    """Return whether an error is about rows, so that the server may take the other rows."""
    return (error.sqlstate or "")[:2] in _ROW_CLASSES


def message_of(error: psycopg.Error) -> str:
    """Return the server's message and detail on one line, and the column of a value that it could not read."""
    diagnosis = error.diag
    column = re.search(r", column ([^:]+)", diagnosis.context or "")
    parts = [diagnosis.message_primary, diagnosis.message_detail] if diagnosis.message_primary else [str(error)]
    parts += [f"(column {column[1]})"] if column else []
    return scrub(" ".join(" ".join(part.split()) for part in parts if part))


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of psycopg as UnreachableError or StoreError, except errors about rows."""
    try:
        yield
    except psycopg.Error as error:
        if is_about_rows(error):
            raise
        message, state = message_of(error), error.sqlstate or ""
        if state in _LOCK_STATES:
            raise StoreLocked(f"another session holds a lock: {message}", where=where, fix=_FIND_LOCKS) from None
        is_users = state[:2] in _USER_CLASSES or (not state and any(part in message for part in _USER_WORDS))
        raise store_error("PostgreSQL", message, where, is_users=is_users, is_full=state in _FULL_STATES) from None
