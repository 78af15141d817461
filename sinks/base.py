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

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ordering.errors import TidegateError


class Row(NamedTuple):
    """One result: System.Timestamp in microseconds, key bytes (empty without a key), and one JSON object in UTF-8."""

    system_us: int
    key: bytes
    value: bytes


class Sink(Protocol):
    """One destination. It is made in the process that writes results, so it need not be serializable."""

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """
        Make a sheet visible as a whole, in place of an earlier call's; without rows nothing becomes visible.

        Args:
            span_start_us: Inclusive start of the span, microseconds, a multiple of its length.
            partition: The ordered partition or bucket of the rows.
            rows: (System.Timestamp in microseconds, key, JSON value), all within the span; rows with equal time and key are in their fixed
                order.

        Raises:
            SinkError: The destination does not accept the rows. The call may be repeated.
        """


class SinkError(TidegateError):
    """A destination did not accept results; publishing the same sheet again is safe."""

    exit_code = 4
    default_code = "TG-SINK"


def sort_rows(rows: Iterable[tuple[int, bytes, bytes]], span_start_us: int, span_us: int) -> list[Row]:
    """Return *rows* sorted by (System.Timestamp, key), equal ones in the given order: every sink writes a sheet in this order."""
    ordered = sorted((Row(*row) for row in rows), key=lambda row: (row.system_us, row.key))
    assert span_start_us % span_us == 0, "a sheet's span must be one of the fixed spans"
    assert not ordered or span_start_us <= ordered[0].system_us <= ordered[-1].system_us < span_start_us + span_us, (
        "a row lies outside its span"
    )
    return ordered
