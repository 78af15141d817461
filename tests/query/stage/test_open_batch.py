"""Open batches of a query, in process: over logs that grow, cut anywhere, killed anywhere, and mixed with micro-batches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from simulation.world import Producer
from support.between_batches import Between
from support.bucket_oracle import Event
from support.bucket_runs import dense
from support.bucket_topics import Line
from support.query_kinds import INPUT, plans_of
from support.query_plans import query_plan

from ordering.model.state import Delta
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_cti, decode_event_headers, encode_cti, encode_event_headers
from ordering.ticks import SECOND_US
from query.buckets.bucket import Bucket
from query.config import Feed, Partition, QueryPlan
from query.engine.exchange import Exchange
from query.plan.common_keys import common_keys
from query.stage import open_batch, processor
from query.stage.offsets import QueryOffset
from query.stage.open_positions import keep_positions
from query.stage.planned_range import QueryRange
from query.stage.planner import QueryPlanner
from query.stage.processor import QueryStage
from tidegate.platform.checkpoint import between_batches, open_batches
from tidegate.platform.checkpoint.open_batches import request_end
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.worker import Worker
from tidegate.platform.observe.reports import BucketReport

PARTITIONS = 3
Row = tuple[int, Any, bytes, Any]
_ids = itertools.count()


@pytest.fixture(autouse=True)
def _all_spans_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches of a process would be short, by a clock that these tests do not move."""
    monkeypatch.setattr(open_batches, "_FIRST_SPAN_S", 1e9)


class DiedError(BaseException):
    """The process was killed here."""


def end_of(records: Records) -> int:
    """Return the offset after the last record of a log."""
    return int(records.offset[-1]) + 1 if len(records) else 0


@dataclass
class World:
    """The ordered topic, of which the records below *ends* are there; the result topic; and when the next process dies."""

    logs: list[Records]
    chance: random.Random
    results: list[list[Row]]
    folder: Path
    ends: list[int] = field(default_factory=list)
    steps_left: int = 10**9
    # After so many looks somebody asks for the end of the open batch.
    looks_left: int = 0
    # Whether few records are appended.
    is_slow: bool = False

    def step(self) -> None:
        """Die here if it is time."""
        self.steps_left -= 1
        if self.steps_left <= 0:
            self.steps_left = 10**9
            raise DiedError

    def look(self) -> None:
        """Let some records be appended; now and then ask for the end of the batch."""
        for log, records in enumerate(self.logs):
            self.ends[log] = min(self.ends[log] + self.chance.choice([0, 0, 1] if self.is_slow else [0, 0, 1, 3, 20]), end_of(records))
        self.looks_left -= 1
        if self.looks_left <= 0:
            request_end(self.folder)

    @property
    def is_whole(self) -> bool:
        """Whether all of the topic is there."""
        return self.ends == list(map(end_of, self.logs))


class Reader:
    """Reads a log in pieces of any size; while it is looked at, records are appended."""

    source = None

    def __init__(self, world: World, log: int) -> None:
        self._world, self._log = world, log

    def _between(self, start: int, end: int) -> Records | None:
        records = self._world.logs[self._log]
        within = (records.offset >= start) & (records.offset < min(end, self._world.ends[self._log]))
        return records.select(within) if within.any() else None

    def read(self, start: int, end: int, chunk: int) -> Iterator[Records]:
        """A planned range."""
        while (records := self._between(start, end)) is not None:
            records = records.select(np.arange(len(records)) < self._world.chance.randint(1, 30))
            self._world.step()
            yield records
            start = int(records.offset[-1]) + 1

    def read_on(self, start: int, wait_ms: int) -> Records | None:
        """What has come since."""
        self._world.step()
        self._world.look()
        return self._between(start, start + self._world.chance.randint(1, 15))


class Writer:
    """The producer of one process: what it sends arrives in order, all of it once it was flushed."""

    def __init__(self, world: World) -> None:
        self._world, self.real = world, Producer(world.results, world.chance)
        self._has_results = False

    def send_columns(self, topic: str, events: Any) -> None:
        """Queue results."""
        self._world.step()
        self._has_results = True
        self.real.send_columns(topic, events)
        self.real.trickle()

    def send(self, topic: str, rows: Any) -> None:
        """Queue CTIs."""
        assert not self._has_results, "a CTI is sent only after all results were acknowledged"
        self.real.send(topic, rows)
        self.real.trickle()

    def flush(self, topic: str) -> None:
        """Wait for all."""
        self._world.step()
        self.real.flush()
        self._has_results = False
        self._world.step()


class Letters:
    """Dead letters are at least once."""

    def send(self, letter: Any) -> None:
        """Nobody reads it."""

    def flush(self) -> None:
        """Nothing waits."""


