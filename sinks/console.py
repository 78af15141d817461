"""Results on the console: one line each, as they become final."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from ordering.ticks import format_tick
from sinks.base import sort_rows
from tidegate.basics.visible_text import visible


class ConsoleSink:
    """
    The :class:`~sinks.base.Sink` that prints, for trying queries out. After a crash a sheet may be printed twice.
    *span_us* is the length of a span, microseconds; *name* is written before each line, unless it is empty.
    """

    def __init__(self, span_us: int, name: str = "", stream: TextIO | None = None) -> None:
        self._span_us, self._name = span_us, name
        self._stream = stream or sys.stdout

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        before = f"{self._name}  " if self._name else ""
        for row in sort_rows(rows, span_start_us, self._span_us):
            self._stream.write(visible(f"{before}{format_tick(row.system_us)}  {row.value.decode('utf-8', 'replace')}") + "\n")
        self._stream.flush()
