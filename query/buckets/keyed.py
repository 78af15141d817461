"""
A query with OVER over several inputs, or over the results of another query: substream by substream, a substream being a key.

Each input's ordered topic is spread by the same keys, so one partition of each holds all events of a key: together they are a
bucket. A key's *timelines* are those it may have in every channel that the bucket reads. A timeline has moved past an instant
once an event of it above that instant was accepted, a CTI's list said so, or its channel's CTI rose above it; the substream
has, once all of its timelines have: each input may still bring something that changes a result.

Results of a query with OVER stand in the order of time only within an input partition and key, and do not say which partition
it was. So their events move no timeline, only the CTIs of their topic do; those of a query without OVER come in the order of
time, and move it.

Law, level 2: results come upon the record of the walk (:mod:`query.buckets.log_walk`) that made them final, ordered (s, key bytes)
within it. Level 3: the rows of a substream depend on its events alone: they are worked on in the order (s, input partition, offset).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket
from query.buckets.emission_order import first_move, sort_by_emission
from query.buckets.log_walk import CtiEntry, WalkedLog, is_due, walk_places
from query.buckets.substream_forgetting import PROGRESS, Pruning, outdated
from query.columns.decode import Events
from query.engine.exchange import key_bytes
from query.engine.pending_events import events_of, table_of
from tidegate.expressions.tree import Expr

Ints = NDArray[np.int64]
Member = tuple[int, int]
"""A channel: the number of the source, and the roster number of the input partition."""


@dataclass(frozen=True, slots=True)
class _Moves:
    """What moved timelines: substream, member, to what instant (microseconds), at which place of the walk."""

    sub: Ints
    member: Ints
    to_us: Ints
    place: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> _Moves:
        """Return moves given one by one."""
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)

    def in_order(self) -> _Moves:
        """Return them in the order of the walk."""
        order = np.argsort(self.place, kind="stable")
        return _Moves(self.sub[order], self.member[order], self.to_us[order], self.place[order])

    def __add__(self, other: _Moves) -> _Moves:
        return _Moves(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("sub", "member", "to_us", "place")))


@dataclass(slots=True)
class _Stretch:
    """
    A part of the walk in which the same channels take part: its first place, and for each source its events and what was told, with
    their places.
    """

    first: int
    events: list[tuple[Events, Ints]]
    entries: list[list[tuple[CtiEntry, int]]]


class KeyedBucket(Bucket):
    """
    One partition of each ordered topic; see the module.

    Args:
        overs: For each source the substream key if it is the result of a query, whose records must stand under it; else None.
        rest: As for :class:`query.buckets.bucket.Bucket`.
    """

    def __init__(self, overs: Sequence[Expr | None], *rest: Any) -> None:
        super().__init__(*rest)
        self._overs = tuple(overs)
        self._subs: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self._members: dict[Member, int] = {}
        self._walked = [WalkedLog() for _ in self._sources]
        self._joined: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._moving: list[bool] = [True] * len(self._sources)
        self._channels: Ints = np.empty(0, dtype=np.int64)
        self._timelines: Ints = np.empty((0, 0), dtype=np.int64)
        self._progress: Ints = np.empty(0, dtype=np.int64)
        self._touched: list[Ints] = []
        self._pruning = Pruning()

    @property
    def frontier_us(self) -> int:
        """No later result has a System.Timestamp below this: the least that channels have told in the walk so far."""
        told = min(self._channels[self._joined].tolist(), default=NEVER) if self._is_known else NEVER
        return min(INFINITY if self._ended else told, self._until_us)

    @property
    def _is_known(self) -> bool:
        """Tell whether each source has said which channels there are."""
        return {at for (at, _), member in self._members.items() if self._joined[member]} == set(range(len(self._sources)))

    def _accept_events(self, at: int, events: Events, accepted: Accepted) -> None:
        events, accepted = self._under_its_key(at, events, accepted)
        clock = self._walked[at].accept_range(events, accepted)
        if len(events):
            kept = table_of(events).append_column("clock", pa.array(clock)).append_column("position", pa.array(accepted.position))
            self._retention.add(_pending_name(at), kept)

    def _under_its_key(self, at: int, events: Events, accepted: Accepted) -> tuple[Events, Accepted]:
        """Return the events of a source without those that do not stand under their substream's key: they are dead letters."""
        over = self._overs[at]
        if over is None or not len(events):
            return events, accepted
        found = pc.equal(key_bytes([over], events), pc.fill_null(events.key, b""))
        fine = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~fine).tolist():
            self._bad.add(events.take(np.array([row])), at, f"the result's key is not {over}, which OVER names")
        self._count("bad_rows", int(np.count_nonzero(~fine)))
        rows = np.flatnonzero(fine)
        return events.take(rows), replace(accepted, rows=accepted.rows[rows], position=accepted.position[rows])

    def _close_due(self) -> list[pa.Table] | None:
        found = [self._advance(stretch) for stretch in self._stretches()]
        if self._ended:
            nothing = _Stretch(0, [(Events.none(), _NO_PLACES)] * len(self._sources), [[] for _ in self._sources])
            found.append(self._advance(nothing, is_end=True))
        given = [tables for tables in found if tables is not None]
        return [pa.concat_tables(tables) for tables in zip(*given, strict=True)] if given else None

    # The walk

    def _stretches(self) -> list[_Stretch]:
        """Return what counts now, cut where channels join."""
        is_alone = len(self._walked) == 1
        until = INFINITY if self._ended or is_alone else min(line.clock for line in self._walked)
        tables = [self._pop_due(at, until) for at in range(len(self._sources))]
        told = [line.pop_due(until) for line in self._walked]
        columns = [
            (table["clock"].to_numpy(), np.full(table.num_rows, at), table["position"].to_numpy())
            if table is not None
            else (_NO_PLACES, _NO_PLACES, _NO_PLACES)
            for at, table in enumerate(tables)
        ]
        rows = [(each.clock, at, each.offset) for at, every in enumerate(told) for each in every]
        columns.append(tuple(np.array(rows, dtype=np.int64).reshape(-1, 3).T))  # type: ignore[arg-type]
        if not sum(len(clock) for clock, _, _ in columns):
            return []
        place = walk_places(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
        places = np.split(place, np.cumsum([len(clock) for clock, _, _ in columns])[:-1])
        for at, (line, (_, _, offset)) in enumerate(zip(self._walked, columns, strict=False)):
            line.walked_offset = max([line.walked_offset, *offset[-1:].tolist(), *(each.offset for each in told[at])])
        told_places = iter(places[-1].tolist())
        with_places = [[(each, next(told_places)) for each in every] for every in told]
        events = [(events_of(table) if table is not None else Events.none(), mine) for table, mine in zip(tables, places, strict=False)]
        cuts = sorted({at for every in with_places for each, at in every if each.roster is not None} - {0})
        return [_cut_stretch(events, with_places, *edges) for edges in zip([0, *cuts], [*cuts, len(place)], strict=True)]

    def _pop_due(self, at: int, until: int) -> pa.Table | None:
        """Return the events of a source that count now, in the order of its log; they are held no more."""
        held = self._retention.rows(_pending_name(at))
        if held is None:
            return None
        found = held.filter(pa.array(is_due(held["clock"].to_numpy(), until)))
        self._retention.reduce(_pending_name(at), lambda table: table.filter(pa.array(~is_due(table["clock"].to_numpy(), until))))
        return found if found.num_rows else None

    def _advance(self, stretch: _Stretch, *, is_end: bool = False) -> list[pa.Table] | None:
        """Walk a stretch; return each output's results that became final. At the end of a run all are."""
        for at, every in enumerate(stretch.entries):
            for each, _ in every:
                if each.roster is not None:
                    self._join(at, each)
        subs = [self._find(events) for events, _ in stretch.events]
        moves = self._moves(stretch, subs).in_order()
        rises = [
            (self._member((at, each.number)), each.us, place)
            for at, every in enumerate(stretch.entries)
            for each, place in every
            if each.key is None and each.roster is None
        ]
        for at, ((events, _), sub) in enumerate(zip(stretch.events, subs, strict=True)):
            if len(events):
                self._retention.add(_waiting_name(at), table_of(events).append_column("sub", pa.array(sub)))
        own, channels, before = self._timelines.copy(), self._channels.copy(), self._progress.copy()
        np.maximum.at(self._timelines, (moves.sub, moves.member), moves.to_us)
        for member, us, _ in rises:
            self._channels[member] = max(self._channels[member], us)
        self._touched += [np.unique(moves.sub), *map(np.unique, subs)]
        np.maximum(self._progress, INFINITY if is_end else self._substream_frontiers(), out=self._progress)
        moved = np.flatnonzero(self._progress > before)
        if not len(moved):
            return None
        # Before its first event a substream has no result: an older slice of time would make a batch look at all that is retained.
        first_us = self._progress.copy()
        for at in range(len(self._sources)):
            due = self._prepare_due(at)
            np.minimum.at(first_us, due["sub"].to_numpy(), due["system_us"].to_numpy())
        from_us = np.where(before == NEVER, first_us, before)
        closing = pa.table({"sub": moved, "from_us": from_us[moved], "to_us": self._progress[moved]})
        found = self._finish(closing)
        ends = [rows["system_us"].to_numpy() - self._program.ahead_us(output) for output, rows in enumerate(found)]
        return [
            self._sort_by_emission(rows, self._final_by(rows["sub"].to_numpy(), until, stretch.first, moves, rises, own, channels))
            if rows.num_rows
            else rows
            for rows, until in zip(found, ends, strict=True)
        ]

    def _join(self, at: int, told: CtiEntry) -> None:
        """Wait for every channel of a roster from now on."""
        source = self._sources[at]
        ((_, partition),) = source.logs.items()
        assert told.roster is not None
        for number in told.roster.channels_of(partition, source.partitions):
            member = self._member((at, number))
            self._joined[member] = True
        self._moving[at] = self._overs[at] is None or not told.roster.substreams
        # How far substreams have come does not follow from their timelines any more.
        self._touched.append(np.arange(len(self._names)))

    def _member(self, member: Member) -> int:
        """Return the number of a channel, adding it if it is new."""
        if member not in self._members:
            self._members[member] = len(self._members)
            self._joined = np.append(self._joined, False)
            self._channels = np.append(self._channels, NEVER)
            self._timelines = np.column_stack([self._timelines, np.full(len(self._timelines), NEVER, dtype=np.int64)])
        return self._members[member]

    def _find(self, events: Events) -> Ints:
        """Return the dense number of each event's substream, adding those not yet known."""
        coded = pc.fill_null(events.key, b"").dictionary_encode()
        found: Ints = self._numbers(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
        return found

    def _numbers(self, keys: Sequence[bytes]) -> Ints:
        fresh = [key for key in dict.fromkeys(keys) if key not in self._subs]
        if fresh:
            self._subs.update(zip(fresh, range(len(self._names), len(self._names) + len(fresh)), strict=True))
            self._names += fresh
            self._timelines = np.vstack([self._timelines, np.full((len(fresh), self._timelines.shape[1]), NEVER, dtype=np.int64)])
            self._progress = np.concatenate([self._progress, np.full(len(fresh), NEVER, dtype=np.int64)])
        return np.array([self._subs[key] for key in keys], dtype=np.int64)

    def _moves(self, stretch: _Stretch, subs: Sequence[Ints]) -> _Moves:
        """Return what events and the lists of CTIs move. A list may come before another input's first event of its substream."""
        moves = _Moves.of([])
        for at, ((events, place), sub) in enumerate(zip(stretch.events, subs, strict=True)):
            if self._moving[at] and len(events):
                members = {number: self._member((at, number)) for number in np.unique(events.number).tolist()}
                member = np.array([members[number] for number in events.number.tolist()], dtype=np.int64)
                moves += _Moves(sub, member, events.system_us, place)
        listed = [(each.key, at, each, place) for at, every in enumerate(stretch.entries) for each, place in every if each.key is not None]
        named = self._numbers([key for key, *_ in listed]).tolist()
        rows = [(sub, self._member((at, each.number)), each.us, place) for sub, (_, at, each, place) in zip(named, listed, strict=True)]
        return moves + _Moves.of(rows)

    def _substream_frontiers(self) -> Ints:
        """Return how far each substream has come: as far as the last of its timelines."""
        if not self._is_known:
            return np.full(len(self._names), NEVER, dtype=np.int64)
        reached: Ints = np.maximum(self._timelines, self._channels)[:, self._joined].min(axis=1)
        return reached

    def _prepare_due(self, at: int) -> pa.Table:
        """Work on the events of a source that their substream has moved past, in the order (s, input partition, offset); return them."""
        waiting = self._retention.rows(_waiting_name(at))
        if waiting is None:
            return _NOTHING_DUE
        due = waiting.filter(pa.array(self._is_past(waiting)))
        self._retention.reduce(_waiting_name(at), lambda table: table.filter(pa.array(~self._is_past(table))))
        if due.num_rows:
            self._prepare_in_order(at, due)
        return due

    def _is_past(self, rows: pa.Table) -> NDArray[np.bool_]:
        past: NDArray[np.bool_] = rows["system_us"].to_numpy() < self._progress[rows["sub"].to_numpy()]
        return past

    # Order

    def _final_by(
        self, owner: Ints, ends: Ints, first: int, moves: _Moves, rises: Sequence[tuple[int, int, int]], own: Ints, channels: Ints
    ) -> Ints:
        """
        Return the place of the record upon which each result became final, not before the *first* of the stretch.

        Args:
            owner: The substream of each result.
            ends: Beyond which instant its substream had to come, microseconds.
            first: The first place of the stretch.
            moves: What moved substreams in it.
            rises: What moved channels in it.
            own: How far timelines had come before it.
            channels: How far channels had.
        """
        upon = np.full(len(ends), first, dtype=np.int64)
        for member in np.flatnonzero(self._joined).tolist():
            mine = moves.member == member
            by_event = first_move(moves.sub[mine], moves.to_us[mine], moves.place[mine], len(self._names), ends, owner)
            steps = sorted((place, us) for number, us, place in rises if number == member)
            by_channel = np.full(len(ends), INFINITY, dtype=np.int64)
            if steps:
                places, told = np.array(steps, dtype=np.int64).T
                found = np.searchsorted(np.maximum.accumulate(told), ends, side="right")
                by_channel[found < len(steps)] = places[found[found < len(steps)]]
            before = np.maximum(own[owner, member], channels[member]) > ends
            upon = np.maximum(upon, np.where(before, first, np.minimum(by_event, by_channel)))
        return upon

    def _sort_by_emission(self, results: pa.Table, upon: Ints) -> pa.Table:
        """Return results under their substream's key, in the order (record, s, key bytes, fixed row order)."""
        return sort_by_emission(results, upon, self._names.__getitem__)

    # State

    def _save_progress(self) -> None:
        self._prune()
        touched, self._touched = outdated(self._touched, self._retention), []
        if not len(touched):
            return
        entries = {
            "sub": touched,
            "key": pa.array([self._names[sub] for sub in touched.tolist()], pa.binary()),
            "progress_us": self._progress[touched],
        }
        self._retention.add(
            PROGRESS, pa.table(entries | {f"own{member}": self._timelines[touched, member] for member in range(len(self._members))})
        )

    def _prune(self) -> None:
        """Forget substreams without rows whose timelines are where their channels are, once most are such; others are numbered anew."""
        if not self._pruning.is_due(len(self._names)):
            return
        needed = (self._timelines > self._channels).any(axis=1) | (self._progress > self._substream_frontiers())
        kept = self._pruning.kept(needed, self._retention, [*self._program.retained_names, *map(_waiting_name, range(len(self._sources)))])
        if kept is None:
            return
        self._names = [self._names[sub] for sub in np.flatnonzero(kept).tolist()]
        self._subs = {name: sub for sub, name in enumerate(self._names)}
        self._timelines, self._progress = self._timelines[kept], self._progress[kept]
        self._touched = [np.arange(len(self._names))]

    def _head_fields(self) -> dict[str, Any]:
        return {
            "subs": len(self._names),
            "lines": [line.save() for line in self._walked],
            "members": [[*member, bool(self._joined[at]), int(self._channels[at])] for member, at in self._members.items()],
            "moving": self._moving,
        }

    def _restore_own(self, fields: dict[str, Any]) -> None:
        self._walked = [WalkedLog.restore(saved) for saved in fields["lines"]]
        self._members = {(at, number): member for member, (at, number, _, _) in enumerate(fields["members"])}
        self._joined = np.array([joined for _, _, joined, _ in fields["members"]], dtype=np.bool_)
        self._channels = np.array([c for _, _, _, c in fields["members"]], dtype=np.int64)
        self._moving = fields["moving"]
        self._timelines = np.full((fields["subs"], len(self._members)), NEVER, dtype=np.int64)
        self._progress = np.full(fields["subs"], NEVER, dtype=np.int64)
        names: dict[int, bytes] = {}
        for entries in self._retention.tables(PROGRESS):
            sub = entries["sub"].to_numpy()
            np.maximum.at(self._progress, sub, entries["progress_us"].to_numpy())
            for member in range(len(self._members)):
                # A piece from before a channel was known has nothing of it.
                if f"own{member}" in entries.column_names:
                    np.maximum.at(self._timelines, (sub, member), pc.fill_null(entries[f"own{member}"], NEVER).to_numpy())
            names |= dict(zip(sub.tolist(), entries["key"].to_pylist(), strict=True))
        self._names = [names[sub] for sub in sorted(names)]
        self._subs = {name: sub for sub, name in enumerate(self._names)}
        assert len(self._subs) == fields["subs"], "every substream has a saved entry"
        np.maximum(self._progress, self._substream_frontiers(), out=self._progress)
        for at, line in enumerate(self._walked):
            walked = line.walked_offset
            self._retention.reduce(_pending_name(at), lambda table, walked=walked: table.filter(pc.greater(table["position"], walked)))  # type: ignore[misc]
            self._retention.reduce(_waiting_name(at), lambda table: table.filter(pa.array(~self._is_past(table))))
        self._program.forget(self._retention, pa.table({"sub": np.arange(len(self._progress)), "to_us": self._progress}))


_NOTHING_DUE = pa.table({"sub": pa.array([], pa.int64()), "system_us": pa.array([], pa.int64())})
_NO_PLACES: Ints = np.empty(0, dtype=np.int64)


def _pending_name(at: int) -> str:
    """Return the name under which the events of a source wait for the walk to come to them."""
    return f"held{at or ''}"


def _waiting_name(at: int) -> str:
    """Return the name under which the events of a source wait for their substream to move past them."""
    return f"waiting{at or ''}"


def _cut_stretch(events: Sequence[tuple[Events, Ints]], told: Sequence[Sequence[tuple[CtiEntry, int]]], first: int, until: int) -> _Stretch:
    """Return what has its place between two."""
    some = [(each, np.flatnonzero((place >= first) & (place < until)), place) for each, place in events]
    return _Stretch(
        first,
        [(each.take(rows), place[rows]) for each, rows, place in some],
        [[(each, place) for each, place in every if first <= place < until] for every in told],
    )
