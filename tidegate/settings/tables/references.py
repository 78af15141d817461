"""
The table [references.NAME]: reference data, files in which queries look records up.

Law: a value that exists is usable (see :mod:`tidegate.settings.tables.base`). Whether the files exist is checked when a job starts.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ordering.errors import TickRangeError
from ordering.ticks import parse_tick
from tidegate.settings.kinds import Kind
from tidegate.settings.tables.base import Contradiction, FieldType, Table
from tidegate.settings.tables.payload_formats import Delimiter


class ReferenceSettings(Table):
    """[references.NAME]: one table of reference data and its versions."""

    name: str = Field(default="", alias="__name__", exclude=True)
    path: Annotated[str | None, Kind("path; default: none")] = Field(
        default=None,
        description="File with the records; with {date} (YYYY-MM-DD, YYYY/MM/DD or YYYYMMDD) and {time} (HH, HH-mm or HH-mm-ss) in it "
        "a version for each file that is there, valid from the instant in its name on.",
    )
    effective: Annotated[dict[str, str], Kind("table of times and paths; default: none")] = Field(
        default_factory=dict, description="Instead of path: the file of each version by the instant from which on it is valid."
    )
    format: Literal["auto", "csv", "ndjson", "parquet"] = Field(
        default="auto", description="auto: by the ending of the name; csv: with a header; ndjson: a JSON object on each line."
    )
    csv_delimiter: Delimiter = Field(default=",", description="What separates the values of a CSV record.")
    fields: dict[str, FieldType] = Field(
        default_factory=dict, description="Types of fields; of others each value's own, and those of a Parquet file's columns."
    )

    @property
    def has_pattern(self) -> bool:
        """Whether new files become versions by their names; if not, the settings name each file."""
        return self.path is not None and "{date}" in self.path

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        conflicts = []
        if bool(self.path) == bool(self.effective):
            twice = ("path", "path and effective say the same thing twice", "give one of them")
            conflicts.append(twice if self.path else ("", "reference data needs path or effective", f'path = "{self.name or "table"}.csv"'))
        if self.path and "{time}" in self.path and "{date}" not in self.path:
            conflicts.append(("path", "{time} says nothing without {date}", "put {date} into the path as well"))
        for text in self.effective:
            try:
                parse_tick(text)
            except TickRangeError as error:
                conflicts.append((f"effective.{text}", error.what, error.fix))
        if conflicts:
            raise Contradiction(conflicts)
        return self
