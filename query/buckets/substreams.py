"""
A query with OVER: one ordered partition, substream by substream.

A substream (input partition, key) has moved past an instant once an event of it above that instant was accepted, its
channel's CTI rose above it, or a CTI's list said so of this substream. Law, level 2: results come upon the record that
made them final, ordered (s, key bytes) within it, so the sequence depends on the log alone and not on batches.

Pacing thins what CTIs say of all substreams of a channel. What moves a single one, its events and the lists, is heeded at
once. A list need not be remembered for substreams without rows: no event of theirs below it can follow.

The key of a result is its substream's, as ingest wrote it: where a query reads a value in another way (an integer beyond
64 bits as a float, a declared kind, a name in another case), the result still stands under the key of its events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket
from query.buckets.emission_order import first_move, sort_by_emission
from query.buckets.substream_forgetting import PROGRESS, Pruning, outdated
from query.columns.decode import Events

Ints = NDArray[np.int64]

_Substream = tuple[int, bytes | None]
"""Roster number of the input partition, and key; a key of no bytes may come back from a broker as None."""


@dataclass(slots=True)
class _Moves:
    """What moved single substreams, in log order: which, to what instant (microseconds), upon the record at which log offset."""

    sub: Ints
    to_us: Ints
    position: Ints


class SubstreamBucket(Bucket):
    """One ordered partition, substream by substream; see the module."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._subs: dict[_Substream, int] = {}
        self._names: list[_Substream] = []
        """The keys of ``_subs`` in their order, so that none of its loops need walk through all of them."""
        self._number_of: Ints = np.empty(0, dtype=np.int64)
        self._progress: Ints = np.empty(0, dtype=np.int64)
        self._touched: list[Ints] = []
        self._pruning = Pruning()

    def _accept_events(self, at: int, events: Events, accepted: Accepted) -> list[pa.Table] | None:
        sub = self._find(events)
        position = np.arange(self._position, self._position + len(events))
        self._position += len(events)
        if len(events):
            self._prepare(at, events, sub, position)
        moves = self._moves(sub, events, accepted)
        before = self._progress.copy()
        np.maximum.at(self._progress, moves.sub, moves.to_us)
        self._touched.append(np.flatnonzero(np.bincount(moves.sub)))
        # Before its first event a substream has no result: an older slice of time would make a batch look at all that is retained.
        first_us = np.full(len(self._progress), INFINITY, dtype=np.int64)
        np.minimum.at(first_us, sub, events.system_us)
        found = self._close_from(before, first_us)
        if found is None:
            return None
        ahead = map(self._program.ahead_us, range(len(found)))
        return [
            self._sort_by_emission(rows, self._final_by(rows, ahead_us, moves, accepted.progress)) if rows.num_rows else rows
            for rows, ahead_us in zip(found, ahead, strict=True)
        ]

    def _moves(self, sub: Ints, events: Events, accepted: Accepted) -> _Moves:
        """Return what the accepted events, and the lists of CTIs about known substreams, move."""
        known = ((offset, self._known(number, key), w) for offset, number, key, w in accepted.listed)
        listed = [move for move in known if move[1] >= 0]
        if not listed:
            return _Moves(sub, events.system_us, accepted.position)
        offset, owner, w = np.array(listed, dtype=np.int64).T
        position = np.concatenate([accepted.position, offset])
        order = np.argsort(position, kind="stable")
        return _Moves(np.concatenate([sub, owner])[order], np.concatenate([events.system_us, w])[order], position[order])

    def _known(self, number: int, key: bytes) -> int:
        """Return the dense number of a substream, -1 if it has none."""
        found = self._subs.get((number, key), -1)
        return self._subs.get((number, None), -1) if found < 0 and not key else found

    def _close_due(self) -> list[pa.Table] | None:
        before = self._progress.copy()
        found = self._close_from(before, before) if self._ended else None
        return found and [
            self._sort_by_emission(rows, np.zeros(rows.num_rows, dtype=np.int64)) if rows.num_rows else rows for rows in found
        ]

    def _find(self, events: Events) -> Ints:
        """Return the dense number of each event's substream (input partition, key), adding those not yet known."""
        pairs, place = _distinct(events.number, events.key)
        subs = self._subs
        fresh = [pair for pair in pairs if pair not in subs]
        if fresh:
            subs.update(zip(fresh, range(len(subs), len(subs) + len(fresh)), strict=True))
            self._names += fresh
            self._number_of = np.concatenate([self._number_of, np.array([number for number, _ in fresh], dtype=np.int64)])
            self._progress = np.concatenate([self._progress, np.full(len(fresh), NEVER, dtype=np.int64)])
        return np.array([subs[pair] for pair in pairs], dtype=np.int64)[place]

    def _partition_ids_of(self, results: pa.Table) -> Ints:
        inputs: Ints = self._number_of[results["sub"].to_numpy()]
        return inputs

    def _floors(self) -> Ints:
        """Return how far the channel of each substream has come."""
        if self._ended:
            return np.full(len(self._number_of), INFINITY, dtype=np.int64)
        ((_, partition),) = self._sources[0].logs.items()
        numbers = range(int(self._number_of.max(initial=-1)) + 1)
        floors = np.array([self._pacing[0].channel_c(partition, number) for number in numbers], dtype=np.int64)
        return floors[self._number_of]

    def _close_from(self, before: Ints, first_us: Ints) -> list[pa.Table] | None:
        """Return each output's results of all windows that substreams have moved past since *before*; of new ones since *first_us*."""
        np.maximum(self._progress, self._floors(), out=self._progress)
        moved = np.flatnonzero(self._progress > before)
        if not len(moved):
            return None
        from_us = np.where(before == NEVER, first_us, before)[moved]
        return self._finish(pa.table({"sub": moved, "from_us": from_us, "to_us": self._progress[moved]}))

    def _final_by(self, results: pa.Table, ahead_us: int, moves: _Moves, progress: list[tuple[int, int, int]]) -> Ints:
        """Return the log offset of the record upon which each result became final, *ahead_us* before its time."""
        ends, owner = results["system_us"].to_numpy() - ahead_us, results["sub"].to_numpy()
        upon = first_move(moves.sub, moves.to_us, moves.position, len(self._subs), ends, owner)
        numbers = self._number_of[owner]
        for number in np.unique(numbers).tolist():
            steps = [(offset, c) for offset, channel, c in progress if channel == number]
            if steps:
                offsets, promised = np.array(steps, dtype=np.int64).T
                rows = np.flatnonzero(numbers == number)
                place = np.searchsorted(promised, ends[rows], side="right")
                reached = place < len(steps)
                upon[rows[reached]] = np.minimum(upon[rows[reached]], offsets[place[reached]])
        return upon

    def _sort_by_emission(self, results: pa.Table, upon: Ints) -> pa.Table:
        """Return results under their substream's key, in the order (record, s, key bytes, input partition, fixed row order)."""
        return sort_by_emission(results, upon, lambda sub: self._names[sub][1] or b"", lambda subs: self._number_of[subs])

    def _save_progress(self) -> None:
        self._prune()
        touched, self._touched = outdated(self._touched, self._retention), []
        if not len(touched):
            return
        entries = {
            "sub": touched,
            "number": self._number_of[touched],
            "key": pa.array([self._names[sub][1] for sub in touched.tolist()], type=pa.binary()),
            "progress_us": self._progress[touched],
        }
        self._retention.add(PROGRESS, pa.table(entries))

    def _prune(self) -> None:
        """Forget substreams without rows that the floor has passed, once most are such; all others are numbered anew."""
        if not self._pruning.is_due(len(self._names)):
            return
        kept = self._pruning.kept(self._progress > self._floors(), self._retention, self._program.retained_names)
        if kept is None:
            return
        self._names = [self._names[sub] for sub in np.flatnonzero(kept).tolist()]
        self._subs = {name: sub for sub, name in enumerate(self._names)}
        self._number_of, self._progress = self._number_of[kept], self._progress[kept]
        self._touched = [np.arange(len(self._names))]

    def _head_fields(self) -> dict[str, Any]:
        return {"subs": len(self._subs)}

    def _restore_own(self, fields: dict[str, Any]) -> None:
        self._number_of = np.zeros(fields["subs"], dtype=np.int64)
        self._progress = np.full(fields["subs"], NEVER, dtype=np.int64)
        names: dict[int, _Substream] = {}
        for entries in self._retention.tables(PROGRESS):
            sub = entries["sub"].to_numpy()
            self._number_of[sub] = entries["number"].to_numpy()
            np.maximum.at(self._progress, sub, entries["progress_us"].to_numpy())
            for at, number, key in zip(sub.tolist(), entries["number"].to_pylist(), entries["key"].to_pylist(), strict=True):
                names[at] = number, key
        self._names = [names[sub] for sub in sorted(names)]
        self._subs = {name: sub for sub, name in enumerate(self._names)}
        assert len(self._subs) == fields["subs"], "every substream has a saved entry"
        np.maximum(self._progress, self._floors(), out=self._progress)
        horizon = pa.table({"sub": np.arange(len(self._progress)), "to_us": self._progress})
        self._program.forget(self._retention, horizon)


def _distinct(number: Ints, key: pa.Array) -> tuple[list[_Substream], Ints]:
    """Return the distinct pairs of a number and a key, in the order in which they first come, and the place of each row's pair there."""
    coded = key.dictionary_encode(null_encoding="encode")
    code, keys = coded.indices.to_numpy(), coded.dictionary.to_pylist()
    first = int(number[0]) if len(number) else 0
    if (number == first).all():
        return [(first, each) for each in keys], code
    both = pa.array(number * len(keys) + code).dictionary_encode()
    return [(pair // len(keys), keys[pair % len(keys)]) for pair in both.dictionary.to_pylist()], both.indices.to_numpy()
