"""
Connections to a PostgreSQL server by its settings.

Law: the loss of a server that goes silent is noticed after about 30 s. A session that stops within a transaction blocks others for a minute
at most.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from sinks.stores.postgres.failures import message_of, translate_errors
from tidegate.platform.settings.tables.postgres_server import PostgresServer

_CONNECTION = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_SESSION = "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'; SET client_encoding = 'UTF8'"


def place_of(server: PostgresServer) -> str:
    """Return host, port and database for messages."""
    url = urlsplit(server.url.get_secret_value())
    return f"{url.hostname or ''}{f':{url.port}' if url.port else ''}{url.path}"


def connect(server: PostgresServer, program: str, where: str) -> psycopg.Connection[Any]:
    """
    Return a connection with autocommit; the server shows *program* as its name. Raises UnreachableError or StoreError with *where*: it
    cannot be made.
    """
    files = {"sslrootcert": server.ca_file, "sslcert": server.certificate_file, "sslkey": server.key_file}
    options: dict[str, Any] = {**_CONNECTION, **{name: path for name, path in files.items() if path}, "application_name": program[:63]}
    if server.ca_file and "sslmode=" not in server.url.get_secret_value():
        options["sslmode"] = "verify-full"
    if server.password is not None:
        options["password"] = server.password.get_secret_value()
    with translate_errors(where):
        connection = psycopg.connect(server.url.get_secret_value(), autocommit=True, **options)
        connection.execute(_SESSION)
    return connection


class QueryRefused(Exception):
    """The server refuses a query; the text is its message."""


class ValidRow(NamedTuple):
    """A row of a query as JSON, and the seconds since 1970, rounded up, from which on and until which it is valid (None: for ever)."""

    from_s: int
    until_s: int | None
    row: str


def read_validity(connection: psycopg.Connection[Any], query: str, valid_from: str, valid_until: str | None, where: str) -> list[ValidRow]:
    """
    Return the rows of a query, always in the same order. Raises QueryRefused; UnreachableError: the server does not answer.
    """
    instants = [
        sql.SQL("CASE WHEN isfinite(found.{0}) THEN ceil(extract(epoch FROM found.{0}))::bigint END").format(sql.Identifier(column))
        if column
        else sql.SQL("NULL::bigint")
        for column in (valid_from, valid_until)
    ]
    selected = sql.SQL("SELECT coalesce({}, 0), {}, to_json(found)::text FROM ({}) AS found").format(
        *instants, sql.SQL(query.rstrip().removesuffix(";"))
    )
    statement = sql.SQL('{} ORDER BY 1, to_json(found)::text COLLATE "C"').format(selected)
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY; SET LOCAL TIME ZONE 'UTC'")
            return [ValidRow(*row) for row in connection.execute(statement)]
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("08", "57", "53", "40"):
            with translate_errors(where):
                raise
        raise QueryRefused(message_of(error)) from None
