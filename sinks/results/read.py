"""
Published results in Python: ``tidegate.read("rides").to_pandas()``.

Law: each result is there once, whatever was written twice, and in one order. Reading changes nothing, joins no consumer group and starts
neither Spark nor Java.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ordering.errors import SettingError, UnreachableError
from ordering.ticks import INFINITY
from sinks.files import RAW_SCHEMA
from sinks.results.columns import ResultColumns, find_columns, make_result_table
from sinks.results.file_rows import check_spans, iterate_files, list_files, raw_rows, read_parquet, read_values
from sinks.stores.base import Rows
from tidegate.platform.checkpoint.output_start import parse_time_flag
from tidegate.platform.settings.load import Settings, load
from tidegate.platform.settings.tables.outputs import OutputSettings

if TYPE_CHECKING:
    import pandas

    from tidegate.platform.kafka.admin import Admin, Topic

TOPIC, FILES = "topic", "files"
# Rows that a notebook shows of results.
_SHOWN_ROWS = 20
_POLL_S = 0.5
Time = str | datetime


def read(
    output: str,
    *,
    since: Time | None = None,
    until: Time | None = None,
    source: str | None = None,
    follow: bool = False,
    with_time: str | None = None,
    columns: Mapping[str, str] | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Results:
    """
    Return the published results of an output. Nothing is read before they are asked for.

    Args:
        output: The name of an output of the configuration; or of a result topic, or any ordered topic.
        since, until: Only results with since <= System.Timestamp < until: ISO-8601 text, or a datetime (UTC if it has no zone).
        source: ``topic`` (default, if the output has one), ``files``, or the store whose table is read, such as ``postgres``.
        follow: Whether iterating goes on with the results that come, until the topic has ended or *until* is passed.
        with_time: A name for a further, first column with the System.Timestamp of each result; of a topic only.
        columns: Name and type of each column, as in ``outputs.NAME.columns``; default: those of the output's settings or query.
        config: The configuration file, from whose folder its paths begin; default: ``tidegate.toml`` here.
        settings: Settings that count more, by dotted key: ``{"kafka.bootstrap": "host:9092"}``.

    Raises:
        SettingError: The configuration, or an argument, is wrong.
    """
    path = None if config is None else Path(config)
    loaded = load(path, settings)
    named = loaded.outputs.get(output) or next((table for table in loaded.outputs.values() if table.topic == output), None)
    folder = Path() if path is None else path.parent
    request = ReadRequest(loaded, named, output, folder, _as_tick(since, "since"), _as_tick(until, "until"), follow, with_time, columns)
    return Results(request, source)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """
    What is to be read: the arguments of :func:`read`. *output* is None if *name* is that of a topic which the configuration does not have;
    *folder* is where the configuration's paths begin.
    """

    settings: Settings
    output: OutputSettings | None
    name: str
    folder: Path
    since_us: int | None
    until_us: int | None
    follow: bool
    with_time: str | None
    columns: Mapping[str, str] | None


class Results:
    """
    Published results, from :func:`read`. :meth:`to_arrow` and :meth:`to_pandas` give all of them; iterating gives Arrow tables piece by
    piece, and goes on if they are followed. What takes Arrow (DuckDB, Polars, pandas) takes this too.
    """

    def __init__(self, request: ReadRequest, source: str | None) -> None:
        self._request, self._stopped = request, threading.Event()
        self.name, self.source = request.name, _choose_source(request, source)
        if request.follow and self.source not in (TOPIC, FILES):
            what, fix = "rows of a table have no numbers by which new ones could be recognized", "follow the topic that feeds it"
            raise SettingError(what, code="TG-READ-SOURCE", where="follow", fix=fix, example='source="topic"')
        if request.with_time is not None and self.source != TOPIC:
            what, fix = f"{self.source} does not have the System.Timestamp of each result", "leave with_time out, or read the topic"
            raise SettingError(what, code="TG-READ-TIME", where="with_time", fix=fix)

    def to_arrow(self) -> pa.Table:
        """Return all results that are there. Raises SettingError: they are followed without an end."""
        if self._request.follow and (self._request.until_us is None or self.source == FILES):
            what, fix = "results that are followed have no end", "iterate over them, leave follow out, or give until for a topic"
            example = 'for table in tidegate.read("rides", follow=True):'
            raise SettingError(what, code="TG-READ-SOURCE", where="follow", fix=fix, example=example)
        return self._concat(list(self._read(whole=True)))

    def to_pandas(self) -> pandas.DataFrame:
        """Return all results that are there as a DataFrame."""
        return self.to_arrow().to_pandas()

    def head(self, rows: int = _SHOWN_ROWS) -> pa.Table:
        """Return the first results."""
        if not self.columns.are_known:
            return self.to_arrow().slice(0, rows)
        tables: list[pa.Table] = []
        for table in self._read(whole=False, follow=False):
            tables.append(table)
            if sum(map(len, tables)) >= rows:
                break
        return self._concat(tables).slice(0, rows)

    def stop(self) -> None:
        """End the iteration of another thread that follows; it gives what it has and ends within a second."""
        self._stopped.set()

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the results in pieces. Raises SettingError (TG-READ-TYPES): they are followed, and nothing declares their columns."""
        if self._request.follow and not self.columns.are_known:
            what = f"nothing says which columns the results of {self.name} have, and those to come may have others"
            fix = f'name the query as outputs.{self.name}.query, or give columns={{"car": "nvarchar(max)"}}'
            raise SettingError(what, code="TG-READ-TYPES", where=self.name, fix=fix)
        yield from self._read(whole=not self.columns.are_known)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<results of {self.name}, from its {self.source}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the first rows."""
        shown = self.head()
        more = "" if len(shown) < _SHOWN_ROWS else f"<p>the first {_SHOWN_ROWS} results of {self.name}</p>"
        return f"{shown.to_pandas().to_html(index=False)}{more}"

    @cached_property
    def columns(self) -> ResultColumns:
        """The columns of the results, as far as they are declared."""
        request = self._request
        return find_columns(request.settings, request.output, request.folder, self._find_topic, request.columns)

    def _find_topic(self) -> Topic | None:
        """Return the output's topic; None if it has none, or if the brokers do not answer."""
        output = self._request.output
        with suppress(UnreachableError):
            return self._admin.find(output.topic) if output is not None and output.topic else None
        return None

    @cached_property
    def _admin(self) -> Admin:
        from tidegate.platform.kafka.admin import Admin

        return Admin.connect(self._request.settings.kafka)

    def _read(self, *, whole: bool, follow: bool | None = None) -> Iterator[pa.Table]:
        """Yield the results; *whole*: in one piece, as it must be if their columns follow from all of them."""
        follows = self._request.follow if follow is None else follow
        if self.source == TOPIC:
            yield from self._read_topic(whole=whole, follow=follows)
        elif self.source == FILES:
            yield from self._read_files(whole=whole, follow=follows)
        else:
            yield self._read_store()

    def _read_topic(self, *, whole: bool, follow: bool) -> Iterator[pa.Table]:
        from sinks.results.topic_rows import read_topic

        name = self._request.output.topic if self._request.output is not None and self._request.output.topic else self.name
        topic = self._admin.require(name, "tidegate topic list names those that are there; a query makes its topic when it starts")
        kafka = self._request.settings.kafka.client_properties()
        pieces = read_topic(
            self._admin, kafka, topic, self._request.since_us, self._request.until_us, follow=follow, is_stopped=self._stopped.is_set
        )
        for some in [list(pieces)] if whole else ([piece] for piece in pieces):
            yield self._as_table(some, topic.name)

    def _as_table(self, pieces: list[Rows], where: str) -> pa.Table:
        table = make_result_table(pieces, self.columns.columns, where)
        if self._request.with_time is None:
            return table
        times = pa.array(Rows.concat(pieces).system_us if pieces else [], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        return table.add_column(0, self._request.with_time, times)

    def _read_files(self, *, whole: bool, follow: bool) -> Iterator[pa.Table]:
        from sinks.file_places import open_place

        output = self._request.output
        assert output is not None, "files are those of an output"
        assert output.files is not None, "the source was chosen among what the output has"
        has_times = output.file_format == "parquet_json" or self.columns.time_column is not None
        check_spans(output, self._request.since_us, self._request.until_us, has_times=has_times)
        place = open_place(output.files)
        seen, found = set[str](), list[Rows | pa.Table]()
        while True:
            names = list_files(place, output.file_span_us, self._request.since_us, self._request.until_us, seen)
            seen.update(names)
            for name, content in iterate_files(place, names):
                found.append(self._read_file(output, content))
                if not whole:
                    yield self._as_file_table([found.pop()], place.where(name))
            if not follow or self._stopped.wait(_POLL_S):
                break
        if whole:
            yield self._as_file_table(found, output.files)

    def _read_file(self, output: OutputSettings, content: bytes) -> Rows | pa.Table:
        """Return the results of a file, as a table if the file has the columns of the query."""
        if output.file_format == "ndjson":
            return read_values(content)
        table = read_parquet(content)
        # A query whose columns are not known makes files of the other kind.
        if output.file_format == "parquet" and table.schema.names != RAW_SCHEMA.names:
            return table
        rows = raw_rows(table)
        first_us, end_us = self._request.since_us or 0, self._request.until_us
        return rows.select((rows.system_us >= first_us) & (rows.system_us < (INFINITY if end_us is None else end_us)))

    def _as_file_table(self, found: list[Rows | pa.Table], where: str) -> pa.Table:
        rows = [each for each in found if isinstance(each, Rows)]
        tables = [each for each in found if isinstance(each, pa.Table)]
        if rows or not tables:
            tables.append(make_result_table(rows, self.columns.columns, where))
        return self._between(self._concat(tables))

    def _read_store(self) -> pa.Table:
        from sinks.results.table_rows import read_table

        output = self._request.output
        assert output is not None, "a table is that of an output"
        known = self.columns
        if not known.are_known:
            what = f"nothing says which columns the results of {output.name} have"
            fix = f"name the query as outputs.{output.name}.query, or give columns"
            raise SettingError(what, code="TG-READ-TYPES", where=f"outputs.{output.name}", fix=fix)
        if (self._request.since_us, self._request.until_us) != (None, None) and known.time_column is None:
            what = "no column of the table is the results' System.Timestamp"
            fix = "select System.Timestamp() in the query, or read the topic"
            raise SettingError(what, code="TG-READ-TIME", where="since, until", fix=fix)
        topic = self._admin.require(str(output.topic), "the query makes it when it starts")
        table = self._between(read_table(self._request.settings, output, self.source, topic, known.columns))
        keys = [known.time_column] if known.time_column in table.column_names else []
        keys += [name for name in table.column_names if name not in keys]
        return table.sort_by([(name, "ascending") for name in keys])

    def _concat(self, tables: list[pa.Table]) -> pa.Table:
        if not tables:
            return make_result_table([], self.columns.columns, self.name)
        return pa.concat_tables(tables, promote_options="permissive")

    def _between(self, table: pa.Table) -> pa.Table:
        """Return the rows between the two instants by the column that has their time; all if none has."""
        column = self.columns.time_column
        if column is None or column not in table.column_names or not pa.types.is_timestamp(table[column].type):
            return table
        for tick, compare in ((self._request.since_us, pc.greater_equal), (self._request.until_us, pc.less)):
            if tick is not None:
                table = table.filter(compare(table[column], pa.scalar(tick, pa.int64()).cast(table[column].type)))
        return table


def _choose_source(request: ReadRequest, source: str | None) -> str:
    """Return where the results are read from. Raises SettingError: they are not in the *source* that is asked for, or nowhere."""
    output = request.output
    if output is None:
        if source in (None, TOPIC):
            return TOPIC
        return request.settings.output(request.name).name
    known = [*([TOPIC] if output.topic else []), *([FILES] if output.files else []), *output.stores]
    if source in known or (source is None and known):
        return source or known[0]
    what = f"the results of {output.name} are in no {source or 'place that can be read'}"
    fix = f"choose {' or '.join(known)}" if known else "give the output a topic or files"
    raise SettingError(what, code="TG-READ-SOURCE", where="source", fix=fix)


def _as_tick(time: Time | None, name: str) -> int | None:
    if isinstance(time, datetime):
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
    return parse_time_flag(time, name)
