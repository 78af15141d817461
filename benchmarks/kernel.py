"""
The time model alone: one core, Arrow columns in, ordered Arrow columns and header bytes out; and the memory of its state.

Usage: make bench-kernel, or python benchmarks/kernel.py [--events 10000000] [--format json]

Every rate stands beside a yardstick of the same run: numpy sorting as many int64. Cost per event is told for the first and
the last tenth of the run, so that growth shows; ``--events 100000000`` is the long run of docs/reference/costs.md.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ordering import Batch, Model, Policies
from ordering.protocol.wire import encode_event_header_column
from ordering.ticks import MINUTE_US, SECOND_US

BATCH = 65_536
FIRST_ARRIVAL_US = 1_700_000_000_000_000
SUBSTREAMS = (0, 10_000, 1_000_000)
_SHARE = 10


def batch_of(start: int, names: pa.Array | None, rng: np.random.Generator, payload: pa.Array, no_key: pa.Array) -> Batch:
    """Return one batch: an event a millisecond, exponentially late with mean 2 s, payloads of 56 bytes."""
    offset = np.arange(start, start + BATCH)
    arrival_us = FIRST_ARRIVAL_US + offset * 1000
    event_time_us = arrival_us - rng.exponential(2 * SECOND_US, BATCH).astype(np.int64)
    substream = None if names is None else names.take(pa.array(rng.integers(0, len(names), BATCH)))
    key = no_key if substream is None else substream
    return Batch(offset, arrival_us, event_time_us, np.ones(BATCH, dtype=bool), substream, key, payload, start + BATCH)


def rate(events: int, substreams: int) -> dict[str, Any]:
    """Run the model over *events* events of *substreams* substreams (0: one timeline); return CPU figures."""
    rng = np.random.default_rng(1)
    model = Model(Policies(late_us=5 * SECOND_US, reorder_us=2 * SECOND_US), over=substreams > 0, output_partitions=4)
    names = pa.array([b"dev-%d" % number for number in range(substreams)], type=pa.binary()) if substreams else None
    payload, no_key = pa.array([b"x" * 56] * BATCH, type=pa.binary()), pa.array([None] * BATCH, type=pa.binary())
    state, spent, yardstick = model.new_state(), [], 0.0
    for start in range(0, events, BATCH):
        batch = batch_of(start, names, rng, payload, no_key)
        before = time.process_time()
        left = model.step(state, batch).released
        encode_event_header_column(left.seq, left.system_us, left.event_time_us, left.arrival_us, left.offset, left.flags, 0)
        spent.append(time.process_time() - before)
        shuffled = rng.permutation(batch.offset)
        before = time.process_time()
        shuffled.sort()
        yardstick += time.process_time() - before
    tenth = max(len(spent) // _SHARE, 1)
    # The first batches fill caches and grow the tables: they belong to no steady figure.
    steady = spent[min(4, len(spent) - 1) :]
    return {
        "name": f"{substreams:,} substreams" if substreams else "one timeline",
        "events": len(spent) * BATCH,
        "events_per_cpu_second": round(len(steady) * BATCH / sum(steady)),
        "sorts_of_int64": round(sum(spent) / yardstick, 1),
        "last_to_first_tenth": round(sum(spent[-tenth:]) / sum(steady[:tenth]), 2),
        "held": state.held_count,
        "substreams_known": len(state.timelines),
    }


def memory(substreams: int = 1_000_000) -> dict[str, Any]:
    """Return what a state with *substreams* substreams, an event held for each, occupies: resident memory and saved bytes."""
    model = Model(Policies(early_us=None, late_us=5 * MINUTE_US, reorder_us=MINUTE_US), over=True, output_partitions=4)
    _held(model, BATCH)
    before = _resident_mb()
    state, largest = _held(model, substreams)
    occupied = _resident_mb() - before
    saved = sum(chunk.size for chunk in state.chunks.values())
    return {
        "name": f"state: {len(state.timelines):,} substreams, {state.held_count:,} held events",
        "memory_mb": round(occupied),
        "saved_mb": round(saved / 1e6),
        "largest_save_mb": round(largest / 1e6),
    }


def _held(model: Model, events: int) -> tuple[Any, int]:
    state, largest, size = model.new_state(), 0, 50_000
    for start in range(0, events, size):
        offset = np.arange(start, min(start + size, events))
        key = pa.array([b"device-%07d" % number for number in offset.tolist()], type=pa.binary())
        value = pa.array([b"%056d" % number for number in offset.tolist()], type=pa.binary())
        arrival_us = FIRST_ARRIVAL_US + offset * 10
        readable = np.ones(len(offset), dtype=bool)
        model.step(state, Batch(offset, arrival_us, arrival_us - 5, readable, key, key, value, int(offset[-1]) + 1))
        largest = max(largest, sum(map(len, state.save().put.values())))
    return state, largest


def _resident_mb() -> float:
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return float(psutil.Process().memory_info().rss / 1e6)


def figures(events: int) -> list[dict[str, Any]]:
    """Return all rows; each is measured in a process of its own, so that none inherits another's memory."""
    rows = []
    for row in [["--rate", str(substreams)] for substreams in SUBSTREAMS] + [["--memory"]]:
        told = subprocess.run([sys.executable, __file__, "--events", str(events), *row], check=True, capture_output=True, text=True)
        rows.append(json.loads(told.stdout))
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the figures for people."""
    names = list(dict.fromkeys(name for row in rows for name in row if name != "name"))
    table = Table("the model alone, one core", *[name.replace("_", " ") for name in names])
    for row in rows:
        cells = [row.get(name) for name in names]
        table.add_row(row["name"], *["" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells])
    Console(width=170).print(table)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--rate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(memory()))
    elif arguments.rate is not None:
        print(json.dumps(rate(arguments.events, arguments.rate)))
    elif arguments.format == "json":
        print(json.dumps(figures(arguments.events)))
    else:
        show(figures(arguments.events))


if __name__ == "__main__":
    main()
