"""
A script run on files: events of all inputs in one line (or substream by substream), slice by slice of finished time, through
the operators a job runs.

Always the input that is furthest behind is read on. Law: what comes out of each output, and its order, depends on the files,
the script and the policies alone. Results come in the order (s, fixed row order); with OVER in the order (s, key bytes,
partition, row order), in which result files stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.ticks import INFINITY, NEVER
from query.engine.compile import EVENTS_SCHEMA
from query.engine.program import Program
from query.engine.retention import Retention
from query.plan.row_tables import RESULT_SCHEMA
from tidegate.local.inputs import BadRecord, FileInput

Ints = NDArray[np.int64]

HELD_SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in ("input", "partition", "line", "system_us", "arrival_us")), ("value", pa.binary())]
)

_COMPACTED_EVERY = 32
"""After so many slices what is kept is put together: many small pieces are slow to look through."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that gave no result because something in it cannot be used; ``input`` is None for rows between two operators."""

    input: str | None
    record: BadRecord


@dataclass
class RunStep:
    """What one step gave: for each output its results (``RESULT_SCHEMA``) in order, and the bad records."""

    results: list[pa.Table]
    bad: list[Bad] = field(default_factory=list)


class LocalRun:
    """
    The walk over all inputs of a script.

    Args:
        program: The script.
        inputs: Its inputs, in the order of the script.
        over: Whether time advances substream by substream.
    """

    def __init__(self, program: Program, inputs: Sequence[FileInput], *, over: bool) -> None:
        self.program, self.inputs = program, inputs
        self._line = _Substreams(program, inputs) if over else _OneLine(program, inputs)

    def steps(self) -> Iterator[RunStep]:
        """Walk to the end of all files; yield what leaves, step by step."""
        while reading := [number for number, source in enumerate(self.inputs) if not source.is_ended]:
            number = min(reading, key=lambda one: self.inputs[one].frontier.value)
            source = self.inputs[number]
            released, unusable = source.read()
            bad = [Bad(source.name, record) for record in unusable]
            self._line.take(number, released)
            is_last = all(one.is_ended for one in self.inputs)
            results = self._line.advance(is_last=is_last)
            yield RunStep(results, bad + self._line.taken_bad())


class _Line:
    """What both kinds share: events on their way into the program, and its results."""

    def __init__(self, program: Program, inputs: Sequence[FileInput]) -> None:
        self._program, self._inputs = program, inputs
        self._retention = Retention()
        self._position, self._finished = 0, 0
        self._bad: list[Bad] = []

    def _floor(self, *, is_last: bool) -> int:
        """Return the instant up to which all inputs are known."""
        return INFINITY if is_last else min(source.frontier.value if not source.is_ended else INFINITY for source in self._inputs)

    def _prepare(self, number: int, events: pa.Table, sub: Ints) -> None:
        """Hand events of one input over, in order."""
        position = np.arange(self._position, self._position + events.num_rows)
        self._position += events.num_rows
        columns = {
            "position": pa.array(position),
            "sub": pa.array(sub),
            "system_us": events["system_us"],
            "partition_id": events["partition"].cast(pa.int32()),
            "value": events["value"].combine_chunks(),
            "arrival_us": events["arrival_us"],
        }
        given = pa.table([columns[name] for name in EVENTS_SCHEMA.names], schema=EVENTS_SCHEMA)
        prepared, failed = self._program.prepare(self._inputs[number].name, given)
        for name, rows in prepared:
            self._retention.add(name, rows)
        for place, reason in zip(failed["position"].to_pylist(), failed["reason"].to_pylist(), strict=True):
            row = events.slice(int(place - position[0]), 1).to_pylist()[0]
            record = BadRecord(reason, row["partition"], row["line"], row["value"])
            self._bad.append(Bad(self._inputs[number].name, record))
            self._inputs[number].counts.bad[reason] += 1

    def _finish(self, closing: pa.Table) -> list[pa.Table]:
        results = self._program.finish(self._retention, closing)
        self._finished += 1
        if self._finished % _COMPACTED_EVERY == 0:
            for name in self._program.retained_names:
                self._retention.reduce(name, lambda rows: rows.combine_chunks())
        self._bad += [Bad(None, BadRecord(reason, None, None, value)) for _, value, reason in self._program.bad]
        self._program.bad = []
        return results

    def taken_bad(self) -> list[Bad]:
        """Return the records that failed since the last call."""
        bad, self._bad = self._bad, []
        return bad


