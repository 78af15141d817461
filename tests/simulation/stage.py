"""
The simulated stateful stage: the rules of ``ingest/stage/range_walk.py`` for one range of one input partition.

It runs the real model, the real states and the real bytes, in the processor's order: load, judge and queue piece by piece,
wait for the acknowledgement of all events, then CTIs, wait again, save. If the batch stays open, rounds follow before it saves
(:mod:`simulation.open_batch`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np
import pyarrow as pa
from simulation.checkpoint import Checkpoint, Fact, Planned, Saved
from simulation.journaling import JournalClient
from simulation.skipping import SkipPlan, earlier_attempt
from simulation.world import Producer, RawRecord, World

from ingest.planner.stage_progress import StageProgress
from ingest.skips import read_parts
from ingest.stage.earlier_attempt import EarlierAttempt
from ingest.stage.fact_outbox import FactOutbox
from ingest.stage.pending_ctis import PendingCtis
from ordering.model.events import Released
from ordering.model.state import State
from ordering.model.step import Batch, Counts, Model
from ordering.policies import Shape
from ordering.protocol import facts as protocol
from ordering.protocol.facts import FactKind
from ordering.protocol.wire import decode_source_cti
from ordering.ticks import NEVER
from tidegate.platform.kafka.writer import ChannelWriter

Steps = Iterator[str]
_AT_ONCE = {"CTIs do not wait", "open batches promise at once"}
_COUNTED = [counted.name for counted in fields(Counts) if counted.name != "held"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    One range of one batch, and what a task of it is told.

    Args:
        batch: Number of the batch.
        number: The input partition.
        until: Where it ends, with its facts; *start*: where it begins, unless the state stands beyond that.
        is_final: Whether the input ends with this batch.
        is_open: Whether the batch stays open, until there is another request to end it than *end_request*, or for *span_us*.
    """

    batch: int
    number: int
    start: Planned
    until: Planned
    is_final: bool
    is_open: bool = False
    end_request: int = 0
    span_us: int = 0


@dataclass(slots=True, eq=False)
class Memory:
    """What a worker process remembers between batches: states, by which attempt they were saved and what they applied; the journal."""

    states: dict[int, tuple[Saved, State, list[Fact]]] = field(default_factory=dict)
    journal: JournalClient | None = None


