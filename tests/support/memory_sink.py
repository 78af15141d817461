"""A sink that keeps results in this process: the model of what every other sink shows."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.base import Row, sort_rows


class MemorySink:
    """
    The :class:`~sinks.base.Sink` whose sheets are lists.

    Args:
        span_us: Length of a span, microseconds.
    """

    def __init__(self, span_us: int) -> None:
        self.span_us = span_us
        self.sheets: dict[tuple[int, int], list[Row]] = {}

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """See :meth:`sinks.base.Sink.publish`."""
        ordered = sort_rows(rows, span_start_us, self.span_us)
        if ordered:
            self.sheets[span_start_us, partition] = ordered

    def rows(self) -> list[Row]:
        """Return what a reader sees: all sheets by (span, partition)."""
        return [row for sheet in sorted(self.sheets) for row in self.sheets[sheet]]


def span_start(system_us: int, span_us: int) -> int:
    """Return the inclusive start of the span of length *span_us* (both microseconds) in which *system_us* lies."""
    return system_us - system_us % span_us
