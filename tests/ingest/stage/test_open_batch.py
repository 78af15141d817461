"""
Law, level 1, of batches that stay open: the real planner and the real stage over logs in memory, with a real journal. Batches are cut
anywhere, opened or not, killed between any two steps, while others journal estimates; the events are those of one uncut walk, and no CTI
comes before an event that it numbers.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import redis
from simulation.world import Producer
from support.between_batches import Between
from support.ingest_plans import ingest_plan, input_settings
from support.valkey_server import Server

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedInput
from ingest.journal import connection, rebuild, stage_notes
from ingest.journal.rebuild import TopicFacts, restore_facts
from ingest.journal.redis_journal import RedisJournal
from ingest.offsets import IngestOffset, PlannedPosition
from ingest.planned_range import IngestRange
from ingest.planner import idle_estimates, planner
from ingest.planner.opening import may_stay_open, why_closed
from ingest.planner.planner import IngestPlanner
from ingest.planner.stage_progress import StageProgressWriter, read_stage_progress
from ingest.replay.walk import ReplayingWalk
from ingest.skips import Skip
from ingest.stage import open_batch, processor
from ingest.stage.memory import JobMemory
from ingest.stage.open_batch import OpenRange
from ingest.stage.processor import IngestStage
from ingest.start.resume import restore_lost_facts
from ordering.model.state import Delta, State
from ordering.protocol.facts import Fact, FactKind, text_digest
from ordering.protocol.journal import Close, PlanningTime, Raise
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_cti, decode_event_headers
from tidegate.platform.checkpoint import between_batches, open_batches
from tidegate.platform.checkpoint.open_batches import OpenReports, forget_stop, request_end, request_stop, write_report
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.writer import event_headers
from tidegate.platform.observe.detail_requests import NO_DETAILS, leave_question
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.spark.launch.task_slots import TaskSlots

A, B = ("raw", 0), ("raw", 1)
EVENTS = 120
_ids = itertools.count()

Row = tuple[int, Any, bytes, Any]


@pytest.fixture(autouse=True)
def _all_spans_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches of a process would be short, by a clock that these tests do not move."""
    monkeypatch.setattr(open_batches, "_FIRST_SPAN_S", 1e9)