class Store:
    """Spark's state store: what an attempt saves counts once its batch is committed. The process that saved it has it in *memory*."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._committed: dict[int, tuple[bytes, dict[int, bytes]]] = {}
        self.attempt: dict[int, tuple[bytes, dict[int, bytes]]] = {}
        self.memory: dict[int, tuple[object, Bucket]] = {}
        self.kept = 0

    def load(self, number: int, new: Any, restore: Any) -> Bucket:
        """Return what was committed: from memory, if it is that, or as any other process does."""
        saved, bucket = self.memory.pop(number, (None, None))
        if number not in self._committed:
            return cast(Bucket, new())
        head, chunks = self._committed[number]
        self.attempt[number] = head, dict(chunks)
        if bucket is not None and saved is self._committed[number] and self._chance.random() < 0.8:
            self.kept += 1
            return bucket
        return cast(Bucket, restore(head, dict(chunks)))

    def save(self, number: int, bucket: Bucket, delta: Delta) -> None:
        """Keep it for the commit."""
        chunks = {**self.attempt.get(number, (b"", {}))[1], **delta.put}
        for chunk in delta.delete:
            chunks.pop(chunk, None)
        self.attempt[number] = delta.head, chunks
        self.memory[number] = self.attempt[number], bucket

    def select(self) -> None:
        """Numbers are given with each call."""

    def commit(self) -> None:
        """The batch is done."""
        self._committed |= self.attempt
        self.attempt = {}


class Job:
    """A query whose batches may stay open, driven as Spark does."""

    def __init__(self, plan: QueryPlan, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan, self.world, self.store, self.between = plan, world, Store(world.chance), Between(world.chance)
        self._offset = QueryOffset(dict.fromkeys(range(len(plan.partitions)), 0))
        self.batch, self.opened, self.died = 0, 0, 0
        worker = SimpleNamespace(
            reader=lambda kafka, topic, number, **_: Reader(world, number),
            producer=lambda _: self.writer,
            dead_letters=lambda *_: Letters(),
            memory=Worker().memory,
            **dict.fromkeys(("drop_reader", "drop_producer", "drop_dead_letters"), lambda *_, **__: None),
        )
        monkeypatch.setattr(processor, "WORKER", worker)
        monkeypatch.setattr("query.stage.memory.WORKER", worker)
        monkeypatch.setattr(between_batches, "BETWEEN_BATCHES", self.between)
        monkeypatch.setattr(processor, "batch_of_task", lambda: {"batch": self.batch})
        waits = dict.fromkeys(("_WAIT_MS", "_WATCHED_WAIT_MS", "_SHORT_WAIT_MS"), 0)
        for name, value in {"_LOOK_EVERY_S": 0.0, "_ROUND_MIN_S": 0.0, "_ROUND_MAX_S": 0.0, **waits}.items():
            monkeypatch.setattr(open_batch, name, value)
        self._begin()

    def _begin(self, **changes: Any) -> None:
        self.plan = replace(self.plan, **changes)
        self.writer = Writer(self.world)
        self._planner = QueryPlanner(self.plan)
        self._planner.__dict__["_admin"] = self

    def ends(self, partitions: Mapping[Partition, int]) -> dict[Partition, int]:
        """What brokers say."""
        return {("ordered", log): end for log, end in enumerate(self.world.ends)}

    def run_batch(self) -> bool:
        """Plan a batch and run it until it is committed; return False if there was nothing to do."""
        end = QueryOffset.from_json(self._planner.plan_end(self._offset.to_json()))
        if end == self._offset:
            return False
        while not self._attempt(end):
            self.died += 1
            self._die()
            self._begin(batch_span_us=self.world.chance.choice([0, 10**12]))
        self._offset, self.batch = end, self.batch + 1
        try:
            self.between.run()
        except DiedError:
            self._die()
            self._begin()
        return True

    def _die(self) -> None:
        self.writer.real.trickle()
        self.between.forget()
        self.store.attempt, self.store.memory = {}, {}

    def _attempt(self, end: QueryOffset) -> bool:
        (handed,) = self._planner.partitions(self._offset.to_json(), end.to_json())
        rows = [SimpleNamespace(**dict(zip(QueryRange.__dataclass_fields__, row, strict=True))) for row in cast(Any, handed).rows]
        self.opened += bool(rows and rows[0].open_buckets)
        reports: list[BucketReport] = []
        try:
            for task in range(self.plan.shuffle_partitions):
                stage = QueryStage(self.plan)
                for bucket in sorted({row.bucket for row in rows if row.bucket % self.plan.shuffle_partitions == task}):
                    own = [row for row in rows if row.bucket == bucket]
                    reports += map(BucketReport.of_json, stage.reports(own, cast(Any, self.store)))
                stage.complete()
                self.world.step()
            # The driver hears of it before Spark commits.
            keep_positions(Path(self.plan.checkpoint), reports)
            if self.world.chance.random() < 0.5:
                self.between.run()
            if self.world.chance.random() < 0.2:
                raise DiedError
        except DiedError:
            return False
        self.store.commit()
        return True


def records_of(lines: Sequence[Line]) -> Records:
    """Return the records of an ordered partition as a reader gives them."""
    keys, values, headers = [], [], []
    for _, record in lines:
        if isinstance(record, Event):
            ints = [np.array([each], dtype=np.int64) for each in (record.seq, record.system_us, record.system_us, record.system_us)]
            origin, flags = np.array([record.origin], dtype=np.int64), np.zeros(1, dtype=np.uint16)
            header = encode_event_headers(*ints, origin, flags, record.number)[0]
            key, value = record.key, record.value
        else:
            key, (header, value) = None, encode_cti(record)
        keys.append(key)
        values.append(value)
        headers.append(header)
    offsets, binary = np.array([offset for offset, _ in lines]), pa.binary()
    facts = pa.nulls(len(lines), binary)
    return Records(offsets, np.ones_like(offsets), pa.array(keys, binary), pa.array(values, binary), pa.array(headers, binary), facts)


def check_topic(world: World) -> dict[tuple[int, int], Row]:
    """Return the results by (partition, number); no CTI may number a result that is not there yet."""
    found: dict[tuple[int, int], Row] = {}
    for partition, rows in enumerate(world.results):
        accepted = 0
        for stamp_ms, key, header, value in rows:
            if len(header) == EVENT_HEADER_BYTES:
                seq = int(decode_event_headers([header])[0]["seq"])
                row = stamp_ms, key, header, value
                assert found.setdefault((partition, seq), row) == row, "a result written again has the same bytes"
                accepted += seq == accepted
            else:
                assert accepted >= decode_cti(header, value if isinstance(value, bytes) else value.as_py(), partition).n
    return found


# By name: the kind of query, whether it has OVER, and how many buckets an exchange has.
SHAPES = {"over": ("hopping", True, 0), "line": ("hopping", False, 0), "exchange": ("hopping", False, 4)}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("seed", range(3))
def test_results_do_not_depend_on_where_open_batches_are_cut(
    shape: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law, levels 2 and 3: open, micro and killed batches in any mixture write the bytes of one micro-batch over the whole topic."""
    kind, over, buckets = SHAPES[shape]
    chance = random.Random(seed)
    raw = dense(chance.randrange(2**32), 40)
    topic = raw.topic(chance.randrange(2**32), PARTITIONS, over=over, vouched=True)
    plans = plans_of(kind, over=over, typed=False)
    keys = common_keys(plans)
    assert not isinstance(keys, str) or not buckets
    exchange = Exchange(cast(Any, keys), buckets) if buckets else None
    written = exchange.buckets if exchange else PARTITIONS if over else 1
    checkpoint = tmp_path / f"checkpoint-{next(_ids)}"

    def job(name: str) -> Job:
        folder = checkpoint / name
        folder.mkdir(parents=True)
        logs = [records_of(lines) for lines in topic.partitions]
        world = World(logs, chance, [[] for _ in range(written)], folder, ends=[0] * PARTITIONS)
        plan = query_plan(
            plans,
            [Feed(INPUT, "ordered", PARTITIONS)],
            {"out": {"topic": "out"}},
            over=over,
            exchange=exchange,
            labels=tuple(range(written)),
            starts={("ordered", partition): 0 for partition in range(PARTITIONS)},
            events_per_batch=10**6,
            bytes_per_batch=2**30,
            shuffle_partitions=2 if over or exchange else 1,
            checkpoint=str(folder),
        )
        return Job(plan, world, monkeypatch)

    whole = job("whole")
    whole.world.ends = list(map(end_of, whole.world.logs))
    assert whole.run_batch()
    expected = check_topic(whole.world)
    mixed = job("mixed")
    mixed._begin(batch_span_us=10**6 * SECOND_US)
    for _ in range(300):
        world = mixed.world
        # Until it has died in an open batch and opened more of them, pieces are small and early deaths likely.
        has_begun = mixed.opened > 2 and mixed.died > 0
        world.is_slow = not has_begun
        world.looks_left = chance.choice([1, 4, 15] if has_begun else [1])
        world.steps_left = chance.choice([7, 25, 60, 10**9] if has_begun else [7, 25, 60])
        world.look()
        if not mixed.run_batch() and world.is_whole:
            break
        if has_begun and chance.random() < 0.3:
            mixed._begin(batch_span_us=chance.choice([0, 10**12]))
        if world.is_whole and chance.random() < 0.3:
            mixed._begin(batch_span_us=0)
    assert (mixed.opened > 2, mixed.died > 0) == (True, True), "there was something to see"
    assert (mixed.between.rounds > 0, mixed.store.kept > 0) == (True, True), "and between batches"
    assert mixed.world.is_whole
    found = check_topic(mixed.world)
    assert found == expected
    assert expected, "there were results"
