"""The table [outputs.NAME]: where the results of a query go, and how often it reads its input's CTIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import ConfigDict, Field, PlainValidator, model_validator

from ordering.errors import TidegateError
from ordering.policies import Cadence
from ordering.ticks import HOUR_US, MILLISECOND_US, MINUTE_US
from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX
from tidegate.platform.settings.kinds import Duration, DurationOrForever, FilesPlace, Kind, Topic
from tidegate.platform.settings.tables.base import Conflict, Copies, Count, FieldType, LetterSize, Partitions, Table
from tidegate.platform.settings.tables.stores.base import StoreSettings
from tidegate.platform.settings.tables.stores.clickhouse import ClickHouseSettings
from tidegate.platform.settings.tables.stores.delta import DeltaSettings
from tidegate.platform.settings.tables.stores.http import HttpSettings
from tidegate.platform.settings.tables.stores.iceberg import IcebergSettings
from tidegate.platform.settings.tables.stores.installed import find_offered, find_store_table, validate_offered
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings

if TYPE_CHECKING:  # numpy comes with the wire format: settings are read without it
    from ordering.protocol.frontier import Pace


def _is_store(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, StoreSettings)


class OutputSettings(Table):
    """[outputs.NAME]: where results go: an ordered result topic and the stores that it feeds, files, or both."""

    # The tables of stores that installed packages bring.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Any, PlainValidator(validate_offered)]]

    name: str = Field(default="", alias="__name__", exclude=True)
    topic: Annotated[Topic | None, Kind("topic name; default: the output's name if it has a store, else none")] = Field(
        default=None, description="Ordered result topic, by way of which stores get the results too; made when missing."
    )
    partitions: Annotated[Partitions | None, Kind("count; default: as many as the ordered topic read")] = Field(
        default=None, description="Partitions of the result topic; fixed once it is made."
    )
    replication_factor: Copies = Field(default=1, description="Copies of each partition of topics that are made.")
    retention_us: DurationOrForever = Field(
        default=None, description="How long the result topic keeps results, measured by System.Timestamp."
    )
    dead_letter_retention_us: DurationOrForever = Field(
        default=None,
        description="How long the dead-letter topic keeps its records, if it is made. Of several outputs of a script the first decides.",
    )
    dead_letter_bytes_max: LetterSize = Field(
        default=LETTER_BYTES_MAX,
        description="Largest dead letter; a larger one is cut, and its headers say how large it was. The topic's limit if it is made.",
    )
    files: Annotated[FilesPlace | None, Kind("folder or URL; default: none")] = Field(
        default=None,
        description="Where result files go: a folder, made when missing; s3://, gs:// or abfs:// with bucket and prefix; webhdfs://.",
    )
    file_format: Literal["ndjson", "parquet", "parquet_json"] = Field(
        default="ndjson",
        description="Format of the files; parquet: with the query's columns and types; parquet_json: each result as JSON in one column.",
    )
    file_folders: Literal["none", "date"] = Field(
        default="none", description="date: the files of each day (UTC) in a folder of their own, date=2001-01-01; none: all in one."
    )
    file_span_us: Annotated[Duration, Kind("duration; 1h for Parquet files alone")] = Field(
        default=MINUTE_US,
        description="System.Timestamp span one file, or one transaction of plain_topic, covers; it appears once it is final.",
    )
    plain_topic: Annotated[Topic | None, Kind("topic name; default: none")] = Field(
        default=None,
        description="Topic for consumers who know nothing of Tidegate: results alone, a transaction for each span; made when missing.",
    )
    sink: Annotated[str | None, Kind("name; default: none")] = Field(
        default=None, description="A further destination: console, or the name of a sink from an installed package."
    )
    sink_options: dict[str, str] = Field(default_factory=dict, description="Options of that destination.")
    query: Annotated[str | None, Kind("path of a .sql file; default: none")] = Field(
        default=None,
        description="The script that writes this output, for the columns of tidegate sink, and for tidegate verify.",
    )
    sink_in_job: Annotated[bool, Kind("true | false; default: true if there is a store and no topic is named, else false")] = Field(
        default=False, description="Whether tidegate query copies the results into the stores itself, or leaves it to tidegate sink."
    )
    columns: Annotated[dict[str, FieldType], Kind("table of types; default: those of query")] = Field(
        default_factory=dict, description="Instead of query: the type of each column."
    )
    cti_every_events: Annotated[Count | None, Kind("count; default: each CTI of the input")] = Field(
        default=None, description="The query acts on a channel's CTI only after so many of its events, whatever the settings of the input."
    )
    cti_every_us: Annotated[Duration | None, Kind("duration; default: each CTI of the input")] = Field(
        default=None, description="The query acts on a channel's CTI only when it enters another span of this length, counted from 1970."
    )
    cti_delay_us: Duration = Field(default=0, description="How far the query's progress stays behind the CTIs of its input.")
    # Tables come last, so that docs/reference/settings.md has the settings of an output together.
    http: HttpSettings | None = Field(default=None, description="An HTTP receiver that gets the results of the topic, as signed webhooks.")
    postgres: PostgresSettings | None = Field(default=None, description="A PostgreSQL table that gets the results of the topic.")
    clickhouse: ClickHouseSettings | None = Field(default=None, description="A ClickHouse table that gets the results of the topic.")
    delta: DeltaSettings | None = Field(default=None, description="A Delta Lake table that gets the results of the topic.")
    iceberg: IcebergSettings | None = Field(default=None, description="An Iceberg table that gets the results of the topic.")
    redis: RedisStoreSettings | None = Field(default=None, description="A Redis or Valkey that gets the results of the topic.")

    @model_validator(mode="before")
    @classmethod
    def _find_stores(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = {info.alias or name for name, info in cls.model_fields.items()}
        found = dict(find_offered(data, known))
        stores = (set(found) - known) | cls._own_stores()
        if found.get("topic") is None and any(found.get(key) is not None for key in stores):
            # Resolved here, so that such an output does not differ from one that names its topic.
            found = {"sink_in_job": True, **found, "topic": found.get("__name__", "results")}
        return found

    @model_validator(mode="after")
    def _choose_span(self) -> Self:
        is_parquet = self.files is not None and self.file_format != "ndjson" and self.plain_topic is None and self.sink is None
        if is_parquet and "file_span_us" not in self.model_fields_set:
            # A file has its columns' description and statistics: a day of minutes is several times as large as a day of hours, and is read
            # dozens of times as slowly.
            object.__setattr__(self, "file_span_us", HOUR_US)
        return self

    @classmethod
    def _own_stores(cls) -> set[str]:
        return {name for name, info in cls.model_fields.items() if any(map(_is_store, get_args(info.annotation)))}

    @classmethod
    def table_of_package(cls, key: str) -> type[Table] | None:
        """See :meth:`Table.table_of_package`."""
        return find_store_table(key)

    def _conflicts(self) -> list[Conflict]:
        conflicts = []
        if self.topic is None and not self.writes_sheets:
            name = self.name or "results"
            fix = f'add topic = "{name}", files = "out/{name}" or a store such as [outputs.{name}.postgres]'
            conflicts.append(("", "an output needs a topic, files, a store or a sink", fix))
        if self.topic is None and self.partitions is not None:
            conflicts.append(("partitions", "partitions means nothing without topic", "set topic, or remove partitions"))
        if self.sink in self._own_stores():
            conflicts.append(("sink", f"{self.sink} is a store", f"write it as a table: [outputs.{self.name}.{self.sink}]"))
        if self.sink_in_job and not self.stores:
            conflicts.append(("sink_in_job", "there is no store to copy the results into", "add one, such as [outputs.NAME.postgres]"))
        if self.query is not None and self.columns:
            conflicts.append(("columns", "query and columns say the same thing twice", "give one of them"))
        if self.file_span_us < MILLISECOND_US:
            conflicts.append(("file_span", "file_span is too short", "give 1ms or more"))
        return [*conflicts, *self._pace_conflicts()]

    def _pace_conflicts(self) -> list[Conflict]:
        try:
            # What a pace is checked by: the pace itself would import numpy.
            Cadence(*self._pace_fields())
        except TidegateError as error:
            return [(error.where, error.what, error.fix)]
        return []

    @property
    def dead_letter_topic(self) -> str:
        """Where dead letters go: those of the query whose first output this is, and the results that its stores refuse."""
        return f"{self.topic or self.name}.dead"

    @property
    def writes_sheets(self) -> bool:
        """Whether any destination gets results span by span."""
        return not (self.files is None and self.plain_topic is None and self.sink is None)

    @property
    def stores(self) -> Mapping[str, StoreSettings]:
        """The stores of this output, by the names of their tables."""
        tables = {**{name: getattr(self, name) for name in type(self).model_fields}, **(self.model_extra or {})}
        return {name: table for name, table in tables.items() if isinstance(table, StoreSettings)}

    def columns_of(self, selected: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return name and type of each column of the results: those of the settings, else those *selected* by the script."""
        return tuple(self.columns.items()) or selected

    def pace(self) -> Pace:
        """Return the pace of CTIs for the query that writes this output."""
        from ordering.protocol.frontier import Pace

        return Pace(*self._pace_fields())

    def _pace_fields(self) -> tuple[int | None, int | None, int]:
        return self.cti_every_events, self.cti_every_us, self.cti_delay_us
