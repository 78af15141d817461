"""Where a PostgreSQL server answers and how it is met: what a store and the query of a reference table have in common."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr

from tidegate.secret_masking import has_password, scrub
from tidegate.settings.kinds import HiddenSecret, Kind, NotAllowed, Secret
from tidegate.settings.tables.base import Conflict, Table


def _parse_url(value: object) -> SecretStr:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or not re.match(r"postgres(ql)?://\S*$", text):
        raise NotAllowed("postgresql://[user[:password]@]host[:port]/database[?sslmode=verify-full]")
    return HiddenSecret(text)


PostgresUrl = Annotated[
    SecretStr,
    BeforeValidator(_parse_url),
    PlainSerializer(lambda url: scrub(url.get_secret_value())),
    Kind("URL, file:PATH or env:NAME"),
]


class PostgresServer(Table):
    """The settings of a connection."""

    url: PostgresUrl = Field(description="Where PostgreSQL answers, as libpq reads it; a password in it is never shown.")
    password: Secret = Field(default=None, description="Password, if the URL has none.")
    ca_file: Annotated[str | None, Kind("path of a PEM file; default: libpq's")] = Field(
        default=None, description="Whose certificates are trusted; the server must then prove its name (sslmode=verify-full)."
    )
    certificate_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Certificate shown to the server."
    )
    key_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Private key of certificate_file."
    )

    def _server_conflicts(self) -> list[Conflict]:
        conflicts: list[Conflict] = []
        if self.password is not None and has_password(self.url.get_secret_value()):
            conflicts.append(("password", "there is a password in url too", "give one of them"))
        if (self.certificate_file is None) != (self.key_file is None):
            named, other = ("certificate_file", "key_file") if self.certificate_file else ("key_file", "certificate_file")
            conflicts.append((named, f"{named} is of no use without {other}", f"give {other} as well"))
        return conflicts
