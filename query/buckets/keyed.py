"""
A query with OVER over several inputs, or over the results of another query; a substream is a key.

Each input's ordered topic is partitioned by the same keys, so one partition of each holds all events of a key: together they are a bucket.
A key has a *timeline* in every channel that the bucket reads. A timeline has moved past an instant if an event of it above that instant was
accepted, a CTI's list said so, or its channel's CTI rose above it. The substream has moved past an instant once all of its timelines have,
since each input can still bring an event that changes a result.

Results of a query with OVER are in the order of time only within an input partition and key, and do not name that partition. So their
events move no timeline, only the CTIs of their topic do. Results of a query without OVER are in the order of time, and move it. Which of
the two they are is known from the first roster on; nothing is final before.

Law, level 2: results leave in the order of the records of the walk (:mod:`query.buckets.log_walk`) that made them final, ordered (s, key
bytes) within a record. Level 3: the rows of a substream depend on its events alone, which are evaluated in the order (s, input partition,
offset).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.protocol.punctuation import Roster
from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket, BucketConfig
from query.buckets.closing_steps import ClosingSteps
from query.buckets.emission_order import Moves, first_move, first_rise, sort_by_emission
from query.buckets.log_walk import CtiEntry, WalkedLog, is_due, walk_places
from query.buckets.substream_table import SubstreamTable
from query.columns.events import NO_EVENTS
from query.columns.large_tables import combine_column
from query.engine.exchange import key_bytes
from query.engine.program import Program
from query.engine.retention import RetainedKind
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.tree import Expr, keys_of

# A channel that the bucket reads: the number of the source, and the roster number of the input partition. Arrays have a column or an entry
# for each member, by its dense number.
Member = tuple[int, int]

_NO_PLACES: Ints = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _Stretch:
    """A part of the walk in which the same channels take part."""

    # The first place of the stretch.
    first: int
    # For each source its events, and their places.
    events: list[tuple[pa.Table, Ints]]
    # For each source the entries of its CTIs, and their places.
    entries: list[list[tuple[CtiEntry, int]]]

    def cut(self, first: int, until: int) -> _Stretch:
        """Return the part with places in [first, until)."""
        chosen = [(table, place, np.flatnonzero((place >= first) & (place < until))) for table, place in self.events]
        return _Stretch(
            first,
            [(table if len(rows) == len(place) else table.take(pa.array(rows)), place[rows]) for table, place, rows in chosen],
            [[(entry, place) for entry, place in entries if first <= place < until] for entries in self.entries],
        )


class _Rise(NamedTuple):
    """A channel promises more from a place of the walk on."""

    member: int
    promise_us: int
    place: int


@dataclass(frozen=True, slots=True)
class _Walked:
    """A stretch that was walked, and the progress before it, microseconds."""

    # The first place of the stretch.
    first: int
    moves: Moves
    # The rises of channels, in log order.
    rises: Sequence[_Rise]
    # The instant that each substream, each of its timelines and each channel had reached.
    progress: Ints
    timelines: Ints
    channels: Ints

    @property
    def last(self) -> int:
        """The last place at which something moved."""
        places: list[int] = [self.first, *self.moves.place[-1:].tolist(), *(rise.place for rise in self.rises)]
        return max(places)


class KeyedBucket(Bucket):
    """One partition of each ordered topic; see the module."""

    def __init__(self, program: Program, config: BucketConfig, overs: Sequence[Expr | None]) -> None:
        super().__init__(program, config)
        # For each source that is the result of a query its substream key, which its records must have; else None.
        self._overs = tuple(overs)
        self._subs: SubstreamTable[bytes] = SubstreamTable()
        self._members: dict[Member, int] = {}
        self._walked = [WalkedLog() for _ in self._sources]
        # Which members a roster has announced; substreams wait for these only.
        self._is_joined: Mask = np.empty(0, dtype=np.bool_)
        # For each source whether its events move their timelines. Of results that is unknown before the first roster.
        self._moves_timelines: list[bool] = [over is None for over in self._overs]
        # The instant that each member promises at the place that the walk has reached.
        self._channels_us: Ints = np.empty(0, dtype=np.int64)
        # A row per substream, a column per member; NEVER if it has not moved.
        self._timelines_us: Ints = np.empty((0, 0), dtype=np.int64)

    @property
    def frontier_us(self) -> int:
        """No later result has a System.Timestamp below this: the least promise of all channels in the walk so far."""
        least = min(self._channels_us[self._is_joined].tolist(), default=NEVER) if self._has_all_rosters else NEVER
        return min(INFINITY if self._ended else least, self._until_us)

    @property
    def _has_all_rosters(self) -> bool:
        """Whether each source has announced its channels."""
        return {source for (source, _), member in self._members.items() if self._is_joined[member]} == set(range(len(self._sources)))

    def _accept_events(self, source_index: int, events: pa.Table, accepted: Accepted) -> Iterable[list[pa.Table]]:
        events, accepted = self._drop_foreign_keys(source_index, events, accepted)
        clock = self._walked[source_index].accept_range(events, accepted)
        if events.num_rows:
            pending = events.append_column("clock", pa.array(clock)).append_column("position", pa.array(accepted.position))
            self._retention.add(RetainedKind.PENDING.of(source_index), pending)
        return ()

    def _drop_foreign_keys(self, source_index: int, events: pa.Table, accepted: Accepted) -> tuple[pa.Table, Accepted]:
        """Return the events of a source whose record has the key of their substream; the others become dead letters."""
        over = self._overs[source_index]
        if over is None or not events.num_rows:
            return events, accepted
        is_same = pc.equal(key_bytes(keys_of(over), events), pc.fill_null(combine_column(events["key"]), b""))
        is_fine = pc.fill_null(is_same, False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~is_fine).tolist():
            self._add_bad_row(events, row, source_index, QueryReason.FOREIGN_KEY.text(over))
        self._count("bad_rows", int(np.count_nonzero(~is_fine)))
        # Almost always all are fine: then nothing is copied.
        if not is_fine.all():
            events = events.filter(pa.array(is_fine))
        return events, replace(accepted, rows=accepted.rows[is_fine], position=accepted.position[is_fine])

    def _close_due(self) -> Iterator[list[pa.Table]]:
        # All records that count by now are walked.
        for stretch in self._pop_stretches():
            yield from self._advance(stretch)
        if self._ended:
            nothing = _Stretch(0, [(NO_EVENTS, _NO_PLACES)] * len(self._sources), [[] for _ in self._sources])
            yield from self._advance(nothing, is_end=True)

    # The walk

    def _pop_stretches(self) -> list[_Stretch]:
        """Remove and return the pending records that count by now, cut at places where channels join."""
        is_alone = len(self._walked) == 1
        # One log alone has nothing to wait for; at the end there is nothing more to come.
        until = INFINITY if self._ended or is_alone else min(log.clock for log in self._walked)
        tables = [self._pop_due(index, until) for index in range(len(self._sources))]
        entries = [log.pop_due(until) for log in self._walked]
        columns = [
            (table["clock"].to_numpy(), np.full(table.num_rows, index), table["position"].to_numpy()) for index, table in enumerate(tables)
        ]
        rows = [(entry.clock, index, entry.offset) for index, of_source in enumerate(entries) for entry in of_source]
        clock, log, offset = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        columns.append((clock, log, offset))
        if not sum(len(clock) for clock, _, _ in columns):
            return []
        place = walk_places(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
        *event_places, entry_places = np.split(place, np.cumsum([len(clock) for clock, _, _ in columns])[:-1])
        for index, walked in enumerate(self._walked):
            last = columns[index][2][-1:].tolist()
            walked.walked_offset = max([walked.walked_offset, *last, *(entry.offset for entry in entries[index])])
        next_place = iter(entry_places.tolist())
        with_places = [[(entry, next(next_place)) for entry in of_source] for of_source in entries]
        everything = _Stretch(0, list(zip(tables, event_places, strict=True)), with_places)
        cuts = sorted({place for of_source in with_places for entry, place in of_source if entry.roster is not None} - {0})
        return [everything.cut(*edges) for edges in zip([0, *cuts], [*cuts, len(place)], strict=True)]

    def _pop_due(self, source_index: int, until: int) -> pa.Table:
        """Remove and return the pending events of a source that count by now, in the order of its log."""
        name = RetainedKind.PENDING.of(source_index)
        pending = self._retention.rows(name)
        if pending is None:
            return _NO_PENDING
        due = pending.filter(pa.array(is_due(pending["clock"].to_numpy(), until)))
        self._retention.reduce(name, lambda table: table.filter(pa.array(~is_due(table["clock"].to_numpy(), until))))
        return due

    def _advance(self, stretch: _Stretch, *, is_end: bool = False) -> Iterator[list[pa.Table]]:
        """Walk a stretch; yield each output's results that became final. At the end of a run all are."""
        entries = [(source_index, entry, place) for source_index, of_source in enumerate(stretch.entries) for entry, place in of_source]
        for source_index, entry, _ in entries:
            if entry.roster is not None:
                self._join(source_index, entry.roster)
        subs = [self._number_substreams(events) for events, _ in stretch.events]
        moves = self._moves(stretch, entries, subs).sort_by_place()
        rises = [
            _Rise(self._member((source_index, entry.number)), entry.us, place) for source_index, entry, place in entries if entry.is_rise
        ]
        for source_index, ((events, _), sub) in enumerate(zip(stretch.events, subs, strict=True)):
            if events.num_rows:
                # Clock and position are not needed any longer: from here on the substream's order counts.
                waiting = events.select(NO_EVENTS.column_names).append_column("sub", pa.array(sub))
                self._retention.add(RetainedKind.WAITING.of(source_index), waiting)
        walked = _Walked(stretch.first, moves, rises, self._subs.progress_us.copy(), self._timelines_us.copy(), self._channels_us.copy())
        np.maximum.at(self._timelines_us, (moves.sub, moves.member), moves.to_us)
        for member, us, _ in rises:
            self._channels_us[member] = max(self._channels_us[member], us)
        for touched in (moves.sub, *subs):
            self._subs.touch(np.flatnonzero(np.bincount(touched)))
        np.maximum(self._subs.progress_us, INFINITY if is_end else self._substream_frontiers(), out=self._subs.progress_us)
        if (self._subs.progress_us > walked.progress).any():
            yield from self._close(walked, is_end)

    def _close(self, walked: _Walked, is_end: bool) -> Iterator[list[pa.Table]]:
        """Yield the results that a stretch has made final, in emission order."""
        first_us, instants = self._subs.progress_us.copy(), []
        for source_index in range(len(self._sources)):
            due = self._prepare_due(source_index)
            instants.append(due["system_us"].to_numpy())
            np.minimum.at(first_us, due["sub"].to_numpy(), due["system_us"].to_numpy())
        progress = walked.progress, self._subs.progress_us.copy()
        closing = self._subs.slices_since(walked.progress, first_us)
        assert closing is not None

        def divide(is_too_much: Callable[[pa.Table], bool]) -> Iterator[pa.Table]:
            steps = ClosingSteps(
                slices=lambda since, until: self._subs.slices_since(since, first_us, until),
                is_too_much=is_too_much,
                progress_before=lambda place: self._progress_before(walked, place, first_us),
                instants_us=np.concatenate(instants),
                key_of=self._subs.names.__getitem__,
            )
            return steps.divide((walked.first, walked.first if is_end else walked.last + 1), progress)

        for tables in self._finish(closing, divide):
            yield [self._sort(output, rows, walked) for output, rows in enumerate(tables)]

    def _progress_before(self, walked: _Walked, place: int, first_us: Ints) -> Ints:
        """Return the instant that each substream had reached before a place of a stretch."""
        timelines, channels = walked.timelines.copy(), walked.channels.copy()
        moves = walked.moves.take(np.flatnonzero(walked.moves.place < place))
        np.maximum.at(timelines, (moves.sub, moves.member), moves.to_us)
        for member, us, rise_place in walked.rises:
            channels[member] = max(channels[member], us) if rise_place < place else channels[member]
        progress: Ints = np.maximum(walked.progress, self._substream_frontiers(timelines, channels))
        # A substream begins with its first event.
        progress[(walked.progress == NEVER) & (progress <= first_us)] = NEVER
        return progress

    def _sort(self, output: int, rows: pa.Table, walked: _Walked) -> pa.Table:
        """Return results in emission order."""
        if not rows.num_rows:
            return rows
        ends = rows["system_us"].to_numpy() - self._program.ahead_us(output)
        return sort_by_emission(rows, self._final_by(rows["sub"].to_numpy(), ends, walked), self._subs.names.__getitem__)

    def _join(self, source_index: int, roster: Roster) -> None:
        """Wait for every channel of a roster from here on."""
        source = self._sources[source_index]
        ((_, partition),) = source.logs.items()
        for number in roster.channels_of(partition, source.partitions):
            # First the member: _member replaces the array _is_joined.
            member = self._member((source_index, number))
            self._is_joined[member] = True
        if not self._moves_timelines[source_index] and not roster.substreams:
            self._moves_timelines[source_index] = True
            self._move_waiting(source_index)
        # With more channels, the progress of a substream no longer follows from its saved timelines.
        self._subs.touch(np.arange(len(self._subs)))

    def _move_waiting(self, source_index: int) -> None:
        """Let the events that a source has brought so far move their timelines; without its roster nothing was final, so all wait."""
        waiting = self._retention.rows(RetainedKind.WAITING.of(source_index))
        if waiting is not None:
            # First the members: _member replaces the array _timelines_us.
            members = self._members_of(source_index, waiting["partition_id"].to_numpy())
            np.maximum.at(self._timelines_us, (waiting["sub"].to_numpy(), members), waiting["system_us"].to_numpy())

    def _members_of(self, source_index: int, partition_ids: Ints) -> Ints:
        """Return the member of each event of a source."""
        numbers, which = np.unique(partition_ids, return_inverse=True)
        return np.array([self._member((source_index, number)) for number in numbers.tolist()], dtype=np.int64)[which]

    def _member(self, member: Member) -> int:
        if member not in self._members:
            self._members[member] = len(self._members)
            self._is_joined = np.append(self._is_joined, False)
            self._channels_us = np.append(self._channels_us, NEVER)
            self._timelines_us = np.column_stack([self._timelines_us, np.full(len(self._timelines_us), NEVER, dtype=np.int64)])
        return self._members[member]

    def _number_substreams(self, events: pa.Table) -> Ints:
        coded = pc.fill_null(combine_column(events["key"]), b"").dictionary_encode()
        subs: Ints = self._number_keys(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
        return subs

    def _number_keys(self, keys: Sequence[bytes]) -> Ints:
        subs, fresh = self._subs.number(keys)
        if fresh:
            self._timelines_us = np.vstack([self._timelines_us, np.full((len(fresh), self._timelines_us.shape[1]), NEVER, dtype=np.int64)])
        return subs

    def _moves(self, stretch: _Stretch, entries: Sequence[tuple[int, CtiEntry, int]], subs: Sequence[Ints]) -> Moves:
        """Return the moves by events and by the lists of CTIs. A list can precede another input's first event of its substream."""
        moves = Moves.of([])
        for source_index, ((events, place), sub) in enumerate(zip(stretch.events, subs, strict=True)):
            if self._moves_timelines[source_index] and events.num_rows:
                members = self._members_of(source_index, events["partition_id"].to_numpy())
                moves += Moves(sub, members, events["system_us"].to_numpy(), place)
        listed = [(entry.key, (index, entry.number), entry.us, place) for index, entry, place in entries if entry.key is not None]
        named = self._number_keys([key for key, *_ in listed]).tolist()
        return moves + Moves.of([(sub, self._member(member), us, place) for sub, (_, member, us, place) in zip(named, listed, strict=True)])

    def _substream_frontiers(self, timelines_us: Ints | None = None, channels_us: Ints | None = None) -> Ints:
        """Return the instant that each substream has reached, the least of its timelines; by default at the place of the walk."""
        if not self._has_all_rosters:
            return np.full(len(self._subs), NEVER, dtype=np.int64)
        timelines_us = self._timelines_us if timelines_us is None else timelines_us
        channels_us = self._channels_us if channels_us is None else channels_us
        frontiers: Ints = np.maximum(timelines_us, channels_us)[:, self._is_joined].min(axis=1)
        return frontiers

    def _prepare_due(self, source_index: int) -> pa.Table:
        """Evaluate the events that their substream has moved past, ordered by (system timestamp, input partition, offset); return them."""
        name = RetainedKind.WAITING.of(source_index)
        waiting = self._retention.rows(name)
        if waiting is None:
            return _NO_WAITING
        due = waiting.filter(pa.array(self._is_past(waiting)))
        self._drop_past(name)
        if due.num_rows:
            for _ in self._prepare_by_time(source_index, due):
                pass
        return due

    def _is_past(self, rows: pa.Table) -> Mask:
        is_past: Mask = rows["system_us"].to_numpy() < self._subs.progress_us[rows["sub"].to_numpy()]
        return is_past

    def _drop_past(self, name: str) -> None:
        self._retention.reduce(name, lambda table: table.filter(pa.array(~self._is_past(table))))

    def _final_by(self, owner: Ints, ends: Ints, walked: _Walked) -> Ints:
        """
        Return the place of the record that made each result final, not before the first place of the stretch.

        *owner* is each result's substream, *ends* the instant that it had to pass, microseconds.
        """
        final_by, moves = np.full(len(ends), walked.first, dtype=np.int64), walked.moves
        for member in np.flatnonzero(self._is_joined).tolist():
            by_event = first_move(moves.take(np.flatnonzero(moves.member == member)), len(self._subs), ends, owner)
            by_channel = first_rise(sorted((rise.place, rise.promise_us) for rise in walked.rises if rise.member == member), ends)
            had_passed = np.maximum(walked.timelines[owner, member], walked.channels[member]) > ends
            final_by = np.maximum(final_by, np.where(had_passed, walked.first, np.minimum(by_event, by_channel)))
        return final_by

    # State

    def _save_progress(self) -> None:
        self._prune()
        self._subs.save(
            self._retention,
            lambda subs: {
                "key": pa.array([self._subs.names[sub] for sub in subs.tolist()], pa.binary()),
                **{f"own{member}": self._timelines_us[subs, member] for member in range(len(self._members))},
            },
        )

    def _prune(self) -> None:
        """Forget substreams without rows whose timelines are where their channels are, if most are such."""
        if self._subs.may_prune:
            needed = (self._timelines_us > self._channels_us).any(axis=1) | (self._subs.progress_us > self._substream_frontiers())
            names = [*self._program.retained_names, *map(RetainedKind.WAITING.of, range(len(self._sources)))]
            kept = self._subs.prune(needed, self._retention, names)
            if kept is not None:
                self._timelines_us = self._timelines_us[kept]

    def _head_fields(self) -> dict[str, Any]:
        return {
            "subs": len(self._subs),
            "logs": [log.save() for log in self._walked],
            "members": [[*name, bool(self._is_joined[member]), int(self._channels_us[member])] for name, member in self._members.items()],
            "moving": self._moves_timelines,
        }

    def _restore_own(self, fields: dict[str, Any]) -> None:
        self._walked = [WalkedLog.restore(saved) for saved in fields["logs"]]
        self._members = {(source_index, number): member for member, (source_index, number, _, _) in enumerate(fields["members"])}
        self._is_joined = np.array([is_joined for _, _, is_joined, _ in fields["members"]], dtype=np.bool_)
        self._channels_us = np.array([c for _, _, _, c in fields["members"]], dtype=np.int64)
        self._moves_timelines = fields["moving"]
        self._timelines_us = np.full((fields["subs"], len(self._members)), NEVER, dtype=np.int64)
        for subs, entries in self._subs.restore(self._retention, fields["subs"], lambda table: table["key"].to_pylist()):
            for member in range(len(self._members)):
                # A piece from before a channel was known has nothing of it.
                if f"own{member}" in entries.column_names:
                    np.maximum.at(self._timelines_us[:, member], subs, pc.fill_null(entries[f"own{member}"], NEVER).to_numpy())
        np.maximum(self._subs.progress_us, self._substream_frontiers(), out=self._subs.progress_us)
        for source_index, log in enumerate(self._walked):
            walked_offset = log.walked_offset
            self._retention.reduce(
                RetainedKind.PENDING.of(source_index),
                lambda table, last=walked_offset: table.filter(pc.greater(table["position"], last)),  # type: ignore[misc]
            )
            self._drop_past(RetainedKind.WAITING.of(source_index))
        self._program.forget(self._retention, self._subs.horizon())


_NO_PENDING = NO_EVENTS.append_column("clock", pa.array([], pa.int64())).append_column("position", pa.array([], pa.int64()))
_NO_WAITING = NO_EVENTS.append_column("sub", pa.array([], pa.int64()))
