"""
Results as files: one NDJSON or Parquet file for each sheet, named by its span and partition.

Law: a file appears whole or not at all (:mod:`sinks.file_places`), and its bytes depend on the query and its sheet's rows alone
(for Parquet also on the pyarrow version, which writes its own name into each file). Names sort by time:
``2001-01-01T00-00-00Z.p00003.ndjson``. Files whose names begin with a dot are unfinished; readers skip them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from ordering.columns.payload_columns import BYTES_MAX
from ordering.ticks import MILLISECOND_US, SECOND_US, format_tick
from sinks.base import SheetRows, SinkError
from sinks.file_places import open_place
from tidegate.records.result_columns import Column, are_known, make_table

# Columns of a Parquet file whose columns the query does not fix: the value stays JSON text, because a type is never guessed from rows.
_RAW_TYPES = {"system_timestamp": pa.timestamp("us", tz="UTC"), "key": pa.binary(), "value": pa.string()}
RAW_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _RAW_TYPES.items()])

_ROW_GROUP_ROWS = 1 << 20


class FileSink:
    """
    The :class:`~sinks.base.Sink` that writes files into one folder, made when missing, or below one prefix of an object store.

    Args:
        place: Folder or URL of the files (:mod:`sinks.file_places`); only one query writes there.
        file_format: ``ndjson``, ``parquet``, or ``parquet_json``: Parquet with the columns :data:`RAW_SCHEMA` instead of the query's.
        span_us: Length of a span, microseconds. Another length gives other file names: use a new folder for it.
        columns: Name and type of each column of the query (:mod:`tidegate.records.result_columns`).
        by_date: Whether the files of each day of UTC are in a folder of their own, ``date=2001-01-01``.
    """

    def __init__(self, place: Path | str, file_format: str, span_us: int, columns: Sequence[Column] = (), *, by_date: bool = False) -> None:
        assert file_format in ("ndjson", "parquet", "parquet_json"), "settings allow no other format"
        assert span_us > 0, "a span has a length"
        self.place, self._span_us, self._by_date = open_place(str(place)), span_us, by_date
        self._ending = "ndjson" if file_format == "ndjson" else "parquet"
        self._columns = columns if file_format == "parquet" and are_known(columns) else ()

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """
        See :meth:`sinks.base.Sink.publish`.
        The SinkError is TG-SINK-FILE if the place cannot be written, TG-SINK-TYPE if a value has not the type of its column.
        """
        if rows:
            self.place.write(self.name(span_start_us, partition), self.content(span_start_us, partition, rows))

    def content(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> bytes:
        """Return the bytes of a sheet's file; SinkError (TG-SINK-TYPE) if a value has not the type of its column."""
        sheet = SheetRows.of(rows)
        sheet.check_span(span_start_us, self._span_us)
        return self._parquet(sheet, self.name(span_start_us, partition)) if self._ending == "parquet" else _ndjson(sheet)

    def name(self, span_start_us: int, partition: int) -> str:
        """Return the name of the file of the sheet of *partition* and the span that starts at *span_start_us*, microseconds."""
        time = self._file_time(span_start_us)
        folder = f"date={time.partition('T')[0]}/" if self._by_date else ""
        return f"{folder}{time}.p{partition:05d}.{self._ending}"

    def _file_time(self, tick: int) -> str:
        """Write a time for a file name; the number of digits depends on the span length alone, so that names sort by time."""
        seconds = format_tick(tick - tick % SECOND_US).removesuffix("Z").replace(":", "-")
        digits = 0 if self._span_us % SECOND_US == 0 else 3 if self._span_us % MILLISECOND_US == 0 else 6
        return seconds + (f".{tick % SECOND_US:06d}"[: digits + 1] if digits else "") + "Z"

    def _parquet(self, sheet: SheetRows, name: str) -> bytes:
        table = _typed_table(sheet, self._columns, self.place.where(name)) if self._columns else _raw_table(sheet)
        out = io.BytesIO()
        # Every option that a later pyarrow could choose differently is given.
        pages = {"data_page_version": "1.0", "data_page_size": 1 << 20, "use_dictionary": True, "dictionary_pagesize_limit": 1 << 20}
        footer = {"version": "2.6", "write_statistics": True, "store_schema": True}
        compression = {"compression": "zstd", "compression_level": 3}
        pa.parquet.write_table(table, out, row_group_size=_ROW_GROUP_ROWS, **pages, **compression, **footer)
        return out.getvalue()


def _ndjson(sheet: SheetRows) -> bytes:
    return b"".join(_lines(values.cast(pa.large_binary())) for values in sheet.table["value"].chunks if len(values))


def _lines(values: pa.LargeBinaryArray) -> memoryview:
    # In JSON a line break can only be white space between tokens: inside of text it is written as \n.
    for line_break in (b"\n", b"\r"):
        if pc.any(pc.match_substring(values, line_break)).as_py():
            values = pc.replace_substring(values, line_break, b" ")
    newline, nothing = (pa.scalar(encoded, values.type) for encoded in (b"\n", b""))
    return memoryview(pc.binary_join_element_wise(values, newline, nothing).buffers()[2])


def _raw_table(sheet: SheetRows) -> pa.Table:
    columns = [sheet.table["system_us"].combine_chunks(), *(_cut_by_bytes(sheet.table[name]) for name in ("key", "value"))]
    return pa.table([column.cast(field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def _typed_table(sheet: SheetRows, columns: Sequence[Column], where: str) -> pa.Table:
    # The columns are read out of the JSON, compiled: 0.13 CPU us a result. If the query kept its columns beside the JSON until the span has
    # ended, what waits would be 40 % larger, in memory and in each save (docs/reference/costs.md).
    try:
        return make_table(_cut_by_bytes(sheet.table["value"]), columns)
    except (pa.ArrowException, ValueError) as error:
        fix = "cast the column in the query, or write ndjson or parquet_json, which have no columns of the query"
        raise SinkError(f"a result does not fit the query's columns: {error}", code="TG-SINK-TYPE", where=where, fix=fix) from error


def _cut_by_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in chunks that depend on its values alone, as the bytes of a Parquet file do on chunks: nearly always in one."""
    part_of = np.cumsum(pc.binary_length(column).to_numpy().astype(np.int64)) // (BYTES_MAX // 2)
    edges = [0, *(np.flatnonzero(np.diff(part_of)) + 1).tolist(), len(column)]
    return pa.chunked_array([column.slice(low, high - low).combine_chunks() for low, high in pairwise(edges)], column.type)
