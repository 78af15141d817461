"""The table [outputs.NAME.clickhouse]: results as rows of a ClickHouse table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.basics.secret_masking import has_password
from tidegate.platform.settings.kinds import Kind, Secret, peek_secret
from tidegate.platform.settings.tables.base import Conflict
from tidegate.platform.settings.tables.http_server import HttpServer
from tidegate.platform.settings.tables.stores.base import SchemaEvolution, StoreSettings


class ClickHouseSettings(HttpServer, StoreSettings):
    """[outputs.NAME.clickhouse]: results as rows of a ClickHouse table."""

    user: str = Field(default="default", min_length=1, description="Who writes.")
    password: Secret = Field(default=None, description="Password of user.")
    database: str = Field(default="default", min_length=1, description="The database of the table; made when missing.")
    table: Annotated[str | None, Kind("table; default: the output's name")] = Field(
        default=None, min_length=1, description="The table that gets the results, by its name without quotes; made when missing."
    )
    order_by: Annotated[tuple[str, ...], Kind("list of columns; default: topic, partition and number")] = Field(
        default=(), description="The columns by which a table that is made is sorted."
    )
    schema_evolution: SchemaEvolution = "none"

    def _conflicts(self) -> list[Conflict]:
        conflicts = super()._conflicts()
        if has_password(peek_secret(self.url) or ""):
            conflicts.append(("url", "user and password are settings of their own", "remove them from url, set user and password"))
        return conflicts
