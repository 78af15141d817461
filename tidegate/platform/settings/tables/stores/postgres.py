"""The table [outputs.NAME.postgres]: results as rows of a PostgreSQL table."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tidegate.platform.settings.kinds import Duration, Kind, NotAllowed
from tidegate.platform.settings.tables.base import Conflict
from tidegate.platform.settings.tables.postgres_server import PostgresServer
from tidegate.platform.settings.tables.stores.base import FLUSH_INTERVAL, PROMPT_US, SchemaEvolution, StoreSettings

_NAME = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"(?:[^"]|"")+")'


def _parse_table(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"{_NAME}(\.{_NAME})?", value):
        raise NotAllowed('a table, or schema.table; a name with other signs in double quotes: analytics."Rides 2"')
    return value


TableName = Annotated[str, BeforeValidator(_parse_table), Kind("table or schema.table; default: the output's name")]


class PostgresSettings(PostgresServer, StoreSettings):
    """[outputs.NAME.postgres]: results as rows of a PostgreSQL table."""

    flush_interval_us: Duration = Field(default=PROMPT_US, description=FLUSH_INTERVAL)
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
    schema_evolution: SchemaEvolution = "none"

    def _conflicts(self) -> list[Conflict]:
        conflicts = super()._conflicts()
        if self.mode == "append" and self.primary_key:
            conflicts.append(("primary_key", "primary_key means nothing to append", 'set mode = "upsert" or "insert", or remove it'))
        if self.mode != "append" and not self.primary_key:
            conflicts.append(("mode", f"{self.mode} needs primary_key", 'name the columns: primary_key = ["car", "minute_end"]'))
        if self.mode != "insert" and self.on_conflict != "refuse":
            conflicts.append(("on_conflict", "on_conflict is of insert only", 'set mode = "insert", or remove it'))
        return conflicts
