"""
The rows, batches and mishaps that every store is put through, and what must stand afterwards.

The law of the contract (:mod:`sinks.stores.base`) in one sentence that a test can check: whatever was called, the rows that a reader of the
store finds are those below its progress, each once.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ordering.errors import UnreachableError
from sinks.stores.base import Batch, Rows, Store, Stream
from tidegate.records.result_columns import Column

# (partition, number) is a key, for stores that need one.
COLUMNS: Sequence[Column] = (
    ("partition", "bigint"),
    ("number", "bigint"),
    ("name", "nvarchar(max)"),
    ("speed", "float"),
    ("at", "datetime"),
    ("is_odd", "bit"),
    ("more", "record"),
)
KEY = ("partition", "number")
PARTITIONS = 3
# A log has records that are no results, so that offsets are not positions.
_OFFSETS_A_ROW = 3


class Bench(Protocol):
    """One kind of store, with its server. *target* is the table, prefix or folder of one test."""

    # Which values beyond the columns' types it refuses: "types", no others; "more", those without a key or that PostgreSQL does not take
    # too; "": others than its columns' types would.
    refuses: str

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        """Return a store for :data:`COLUMNS`, keyed by :data:`KEY` if it has keys; reached through another loopback *port* if given."""

    def table(self, target: str, port: int | None = None) -> str:
        """Return the tables of ``tidegate.toml`` that make it a store of the output ``results``; the last table has room for more."""

    def read(self, target: str) -> list[dict[str, Any]]:
        """Return the rows that stand, as a reader who knows nothing of us finds them: at least their partition, number and name."""

    @property
    def port(self) -> int | None:
        """The loopback port of the server; None if it has none."""

    def kill(self) -> None:
        """End the server as a power cut would; do nothing if there is none."""

    def start(self) -> None:
        """Bring the server back with what it had."""

    def close(self) -> None:
        """Stop the server."""


def stream(topic: str = "results") -> Stream:
    """Return a stream that is told from others by its name."""
    return Stream(topic, f"id-of-{topic}", PARTITIONS)


def value_of(partition: int, number: int) -> bytes:
    """Return the JSON of one result, always the same for the same place."""
    name = f"Zürich {number % 7}" if number % 5 else None
    more = {"list": [number, "x"], "deep": {"n": partition}}
    at = f"2001-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000000Z"
    fields = (partition, number, name, number / 7, at, number % 2 == 1, more)
    return json.dumps(dict(zip((column for column, _ in COLUMNS), fields, strict=True)), ensure_ascii=False).encode()


def rows_of(partition: int, start: int, end: int) -> Rows:
    """Return the results of a partition with ``start <= number < end``."""
    position = np.arange(start, end)
    keys = pa.array([b"k%d" % (number % 11) for number in position.tolist()], pa.binary())
    values = pa.array([value_of(partition, number) for number in position.tolist()], pa.binary())
    return Rows(position, position * _OFFSETS_A_ROW, 1_000_000 * position, keys, values)


def batch_of(stream_id: str, partition: int, start: int, end: int) -> Batch:
    """Return these results as a batch; an empty one only begins where it ends."""
    rows = rows_of(partition, start, end)
    return Batch(stream_id, partition, start, end, int(rows.offset[-1]) + 1 if end > start else 0, rows)


def check_stands(bench: Bench, target: str, positions: dict[int, int]) -> None:
    """Check that exactly the rows below these positions stand, each once, with the values that they had."""
    found = bench.read(target)
    places = Counter((int(row["partition"]), int(row["number"])) for row in found)
    wanted = {(partition, number) for partition, position in positions.items() for number in range(position)}
    twice = sorted(place for place, count in places.items() if count > 1)
    assert not twice, f"{len(twice)} rows stand twice, the first at {twice[0]}"
    missing, foreign = sorted(wanted - places.keys()), sorted(places.keys() - wanted)
    assert not missing, f"{len(missing)} rows are missing, the first at {missing[0]}"
    assert not foreign, f"{len(foreign)} rows stand above the progress, the first at {foreign[0]}"
    for row in found:
        told = json.loads(value_of(int(row["partition"]), int(row["number"])))
        assert row["name"] == told["name"], row


def write_on(store: Store, partition: int, count: int) -> int:
    """Write the next *count* rows from where the store stands; return where it stands then."""
    known = store.progress([partition]).get(partition)
    start = known.position if known else 0
    end = known.end if known and known.end is not None else start + count
    return store.write(batch_of(stream().id, partition, start, end)).position


def walk(bench: Bench, target: str, seed: int, steps: int) -> dict[int, int]:
    """
    Have several writers, none of which knows of the others, write what a job might write: the next batch, one that stands already, one
    with other bounds, one too far ahead; now and then one disconnects. Return where the store must stand.
    """
    dice = random.Random(seed)
    writers = [bench.make(target, stream()) for _ in range(3)]
    positions = dict.fromkeys(range(PARTITIONS), 0)
    try:
        for writer in writers:
            writer.prepare()
        for _ in range(steps):
            writer, partition = dice.choice(writers), dice.randrange(PARTITIONS)
            stands = positions[partition]
            known = writer.progress([partition]).get(partition)
            assert (known.position if known else 0) == stands, "the progress is that of the last batch"
            start = stands if dice.random() < 0.5 else max(stands + dice.randint(-40, 40), 0)
            end = start + dice.randint(1, 60)
            answer = writer.write(batch_of(stream().id, partition, start, end))
            if start == stands:
                positions[partition] = end
            assert answer.position == positions[partition], f"[{start}, {end}) on {stands}"
            if dice.random() < 0.1:
                writer.close()
    finally:
        for writer in writers:
            writer.close()
    return positions


def insist(store: Store, partition: int, end: int, count: int, tries: int = 100) -> int:
    """Write until the store stands at *end* or beyond, whatever fails on the way; return how often something failed."""
    failures = 0
    for _ in range(tries):
        try:
            if write_on(store, partition, count) >= end:
                return failures
        except UnreachableError:
            failures += 1
            store.close()
    raise AssertionError(f"not done after {tries} tries")
