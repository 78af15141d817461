"""The contract of sinks: :mod:`sinks.base`."""

from sinks.base import (
    Row,
    Sink,
    SinkError,
    sort_rows,
)

__all__ = [
    "Row",
    "Sink",
    "SinkError",
    "sort_rows",
]
