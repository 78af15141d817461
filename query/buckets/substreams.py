"""
A query with OVER over one ordered partition, substream by substream.

A substream (input partition, key) has moved past an instant if an event of it above that instant was accepted, its channel's CTI rose above
it, or a CTI's list said so of this substream. Law, level 2: results leave in the order of the records that made them final, ordered (s, key
bytes) within a record; so the sequence depends on the log alone and not on batches.

Pacing thins only the progress of whole channels. The events and the lists, which move single substreams, count at once. Lists about
substreams without rows are not remembered: no event of such a substream below the listed watermark can follow.

The key of a result is its substream's, as ingest wrote it. If a query reads a value in another way (an integer beyond 64 bits as a float, a
declared kind, a name in another case), the result still has the key of its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket, BucketConfig
from query.buckets.closing_steps import ClosingSteps
from query.buckets.cti_pacing import Progress
from query.buckets.emission_order import Moves, first_move, first_rise, sort_by_emission
from query.buckets.substream_table import SubstreamTable
from query.columns.large_tables import combine_column
from query.engine.program import Program

# Roster number of the input partition, and key; an empty key may come back from a broker as None.
_Name = tuple[int, bytes | None]


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of the log: what it has moved, and the progress before it, microseconds."""

    moves: Moves
    # Rises of channels.
    progress: Progress
    # The instant that each substream had reached, and the instant of the first event of those that are new.
    before: Ints
    first_us: Ints
    # The instants of its events.
    instants_us: Ints

    @property
    def is_moving(self) -> bool:
        return bool(len(self.moves.place) or len(self.progress))

    @property
    def places(self) -> tuple[int, int]:
        """The offsets (half-open) of the records that moved a substream or a channel."""
        places = [*self.moves.place.tolist(), *(offset for offset, _, _ in self.progress)] or [0]
        return min(places), max(places) + 1

    def progress_before(self, place: int, number_of: Ints) -> Ints:
        """Return the instant that each substream had reached before an offset; *number_of* is the input partition of each."""
        reached, moves = self.before.copy(), self.moves.take(np.flatnonzero(self.moves.place < place))
        np.maximum.at(reached, moves.sub, moves.to_us)
        for offset, channel, c in self.progress:
            if offset < place:
                reached = np.where(number_of == channel, np.maximum(reached, c), reached)
        # A substream begins with its first event.
        reached[(self.before == NEVER) & (reached <= self.first_us)] = NEVER
        return reached


