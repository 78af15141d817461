"""The contract of sinks: :mod:`sinks.base`."""

from sinks.base import (
    Row,
    SheetRows,
    Sink,
    SinkError,
    sort_rows,
)

__all__ = [
    "Row",
    "SheetRows",
    "Sink",
    "SinkError",
    "sort_rows",
]
