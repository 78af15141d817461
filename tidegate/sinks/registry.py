"""What a sink is made from: :mod:`sinks.registry`."""

from sinks.registry import (
    SinkContext,
)

__all__ = [
    "SinkContext",
]
