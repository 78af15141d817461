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
from tidegate.platform.settings.kinds import Duration, Kind, ObjectPlace, Properties
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


class ReferenceLake(Table):
    """A table of files whose newest version is read again and again."""

    poll_us: Duration = Field(default=MINUTE_US, description="How often a running job asks for a new version.")

    def _conflicts(self) -> list[Conflict]:
        return [("poll", "poll is too short", "give 1s or more")] if self.poll_us < SECOND_US else []


class ReferenceDelta(ReferenceLake):
    """[references.NAME.delta]: a Delta Lake table whose versions are found."""

    path: Annotated[str, Kind("folder or URL")] = Field(min_length=1, description="Where the table is, such as s3://lake/airports.")
    # A table comes last.
    storage_options: Properties = Field(
        default_factory=dict,
        description="Options of the object store by their names in delta-rs, such as AWS_ENDPOINT_URL; secrets as file:PATH or env:NAME.",
    )


class ReferenceIceberg(ReferenceLake):
    """[references.NAME.iceberg]: an Iceberg table whose snapshots are found."""

    table: Annotated[str, Kind("namespace.table")] = Field(pattern=r"^[^.\s]+(\.[^.\s]+)+$", description="The table.")
    catalog_name: str = Field(default="default", min_length=1, description="Name of the catalog; an SQL catalog keeps tables under it.")
    # A table comes last.
    catalog: Properties = Field(
        default_factory=dict,
        description="The catalog and its object store, by the names of pyiceberg: type, uri, warehouse, s3.endpoint; secrets as "
        "file:PATH or env:NAME.",
    )


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

    # Tables come last.
    postgres: ReferenceQuery | None = Field(default=None, description="A PostgreSQL table that is asked for versions: the files of path.")
    delta: ReferenceDelta | None = Field(default=None, description="A Delta Lake table that is asked for versions: the files of path.")
    iceberg: ReferenceIceberg | None = Field(default=None, description="An Iceberg table that is asked for versions: the files of path.")

    @property
    def places(self) -> tuple[str, ...]:
        """The paths and URLs that the settings name."""
        return (*([self.path] if self.path else ()), *self.effective.values())

    @property
    def has_pattern(self) -> bool:
        """Whether new files become versions by their names; if not, the settings name each file."""
        return self.path is not None and "{date}" in self.path

    @property
    def polled(self) -> ReferenceQuery | ReferenceLake | None:
        """What is asked for versions; None: files come from elsewhere."""
        return self.postgres or self.delta or self.iceberg

    def _conflicts(self) -> list[Conflict]:
        conflicts: list[Conflict] = []
        if bool(self.path) == bool(self.effective):
            twice = ("path", "path and effective say the same thing twice", "give one of them")
            conflicts.append(twice if self.path else ("", "reference data needs path or effective", f'path = "{self.name or "table"}.csv"'))
        if self.path and "{time}" in self.path and "{date}" not in self.path:
            conflicts.append(("path", "{time} says nothing without {date}", "put {date} into the path as well"))
        conflicts += self._poll_conflicts()
        for text in self.effective:
            try:
                parse_tick(text)
            except TickRangeError as error:
                conflicts.append((f"effective.{text}", error.what, error.fix))
        return conflicts

    def _poll_conflicts(self) -> list[Conflict]:
        asked = [kind for kind in ("postgres", "delta", "iceberg") if getattr(self, kind) is not None]
        if len(asked) > 1:
            return [(asked[1], f"{asked[0]} and {asked[1]} say where versions come from twice", "give one of them")]
        path, endings = str(self.path), (".parquet",) if asked and asked[0] != "postgres" else (".ndjson", ".jsonl", ".json")
        if not asked:
            return []
        if "{date}" not in path or "{time}" not in path:
            example = f'path = "reference/{self.name or "table"}-{{date}}T{{time}}{endings[0]}"'
            return [("path", f"each version of {asked[0]} is a file with the instant in its name", example)]
        if "://" in path:
            return [("path", f"versions of {asked[0]} are written into a folder", "give a path instead of a URL")]
        if not (self.format == endings[0][1:] or path.endswith(endings)):
            form = "JSON objects line by line" if asked[0] == "postgres" else "Parquet"
            return [("path", f"versions of {asked[0]} are written as {form}", f"let path end in {endings[0]}")]
        return []