class Task:
    """
    One attempt to run one range.

    Args:
        memory: The worker's.
        skips: What this life of the job does not read.
    """

    def __init__(
        self,
        world: World,
        model: Model,
        checkpoint: Checkpoint,
        memory: Memory,
        assigned: Assignment,
        broken: frozenset[str],
        skips: SkipPlan,
    ) -> None:
        self._world, self._model, self._checkpoint, self.memory = world, model, checkpoint, memory
        self.assigned, self.number, self._from, self._until = assigned, assigned.number, assigned.start, assigned.until
        self._broken, self._skips = broken, skips
        self._earlier: EarlierAttempt | None = None
        self._compared: list[Released] = []
        self._chance = random.Random(world.chance.getrandbits(64))
        self.producer = Producer(world.topic, self._chance)
        # CTIs go their own way only if they are broken; else one producer carries all.
        self.own_way = Producer(world.topic, self._chance) if broken & _AT_ONCE else self.producer
        self._ctis = PendingCtis(model.generation)
        self._writer = ChannelWriter(cast(Any, self.producer), "ordered")
        self._cti_writer = ChannelWriter(cast(Any, self.own_way), "ordered", world.settings.cti_bytes_max)
        self._chunks: dict[int, bytes] = {}
        self.state = model.new_state()
        self._applied: list[Fact] = []
        self._outbox: FactOutbox | None = None
        self._planned_us = self._until.planned_us
        self.reached = StageProgress(-1, NEVER, NEVER, 0)
        self.saved: Saved | None = None
        self.steps = self.run()

    def run(self) -> Steps:
        """Walk the range, pausing after each step."""
        self._load()
        self._earlier = earlier_attempt(self._world, self._skips, self.number, self._from.next_offset, self._until.next_offset)
        yield "state loaded"
        self._begin_range(self._until)
        for records in self._pieces():
            self._judge(records)
            yield "piece written"
            self.producer.trickle()
        joins = self._model.joined_us != NEVER and self._from == self._until and not self.assigned.is_open
        self._end_range(joins)
        if self._earlier is not None:
            if "open batches end where they began" not in self._broken:
                self._pass_over_held(self._earlier)
            self._earlier.check_end(self.state.seq)
            for released in self._compared:
                self._writer.write_events(released)
            if "open batches go on comparing" not in self._broken:
                self._earlier = None
        yield "range judged"
        self.producer.trickle()
        yield from self.publish("events acknowledged", "CTIs sent", "CTIs acknowledged")
        if self.assigned.is_open:
            yield from self.stay_open()
        self._save()
        yield "state saved"

    def stay_open(self) -> Steps:
        """Go on beyond the planned part; see :class:`simulation.open_batch.OpenTask`."""
        raise NotImplementedError

    def _pass_over_held(self, earlier: EarlierAttempt) -> None:
        """Do not compare what an open batch has released by an estimate where the range ends, here it is held, and what it judged after."""
        held, end = set(self.state.held.offset.tolist()), self._until.next_offset
        for headers in earlier._headers_by_output.values():  # production has no such rule yet
            offsets = {seq: int.from_bytes(header[-8:], "little") for seq, header in headers.items()}
            for seq in [seq for seq, offset in offsets.items() if offset in held or offset >= end]:
                del headers[seq]

    def report(self) -> StageProgress:
        """Return how far it has come."""
        return StageProgress(self.state.next_offset, self.state.arrival_us, self.state.c, self.state.held_count)

    def publish(self, acknowledged: str, sent: str, done: str) -> Steps:
        """Wait for the acknowledgement of all events, then send the CTIs above them, and wait again."""
        if not self._broken & {"CTIs do not wait", "nothing waits for acknowledgements"}:
            self.producer.flush()
        yield acknowledged
        self._write_ctis()
        self.own_way.trickle()
        yield sent
        if "nothing waits for acknowledgements" not in self._broken:
            self.own_way.flush()
            self.producer.flush()
        yield done

    def _write_ctis(self) -> None:
        assert self._outbox is not None, "a range begins with its facts"
        self._cti_writer.write_ctis(self._outbox.attach(self._ctis.pop_all(), is_last=True))

    def _begin_range(self, until: Planned) -> None:
        """Put the facts of a range in force."""
        self._until = until
        facts = [protocol.Fact(FactKind.ESTIMATE, *mark) for mark in until.all_marks()]
        facts += [protocol.Fact(FactKind.IMPORT, *mark) for mark in until.all_imports()]
        self._outbox = FactOutbox(self._model, self.state, facts)

    def _judge(self, records: list[RawRecord]) -> None:
        sane = [record for record in records if self._arrival_is_sane(record)]
        if sane:
            self._step(sane, sane[-1].offset + 1)
            self._count_unreadable(sane)

    def _end_range(self, joins: bool = False) -> None:
        """Bring the state to the end of the range, and facts that take effect there."""
        end = max(self._until.next_offset, self.state.next_offset)
        waits = [mark for mark in (*self._until.all_marks(), *self._until.all_imports()) if mark[0] == end]
        if waits or joins or self.assigned.is_final or self.state.next_offset != end:
            self._step([], end)

    def _load(self) -> None:
        kept = self.memory.states.pop(self.number, None)
        saved = self._checkpoint.state_before(self.assigned.batch, self.number)
        self._chunks = {} if saved is None else saved.chunks
        self._applied = [] if saved is None else list(saved.facts)
        if saved is None:
            promises, start = self._checkpoint.promises, self._from.next_offset
            self.state = self._model.new_state() if promises is None else self._model.resume(promises.get(self.number, {}), start)
        elif kept is not None and (kept[0].nonce == saved.nonce or "memory of others is taken over" in self._broken):
            self._world.happened["state taken over where it stood"] += kept[1].next_offset > saved.next_offset
            held, self.state, self._applied = kept
            self._chunks = held.chunks
        else:
            self._world.happened["state restored"] += 1
            self.state = self._model.restore(saved.head, dict(saved.chunks))

    def _save(self) -> None:
        delta = self.state.save()
        chunks = self._chunks | delta.put
        for number in delta.delete:
            del chunks[number]
        self._world.saves += 1
        self.saved = Saved(self._world.saves, delta.head, chunks, self.state.next_offset, tuple(self._applied))
        self._chunks = chunks
        self.memory.states[self.number] = self.saved, self.state, self._applied
        self.reached = self.report()

    def _pieces(self) -> Iterator[list[RawRecord]]:
        end = self._until.next_offset
        start = min(max(self._from.next_offset, self.state.next_offset), end)
        parts = read_parts(start, end, self._skips.spans(self.number))
        records = [record for part in parts for record in self._world.raw[self.number].read(*part)]
        while records:
            size = self._chance.randint(1, self._world.settings.piece_events)
            yield records[:size]
            records = records[size:]

    def _arrival_is_sane(self, record: RawRecord) -> bool:
        reason = ""
        if record.stamp_us <= 0:
            reason = "arrival_missing"
        elif record.stamp_us > self._planned_us + self._world.settings.arrival_max_ahead_us:
            reason = "arrival_ahead"
        if reason:
            self._world.dead_letters.append((self.number, record.offset, reason))
        return not reason

    def _count_unreadable(self, records: list[RawRecord]) -> None:
        unreadable = [record for record in records if record.event_time_us is None and record.header is None]
        self._world.dead_letters += [(self.number, record.offset, "timestamp") for record in unreadable]

    def _step(self, records: list[RawRecord], end: int) -> None:
        state = self.state
        batch = self._batch_of(state.next_offset, records, end)
        facts: list[Fact] = [("estimate", self.number, *mark) for mark in batch.estimates]
        facts += [("import", self.number, *mark) for mark in batch.imports]
        self._applied += facts
        self._checkpoint.used += facts
        step = self._model.step(state, batch)
        for name in _COUNTED:
            if count := getattr(step.counts, name):
                state.totals[name] = state.totals.get(name, 0) + count
        if self._earlier is None:
            self._writer.write_events(step.released)
        else:
            self._earlier.check_events(step.released)
            self._compared.append(step.released)
        self._ctis.add(step.ctis)
        sent = ", ".join(f"{seq} (offset {offset})" for seq, offset in zip(step.released.seq, step.released.offset, strict=True))
        if sent:
            self._world.tell(f"raw {self.number}: queues events {sent}")

    def _batch_of(self, start: int, records: list[RawRecord], end: int) -> Batch:
        over, shape = self._model.over, self._world.settings.shape
        keys = [record.key or b"" if over else record.key for record in records]
        ctis = [NEVER if record.header is None else decode_source_cti(record.header, record.value) for record in records]
        # What stands at the end of a range is applied by the step that ends it, without records.
        last = end - 1 if records else end

        def within(marks: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
            return tuple(mark for mark in marks if start <= mark[0] <= last)

        return Batch(
            offset=_ints([record.offset for record in records]),
            arrival_us=_ints([record.stamp_us for record in records]),
            event_time_us=_ints([record.event_time_us or 0 for record in records]),
            readable=np.array([record.event_time_us is not None for record in records], dtype=np.bool_),
            substream=pa.array(keys, type=pa.binary()) if over else None,
            key=_objects(keys),
            value=_objects([record.value for record in records]),
            end_offset=end,
            estimates=within(self._until.all_marks()),
            finish=self.assigned.is_final and not records,
            source_cti_us=_ints(ctis) if any(c_us != NEVER for c_us in ctis) else None,
            imports=within(self._until.all_imports()),
            end_us=_ints([record.message.end_us or 0 for record in records]) if shape is Shape.INTERVAL else None,
            start_us=_ints([_start_us(record) for record in records]) if shape is Shape.EDGE else None,
        )


def _start_us(record: RawRecord) -> int:
    return NEVER if record.message.start_us is None else record.message.start_us


def _ints(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def _objects(values: list[bytes | None]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
