"""
Sinks: destinations of final results, one *span* at a time.

A span is a fixed stretch ``[start, start + length)`` of System.Timestamp, aligned to the Unix epoch. The results of one span and partition
are a *sheet*, the unit that is published. The job publishes a sheet once its watermark has passed the span's end, so all rows are known.
After a crash it publishes again every sheet that it cannot prove published.

Law, the idempotence contract of every sink: *after any number of calls of* ``publish`` *for a sheet with the same rows, also from
several processes, also interrupted by a crash and repeated, a reader sees these rows once, with the same bytes each time, and never a part
of a sheet.* A sink needs no memory of earlier calls. Spans are fixed: if a span ended where a batch or CTI ended, it would have another
name after a restart, and the first sheet would stay as a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.errors import TidegateError

SHEET_SCHEMA = pa.schema([("system_us", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


class Row(NamedTuple):
    """One result: System.Timestamp in microseconds, key bytes (empty without a key), and one JSON object in UTF-8."""

    system_us: int
    key: bytes
    value: bytes


class SheetRows(Sequence[Row]):
    """
    The rows of a sheet, by System.Timestamp, then key, then in their fixed order: every sink writes them in this order.

    ``table`` has them as columns (``SHEET_SCHEMA``); a row of the sequence is made when it is asked for.

    >>> rows = SheetRows.of([(2, b"b", b'{"n":2}'), (1, b"a", b'{"n":1}')])
    >>> rows[0], rows.table["value"].to_pylist()
    (Row(system_us=1, key=b'a', value=b'{"n":1}'), [b'{"n":1}', b'{"n":2}'])
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def of(cls, rows: Sequence[tuple[int, bytes, bytes]]) -> SheetRows:
        """Return rows in the order of a sheet; rows with equal time and key stay in theirs."""
        if isinstance(rows, cls):
            return rows
        ordered = sorted(rows, key=lambda row: row[:2])
        columns = [list(column) for column in zip(*ordered, strict=True)] or [[], [], []]
        return cls(pa.table(columns, schema=SHEET_SCHEMA))

    def check_span(self, span_start_us: int, span_us: int) -> None:
        """Assert that the rows lie in one of the fixed spans, of *span_us* microseconds."""
        assert span_start_us % span_us == 0, "a sheet's span must be one of the fixed spans"
        bounds = pc.min_max(self.table["system_us"]).as_py()
        assert not len(self) or span_start_us <= bounds["min"] <= bounds["max"] < span_start_us + span_us, "a row lies outside its span"

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        return map(Row, *(self.table[name].to_pylist() for name in SHEET_SCHEMA.names))

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        if isinstance(place, slice):
            return SheetRows(self.table.take(np.arange(len(self))[place]))
        return Row(*(self.table[name][place].as_py() for name in SHEET_SCHEMA.names))


class Sink(Protocol):
    """One destination. It is made in the process that writes results, so it need not be serializable."""

    def publish(self, span_start_us: int, partition: int, rows: SheetRows) -> None:
        """
        Make a sheet visible as a whole, in place of an earlier call's; without rows nothing becomes visible.

        Args:
            span_start_us: Inclusive start of the span, microseconds, a multiple of its length.
            partition: The ordered partition or bucket of the rows.
            rows: The sheet, all of it within the span: a sequence of :class:`Row`, and the same as columns in ``rows.table``.

        Raises:
            SinkError: The destination does not accept the rows. The call may be repeated.
        """


class SinkError(TidegateError):
    """A destination did not accept results; publishing the same sheet again is safe."""

    exit_code = 4
    default_code = "TG-SINK"


def sort_rows(rows: Iterable[tuple[int, bytes, bytes]], span_start_us: int, span_us: int) -> list[Row]:
    """
    Return *rows* as a list, sorted by (System.Timestamp, key), equal ones in the given order. For rows that are not a :class:`SheetRows`.
    """
    ordered = sorted((Row(*row) for row in rows), key=lambda row: (row.system_us, row.key))
    assert span_start_us % span_us == 0, "a sheet's span must be one of the fixed spans"
    assert not ordered or span_start_us <= ordered[0].system_us <= ordered[-1].system_us < span_start_us + span_us, (
        "a row lies outside its span"
    )
    return ordered
