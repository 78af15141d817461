"""Measure AnomalyDetection_SpikeAndDip with 120 rows of history: events a second on one core. Run: ``python benchmarks/anomalies.py``."""

from __future__ import annotations

import time
from decimal import Decimal

import numpy as np
import pyarrow as pa

from query.operators.windows.anomalies import compute_anomalies
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import Variant

EVENTS = 200_000
HISTORY = 120


def main() -> None:
    """Print the rate for each function; only the functions are timed, not decoding and encoding."""
    row = np.arange(EVENTS)
    values = Variant.of(EVENTS, {Kind.FLOAT: pa.array(np.random.default_rng(1).normal(20, 3, EVENTS))})
    for function, options, events in (
        ("anomalydetection_spikeanddip", (str(HISTORY), "spikesanddips"), EVENTS),
        ("anomalydetection_changepoint", (str(HISTORY),), EVENTS // 20),
    ):
        last = row[:events]
        aggregate = Aggregate(function, None, parameter=Decimal(95), options=options)
        compute_anomalies(aggregate, values, last[:1], last[:1])
        start = time.process_time()
        compute_anomalies(aggregate, values, np.maximum(last - HISTORY, 0), last)
        print(f"{function}: {events / (time.process_time() - start):,.0f} events/s with {HISTORY} rows of history")


if __name__ == "__main__":
    main()
