"""The table [outputs.NAME.postgres]: results as rows of a PostgreSQL table."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr, model_validator

from tidegate.secret_masking import has_password, scrub
from tidegate.settings.kinds import HiddenSecret, Kind, NotAllowed, Secret
from tidegate.settings.tables.base import Conflict, Contradiction
from tidegate.settings.tables.stores.base import StoreSettings

_NAME = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"(?:[^"]|"")+")'


def _parse_url(value: object) -> SecretStr:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or not re.match(r"postgres(ql)?://\S*$", text):
        raise NotAllowed("postgresql://[user[:password]@]host[:port]/database[?sslmode=verify-full]")
    return HiddenSecret(text)


def _parse_table(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"{_NAME}(\.{_NAME})?", value):
        raise NotAllowed('a table, or schema.table; a name with other signs in double quotes: analytics."Rides 2"')
    return value


PostgresUrl = Annotated[
    SecretStr,
    BeforeValidator(_parse_url),
    PlainSerializer(lambda url: scrub(url.get_secret_value())),
    Kind("URL, file:PATH or env:NAME"),
]
TableName = Annotated[str, BeforeValidator(_parse_table), Kind("table or schema.table; default: the output's name")]


class PostgresSettings(StoreSettings):
    """[outputs.NAME.postgres]: results as rows of a PostgreSQL table."""

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
    table: TableName | None = Field(default=None, description="The table that gets the results; made when missing, with its schema.")
    mode: Literal["append", "insert", "upsert"] = Field(
        default="append",
        description="append: every result is a row; insert: a row for each primary_key, on_conflict says what happens to a second one; "
        "upsert: the last result of each primary_key.",
    )
    primary_key: Annotated[tuple[str, ...], Kind("list of columns; default: none")] = Field(
        default=(), description="The columns that identify a row, for insert and upsert."
    )
    on_conflict: Literal["refuse", "keep"] = Field(
        default="refuse",
        description="What insert does with a result whose primary_key has a row; refuse: as on_error says; keep: the row stays as it is.",
    )
    schema_evolution: Literal["none", "add"] = Field(
        default="none", description="add: columns of the query that the table lacks are added to it; none: the job does not start."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        conflicts: list[Conflict] = []
        if self.mode == "append" and self.primary_key:
            conflicts.append(("primary_key", "primary_key means nothing to append", 'set mode = "upsert" or "insert", or remove it'))
        if self.mode != "append" and not self.primary_key:
            conflicts.append(("mode", f"{self.mode} needs primary_key", 'name the columns: primary_key = ["car", "minute_end"]'))
        if self.mode != "insert" and self.on_conflict != "refuse":
            conflicts.append(("on_conflict", "on_conflict is of insert only", 'set mode = "insert", or remove it'))
        if self.password is not None and has_password(self.url.get_secret_value()):
            conflicts.append(("password", "there is a password in url too", "give one of them"))
        if (self.certificate_file is None) != (self.key_file is None):
            named, other = ("certificate_file", "key_file") if self.certificate_file else ("key_file", "certificate_file")
            conflicts.append((named, f"{named} is of no use without {other}", f"give {other} as well"))
        if conflicts:
            raise Contradiction(conflicts)
        return self
