"""What a planner plans of what brokers say: no estimate, import or end before everything below it was read (level 1's premises)."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID
from support.ingest_plans import ingest_plan, input_settings
from support.valkey_server import Server

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedInput
from ingest.journal.redis_journal import RedisJournal
from ingest.offsets import IngestOffset, PlannedPosition
from ingest.planner import idle_estimates, imports, planner
from ingest.planner.planner import IngestPlanner
from ingest.planner.stage_progress import StageProgressWriter
from ingest.skips import Skip
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Propose
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import SECOND_US
from tidegate.platform.checkpoint import between_batches
from tidegate.platform.checkpoint.open_batches import request_end, request_stop
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.spark.data_source import NAP_S

A, B, NEW, OTHER = (("raw", number) for number in range(4))
HOUR_US = 3_600 * SECOND_US
_ids = itertools.count()


class Brokers:
    """What brokers say of the partitions of one topic: *ends* of what may be read, and of open transactions too."""

    def __init__(self, topic_id: str, ends: dict[Partition, int], with_open: dict[Partition, int] | None = None) -> None:
        self.topic_id, self.read_to = topic_id, ends
        self.with_open = {**ends, **(with_open or {})}

    def ends(self, partitions: Iterable[Partition], committed: bool = True) -> dict[Partition, int]:
        """Where partitions end."""
        return {partition: (self.read_to if committed else self.with_open).get(partition, 0) for partition in partitions}

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Nothing was deleted."""
        return dict.fromkeys(partitions, 0)

    def partition_counts(self) -> dict[str, int]:
        """How many partitions there are."""
        return {"raw": len(self.read_to)}

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The id of the topic."""
        return dict.fromkeys(names, self.topic_id)

    def find(self, name: str) -> Topic:
        """A topic that brokers stamp."""
        return Topic(name, self.topic_id, len(self.read_to), {"message.timestamp.type": "LogAppendTime"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A journal."""
    running = Server(tmp_path_factory.mktemp("valkey"), "--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.kill()


def plan_of(server: Server, folder: Path, settings: dict[str, str] | None = None, **fields: Any) -> IngestPlan:
    """The plan of a job over two partitions."""
    return replace(
        ingest_plan(
            settings=input_settings(**(settings or {})),
            redis=server.settings(),
            partitions=(A, B),
            topic_ids={"raw": f"id{next(_ids)}"},
            starts={A: PlannedPosition(0), B: PlannedPosition(0)},
            estimates=frozenset({"raw"}),
            checkpoint=str(folder),
        ),
        **fields,
    )


def planner_of(
    plan: IngestPlan, ends: dict[Partition, int], with_open: dict[Partition, int] | None = None
) -> tuple[IngestPlanner, Brokers]:
    """Return a planner, and the brokers that it asks."""
    made, brokers = IngestPlanner(plan), Brokers(plan.topic_ids["raw"], ends, with_open)
    made.__dict__["_admin"] = brokers
    return made, brokers


def advance(made: IngestPlanner, offset: IngestOffset) -> IngestOffset:
    """Plan the next batch."""
    return IngestOffset.from_json(made.plan_end(offset.to_json()))


def start_of(plan: IngestPlan) -> IngestOffset:
    """Where the job begins."""
    return IngestOffset(plan.starts)


def positions(offset: IngestOffset) -> dict[Partition, int]:
    """How far each partition is planned."""
    return {partition: position.next_offset for partition, position in offset.partitions.items()}


def test_a_run_to_the_present_end_ends_once_every_partition_is_read(server: Server, tmp_path: Path) -> None:
    """One that is read in one batch does not end the others."""
    plan = plan_of(server, tmp_path, {"max_events_per_batch": "40"}, until_end=True)
    made, _ = planner_of(plan, {A: 5, B: 90})
    made.prepareForTriggerAvailableNow()
    offsets = [start_of(plan)]
    while not offsets[-1].is_final:
        offsets.append(advance(made, offsets[-1]))
    assert positions(offsets[1]) == {A: 5, B: 35}
    assert positions(offsets[-1]) == {A: 5, B: 90}


def test_a_skip_beyond_the_end_passes_over_no_record_that_is_still_to_come(server: Server, tmp_path: Path) -> None:
    """Positions above the end are judged only once their records are there, or lost."""
    plan = plan_of(server, tmp_path, skips=(Skip(*A, 5, 90),))
    made, brokers = planner_of(plan, {A: 10, B: 0})
    offset = advance(made, start_of(plan))
    assert positions(offset)[A] == 10
    brokers.read_to[A] = brokers.with_open[A] = 95
    assert positions(advance(made, offset))[A] == 95


@pytest.mark.parametrize(("start", "end", "is_compared"), [(5, 10, False), (5, 11, True), (14, 20, True), (15, 20, False)])
def test_ranges_that_touch_what_earlier_attempts_may_have_written_are_compared(
    server: Server, tmp_path: Path, start: int, end: int, is_compared: bool
) -> None:
    """From the first offset to compare to the last, whichever range ends or begins there."""
    plan = plan_of(server, tmp_path, compared={A: (10, 15)})
    made, _ = planner_of(plan, {A: 20, B: 0})
    (planned,) = made._ranges(*(IngestOffset({A: PlannedPosition(at), B: PlannedPosition(0)}) for at in (start, end)))
    assert ((planned.compare_from, planned.compare_until) == (10, 15)) is is_compared


@pytest.mark.parametrize("shuffled", [(NEW, OTHER), (OTHER, NEW)])
def test_partitions_that_join_together_get_numbers_by_name_at_the_largest_promise(
    server: Server, tmp_path: Path, shuffled: tuple[Partition, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """J is a time that no channel has passed; in which order brokers name partitions decides nothing."""
    ctis = [Cti(number, 0, c, 0, 0, 0, c, c, Roster(1, 2, Spread.ONE, False), Cause.EVENT) for number, c in enumerate((7_000, 9_000))]
    monkeypatch.setattr("ingest.planner.joining_partitions.last_promises", lambda *_: {cti.number: {0: cti} for cti in ctis})
    plan = plan_of(server, tmp_path)
    made, _ = planner_of(plan, {A: 5, B: 5, **dict.fromkeys(shuffled, 5)})
    monkeypatch.setattr(made._joins, "present_partitions", lambda: [A, B, *shuffled])
    joined = advance(made, start_of(plan))
    assert {partition: (join.number, join.joined_us) for partition, join in joined.joins.items()} == {
        partition: (number, 9_000) for number, partition in enumerate(sorted(shuffled), start=2)
    }
    assert positions(joined) == {A: 0, B: 0, **dict.fromkeys(shuffled, 0)}


def test_no_partition_joins_while_something_goes_on_after_the_last_batch(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would promise more than the largest promise that is read; once it has ended the partition joins."""
    for name in ("_LAST_S", "_ROUND_S"):
        monkeypatch.setattr(between_batches, name, 0.01)
    ctis = [Cti(number, 0, c, 0, 0, 0, c, c, Roster(1, 2, Spread.ONE, False), Cause.EVENT) for number, c in enumerate((7_000, 9_000))]
    monkeypatch.setattr("ingest.planner.joining_partitions.last_promises", lambda *_: {cti.number: {0: cti} for cti in ctis})
    plan = plan_of(server, tmp_path)
    made, _ = planner_of(plan, {A: 5, B: 5, NEW: 5})
    monkeypatch.setattr(made._joins, "present_partitions", lambda: [A, B, NEW])
    lock = between_batches._lock(tmp_path, fcntl.LOCK_SH)
    assert lock is not None
    assert not advance(made, start_of(plan)).joins
    os.close(lock)
    assert advance(made, start_of(plan)).joins[NEW].joined_us == 9_000


@pytest.mark.parametrize(("joined_us", "is_believed"), [(8_000, True), (9_000, True), (9_001, False), (2**62, False)])
def test_a_join_that_the_journal_tells_is_believed_up_to_the_largest_promise(
    server: Server, tmp_path: Path, joined_us: int, is_believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody joins at a time that no channel has come to; until that is mended the partition waits alone."""
    ctis = [Cti(number, 0, c, 0, 0, 0, c, c, Roster(1, 2, Spread.ONE, False), Cause.EVENT) for number, c in enumerate((7_000, 9_000))]
    monkeypatch.setattr("ingest.planner.joining_partitions.last_promises", lambda *_: {cti.number: {0: cti} for cti in ctis})
    plan = plan_of(server, tmp_path)
    made, _ = planner_of(plan, {A: 5, B: 5, NEW: 5})
    monkeypatch.setattr(made._joins, "present_partitions", lambda: [A, B, NEW])
    RedisJournal.open(plan.redis).execute([Propose(FactKind.JOIN, plan.own_key(NEW), 2, joined_us)])
    offset = advance(made, start_of(plan))
    assert {partition: join.joined_us for partition, join in offset.joins.items()} == ({NEW: joined_us} if is_believed else {})
    assert positions(offset) == ({A: 0, B: 0, NEW: 0} if is_believed else {A: 5, B: 5})


class Clock:
    """A clock for durations that a test sets, microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = HOUR_US
        monkeypatch.setattr(planner, "boottime_us", lambda: self.now_us)
        monkeypatch.setattr(idle_estimates, "boot_id", lambda: "boot")

    def wait(self, us: int) -> None:
        """Let time pass."""
        self.now_us += us


def report(folder: Path, **progress: tuple[int, int]) -> None:
    """Have the stage report next offset and arrival of partitions."""
    names = {"a": A, "b": B}
    StageProgressWriter(folder).accept_reports(
        IngestReport(*names[name], next_offset=next_offset, arrival_us=us, complete_us=us - 5 * SECOND_US, held=1)
        for name, (next_offset, us) in progress.items()
    )


def silent(made: IngestPlanner, offset: IngestOffset, clock: Clock, times: int = 3) -> IngestOffset:
    """Let a silent hour pass."""
    for _ in range(times):
        clock.wait(20 * 60 * SECOND_US)
        offset = advance(made, offset)
    return offset


def frontiers(offset: IngestOffset) -> dict[Partition, int]:
    """The estimates in force."""
    return {partition: position.frontier_us for partition, position in offset.partitions.items() if position.frontier_us}


ARRIVED_US = 1_000 * HOUR_US


@pytest.mark.parametrize("open_records", [0, 3])
def test_silence_counts_only_if_nothing_was_written_not_even_in_an_open_transaction(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_records: int
) -> None:
    """There is none while an open transaction holds the last stable offset below the end; its records arrived before."""
    clock, plan = Clock(monkeypatch), plan_of(server, tmp_path)
    made, _ = planner_of(plan, {A: 10, B: 10}, {A: 10 + open_records})
    offset = advance(made, start_of(plan))
    report(tmp_path, a=(10, ARRIVED_US), b=(10, ARRIVED_US))
    reached = frontiers(silent(made, offset, clock))
    assert set(reached) == ({B} if open_records else {A, B})
    assert all(ARRIVED_US < us < ARRIVED_US + HOUR_US for us in reached.values())


def test_a_record_that_comes_while_ends_are_asked_for_gets_no_estimate(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end that is planned to and the end that is asked for an estimate it was appended: it arrived before."""
    clock, plan = Clock(monkeypatch), plan_of(server, tmp_path)
    made, brokers = planner_of(plan, {A: 10, B: 10})
    offset = advance(made, start_of(plan))
    report(tmp_path, a=(10, ARRIVED_US), b=(10, ARRIVED_US))
    brokers.with_open[A] = 11
    assert set(frontiers(silent(made, offset, clock))) == {B}


def test_silence_counts_from_the_report_of_its_position_only(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older report knows less than has arrived since; the stage is asked to report again, by an estimate that changes nothing."""
    clock, plan = Clock(monkeypatch), plan_of(server, tmp_path, {"idle": "on"})
    made, brokers = planner_of(plan, {A: 10, B: 10})
    monkeypatch.setattr(brokers, "find", lambda name: Topic(name, brokers.topic_id, 2, {}))
    offset = advance(made, start_of(plan))
    report(tmp_path, a=(9, ARRIVED_US), b=(10, ARRIVED_US))
    reached = frontiers(silent(made, offset, clock))
    assert (reached[A], reached[B] > ARRIVED_US) == (1, True)


@pytest.mark.parametrize("field", ["seen_us", "estimated_us"])
@pytest.mark.parametrize(("boot", "counted_us"), [("boot", HOUR_US), ("another", 0)])
def test_the_clock_of_another_machine_counts_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, boot: str, counted_us: int
) -> None:
    """The checkpoint has moved, or the machine was started anew: what an open batch has told of its clock is not of this one."""
    clock, plan = Clock(monkeypatch), plan_of(server, tmp_path)
    made, _ = planner_of(plan, {A: 10, B: 10})
    offset = advance(made, start_of(plan))
    told = IngestReport(
        *A, next_offset=10, arrival_us=ARRIVED_US, complete_us=ARRIVED_US - 5 * SECOND_US, held=1, open_batch=1, boot_id=boot
    )
    StageProgressWriter(tmp_path).accept_reports([replace(told, **{field: clock.now_us - HOUR_US + 1})])
    report(tmp_path, b=(10, ARRIVED_US))
    clock.wait(SECOND_US)
    advance(made, offset)
    clock.wait(60 * SECOND_US)
    reached_us = frontiers(advance(made, offset))[A]
    assert ARRIVED_US + 0.9 * counted_us < reached_us < ARRIVED_US + counted_us + 120 * SECOND_US


def test_a_partition_without_records_follows_the_slowest_of_the_others(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes there later arrives later than what has arrived elsewhere: of that the slowest is certain."""
    clock, plan = Clock(monkeypatch), plan_of(server, tmp_path, {"idle": "on"})
    plan = replace(plan, partitions=(A, B, NEW), starts={**plan.starts, NEW: PlannedPosition(0)})
    made, brokers = planner_of(plan, {A: 10, B: 10, NEW: 0})
    monkeypatch.setattr(brokers, "find", lambda name: Topic(name, brokers.topic_id, 3, {}))
    offset = advance(made, start_of(plan))
    report(tmp_path, a=(10, ARRIVED_US), b=(10, ARRIVED_US + 9 * HOUR_US))
    clock.wait(20 * 60 * SECOND_US)
    assert advance(made, offset).partitions[NEW].base_us == ARRIVED_US


@pytest.mark.parametrize(("read_to", "with_open", "is_raised"), [(10, 10, True), (10, 12, False)])
def test_an_import_counts_only_where_all_has_been_read(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_to: int, with_open: int, is_raised: bool
) -> None:
    """Records that are there when the imported time is read are judged without it, those of an open transaction too."""

    class Fast:
        def __init__(self, *_: Any) -> None:
            pass

        def read_frontier(self) -> int:
            """The time of the other input."""
            return 7_000

    monkeypatch.setattr(imports, "ImportedFrontier", Fast)
    plan = plan_of(server, tmp_path, {"idle": "off"}, imported=ImportedInput("fast", "fast.ordered", 1))
    made, _ = planner_of(plan, {A: read_to, B: 10}, {A: with_open})
    offset = advance(made, IngestOffset({A: PlannedPosition(10), B: PlannedPosition(10)}))
    assert {partition for partition, position in offset.partitions.items() if position.import_us} == ({A, B} if is_raised else {B})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[Partition, int], float]]:
    """The waits for records: at which ends, and how long at most."""
    noted: list[tuple[dict[Partition, int], float]] = []
    monkeypatch.setattr(planner.Lookout, "wait", lambda _, ends, wait_s, other=-1: noted.append((dict(ends), wait_s)))
    return noted


def test_a_planner_waits_for_records_once_all_is_planned(
    waits: list[tuple[dict[Partition, int], float]], server: Server, tmp_path: Path
) -> None:
    """Not while records are still to be planned, nor before the silence has lasted, nor once the job stops."""
    plan = plan_of(server, tmp_path, {"late": "5s"}, estimates=frozenset(), stays_open=True)
    made, brokers = planner_of(plan, {A: 3, B: 0})
    offset = advance(made, start_of(plan))
    assert positions(offset) == {A: 3, B: 0}
    made.rest(NAP_S)
    assert not waits, "more may be there than was planned"
    assert advance(made, offset) == offset
    made.rest(NAP_S / 2)
    assert not waits, "the silence is young"
    made.rest(NAP_S)
    assert [ends for ends, _ in waits] == [{A: 3, B: 0}]
    request_end(tmp_path)
    made.rest(NAP_S)
    assert len(waits) == 1, "who asked for an end before the watch began would not be heard"
    brokers.read_to[B] = brokers.with_open[B] = 1
    assert positions(advance(made, offset)) == {A: 3, B: 1}
    made.rest(NAP_S)
    assert len(waits) == 1
    request_stop(tmp_path)
    assert advance(made, offset) == offset
    made.rest(NAP_S)
    assert len(waits) == 1


def test_no_wait_for_records_lasts_beyond_the_next_estimate(
    waits: list[tuple[dict[Partition, int], float]], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once one is due, the brokers are asked as often as without the wait."""
    now_us = [1_000 * SECOND_US]
    monkeypatch.setattr(planner, "boottime_us", lambda: now_us[0])
    made, _ = planner_of(plan_of(server, tmp_path, {"late": "5s", "idle_cadence": "2s"}), {A: 3, B: 0})
    offset = advance(made, start_of(made._plan))
    assert advance(made, offset) == offset
    for passed_us, longest_s in ((0, 0.5), (SECOND_US * 7 // 4, 0.25)):
        now_us[0] = 1_000 * SECOND_US + passed_us
        made.rest(NAP_S)
        assert waits.pop() == ({A: 3, B: 0}, longest_s)
    now_us[0] += SECOND_US
    made.rest(NAP_S)
    assert not waits


def test_a_planner_waits_at_no_end_below_its_position(
    waits: list[tuple[dict[Partition, int], float]], server: Server, tmp_path: Path
) -> None:
    """A broker that has lost its partitions tells such ends, or even none: it is asked on, until the log is refused as cut."""
    made, brokers = planner_of(plan_of(server, tmp_path, estimates=frozenset()), {A: 3, B: 0})
    offset = advance(made, start_of(made._plan))
    for end in (OFFSET_INVALID, 2):
        brokers.read_to[A] = brokers.with_open[A] = end
        assert advance(made, offset) == offset
        made.rest(NAP_S)
    assert not waits
