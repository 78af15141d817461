"""The address of a PostgreSQL server and the settings of connections to it, for a store and for the query of a reference table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.basics.secret_masking import has_password
from tidegate.platform.settings.kinds import Kind, Secret, SecretUrl, peek_secret, url_parser
from tidegate.platform.settings.tables.base import PASSWORD_TWICE, Conflict, PemFile, Table, certificate_conflicts

PostgresUrl = Annotated[
    SecretUrl,
    url_parser(r"postgres(ql)?://\S*$", "postgresql://[user[:password]@]host[:port]/database[?sslmode=verify-full]"),
]


class PostgresServer(Table):
    """The settings of a connection."""

    url: PostgresUrl = Field(description="Where PostgreSQL answers, as libpq reads it; a password in it is never shown.")
    password: Secret = Field(default=None, description="Password, if the URL has none.")
    ca_file: Annotated[str | None, Kind("path of a PEM file; default: libpq's")] = Field(
        default=None, description="Whose certificates are trusted; the server must then prove its name (sslmode=verify-full)."
    )
    certificate_file: PemFile = Field(default=None, description="Certificate shown to the server.")
    key_file: PemFile = Field(default=None, description="Private key of certificate_file.")

    def _conflicts(self) -> list[Conflict]:
        twice = self.password is not None and has_password(peek_secret(self.url) or "")
        return [*([PASSWORD_TWICE] if twice else []), *certificate_conflicts(self)]
