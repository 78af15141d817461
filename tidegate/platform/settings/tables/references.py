"""
The table [references.NAME]: reference data, files in which queries look records up.

Law: a value that exists is usable (see :mod:`tidegate.platform.settings.tables.base`). Whether the files exist is checked when a job
starts.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ordering.errors import TickRangeError
from ordering.ticks import MINUTE_US, SECOND_US, parse_tick
from tidegate.platform.settings.kinds import Duration, Kind, ObjectPlace
from tidegate.platform.settings.tables.base import Conflict, FieldType, Table
from tidegate.platform.settings.tables.payload_formats import Delimiter
from tidegate.platform.settings.tables.postgres_server import PostgresServer


class ReferenceQuery(PostgresServer):
    """[references.NAME.postgres]: a query from whose rows the versions are made."""

    query: str = Field(min_length=1, description="SELECT of all rows, past and future ones too.")
    valid_from: str = Field(min_length=1, description="Its column with the instant from which on a row is valid; NULL: always.")
    valid_until: Annotated[str | None, Kind("column; default: none")] = Field(
        default=None, description="Its column with the instant from which on a row is valid no more; NULL: for ever."
    )
    poll_us: Duration = Field(default=MINUTE_US, description="How often a running job asks for new versions.")

    def _conflicts(self) -> list[Conflict]:
        too_short: list[Conflict] = [("poll", "poll is too short", "give 1s or more")] if self.poll_us < SECOND_US else []
        return [*super()._conflicts(), *too_short]


class ReferenceSettings(Table):
    """[references.NAME]: one table of reference data and its versions."""

    name: str = Field(default="", alias="__name__", exclude=True)
    path: Annotated[ObjectPlace | None, Kind("path or URL; default: none")] = Field(
        default=None,
        description="File with the records, also by s3://, gs:// or abfs://; with {date} (YYYY-MM-DD, YYYY/MM/DD or YYYYMMDD) and {time} "
        "(HH, HH-mm or HH-mm-ss) in it a version for each file that is there, valid from the instant in its name on.",
    )
    effective: Annotated[dict[str, ObjectPlace], Kind("table of times and paths; default: none")] = Field(
        default_factory=dict, description="Instead of path: the file of each version by the instant from which on it is valid."
    )
    format: Literal["auto", "csv", "ndjson", "parquet"] = Field(
        default="auto",
        description="auto: by the ending of the name; csv: with a header; ndjson: JSON objects, also pretty-printed or in one array.",
    )
    csv_delimiter: Delimiter = Field(default=",", description="What separates the values of a CSV record.")
    fields: dict[str, FieldType] = Field(
        default_factory=dict,
        description="Types of fields; of others each JSON value's own, the Parquet column's, and one for a CSV column as a whole.",
    )

    # A table comes last.
    postgres: ReferenceQuery | None = Field(default=None, description="A PostgreSQL table that is asked for versions: the files of path.")

    @property
    def places(self) -> tuple[str, ...]:
        """The paths and URLs that the settings name."""
        return (*([self.path] if self.path else ()), *self.effective.values())

    @property
    def has_pattern(self) -> bool:
        """Whether new files become versions by their names; if not, the settings name each file."""
        return self.path is not None and "{date}" in self.path

    def _conflicts(self) -> list[Conflict]:
        conflicts = []
        if bool(self.path) == bool(self.effective):
            twice = ("path", "path and effective say the same thing twice", "give one of them")
            conflicts.append(twice if self.path else ("", "reference data needs path or effective", f'path = "{self.name or "table"}.csv"'))
        if self.path and "{time}" in self.path and "{date}" not in self.path:
            conflicts.append(("path", "{time} says nothing without {date}", "put {date} into the path as well"))
        if self.postgres is not None and ("{date}" not in (self.path or "") or "{time}" not in (self.path or "")):
            example = f'path = "reference/{self.name or "table"}-{{date}}T{{time}}.ndjson"'
            conflicts.append(("path", "each version of postgres is a file with the instant in its name", example))
        elif self.postgres is not None and "://" in str(self.path):
            conflicts.append(("path", "versions of postgres are written into a folder", "give a path instead of a URL"))
        elif self.postgres is not None and not (self.format == "ndjson" or str(self.path).endswith((".ndjson", ".jsonl", ".json"))):
            conflicts.append(("path", "versions of postgres are written as JSON objects line by line", "let path end in .ndjson"))
        for text in self.effective:
            try:
                parse_tick(text)
            except TickRangeError as error:
                conflicts.append((f"effective.{text}", error.what, error.fix))
        return conflicts