class DiedError(BaseException):
    """The process was killed here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A journal."""
    running = Server(tmp_path_factory.mktemp("valkey"), "--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.kill()


@dataclass
class Log:
    """One raw partition: of its *records*, those below *end* are there."""

    records: Records
    end: int = 0

    def between(self, start: int, until: int) -> Records | None:
        """The records with these offsets that are there, None if there are none."""
        until = min(until, self.end)
        return self.records.select(self._within(start, until)) if start < until else None

    def _within(self, start: int, until: int) -> Any:
        return (self.records.offset >= start) & (self.records.offset < until)


@dataclass
class World:
    """Raw logs, the ordered topic, and when the next process dies."""

    logs: dict[Partition, Log]
    chance: random.Random
    outputs: int
    topic: list[list[Row]] = field(init=False)
    steps_left: int = 10**9
    # After so many rounds somebody asks for the end of the open batch.
    rounds_left: int = 0
    folder: Path = Path()
    # How often the journal is emptied at a step, and what does it.
    empties: float = 0.0
    empty: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.topic = [[] for _ in range(self.outputs)]

    def step(self) -> None:
        """Die here if it is time."""
        if self.empties and self.chance.random() < self.empties:
            self.empty()
        self.steps_left -= 1
        if self.steps_left <= 0:
            self.steps_left = 10**9
            raise DiedError

    def grow(self) -> None:
        """Let some records be appended."""
        for log in self.logs.values():
            log.end = min(log.end + self.chance.choice([0, 0, 1, 2, 7]), EVENTS)


class Reader:
    """Reads a log in pieces of any size; while it waits, records are appended."""

    def __init__(self, world: World, log: Log) -> None:
        self._world, self._log = world, log

    def seek(self, offset: int) -> None:
        """Reading is by offset."""

    def read(self, start: int, end: int, chunk: int = 0) -> Iterator[Records]:
        """A planned range."""
        while start < end:
            until = min(start + self._world.chance.randint(1, 20), end)
            records = self._log.between(start, until)
            assert records is not None, "what is planned is there"
            self._world.step()
            yield records
            start = until

    source = None

    def read_on(self, start: int, wait_ms: int) -> Records | None:
        """What has come since."""
        self._world.step()
        self._world.grow()
        self._world.rounds_left -= 1
        if self._world.rounds_left <= 0:
            request_end(self._world.folder)
        return self._log.between(start, start + self._world.chance.randint(1, 12))


class Writer:
    """The producer of one process: what it sends arrives in order, all of it once it was flushed."""

    def __init__(self, world: World) -> None:
        self._world, self.real = world, Producer(world.topic, world.chance)

    def send_columns(self, topic: str, events: Any) -> None:
        """Queue events."""
        self._world.step()
        self.real.send_columns(topic, events)
        self.real.trickle()

    def send(self, topic: str, rows: Any) -> None:
        """Queue CTIs."""
        assert not self.real.waits(), "a CTI is sent only after all events were acknowledged"
        self.real.send(topic, rows)
        self.real.trickle()

    def flush(self, topic: str) -> None:
        """Wait for all."""
        self._world.step()
        self.real.flush()
        self._world.step()


class Store:
    """Spark's state store: what an attempt saves counts once its batch is committed. The process that saved it has it in *memory*."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.memory: dict[int, tuple[object, State]] = {}
        # How many times a state was taken over from memory.
        self.kept = 0
        self.committed: dict[int, tuple[bytes, dict[int, bytes]]] = {}
        self.attempt: dict[int, tuple[bytes, dict[int, bytes]]] = {}

    def load(self, number: int, new: Any, restore: Any) -> State:
        """Return what was committed: from memory, if it is that, or as any other process does."""
        saved, state = self.memory.pop(number, (None, None))
        if number not in self.committed:
            return cast(State, new())
        head, chunks = self.committed[number]
        self.attempt[number] = head, dict(chunks)
        if state is not None and saved is self.committed[number] and self._chance.random() < 0.8:
            self.kept += 1
            return state
        return cast(State, restore(head, dict(chunks)))

    def save(self, number: int, state: State, delta: Delta) -> None:
        """Keep it for the commit."""
        chunks = dict(self.attempt.get(number, (b"", {}))[1]) | delta.put
        for chunk in delta.delete:
            chunks.pop(chunk, None)
        self.attempt[number] = delta.head, chunks
        self.memory[number] = self.attempt[number], state

    def select(self) -> None:
        """Numbers are given with each call."""

    def commit(self) -> None:
        """The batch is done."""
        self.committed |= self.attempt
        self.attempt = {}


class Brokers:
    """What brokers say of the logs."""

    def __init__(self, world: World, topic_id: str) -> None:
        self._world, self._id = world, topic_id

    def ends(self, partitions: Any, committed: bool = True) -> dict[Partition, int]:
        """Where partitions end."""
        return {partition: self._world.logs[partition].end for partition in partitions}

    def starts(self, partitions: Any) -> dict[Partition, int]:
        """Nothing was deleted."""
        return dict.fromkeys(partitions, 0)

    def partition_counts(self) -> dict[str, int]:
        """How many partitions there are."""
        return {"raw": len(self._world.logs)}

    def topic_ids(self, names: Any) -> dict[str, str]:
        """The id of the topic."""
        return dict.fromkeys(names, self._id)

    def find(self, name: str) -> Topic:
        """A topic that brokers stamp."""
        return Topic(name, self._id, len(self._world.logs), {"message.timestamp.type": "LogAppendTime"})


class Job:
    """A job whose batches may stay open, driven as Spark does."""

    def __init__(self, plan: IngestPlan, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan, self.world, self.store, self.between = plan, world, Store(world.chance), Between(world.chance)
        self.offset = IngestOffset(plan.starts)
        self.batch, self.opened, self.died = 0, 0, 0
        self.judged: dict[Partition, int] = dict.fromkeys(world.logs, 0)
        # Whether the next batch that would be committed dies instead, and runs again as a micro-batch.
        self.dies_at_commit = False
        self._progress = StageProgressWriter(Path(plan.checkpoint))
        brokers = Brokers(world, plan.topic_ids["raw"])
        self._brokers = brokers
        monkeypatch.setattr(processor.WORKER, "reader", lambda kafka, topic, number, *_: Reader(world, world.logs[topic, number]))
        monkeypatch.setattr(processor.WORKER, "producer", lambda _: self.writer)
        monkeypatch.setattr(processor.WORKER, "dead_letters", lambda *_: _Letters())
        monkeypatch.setattr(processor.WORKER, "drop_reader", lambda *_: None)
        monkeypatch.setattr(IngestStage, "_drop_producers", lambda _: None)
        monkeypatch.setattr(between_batches, "BETWEEN_BATCHES", self.between)
        monkeypatch.setattr(processor, "batch_of_task", lambda: {"batch": self.batch})
        monkeypatch.setattr(open_batch, "Admin", lambda *_: brokers)
        monkeypatch.setattr(open_batch, "_ROUND_OF_CTI_S", 0.0)
        monkeypatch.setattr(open_batch, "_LOOK_EVERY_S", 0.0)
        monkeypatch.setattr(open_batch, "_SHORT_WAIT_MS", 0)
        self.begin()

    def begin(self, **settings: Any) -> None:
        """Start the processes anew."""
        if settings:
            self.plan = replace(self.plan, **settings)
        memory = JobMemory.of(self.plan)
        memory.journal = memory.admin = None
        self.between.forget()
        self.store.memory = {}
        self.writer = Writer(self.world)
        self.planner = IngestPlanner(self.plan)
        self.planner.__dict__["_admin"] = self._brokers

    @property
    def journal(self) -> RedisJournal:
        """A connection of others, which have seen nothing of what the journal may have lost."""
        return RedisJournal.open(self.plan.redis)

    def restore(self) -> None:
        """Restore what the journal has lost, as a new driver does."""
        restore_lost_facts(self.plan, cast(Any, self._brokers), self.journal, self.offset.partitions)

    def read_topic_facts(self, *_: Any) -> dict[int, TopicFacts]:
        """As ``ingest.journal.rebuild`` does."""
        found: dict[int, TopicFacts] = {}
        for output, rows in enumerate(self.world.topic):
            for row in rows:
                if len(row[2]) != EVENT_HEADER_BYTES:
                    cti = decode_cti(row[2], _plain(row[3]), output)
                    known = found.setdefault(cti.number, TopicFacts())
                    known.merged.add([Fact(FactKind.CLOSED, cti.next_offset, 0), *getattr(row, "facts", ())])
                    known.origin = cti.number, text_digest("raw")
        return found

    def end_between(self, folder: Path) -> bool:
        """Wait until nothing goes on after the last batch."""
        self._go_on()
        return True

    def run_batch(self) -> bool:
        """Plan a batch and run it until it is committed; return False if there was nothing to do."""
        end = IngestOffset.from_json(self.planner.plan_end(self.offset.to_json()))
        if end == self.offset:
            return False
        # What goes on does so before, while and after the next batch is planned.
        self._go_on()
        while not self._attempt(end):
            self.died += 1
            self.writer.real.trickle()
            self.store.attempt = {}
            self.begin(stays_open=not self.dies_at_commit and self.world.chance.random() < 0.5)
            self.restore()
            self.dies_at_commit = False
        self.offset, self.batch = end, self.batch + 1
        if self.world.chance.random() < 0.5:
            self._go_on()
        return True

    def _go_on(self) -> None:
        try:
            self.between.run()
        except DiedError:
            self.died += 1
            self.writer.real.trickle()
            self.begin()
            self.restore()

    def _attempt(self, end: IngestOffset) -> bool:
        (handed,) = self.planner.partitions(self.offset.to_json(), end.to_json())
        rows = [SimpleNamespace(**dict(zip(IngestRange.__dataclass_fields__, row, strict=True))) for row in cast(Any, handed).rows]
        self.opened += bool(rows and rows[0].open_ranges)
        reports: list[IngestReport] = []
        try:
            for task in range(self.plan.tasks):
                stage = IngestStage(self.plan)
                for row in rows:
                    if row.number % self.plan.tasks == task:
                        reports += map(IngestReport.of_json, stage.reports([row], cast(Any, self.store)))
                stage.complete()
                self.world.step()
            # The driver hears of it before Spark commits.
            self._progress.accept_reports(reports)
            self.world.step()
            if self.dies_at_commit:
                raise DiedError
            if self.world.chance.random() < 0.2:
                self.between.run()
        except DiedError:
            return False
        self.judged |= {report.place: report.next_offset for report in reports}
        self.store.commit()
        return True


class _Letters:
    def send(self, letter: Any) -> None:
        """Dead letters are at least once."""

    def flush(self) -> None:
        """Nothing waits."""


def drawn_log(chance: random.Random, explode: bool) -> Log:
    """A disordered log with gaps of time, unreadable records and absurd arrivals."""
    stamp_ms, values = 1_700_000_000_000, []
    stamps = []
    for number in range(EVENTS):
        stamp_ms += chance.choice([0, 1, 50, 3_000])
        stamps.append(4_000_000_000_000 if chance.random() < 0.02 else stamp_ms)
        event = {"t": stamp_ms * 1000 - chance.randint(0, 8_000_000), "k": f"k{chance.randint(0, 4)}", "n": number}
        text = json.dumps([event] * chance.randint(0, 3) if explode else event)
        values.append(b"broken" if chance.random() < 0.05 else text.encode())
    return Log(Records(np.arange(EVENTS), np.array(stamps), pa.nulls(EVENTS, pa.binary()), pa.array(values, pa.binary())))


def uncut(job: Job, partition: Partition) -> dict[tuple[int, int], tuple[int, Any, bytes, Any]]:
    """The events of one walk over a whole log with the journal's facts, by output partition and seq."""
    facts = job.journal.dump(job.plan.journal_key(partition))
    walk = ReplayingWalk(replace(job.plan, promises={}), partition, facts)
    records = job.world.logs[partition].records
    walk.judge(*partition, records, walk._marks)
    last = walk._places.place_of(EVENTS)
    marks = walk._marks.between(walk._state.next_offset, last)
    walk._step(walk._model.time_only_batch(last, marks.estimates, marks.imports))
    events = {}
    for _, released in walk._pop_steps(0):
        columns = released.output_partition.tolist(), released.seq.tolist(), (released.system_us // 1000).tolist(), released.key
        for output, seq, stamp_ms, key, header, value in zip(*columns, event_headers(released).to_pylist(), released.value, strict=True):
            events[output, seq] = stamp_ms, _plain(key), header, _plain(value)
    return events


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def check_law(job: Job) -> None:
    """Compare the ordered topic with the uncut walks; no CTI may number an event that is not there yet."""
    expected = {(number, *place): row for number, partition in enumerate((A, B)) for place, row in uncut(job, partition).items()}
    found: dict[tuple[int, int, int], Row] = {}
    for output, rows in enumerate(job.world.topic):
        accepted: dict[int, int] = {}
        for stamp_ms, key, header, value in rows:
            if len(header) == EVENT_HEADER_BYTES:
                (event,) = decode_event_headers([header])
                number, seq = int(event["number"]), int(event["seq"])
                row = stamp_ms, _plain(key), header, _plain(value)
                assert found.setdefault((number, output, seq), row) == row, "an event written again has the same bytes"
                if seq == accepted.get(number, 0):
                    accepted[number] = seq + 1
                continue
            cti = decode_cti(header, _plain(value), output)
            assert accepted.get(cti.number, 0) >= cti.n, "a CTI comes after all events that it numbers"
            later = [row for place, row in expected.items() if place[:2] == (cti.number, output) and place[2] >= cti.n]
            assert all(int(decode_event_headers([row[2]])[0]["system_us"]) >= cti.c for row in later), "what a CTI says holds"
    assert found == expected


def plan_of(server: Server, folder: Path, tasks: int, **settings: Any) -> IngestPlan:
    """The plan of a job over two partitions whose batches stay open."""
    chosen = input_settings(**{"reorder": "3s", "batch_span": "30s", "discovery_cadence": "1h", **settings})
    over = chosen.over is not None
    return ingest_plan(
        settings=chosen,
        redis=server.settings(),
        partitions=(A, B),
        topic_ids={"raw": f"open{next(_ids)}"},
        starts={A: PlannedPosition(0), B: PlannedPosition(0)},
        checkpoint=str(folder),
        tasks=tasks,
        output_partitions=3 if over else 2,
        arrival_max_ahead_us=10**12 if chosen.arrival == "broker" else 10**15,
        stays_open=True,
    )


def world_of(seed: int, plan: IngestPlan) -> World:
    """Logs drawn with *seed*."""
    chance = random.Random(seed)
    logs = {partition: drawn_log(chance, plan.settings.explode is not None) for partition in (A, B)}
    return World(logs, chance, plan.output_partitions, folder=Path(plan.checkpoint))


def estimate(job: Job) -> None:
    """Another job journals an estimate where a log ends now."""
    partition = job.world.chance.choice((A, B))
    log = job.world.logs[partition]
    last_ms = [ms for ms in log.records.timestamp_ms[: log.end].tolist() if ms < 2_000_000_000_000]
    if last_ms and log.end < EVENTS:
        raised_us = (max(last_ms) + job.world.chance.choice([1, 400, 9_000])) * 1000
        job.journal.execute([Raise(FactKind.ESTIMATE, job.plan.journal_key(partition), log.end, raised_us)])


def close(job: Job) -> None:
    """Another job judges all that is there."""
    plan = job.plan
    now = PlanningTime(plan.settings.planning_kind, time.time_ns() // 1000, plan.clock_slack_us)
    job.journal.execute([Close(plan.journal_key(partition), log.end, now) for partition, log in job.world.logs.items()])


def play(job: Job, *, estimates: bool = True, closes: bool = False) -> None:
    """Run batches of all kinds until everything is judged; *estimates*: others make some; *closes*: they judge records too."""
    world = job.world
    while min(job.judged.values()) < EVENTS:
        world.grow()
        if estimates and world.chance.random() < 0.4:
            estimate(job)
        if closes and world.chance.random() < 0.2:
            close(job)
        world.rounds_left = world.chance.randint(1, 25)
        # The first batches die in any case.
        world.steps_left = world.chance.randint(3, 60) if job.died < 2 or world.chance.random() < 0.4 else 10**9
        if world.chance.random() < 0.2:
            job.begin(stays_open=world.chance.random() < 0.7)
            job.restore()
        job.run_batch()


KINDS: dict[str, tuple[int, dict[str, str]]] = {
    "one timeline": (1, {}),
    "a task each": (2, {"late_action": "drop", "out_of_order_action": "drop"}),
    "substreams": (1, {"over": "k"}),
    "stamps of ingest": (1, {"arrival": "ingest"}),
    "arrays": (2, {"explode": "array", "over": "k"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_events_do_not_depend_on_where_open_batches_are_cut(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Level 1: open batches, micro-batches and kills in any mixture write what one uncut walk writes, and CTIs keep their word."""
    tasks, settings = KINDS[kind]
    plan = plan_of(server, tmp_path, tasks, **settings)
    job = Job(plan, world_of(list(KINDS).index(kind), plan), monkeypatch)
    play(job)
    assert job.opened, "batches stayed open"
    assert job.died, "processes died"
    assert (job.between.rounds > 0, job.store.kept > 0) == (True, True), "work went on between batches, and was taken over"
    check_law(job)


def empty_at_any_moment(job: Job, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let the journal be emptied at any step; the count that is returned has risen by one each time."""
    emptied = itertools.count()

    def empty() -> None:
        next(emptied)
        redis.Redis(port=server.port, protocol=2).flushall()

    monkeypatch.setattr(stage_notes, "all_have_ended", job.end_between)
    monkeypatch.setattr(rebuild, "read_topic_facts", job.read_topic_facts)
    monkeypatch.setattr(connection, "_RETRY_S", 0.0)
    monkeypatch.setattr(planner, "_RETRY_S", 0.0)
    job.world.empties, job.world.empty = 0.03, empty
    return emptied


def rebuild_emptied(job: Job) -> None:
    """Bring back all facts. What was judged long ago is unknown to a planner that began in the middle; the topic tells it."""
    job.world.empties = 0.0
    job.begin()
    job.restore()
    job.planner.plan_end(job.offset.to_json())
    rebuilt = restore_facts(job.plan, job.journal, job.read_topic_facts())
    assert not any(rebuilt.contradicted.values())


@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.deep) for seed in range(3)), 3])
@pytest.mark.parametrize("kind", KINDS)
def test_events_do_not_depend_on_a_journal_that_is_emptied(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """
    Level 1: the journal is emptied at any moment while others make estimates, batches are open and processes die. What counted for an event
    counts in every repetition, and is in the journal at the end.
    """
    tasks, settings = KINDS[kind]
    plan = plan_of(server, tmp_path, tasks, **settings)
    job = Job(plan, world_of(100 + 10 * seed + list(KINDS).index(kind), plan), monkeypatch)
    emptied = empty_at_any_moment(job, server, monkeypatch)
    play(job, closes=True)
    assert (job.opened > 0, job.died > 0, next(emptied) > 0) == (True, True, True)
    rebuild_emptied(job)
    check_law(job)


def test_the_report_of_a_batch_that_was_not_committed_is_no_position(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level 1: an open batch had read both partitions when it died. Run again it reads one; the other goes on where its state stands."""
    plan = plan_of(server, tmp_path, 1)
    job = Job(plan, world_of(11, plan), monkeypatch)
    for log in job.world.logs.values():
        log.end = 5
    assert job.run_batch()
    job.begin(stays_open=False)
    job.world.rounds_left = 1
    while job.run_batch():
        """Until all that is there is planned."""
    before = job.judged[B]
    job.world.logs[A].end = job.judged[A] + 1
    job.begin(stays_open=True)
    job.dies_at_commit, job.world.rounds_left = True, 30
    assert job.run_batch()
    assert (job.died, job.judged[B]) == (1, before)
    assert job.world.logs[B].end > before, "it was read, and reported"
    play(job)
    check_law(job)


def test_an_open_batch_ends_when_the_journal_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 1: nothing is judged that the journal has not closed; the planner decides, and later batches stay open again."""
    own = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    try:
        plan = plan_of(own, tmp_path, 1)
        # A planner that does not wait for a slow answer goes on without the journal, and what others estimate meanwhile is a conflict.
        job = Job(plan, world_of(7, plan), monkeypatch)
        job.world.grow()
        job.world.grow()
        reads = itertools.count()
        monkeypatch.setattr(job.world, "grow", lambda grow=job.world.grow: own.kill() if next(reads) == 9 else grow())
        job.world.rounds_left = 10**6
        assert job.run_batch()
        assert job.opened == 1
        judged = dict(job.judged)
        assert 0 < min(judged.values()) < EVENTS
        own.start()
        job.begin()
        play(job)
        check_law(job)
    finally:
        own.kill()


def test_an_open_batch_stamps_records_ten_times_a_second_at_most(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal keeps each stamp as long as the records that bear it."""
    plan = plan_of(server, tmp_path, 1, arrival="ingest")
    job = Job(plan, world_of(3, plan), monkeypatch)
    job.world.grow()
    job.world.grow()
    job.world.rounds_left = 150
    assert job.run_batch()
    assert job.opened == 1
    for partition in (A, B):
        # The first one is the planner's.
        _, *stamps = job.journal.stamps(plan.journal_key(partition), 0, EVENTS)
        # A busy machine may delay any of them.
        assert len(stamps) > 5
        assert stamps[-1][1] - stamps[0][1] >= 80_000 * (len(stamps) - 1), stamps


def test_a_stop_ends_the_open_batch_and_nothing_more_is_planned(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that starts next goes on where the state stands, with batches of any kind."""
    plan = plan_of(server, tmp_path, 1)
    job = Job(plan, world_of(3, plan), monkeypatch)
    job.world.grow()
    job.world.rounds_left = 10**6
    reads = itertools.count()
    monkeypatch.setattr(job.world, "grow", lambda grow=job.world.grow: request_stop(tmp_path) if next(reads) == 30 else grow())
    assert job.run_batch()
    assert (job.opened, job.died) == (1, 0)
    assert not job.run_batch()
    forget_stop(tmp_path)
    job.begin(stays_open=False)
    play(job)
    check_law(job)


class Clocked(World):
    """Records are appended when the brokers' clock shows their arrival; the clock for durations goes with it."""

    now_us = 1_700_000_000_000_000

    def grow(self) -> None:
        """Let some time pass."""
        self.now_us += self.chance.choice([1, 1_000, 40_000, 700_000])
        for log in self.logs.values():
            while log.end < EVENTS and self.arrival_us(log, log.end) <= self.now_us:
                log.end += 1

    def arrival_us(self, log: Log, row: int) -> int:
        """The arrival of a record, or if that is absurd, of the next one."""
        return next((ms * 1000 for ms in log.records.timestamp_ms[row:].tolist() if ms < 2_000_000_000_000), 0)

    def elapsed_us(self) -> int:
        """The clock for durations. Time passes between any two questions."""
        self.now_us += 10
        return self.now_us - 1_690_000_000_000_000


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (4, 5))])
def test_estimates_of_open_batches_and_of_the_planner_hold(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """
    Level 1: whoever makes an estimate, and whenever it dies, no record that comes later has arrived before it; and the events are those of
    one uncut walk with these estimates. With half of the seeds the journal is emptied at any moment.
    """
    settings = {"idle_cadence": "100ms", "idle_margin": "20ms", "over": "k"} if seed else {"idle_cadence": "100ms", "idle_margin": "20ms"}
    plan = replace(plan_of(server, tmp_path, 1 + seed % 2, **settings), estimates=frozenset({"raw"}))
    plain = world_of(20 + seed, plan)
    world = Clocked(plain.logs, plain.chance, plain.outputs, folder=plain.folder)
    for module in (open_batch, planner):
        monkeypatch.setattr(module, "boottime_us", world.elapsed_us)
    for of_boot in (open_batch, idle_estimates):
        monkeypatch.setattr(of_boot, "boot_id", lambda: "boot")
    made_open: set[tuple[Partition, int, int]] = set()
    make = OpenRange.estimate

    def note(opened: OpenRange, end: PlannedPosition) -> None:
        made_open.add((opened.place, end.next_offset, end.frontier_us))
        make(opened, end)

    monkeypatch.setattr(OpenRange, "estimate", note)
    job = Job(plan, world, monkeypatch)
    emptied = empty_at_any_moment(job, server, monkeypatch) if seed >= 3 else None
    play(job, estimates=False)
    assert (job.opened > 0, job.died > 0) == (True, True)
    if emptied is not None:
        assert next(emptied), "the journal was emptied"
        rebuild_emptied(job)
    assert made_open, "open batches have made estimates"
    made = {
        (partition, position, us)
        for partition in world.logs
        for kind, position, us in job.journal.dump(plan.journal_key(partition))
        if kind == FactKind.ESTIMATE
    }
    assert {place[:2] for place in made_open} <= {place[:2] for place in made}, "an estimate is journaled"
    for partition, position, us in made:
        assert position == EVENTS or us <= world.arrival_us(world.logs[partition], position), "no later record has arrived before it"
    check_law(job)


def test_an_open_batch_advances_time_in_a_silent_partition(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 1: while one partition is silent and another flows, estimates release the silent one's events, within the batch."""
    settings = {"batch_span": "1h", "idle_cadence": "100ms", "idle_margin": "20ms", "late": "2s", "reorder": "3s"}
    plan = replace(plan_of(server, tmp_path, 1, **settings), estimates=frozenset({"raw"}))
    plain = world_of(4, plan)
    world = Clocked(plain.logs, plain.chance, plain.outputs, folder=plain.folder)
    for module in (open_batch, planner):
        monkeypatch.setattr(module, "boottime_us", world.elapsed_us)
    world.logs[A].records = world.logs[A].records.select(world.logs[A].records.offset < 5)
    world.logs[A].end = 5
    last_us = max(ms * 1000 for ms in world.logs[A].records.timestamp_ms.tolist() if ms < 2_000_000_000_000)
    grow = world.grow

    def grow_until() -> None:
        ends = world.logs[A].end
        grow()
        world.logs[A].end = ends
        if world.now_us > last_us + 20_000_000:
            request_end(tmp_path)

    monkeypatch.setattr(world, "grow", grow_until)
    job = Job(plan, world, monkeypatch)
    world.now_us = last_us
    world.rounds_left = 10**9
    assert job.run_batch()
    assert (job.opened, job.batch) == (1, 1)
    progress = read_stage_progress(tmp_path)
    assert (progress[A].seen_us, progress[A].estimated_us > last_us - 1_690_000_000_000_000) == (0, True), "its time is an estimate"
    assert bool(progress[B].seen_us) != bool(progress[B].estimated_us), "its time is that of a record, or an estimate"
    promised = [decode_cti(header, _plain(value), 0) for _, _, header, value in world.topic[0] if len(header) != EVENT_HEADER_BYTES]
    risen = max(cti.c for cti in promised if cti.number == 0)
    assert risen > last_us + 15_000_000, "nothing is held in the silent partition"
    assert len({cti.c for cti in promised if cti.number == 0}) > 20, "and it rose all the while"


def silent_job(plan: IngestPlan, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job over logs of some records to which nothing is appended, and whose batches nobody asks to end."""
    job = Job(plan, world_of(4, plan), monkeypatch)
    for log in job.world.logs.values():
        log.end = 20
    monkeypatch.setattr(job.world, "grow", lambda: None)
    job.world.rounds_left = 10**9
    return job


def test_an_open_batch_ends_after_its_span(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark commits it then. What was read before is no news of its time: that is known from the beginning of the batch."""
    plan = plan_of(server, tmp_path, 1, batch_span="200ms")
    job = silent_job(plan, monkeypatch)
    assert job.run_batch()
    assert (job.opened, job.judged) == (1, {A: 20, B: 20})
    assert all(not progress.seen_us and progress.estimated_us for progress in read_stage_progress(tmp_path).values())


def test_an_open_batch_without_records_lasts_longer(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is little to repeat, and each end costs Spark CPU."""
    settings = {"batch_span": "200ms", "idle_cadence": "100ms", "idle_margin": "20ms", "late": "2s"}
    job = silent_job(replace(plan_of(server, tmp_path, 1, **settings), estimates=frozenset({"raw"})), monkeypatch)
    assert job.run_batch()
    began_s = give_up_s = time.monotonic()
    while not job.run_batch():  # until an estimate is due
        began_s = time.monotonic()
        assert began_s < give_up_s + 20
    assert time.monotonic() - began_s >= 10 * 0.2


@pytest.mark.parametrize("is_watched", [False, True])
def test_an_open_batch_tells_more_often_while_a_client_watches(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
) -> None:
    """The first report of an open batch is a second old otherwise; whoever watches asks for no details by that."""
    plan = plan_of(server, tmp_path, 1, batch_span="600ms")
    job = silent_job(plan, monkeypatch)
    if is_watched:
        leave_question(tmp_path, json.dumps({"substreams": NO_DETAILS}))
    told: list[IngestReport] = []
    monkeypatch.setattr("ingest.stage.processor.write_report", lambda _, __, text: told.append(IngestReport.of_json(text)))
    assert job.run_batch()
    assert job.opened == 1
    assert bool(told) is is_watched
    assert all(report.held_events is None for report in told)


def test_a_batch_stays_open_only_at_the_ends_of_logs_without_skips_ahead() -> None:
    """All facts that the stage may meet must be in the journal, and all partitions must be read at once."""
    plan = ingest_plan(partitions=(A, B), starts={A: PlannedPosition(0), B: PlannedPosition(0)})
    start = IngestOffset({A: PlannedPosition(0), B: PlannedPosition(2)})
    end = IngestOffset({A: PlannedPosition(5), B: PlannedPosition(7)})
    assert may_stay_open(plan, start, end, {A: 5, B: 7})
    assert not may_stay_open(plan, start, end, {A: 5, B: 8}), "the job is behind"
    assert not may_stay_open(replace(plan, skips=(Skip(*A, 6, 7),)), start, end, {A: 5, B: 7})
    assert may_stay_open(replace(plan, skips=(Skip(*A, 3, 5),)), start, end, {A: 5, B: 7}), "that skip is passed"
    assert not may_stay_open(replace(plan, compared={B: (7, 9)}), start, end, {A: 5, B: 7})
    assert not may_stay_open(replace(plan, compared={B: (3, 5)}), start, end, {A: 5, B: 7}), "what follows would never be written"
    assert may_stay_open(replace(plan, compared={B: (1, 2)}), start, end, {A: 5, B: 7}), "what was compared is saved"
    assert not may_stay_open(replace(plan, topic_ids={}), start, end, {A: 5, B: 7}), "the topic joined while the job ran"
    unclosed = IngestOffset({A: PlannedPosition(5, is_unclosed=True), B: PlannedPosition(7)})
    assert not may_stay_open(plan, start, unclosed, {A: 5, B: 7})


@pytest.mark.parametrize(
    ("master", "others", "fields", "reason"),
    [
        ("local[3]", 0, {}, ""),
        ("local[2,4]", 0, {}, "need 3 task slots"),
        ("local[8]", 5, {}, ""),
        ("local[8]", 6, {}, "need 9 task slots"),
        ("spark://host:7077", 0, {}, "only local[N]"),
        ("local[8]", 0, {"imported": ImportedInput("slow", "slow.ordered", 1)}, "import_ctis_from"),
    ],
)
def test_a_job_that_cannot_keep_batches_open_is_told_why(master: str, others: int, fields: dict[str, Any], reason: str) -> None:
    """It reads in micro-batches then: a task that waits for a slot until the end of an open batch would read nothing meanwhile."""
    plan = ingest_plan(partitions=(A, B), tasks=4, **fields)
    kept = TaskSlots()
    assert not others or not kept.keep("query others", others, master)
    found = why_closed(plan, master, kept)
    assert (reason in found) if reason else not found
    assert why_closed(plan, master, kept) == found, "a job that starts again takes its own slots"


def test_the_driver_reads_each_report_of_an_open_batch_once(tmp_path: Path) -> None:
    """What an earlier run has left is old."""
    report = IngestReport("raw", 1, number=3, next_offset=7, totals={"events_in": 7}, open_batch=2)
    write_report(tmp_path, report.number, report.to_json())
    reports = OpenReports(tmp_path, IngestReport.of_json)
    assert reports.read_new() == []
    newer = replace(report, next_offset=9)
    write_report(tmp_path, newer.number, newer.to_json())
    assert (reports.read_new(), reports.read_new()) == ([newer], [])
    reports.end([replace(newer, open_batch=3)])
    write_report(tmp_path, newer.number, replace(newer, open_batch=3).to_json())
    assert reports.read_new() == [], "that batch has ended, and its end was reported"
    reports.end([replace(newer, open_batch=-1)])
    write_report(tmp_path, newer.number, replace(newer, open_batch=5).to_json())
    assert reports.read_new() == [replace(newer, open_batch=5)]
    (tmp_path / "open_report_4.json").write_text("{")
    assert reports.read_new() == []
