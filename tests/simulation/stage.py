"""
The simulated stateful stage: the rules of ``ingest/stage/range_walk.py`` for one range of one input partition.

It runs the real model, the real states and the real bytes, in the processor's order: load, judge and queue piece by piece,
wait for the acknowledgement of all events, then CTIs, wait again, save.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np
import pyarrow as pa
from simulation.checkpoint import Checkpoint, Planned, Saved
from simulation.skipping import SkipPlan, earlier_attempt
from simulation.world import Producer, RawRecord, World

from ingest.planner.stage_progress import StageProgress
from ingest.skips import read_parts
from ingest.stage.earlier_attempt import EarlierAttempt
from ingest.stage.pending_ctis import PendingCtis
from ordering.model.events import Released
from ordering.model.state import State
from ordering.model.step import Batch, Counts, Model
from ordering.policies import Shape
from ordering.protocol.wire import decode_source_cti
from ordering.ticks import NEVER
from tidegate.platform.kafka.writer import ChannelWriter

Steps = Iterator[str]
_COUNTED = [counted.name for counted in fields(Counts) if counted.name != "held"]


@dataclass(slots=True)
class Memory:
    """What a worker process remembers between batches: states, and by which attempt they were saved."""

    states: dict[int, tuple[Saved, State]] = field(default_factory=dict)


class Task:
    """
    One attempt to run one range.

    Args:
        batch: Number of the batch.
        number: The input partition.
        final: Whether the input ends with this batch.
        memory: The worker's.
        skips: What this life of the job does not read.
    """

    def __init__(
        self,
        world: World,
        model: Model,
        checkpoint: Checkpoint,
        memory: Memory,
        batch: int,
        number: int,
        planned: tuple[Planned, Planned],
        final: bool,
        broken: frozenset[str],
        skips: SkipPlan,
    ) -> None:
        self._world, self._model, self._checkpoint, self._memory = world, model, checkpoint, memory
        self._batch, self.number, self._from, self._until, self._final = batch, number, *planned, final
        self._broken, self._skips = broken, skips
        self._earlier: EarlierAttempt | None = None
        self._compared: list[Released] = []
        self._chance = random.Random(world.chance.getrandbits(64))
        self.producer = Producer(world.topic, self._chance)
        # CTIs go their own way only if they are broken; else one producer carries all.
        self.own_way = Producer(world.topic, self._chance) if "CTIs do not wait" in broken else self.producer
        self._ctis = PendingCtis(model.generation)
        self._chunks: dict[int, bytes] = {}
        self.reached = StageProgress(-1, NEVER, NEVER, 0)
        self.steps = self.run()

    def run(self) -> Steps:
        """Walk the range, pausing after each step."""
        state = self._load()
        self._earlier = earlier_attempt(self._world, self._skips, self.number, self._from.next_offset, self._until.next_offset)
        yield "state loaded"
        writer = ChannelWriter(cast(Any, self.producer), "ordered")
        ctis = ChannelWriter(cast(Any, self.own_way), "ordered", self._world.settings.cti_bytes_max)
        for records in self._pieces():
            sane = [record for record in records if self._arrival_is_sane(record)]
            if sane:
                self._step(state, sane, sane[-1].offset + 1, writer)
                self._count_unreadable(sane)
            yield "piece written"
            self.producer.trickle()
        end = self._until.next_offset
        waits = [mark for mark in (*self._until.all_marks(), *self._until.all_imports()) if mark[0] == end]
        joins = self._model.joined_us != NEVER and self._from == self._until
        if waits or joins or self._final or state.next_offset != end:
            self._step(state, [], end, writer)
        if self._earlier is not None:
            self._earlier.check_end(state.seq)
            for released in self._compared:
                writer.write_events(released)
        yield "range judged"
        self.producer.trickle()
        if not self._broken & {"CTIs do not wait", "nothing waits for acknowledgements"}:
            self.producer.flush()
        yield "events acknowledged"
        ctis.write_ctis(self._ctis.pop_all())
        self.own_way.trickle()
        yield "CTIs sent"
        if "nothing waits for acknowledgements" not in self._broken:
            self.own_way.flush()
            self.producer.flush()
        yield "CTIs acknowledged"
        self._save(state)
        self.reached = StageProgress(state.next_offset, state.arrival_us, state.c, state.held_count)
        yield "state saved"

    def _load(self) -> State:
        kept = self._memory.states.pop(self.number, None)
        saved = self._checkpoint.state_before(self._batch, self.number)
        self._chunks = {} if saved is None else saved.chunks
        if saved is None:
            promises, start = self._checkpoint.promises, self._from.next_offset
            return self._model.new_state() if promises is None else self._model.resume(promises.get(self.number, {}), start)
        if kept is not None and kept[0].nonce == saved.nonce:
            return kept[1]
        self._world.happened["state restored"] += 1
        return self._model.restore(saved.head, dict(saved.chunks))

    def _save(self, state: State) -> None:
        delta = state.save()
        chunks = self._chunks | delta.put
        for number in delta.delete:
            del chunks[number]
        self._world.saves += 1
        saved = Saved(self._world.saves, delta.head, chunks)
        self._checkpoint.save(self._batch, self.number, saved)
        self._memory.states[self.number] = saved, state

    def _pieces(self) -> Iterator[list[RawRecord]]:
        parts = read_parts(self._from.next_offset, self._until.next_offset, self._skips.spans(self.number))
        records = [record for part in parts for record in self._world.raw[self.number].read(*part)]
        while records:
            size = self._chance.randint(1, self._world.settings.piece_events)
            yield records[:size]
            records = records[size:]

    def _arrival_is_sane(self, record: RawRecord) -> bool:
        reason = ""
        if record.stamp_us <= 0:
            reason = "arrival_missing"
        elif record.stamp_us > self._until.planned_us + self._world.settings.arrival_max_ahead_us:
            reason = "arrival_ahead"
        if reason:
            self._world.dead_letters.append((self.number, record.offset, reason))
        return not reason

    def _count_unreadable(self, records: list[RawRecord]) -> None:
        unreadable = [record for record in records if record.event_time_us is None and record.header is None]
        self._world.dead_letters += [(self.number, record.offset, "timestamp") for record in unreadable]

    def _step(self, state: State, records: list[RawRecord], end: int, writer: ChannelWriter) -> None:
        step = self._model.step(state, self._batch_of(state.next_offset, records, end))
        for name in _COUNTED:
            if count := getattr(step.counts, name):
                state.totals[name] = state.totals.get(name, 0) + count
        if self._earlier is None:
            writer.write_events(step.released)
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
            finish=self._final and not records,
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