class _OneLine(_Line):
    """All inputs in one line: events in the order (s, input, partition, line), closed as the least frontier passes them."""

    def __init__(self, program: Program, inputs: Sequence[FileInput]) -> None:
        super().__init__(program, inputs)
        self._held: list[pa.Table] = []
        self._closed_us = NEVER

    def take(self, number: int, released: pa.Table) -> None:
        """Hold events that left an input."""
        if released.num_rows:
            owner = pa.array(np.full(released.num_rows, number, dtype=np.int64))
            self._held.append(released.drop_columns(["key"]).add_column(0, "input", owner).cast(HELD_SCHEMA))

    def advance(self, *, is_last: bool) -> list[pa.Table]:
        """Close what has become final."""
        until_us = self._floor(is_last=is_last)
        if until_us <= self._closed_us:
            return [RESULT_SCHEMA.empty_table() for _ in self._program.plans]
        self._merge(until_us)
        closing = pa.table({"sub": [0], "from_us": [self._closed_us], "to_us": [until_us]})
        self._closed_us = until_us
        return self._finish(closing)

    def _merge(self, until_us: int) -> None:
        held = pa.concat_tables(self._held) if self._held else HELD_SCHEMA.empty_table()
        is_due = pc.less(held["system_us"], until_us)
        due, later = held.filter(is_due), held.filter(pc.invert(is_due))
        self._held = [later] if later.num_rows else []
        if due.num_rows:
            keys = [due[name].to_numpy() for name in ("line", "partition", "input", "system_us")]
            due = due.take(pa.array(np.lexsort(keys)))
            for number in range(len(self._inputs)):
                events = due if len(self._inputs) == 1 else due.filter(pc.equal(due["input"], number))
                if events.num_rows:
                    self._prepare(number, events, np.zeros(events.num_rows, dtype=np.int64))


class _Substreams(_Line):
    """
    Substream by substream: each (partition, key) is closed as far as its own events, or the floor, have passed it.

    A substream of several inputs has come as far as the least of them.
    """

    def __init__(self, program: Program, inputs: Sequence[FileInput]) -> None:
        super().__init__(program, inputs)
        self._subs: dict[tuple[int, bytes], int] = {}
        self._own = np.full((len(inputs), 0), NEVER, dtype=np.int64)
        self._partition = np.empty(0, dtype=np.int64)
        self._closed = np.empty(0, dtype=np.int64)
        self._held = [pa.table({}) for _ in program.plans]

    def take(self, number: int, released: pa.Table) -> None:
        """Take events that left an input."""
        if released.num_rows:
            sub = self._find(released)
            np.maximum.at(self._own[number], sub, released["system_us"].to_numpy())
            self._prepare(number, released, sub)

    def _find(self, released: pa.Table) -> Ints:
        """Return the dense number of each event's substream, adding those not yet known."""
        encoded = released["key"].combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        pair = released["partition"].to_numpy() * len(names) + encoded.indices.to_numpy()
        distinct, inverse = np.unique(pair, return_inverse=True)
        found = np.empty(len(distinct), dtype=np.int64)
        fresh: list[int] = []
        for place, (partition, key) in enumerate(divmod(one, len(names)) for one in distinct.tolist()):
            known = len(self._subs)
            found[place] = self._subs.setdefault((partition, names[key]), known)
            if found[place] == known:
                fresh.append(partition)
        if fresh:
            self._partition = np.concatenate([self._partition, np.array(fresh, dtype=np.int64)])
            self._closed = np.concatenate([self._closed, np.full(len(fresh), NEVER, dtype=np.int64)])
            self._own = np.concatenate([self._own, np.full((len(self._inputs), len(fresh)), NEVER, dtype=np.int64)], axis=1)
        return found[inverse]

    def advance(self, *, is_last: bool) -> list[pa.Table]:
        """Close what has become final; let out what no later result can stand before."""
        reached = np.full(len(self._closed), INFINITY, dtype=np.int64)
        if not is_last:
            for number, source in enumerate(self._inputs):
                np.minimum(reached, np.maximum(self._own[number], self._floors(source)), out=reached)
        moved = np.flatnonzero(reached > self._closed)
        if len(moved):
            closing = pa.table({"sub": moved, "from_us": self._closed[moved], "to_us": reached[moved]})
            self._closed = np.maximum(self._closed, reached)
            self._hold(self._finish(closing))
        return self._let_out(self._floor(is_last=is_last))

    def _floors(self, source: FileInput) -> Ints:
        """Return for each substream how far its partition of one input has come."""
        if source.is_ended:
            return np.full(len(self._partition), INFINITY, dtype=np.int64)
        partitions, places = np.unique(self._partition, return_inverse=True)
        floors: Ints = np.array([source.frontier_of(partition) for partition in partitions.tolist()], dtype=np.int64)
        return floors[places]

    def _hold(self, found: Sequence[pa.Table]) -> None:
        names = list(self._subs)
        for output, results in enumerate(found):
            if not results.num_rows:
                continue
            # Under the key that its events have, however a query reads it.
            sub = results["sub"].to_numpy()
            keyed = results.set_column(2, "key", pa.array([names[one][1] for one in sub.tolist()], pa.binary()))
            keyed = keyed.append_column("partition", pa.array(self._partition[sub]))
            self._held[output] = pa.concat_tables([self._held[output], keyed]) if self._held[output].num_rows else keyed

    def _let_out(self, until_us: int) -> list[pa.Table]:
        leaving: list[pa.Table] = []
        for output, held in enumerate(self._held):
            if not held.num_rows:
                leaving.append(RESULT_SCHEMA.empty_table())
                continue
            is_due = pc.less(held["system_us"], until_us)
            due = held.filter(is_due)
            self._held[output] = held.filter(pc.invert(is_due))
            # Rows of a substream come in their order and stay in it: the sort is stable.
            order = np.arange(due.num_rows)
            numbered = due.append_column("row", pa.array(order))
            keys = [(name, "ascending") for name in ("system_us", "key", "partition", "row")]
            leaving.append(numbered.take(pc.sort_indices(numbered, sort_keys=keys)).select(RESULT_SCHEMA.names))
        return leaving
