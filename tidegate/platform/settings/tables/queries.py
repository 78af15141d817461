"""The table [queries.NAME]: a query that ``tidegate run`` runs, and that other commands know by its name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.platform.settings.kinds import Kind
from tidegate.platform.settings.tables.base import Table


class ListedQuery(Table):
    """[queries.NAME]: one query by its name."""

    name: str = Field(default="", alias="__name__", exclude=True)
    script: Annotated[str, Kind("path of a .sql file, or the name of an installed query")] = Field(min_length=1, description="The script.")
    into: Annotated[str | None, Kind("name of an output; default: none")] = Field(
        default=None, description="Which [outputs.NAME] takes the results; may also stand in the script as INTO NAME."
    )
    start: Annotated[str | None, Kind("now, time, last-stopped or earliest; default: none")] = Field(
        default=None, description="Results from here on, as --start of tidegate query; default: go on, or all."
    )
