"""
Sinks: where final results leave for the outside world, one *span* at a time.

A span is a fixed stretch ``[start, start + length)`` of System.Timestamp, aligned to the Unix epoch; (span, partition)
is a *sheet*, the unit that is published. The job publishes a sheet once its floor has passed the span's end, so all
rows are known; after a crash it publishes again every sheet that it cannot prove published.

Law, the idempotence contract every sink keeps: *after any number of calls of* ``publish`` *for a sheet with the same
rows, also from several processes, also cut short by a crash and repeated, a reader sees those rows once, the same
bytes each time; and never a part of a sheet.* It needs no memory of earlier calls. Spans are fixed because a span
named by where batches or CTIs were cut is another one after a restart, and leaves the first behind as a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ordering.errors import TidegateError


class Row(NamedTuple):
    """
    One result.

    Args:
        system_us: System.Timestamp, microseconds.
        key: Key bytes; empty without one.
        value: One JSON object, UTF-8.
    """

    system_us: int
    key: bytes
    value: bytes


class Sink(Protocol):
    """One destination. Made where results are written: it need not travel between processes."""

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """
        Make a sheet visible as a whole, in place of what an earlier call made of it; no rows make nothing visible.

        Args:
            span_start_us: Inclusive start of the span, microseconds, a multiple of its length.
            partition: The ordered partition or bucket the rows come from.
            rows: (System.Timestamp in microseconds, key, JSON value), all within the span; rows of equal time and key
                in their fixed order.

        Raises:
            SinkError: The destination does not take them. The call may be repeated.
        """


class SinkError(TidegateError):
    """A destination did not take results; publishing the same sheet again is safe."""

    exit_code = 4
    default_code = "TG-SINK"


def sort_rows(rows: Iterable[tuple[int, bytes, bytes]], span_start_us: int, span_us: int) -> list[Row]:
    """Return *rows* by (System.Timestamp, key), rows equal in both in the order given: the one order a sheet is written in."""
    ordered = sorted((Row(*row) for row in rows), key=lambda row: (row.system_us, row.key))
    assert span_start_us % span_us == 0, "a sheet's span must be one of the fixed spans"
    assert not ordered or span_start_us <= ordered[0].system_us <= ordered[-1].system_us < span_start_us + span_us, (
        "a row lies outside its span"
    )
    return ordered
