"""
The table [functions.NAME]: a function in JavaScript that scripts call as ``udf.NAME(...)`` or ``uda.NAME(...)``.

Law: a value that exists is usable (see :mod:`tidegate.platform.settings.tables.base`). Whether the script can be run is checked when a
query that names it is read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ordering.ticks import SECOND_US
from tidegate.platform.settings.kinds import Duration, Kind, Size
from tidegate.platform.settings.tables.base import Conflict, Table

ValueType = Literal["any", "bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]


class FunctionSettings(Table):
    """[functions.NAME]: one function in JavaScript."""

    name: str = Field(default="", alias="__name__", exclude=True)
    script: Annotated[str | None, Kind("path of a .js file; default: none")] = Field(
        default=None, description="The script; its function main is called, or the one named NAME."
    )
    code: Annotated[str | None, Kind("text; default: none")] = Field(default=None, description="The script itself, instead of its path.")
    takes: Annotated[tuple[ValueType, ...] | None, Kind("list of types; default: as many as main names, of any type")] = Field(
        default=None, description="The type of each argument; a value of another type makes its row a dead letter."
    )
    gives: ValueType = Field(default="any", description="The type of the value; any: each value's own.")
    time_max_us: Duration = Field(
        default=SECOND_US,
        description="Most time of the processor that one call may take; one that takes longer makes its row a dead letter.",
    )
    memory_max: Annotated[Size, Field(ge=2**20)] = Field(default=64 * 2**20, description="Most memory that the script may use.")

    def _conflicts(self) -> list[Conflict]:
        conflicts: list[Conflict] = []
        if (self.script is None) == (self.code is None):
            twice: Conflict = ("script", "script and code say the same thing twice", "give one of them")
            conflicts.append(
                twice if self.script else ("script", "a function needs script or code", f'script = "{self.name or "name"}.js"')
            )
        if self.time_max_us < 10_000:
            conflicts.append(("time_max", "time_max is too short: calls would fail on a busy machine alone", "give 10ms or more"))
        return conflicts
