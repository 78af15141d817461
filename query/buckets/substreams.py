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

from typing import Any

import numpy as np
import pyarrow as pa

from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY
from query.buckets.bucket import Bucket, BucketConfig
from query.buckets.cti_pacing import Progress
from query.buckets.emission_order import Moves, first_move, first_rise, sort_by_emission
from query.buckets.substream_table import SubstreamTable
from query.columns.events import Ints
from query.columns.large_tables import combine_column
from query.engine.program import Program

# Roster number of the input partition, and key; an empty key may come back from a broker as None.
_Name = tuple[int, bytes | None]


class SubstreamBucket(Bucket):
    """One ordered partition, substream by substream; see the module."""

    def __init__(self, program: Program, config: BucketConfig) -> None:
        super().__init__(program, config)
        self._subs: SubstreamTable[_Name] = SubstreamTable()
        self._number_of: Ints = np.empty(0, dtype=np.int64)

    def _accept_events(self, source_index: int, events: pa.Table, accepted: Accepted) -> list[pa.Table] | None:
        sub, system_us = self._find(events), events["system_us"].to_numpy()
        if events.num_rows:
            self._prepare(source_index, events, sub)
        moves = self._moves(sub, system_us, accepted)
        before = self._subs.progress_us.copy()
        np.maximum.at(self._subs.progress_us, moves.sub, moves.to_us)
        self._subs.touch(np.flatnonzero(np.bincount(moves.sub)))
        # Read only for new substreams, so the first event in this range is enough.
        first_us = np.full(len(before), INFINITY, dtype=np.int64)
        np.minimum.at(first_us, sub, system_us)
        results_by_output = self._close_from(before, first_us)
        if results_by_output is None:
            return None
        ahead = map(self._program.ahead_us, range(len(results_by_output)))
        return [
            self._sort(results, self._final_by(results, ahead_us, moves, accepted.progress)) if results.num_rows else results
            for results, ahead_us in zip(results_by_output, ahead, strict=True)
        ]

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

    def _close_due(self) -> list[pa.Table] | None:
        before = self._subs.progress_us.copy()
        results_by_output = self._close_from(before, before) if self._ended else None
        return results_by_output and [
            self._sort(results, np.zeros(results.num_rows, dtype=np.int64)) if results.num_rows else results
            for results in results_by_output
        ]

    def _find(self, events: pa.Table) -> Ints:
        names, place = _distinct_names(events["partition_id"].to_numpy(), combine_column(events["key"]))
        subs, fresh = self._subs.number(names)
        self._number_of = np.concatenate([self._number_of, np.array([number for number, _ in fresh], dtype=np.int64)])
        return subs[place]

    def _partition_ids_of(self, results: pa.Table) -> Ints:
        partition_ids: Ints = self._number_of[results["sub"].to_numpy()]
        return partition_ids

    def _floors(self) -> Ints:
        if self._ended:
            return np.full(len(self._number_of), INFINITY, dtype=np.int64)
        ((_, partition),) = self._sources[0].logs.items()
        numbers = range(int(self._number_of.max(initial=-1)) + 1)
        floors = np.array([self._pacing[0].channel_c(partition, number) for number in numbers], dtype=np.int64)
        return floors[self._number_of]

    def _close_from(self, before: Ints, first_us: Ints) -> list[pa.Table] | None:
        """Return each output's results that became final since *before*; of new substreams since *first_us*."""
        np.maximum(self._subs.progress_us, self._floors(), out=self._subs.progress_us)
        closing = self._subs.slices_since(before, first_us)
        return None if closing is None else self._finish(closing)

    def _final_by(self, results: pa.Table, ahead_us: int, moves: Moves, progress: Progress) -> Ints:
        """Return the log offset of the record that made each result final, *ahead_us* before its time."""
        ends, owner = results["system_us"].to_numpy() - ahead_us, results["sub"].to_numpy()
        final_by = first_move(moves, len(self._subs), ends, owner)
        numbers = self._number_of[owner]
        for number in np.unique(numbers).tolist():
            rises = [(offset, c) for offset, channel, c in progress if channel == number]
            rows = np.flatnonzero(numbers == number)
            final_by[rows] = np.minimum(final_by[rows], first_rise(rises, ends[rows]))
        return final_by

    def _sort(self, results: pa.Table, final_by: Ints) -> pa.Table:
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