class SubstreamBucket(Bucket):
    """One ordered partition, substream by substream; see the module."""

    def __init__(self, program: Program, config: BucketConfig) -> None:
        super().__init__(program, config)
        self._subs: SubstreamTable[_Name] = SubstreamTable()
        self._number_of: Ints = np.empty(0, dtype=np.int64)

    def _accept_events(self, source_index: int, events: pa.Table, accepted: Accepted) -> Iterator[list[pa.Table]]:
        sub, system_us = self._number_substreams(events), events["system_us"].to_numpy()
        if events.num_rows:
            self._prepare(source_index, events, sub)
        moves = self._moves(sub, system_us, accepted)
        before = self._subs.progress_us.copy()
        np.maximum.at(self._subs.progress_us, moves.sub, moves.to_us)
        self._subs.touch(np.flatnonzero(np.bincount(moves.sub)))
        # Read only for new substreams, so the first event in this range is enough.
        first_us = np.full(len(before), INFINITY, dtype=np.int64)
        np.minimum.at(first_us, sub, system_us)
        yield from self._close(_Range(moves, accepted.progress, before, first_us, system_us))

    def _moves(self, sub: Ints, system_us: Ints, accepted: Accepted) -> Moves:
        """Return the moves by the accepted events, and by the lists of CTIs about known substreams, by log offset."""
        moves = Moves(sub, np.zeros_like(sub), system_us, accepted.position)
        entries = ((self._find_listed(number, key), 0, w, offset) for offset, number, key, w in accepted.listed)
        listed = [entry for entry in entries if entry[0] >= 0]
        return (moves + Moves.of(listed)).sort_by_place() if listed else moves

    def _find_listed(self, number: int, key: bytes) -> int:
        """Return the dense number of a substream that a list names, -1 if it has none."""
        sub = self._subs.find((number, key))
        return self._subs.find((number, None)) if sub < 0 and not key else sub

    def _close_due(self) -> Iterator[list[pa.Table]]:
        # Each range has returned the results that it made final; beside ranges only the end of the run makes results final.
        if self._ended:
            before = self._subs.progress_us.copy()
            yield from self._close(_Range(Moves.of([]), [], before, before, np.empty(0, dtype=np.int64)))

    def _number_substreams(self, events: pa.Table) -> Ints:
        names, place = _distinct_names(events["partition_id"].to_numpy(), combine_column(events["key"]))
        subs, fresh = self._subs.number(names)
        self._number_of = np.concatenate([self._number_of, np.array([number for number, _ in fresh], dtype=np.int64)])
        return subs[place]

    def _partition_ids_of(self, results: pa.Table) -> Ints:
        partition_ids: Ints = self._number_of[results["sub"].to_numpy()]
        return partition_ids

    def _floors(self) -> Ints:
        """Return for each substream the paced c of its channel: no later event of the substream lies below it."""
        if self._ended:
            return np.full(len(self._number_of), INFINITY, dtype=np.int64)
        ((_, partition),) = self._sources[0].logs.items()
        numbers = range(int(self._number_of.max(initial=-1)) + 1)
        floors = np.array([self._pacing[0].channel_c(partition, number) for number in numbers], dtype=np.int64)
        return floors[self._number_of]

    def _close(self, read: _Range) -> Iterator[list[pa.Table]]:
        """Yield each output's results that a range has made final, in emission order."""
        np.maximum(self._subs.progress_us, self._floors(), out=self._subs.progress_us)
        closing, reached = self._subs.slices_since(read.before, read.first_us), self._subs.progress_us.copy()
        if closing is None:
            return

        def divide(is_too_much: Callable[[pa.Table], bool]) -> Iterator[pa.Table]:
            steps = ClosingSteps(
                slices=lambda since, until: self._subs.slices_since(since, read.first_us, until),
                is_too_much=is_too_much,
                progress_before=lambda place: read.progress_before(place, self._number_of),
                instants_us=read.instants_us,
                key_of=lambda sub: self._subs.names[sub][1] or b"",
            )
            return steps.divide(read.places, (read.before, reached))

        for tables in self._finish(closing, divide):
            yield [self._sort(results, self._final_by(results, output, read)) for output, results in enumerate(tables)]

    def _final_by(self, results: pa.Table, output: int, read: _Range) -> Ints:
        """Return the log offset of the record that made each result final; 0 if the end of the run did."""
        if not results.num_rows or not read.is_moving:
            return np.zeros(results.num_rows, dtype=np.int64)
        ends, owner = results["system_us"].to_numpy() - self._program.ahead_us(output), results["sub"].to_numpy()
        final_by = first_move(read.moves, len(self._subs), ends, owner)
        numbers = self._number_of[owner]
        for number in np.unique(numbers).tolist():
            rises = [(offset, c) for offset, channel, c in read.progress if channel == number]
            rows = np.flatnonzero(numbers == number)
            final_by[rows] = np.minimum(final_by[rows], first_rise(rises, ends[rows]))
        return final_by

    def _sort(self, results: pa.Table, final_by: Ints) -> pa.Table:
        if not results.num_rows:
            return results
        return sort_by_emission(results, final_by, lambda sub: self._subs.names[sub][1] or b"", lambda subs: self._number_of[subs])

    def _save_progress(self) -> None:
        self._prune()
        self._subs.save(
            self._retention,
            lambda subs: {
                "number": self._number_of[subs],
                "key": pa.array([self._subs.names[sub][1] for sub in subs.tolist()], type=pa.binary()),
            },
        )

    def _prune(self) -> None:
        """Forget substreams without rows that the floor has passed, if most are such."""
        if self._subs.may_prune:
            needed = self._subs.progress_us > self._floors()
            kept = self._subs.prune(needed, self._retention, self._program.retained_names)
            if kept is not None:
                self._number_of = self._number_of[kept]

    def _head_fields(self) -> dict[str, Any]:
        return {"subs": len(self._subs)}

    def _restore_own(self, fields: dict[str, Any]) -> None:
        self._subs.restore(
            self._retention,
            fields["subs"],
            lambda entries: list(zip(entries["number"].to_pylist(), entries["key"].to_pylist(), strict=True)),
        )
        self._number_of = np.array([number for number, _ in self._subs.names], dtype=np.int64)
        np.maximum(self._subs.progress_us, self._floors(), out=self._subs.progress_us)
        self._program.forget(self._retention, self._subs.horizon())


def _distinct_names(number: Ints, key: pa.Array) -> tuple[list[_Name], Ints]:
    """Return the distinct pairs of a number and a key, in order of first occurrence, and the place of each row's pair among them."""
    coded = key.dictionary_encode(null_encoding="encode")
    code, keys = coded.indices.to_numpy(), coded.dictionary.to_pylist()
    first = int(number[0]) if len(number) else 0
    if (number == first).all():
        return [(first, known_key) for known_key in keys], code
    pairs = pa.array(number.astype(np.int64) * len(keys) + code).dictionary_encode()
    return [(pair // len(keys), keys[pair % len(keys)]) for pair in pairs.dictionary.to_pylist()], pairs.indices.to_numpy()
