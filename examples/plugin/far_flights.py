"""
A package that plugs into tidegate: a query job, a scalar function, an aggregate and a sink, each one entry point in pyproject.toml.

Installed beside tidegate, ``tidegate query far_flights`` runs the job, any script may call ``udf.kilometres(miles)`` and
``uda.spread(miles)``, and an output with ``sink = "lines"`` writes lines of text. :mod:`debounce` adds an operator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.query.api import Query, call, column, count, max_, stream, tumbling, window_end
from tidegate.query.extending import AggregateFunction, ScalarFunction
from tidegate.sinks.base import SheetRows, Sink
from tidegate.sinks.registry import SinkContext

kilometres = ScalarFunction(lambda miles: pc.multiply(miles.cast(pa.float64()), 1.609344), takes=("bigint",), gives="float")
"""Statute miles to kilometres."""


def _spread(miles: pa.Array, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> pa.Array:
    """Return the greatest less the least number of each run of rows; NULL if a run has none."""
    runs = zip(first.tolist(), last.tolist(), strict=True)
    extremes = (pc.min_max(miles.slice(low, high - low + 1)).as_py() for low, high in runs)
    return pa.array([None if run["max"] is None else run["max"] - run["min"] for run in extremes], pa.int64())


spread = AggregateFunction(_spread, takes=("bigint",), gives="bigint")
"""How far apart values are."""


def far_flights() -> Query:
    """Return how many flights of a thousand miles and more leave each airport in an hour, and how far the farthest goes."""
    flights = stream("flights", timestamp_by="scheduled", over="origin")
    far = flights.where(column("distance") >= 1000).group_by("origin", tumbling("1h"))
    return far.select(
        origin="origin", hour_end=window_end(), flights=count(), farthest_km=call("ROUND", call("udf.kilometres", max_("distance")), 1)
    ).into("far_flights")


class Lines:
    """The sink: a text file for each span and partition, written anew whenever the span is published."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def publish(self, span_start_us: int, partition: int, rows: SheetRows) -> None:
        """Make the span's rows visible in one step."""
        if rows:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Written aside, then renamed: a reader sees all rows of the span or those of the publication before.
            draft = self._folder / f".{span_start_us}.{partition}"
            draft.write_bytes(b"".join(row.value + b"\n" for row in rows))
            draft.rename(self._folder / f"{span_start_us}.{partition}.txt")


def lines(context: SinkContext) -> Sink:
    """Make the sink; ``sink_options = { folder = "out" }`` says where it writes."""
    return Lines(Path(context.options.get("folder", "lines")))
