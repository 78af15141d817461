"""The planner's journal client while the journal is away, when it comes back, and when it has lost facts (level 1's premises)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis
import structlog
from structlog.typing import EventDict
from support.ingest_plans import ingest_plan, input_settings
from support.journals import estimate
from support.valkey_server import Server

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedInput
from ingest.journal.client import JournalClient
from ingest.journal.known_facts import StageFacts
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.stage_notes import NoteReader, StageNote
from ingest.offsets import PartitionJoin, PlannedPosition
from ingest.skips import Skip
from ordering.errors import RefusedError, TidegateError
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import Close, PlanningTime, Silence

RAW = ("raw", 0)
_ids = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that syncs every write."""
    running = Server(tmp_path_factory.mktemp("valkey"), "--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may kill or empty."""
    running = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.kill()


def plan_of(server: Server, imported: bool = False, **settings: Any) -> IngestPlan:
    """The plan of a job over one partition that starts at offset 10."""
    return ingest_plan(
        settings=input_settings(**settings),
        redis=server.settings(connect_timeout="2s"),
        topic_ids={"raw": f"id{next(_ids)}"},
        starts={RAW: PlannedPosition(10)},
        estimates=frozenset({"raw"}),
        imported=ImportedInput("slow", "slow.ordered", 1) if imported else None,
    )


_SAID: list[EventDict] = []


def _keep(_: object, level: str, event: EventDict) -> EventDict:
    _SAID.append({**event, "log_level": level})
    raise structlog.DropEvent


# Threads that other tests leave behind have something to say too, but not here.
_LOG = structlog.wrap_logger(None, processors=[_keep])


@contextmanager
def what_clients_log() -> Iterator[list[EventDict]]:
    """What the clients of all drivers log meanwhile; complete afterwards."""
    before, logs = len(_SAID), list[EventDict]()
    yield logs
    logs.extend(_SAID[before:])


class Driver:
    """A planner of a job as the journal client sees it: it plans ranges and receives facts, and Spark's offset remembers."""

    def __init__(self, plan: IngestPlan, at: PlannedPosition | None = None) -> None:
        self.plan, self.at = plan, at or plan.starts[RAW]
        # What the stages have noted since the last batch.
        self.noted: list[StageNote] = []
        # Whether some still go on.
        self.go_on = False
        self.journal_client = JournalClient(plan, _LOG, notes=cast(NoteReader, self))
        self.first = 0
        # Where an open batch stands, and what it has told.
        self.judged: int | None = None
        self.told: StageFacts | None = None

    def read(self) -> list[StageNote]:
        """As ``NoteReader``: what nobody has waited for is not known yet."""
        return []

    def read_all(self) -> list[StageNote]:
        """As ``NoteReader``."""
        if self.go_on:
            raise TidegateError("a task goes on", code="TG-JOURNAL-BUSY")
        return self.noted

    def begin(self) -> None:
        """Begin a pass."""
        at = self.at if self.judged is None else PlannedPosition(self.judged)
        self.journal_client.begin_pass({RAW: at}, self._starts, {RAW: self.told} if self.told else {})

    def _starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return dict.fromkeys(partitions, self.first)

    def plan_to(self, end: int) -> bool:
        """Plan up to *end*; return whether that was possible."""
        self.begin()
        here = self.journal_client.select_plannable({RAW: self.at})
        found = self.journal_client.close_ranges({RAW: self.at.next_offset}, {RAW: end}) if here else {}
        for known in found.values():
            spent = self.journal_client.pop_conflicts(RAW)
            self.at = PlannedPosition(
                end, 0, known.marks, 1, 0, known.imports, known.spans, known.is_unclosed, conflicts=spent, clamped=known.clamped
            )
        return bool(found)

    def estimate(self, us: int) -> bool:
        """Raise the frontier where the job stands; return whether the journal took it."""
        self.begin()
        raised = self.journal_client.journal_estimates([(RAW, self.at.next_offset, us)])
        self.at = self.at.raise_time(frontier_us=raised[RAW]) if raised else self.at
        return bool(raised)

    def journal(self) -> list[Fact]:
        """What the journal holds."""
        journal = RedisJournal.open(self.plan.redis)
        return journal.dump(self.plan.journal_key(RAW))


def until_true(condition: Any) -> None:
    """Ask until it holds: a lost journal is asked again once a second."""
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def kinds(facts: list[Fact], *wanted: FactKind) -> list[tuple[int, int]]:
    """Position and value of the facts of some kinds."""
    return [(fact.position, fact.value) for fact in facts if fact.kind in wanted]


def test_a_range_is_told_what_is_in_force_in_it_and_when_it_was_first_planned(server: Server) -> None:
    """What stands at its start comes from Spark's offset or the journal; a second job gets the first one's moments."""
    first = Driver(plan_of(server, imported=True))
    assert first.estimate(5_000)
    assert first.journal_client.journal_imports([(RAW, 10, 700)]) == {RAW: 700}
    assert first.plan_to(20)
    assert (first.at.marks, first.at.imports, first.at.is_unclosed) == (((10, 5_000),), ((10, 700),), False)
    ((position, moment_us),) = first.at.spans
    assert position == 0
    assert abs(moment_us - time.time_ns() // 1000) < 60_000_000
    second = Driver(first.plan)
    assert second.plan_to(15)
    assert (second.at.marks, second.at.spans) == (first.at.marks, first.at.spans)
    assert not second.estimate(9_000), "a closed position takes no estimate"


def test_what_nobody_judged_is_planned_on_without_the_journal_and_told_it_later(own_server: Server) -> None:
    """KnownReferences facts count; nothing is estimated; once it is back the journal is told first thing, and no facts were lost."""
    driver = Driver(plan_of(own_server))
    assert driver.estimate(5_000)
    own_server.kill()
    with what_clients_log() as logs:
        assert driver.plan_to(20)
        assert (driver.at.marks, driver.at.is_unclosed) == (((10, 5_000),), True)
        assert not driver.estimate(6_000)
    assert [log["event"] for log in logs] == ["the journal does not answer: no idle estimates until it does"]
    own_server.start()
    with what_clients_log() as logs:
        until_true(lambda: driver.begin() or driver.journal_client.is_available())
        assert driver.plan_to(30)
    assert not driver.at.is_unclosed
    assert not [log for log in logs if log["log_level"] == "warning"]
    facts = driver.journal()
    assert kinds(facts, FactKind.ESTIMATE, FactKind.CLOSED) == [(10, 5_000), (30, 0)]
    assert kinds(facts, FactKind.CLOCK)


@pytest.mark.parametrize(("frontier_us", "conflicts"), [(9_000, 0), (8_000, 1)])
def test_an_estimate_of_an_open_batch_is_a_conflict_only_if_its_stage_does_not_stand_there(
    own_server: Server, frontier_us: int, conflicts: int
) -> None:
    """The planner hears of it by the frontier that the stage tells; below, the stage has closed all in the journal."""
    driver = Driver(plan_of(own_server))
    driver.estimate(5_000)
    assert driver.plan_to(20)
    stage = Driver(driver.plan, driver.at)
    assert stage.estimate(7_000)
    assert stage.plan_to(25)
    assert stage.estimate(9_000)
    own_server.kill()
    driver.judged, driver.told = 25, StageFacts(frontier_us, lost_answer=False)
    assert driver.plan_to(30)
    own_server.start()
    driver.judged = driver.told = None
    until_true(lambda: driver.begin() or driver.journal_client.is_available())
    assert driver.journal_client.pop_conflicts(RAW) == conflicts


def test_where_an_open_batch_has_lost_an_answer_nothing_is_planned_until_the_journal_tells(own_server: Server) -> None:
    """As where the planner has lost it."""
    driver = Driver(plan_of(own_server))
    assert driver.plan_to(20)
    stage = Driver(driver.plan, driver.at)
    assert stage.estimate(7_000)
    redis.Redis(port=own_server.port, protocol=2).client_pause(20_000, all=False)
    assert not stage.journal_client.has_lost_answer(RAW)
    assert not stage.estimate(9_000), "the server answers, but not to what would write"
    assert stage.journal_client.has_lost_answer(RAW)
    own_server.kill()
    driver.judged, driver.told = 20, StageFacts(7_000, lost_answer=True)
    assert not driver.plan_to(30)
    own_server.start()
    until_true(lambda: driver.begin() or driver.journal_client.is_available())
    assert driver.plan_to(30)
    assert driver.at.marks == tuple(kinds(driver.journal(), FactKind.ESTIMATE))


def test_where_an_answer_was_lost_nothing_is_planned_until_the_journal_tells(own_server: Server) -> None:
    """An estimate may be in force there that nobody heard of: a record judged without it would be judged twice in two ways."""
    driver = Driver(plan_of(own_server))
    assert driver.estimate(5_000)
    redis.Redis(port=own_server.port, protocol=2).client_pause(20_000, all=False)
    assert not driver.estimate(6_000), "the server answers, but not to what would write"
    own_server.kill()
    assert not driver.plan_to(20)
    own_server.start()
    until_true(lambda: driver.begin() or driver.journal_client.is_available())
    assert driver.plan_to(20)
    assert driver.at.marks in (((10, 5_000),), ((10, 6_000),))
    assert driver.at.marks == tuple(kinds(driver.journal(), FactKind.ESTIMATE))


def test_the_next_driver_tells_the_journal_what_was_judged_during_an_outage(own_server: Server) -> None:
    """It stands in Spark's offset; a driver that cannot reach the journal does not know what it may plan, and waits."""
    driver = Driver(plan_of(own_server))
    driver.estimate(5_000)
    own_server.kill()
    assert driver.plan_to(20)
    heir = Driver(driver.plan, PlannedPosition.from_json(driver.at.to_json()))
    assert heir.at.is_unclosed
    assert not heir.plan_to(25)
    own_server.start()
    with what_clients_log() as logs:
        until_true(lambda: heir.journal_client.is_available() or heir.begin())
        heir.begin()
    assert not [log for log in logs if log["log_level"] == "warning"]
    facts = heir.journal()
    assert kinds(facts, FactKind.CLOSED) == [(20, 0)]
    assert kinds(facts, FactKind.CLOCK) == list(driver.at.spans)


def test_a_replay_waits_and_so_does_all_where_outages_pause_or_ingest_stamps(own_server: Server) -> None:
    """What others may have judged may have facts; stamps cannot be made up twice."""
    ahead = Driver(plan_of(own_server))
    assert ahead.plan_to(20)
    halfway = Driver(ahead.plan)
    assert halfway.plan_to(15)
    replaying, pausing = Driver(ahead.plan), Driver(plan_of(own_server, journal_outage="pause"))
    stamping = Driver(plan_of(own_server, arrival="ingest"))
    for driver in (replaying, pausing, stamping):
        driver.begin()
    own_server.kill()
    assert [driver.plan_to(15) for driver in (replaying, pausing, stamping)] == [False, False, False]
    assert not halfway.plan_to(18), "below 20 another has judged, whatever range was closed last"
    assert ahead.plan_to(25)
    own_server.start()
    for driver in (replaying, pausing, stamping):
        until_true(lambda driver=driver: driver.plan_to(15))


def test_facts_of_another_where_records_were_judged_without_them_are_reported(own_server: Server) -> None:
    """A second job, or a zombie, reached a journal that this one did not: the two differ there, and it is said and counted."""
    with what_clients_log() as logs:
        driver = Driver(plan_of(own_server))
        driver.begin()
        own_server.kill()
        assert driver.plan_to(20)
        assert driver.plan_to(22)
        own_server.start()
        estimate(RedisJournal.open(driver.plan.redis), driver.plan.journal_key(RAW), 15, 9_000)
        until_true(lambda: driver.begin() or driver.journal_client.is_available())
        assert driver.plan_to(30)
    assert [log["code"] for log in logs if "code" in log] == ["TG-JOURNAL-CONFLICT"], logs
    assert driver.at.conflicts == 1
    assert kinds(driver.journal(), FactKind.ESTIMATE) == [(15, 9_000)]


@pytest.mark.parametrize(("arrival", "has_joined"), [("broker", False), ("ingest", False), ("broker", True)])
def test_an_emptied_journal_is_given_everything_back_before_it_is_asked(own_server: Server, arrival: str, has_joined: bool) -> None:
    """
    Noticed at the next call, whether or not the connection broke; what stood there stands there again.

    Of a partition that joined while the job runs, the plan does not know where it began.
    """
    plan = plan_of(own_server, arrival=arrival)
    driver = Driver(replace(plan, starts={}) if has_joined else plan, plan.starts[RAW])
    driver.estimate(time.time_ns() // 1000 - 1_000_000)
    assert driver.plan_to(20)
    assert driver.estimate(time.time_ns() // 1000)
    before = driver.journal()
    redis.Redis(port=own_server.port, protocol=2).flushall()
    with what_clients_log() as logs:
        assert driver.estimate(1)
    assert [log["code"] for log in logs if "code" in log] == ["TG-JOURNAL-WIPED"]
    assert driver.journal() == before
    redis.Redis(port=own_server.port, protocol=2).flushall()
    own_server.kill()
    own_server.start()
    until_true(lambda: driver.begin() or driver.journal_client.is_available())
    assert driver.plan_to(30)
    after = driver.journal()
    assert [fact for fact in before if fact.kind != FactKind.CLOSED] == [fact for fact in after if fact in before]


def test_what_stages_have_noted_is_planned_without_the_journal_with_its_facts(own_server: Server) -> None:
    """They have judged it with facts that this driver has not seen; while they may still do so it plans nothing."""
    driver = Driver(plan_of(own_server))
    assert driver.plan_to(20)
    own_server.kill()
    driver.go_on = True
    with pytest.raises(TidegateError, match="TG-JOURNAL-BUSY"):
        driver.plan_to(30)
    noted_us = driver.at.spans[-1][1] + 5
    driver.go_on, driver.noted = False, [StageNote(RAW, 20, PlannedPosition(25, spans=((20, noted_us),)))]
    assert driver.plan_to(30)
    assert (20, noted_us) in driver.at.spans
    own_server.start()
    until_true(lambda: driver.begin() or driver.journal_client.is_available())
    assert driver.plan_to(40)
    assert (20, noted_us) in kinds(driver.journal(), FactKind.CLOCK)


def test_what_stages_have_noted_is_given_back_to_an_emptied_journal(own_server: Server) -> None:
    """Nobody may journal another estimate where it was judged, and the facts by which it was judged are there again."""
    driver = Driver(plan_of(own_server))
    assert driver.plan_to(20)
    driver.noted = [StageNote(RAW, 20, PlannedPosition(25, marks=((20, 5_000),), spans=((20, driver.at.spans[-1][1] + 5),)))]
    redis.Redis(port=own_server.port, protocol=2).flushall()
    assert driver.plan_to(22)
    facts = driver.journal()
    assert kinds(facts, FactKind.ESTIMATE, FactKind.CLOSED) == [(20, 5_000), (25, 0)]
    assert (20, driver.at.spans[0][1] if driver.at.spans[0][0] == 20 else 0) in kinds(facts, FactKind.CLOCK)
    assert driver.at.marks == ((20, 5_000),)


def test_a_new_driver_waits_for_the_end_of_what_goes_on_only_if_the_journal_has_lost_facts(own_server: Server) -> None:
    """A process that is suspended may hold it up for long. What it has closed is closed again in a journal that was emptied."""
    driver = Driver(plan_of(own_server))
    assert driver.plan_to(20)
    heir = Driver(driver.plan, PlannedPosition.from_json(driver.at.to_json()))
    heir.go_on = True
    assert heir.plan_to(22)
    redis.Redis(port=own_server.port, protocol=2).flushall()
    heir = Driver(driver.plan, PlannedPosition.from_json(driver.at.to_json()))
    heir.go_on, heir.noted = True, [StageNote(RAW, 20, PlannedPosition(25, spans=((20, driver.at.spans[-1][1] + 5),)))]
    with pytest.raises(TidegateError, match="TG-JOURNAL-BUSY"):
        heir.plan_to(22)
    assert heir.journal() == []
    heir.go_on = False
    until_true(lambda: heir.plan_to(22))
    assert kinds(heir.journal(), FactKind.CLOSED) == [(25, 0)]


def test_a_new_driver_gives_back_what_stands_in_its_offset(own_server: Server) -> None:
    """The journal was emptied while nobody looked: that is said; what was judged is closed, the last frontier is back."""
    driver = Driver(plan_of(own_server))
    driver.plan_to(20)
    driver.estimate(7_000)
    redis.Redis(port=own_server.port, protocol=2).flushall()
    heir = Driver(driver.plan, PlannedPosition.from_json(driver.at.to_json()))
    with what_clients_log() as logs:
        heir.begin()
    assert [log["event"] for log in logs] == ["the journal had lost facts and was given back all that this job knows"]
    # Counted once, for the metric.
    assert (heir.journal_client.pop_losses(RAW), heir.journal_client.pop_losses(RAW)) == (1, 0)
    assert kinds(heir.journal(), FactKind.ESTIMATE, FactKind.CLOSED) == [(20, 7_000), (20, 0)]


def test_a_replay_gives_back_what_others_have_closed_ahead_of_it(own_server: Server) -> None:
    """An emptied journal takes no estimate where a record was judged, though this driver stands before it."""
    ahead = Driver(plan_of(own_server))
    assert ahead.plan_to(20)
    replaying = Driver(ahead.plan)
    assert replaying.plan_to(15)
    redis.Redis(port=own_server.port, protocol=2).flushall()
    assert replaying.plan_to(16)
    assert kinds(replaying.journal(), FactKind.CLOSED) == [(20, 0)]


def test_a_new_driver_gives_back_an_import_that_is_lost_alone(server: Server) -> None:
    """Imports have a key of their own."""
    heir = Driver(plan_of(server, imported=True), PlannedPosition(10, import_us=700))
    heir.begin()
    assert RedisJournal.open(heir.plan.redis).dump(heir.plan.import_key(RAW)) == [Fact(FactKind.IMPORT, 10, 700)]


def test_stamps_follow_no_clock_that_goes_back(server: Server) -> None:
    """An estimate of this job from a clock that was ahead: later records arrive no earlier, and it is counted."""
    driver, ahead_us = Driver(plan_of(server, arrival="ingest")), time.time_ns() // 1000 + 3_600_000_000
    assert driver.estimate(ahead_us)
    assert driver.plan_to(20)
    assert (driver.at.spans, driver.at.clamped) == (((0, ahead_us),), 1)
    assert driver.plan_to(30)
    assert driver.at.spans == ((0, ahead_us),)


def test_a_stamp_of_another_job_that_is_far_ahead_of_this_clock_is_not_believed(server: Server) -> None:
    """It cannot be told from a forged one, and all records would arrive then: the job pauses, says so, and leaves the fact to its owner."""
    driver, now_us = Driver(plan_of(server, arrival="ingest")), time.time_ns() // 1000
    journal, key = RedisJournal.open(driver.plan.redis), driver.plan.journal_key(RAW)
    assert driver.plan_to(20)
    journal.execute([Close(key, 25, PlanningTime(FactKind.STAMP, now_us + 60_000_000))])
    assert driver.plan_to(30), "a minute is within the bound"
    journal.execute([Close(key, 35, PlanningTime(FactKind.STAMP, now_us + 3_600_000_000))])
    with what_clients_log() as logs:
        assert not driver.plan_to(40)
    assert [event["code"] for event in logs if event["log_level"] == "error"] == ["TG-JOURNAL-IMPOSSIBLE"]
    assert Fact(FactKind.STAMP, 30, now_us + 3_600_000_000) in journal.dump(key)


def test_records_without_a_stamp_that_were_judged_are_refused(server: Server) -> None:
    """Nobody may stamp them a second time: the way out is to bring the stamps back."""
    driver = Driver(plan_of(server, arrival="ingest"))
    RedisJournal.open(driver.plan.redis).execute([Close(driver.plan.journal_key(RAW), 30)])
    with pytest.raises(RefusedError) as refusal:
        driver.plan_to(20)
    assert (refusal.value.code, refusal.value.example) == ("TG-JOURNAL-LOST", "tidegate journal rebuild raw")


def test_a_clock_reading_is_journaled_once_in_a_while_not_for_every_range(server: Server) -> None:
    """The journal of a busy topic stays small; the reading in force travels with each range."""
    driver = Driver(plan_of(server))
    for end in range(11, 31):
        assert driver.plan_to(end)
    assert len(driver.at.spans) == 1
    assert len(kinds(driver.journal(), FactKind.CLOCK)) == 1
    exact = Driver(replace(plan_of(server), arrival_max_ahead_us=1))
    for end in range(11, 16):
        assert exact.plan_to(end)
    assert len(kinds(exact.journal(), FactKind.CLOCK)) == 5


def test_what_retention_has_deleted_is_forgotten_at_start(server: Server) -> None:
    """Facts below the first offset there is serve nobody; the moment in force there stays."""
    driver = Driver(plan_of(server))
    journal, key = RedisJournal.open(driver.plan.redis), driver.plan.journal_key(RAW)
    estimate(journal, key, 3, 50)
    journal.execute([Close(key, 5, PlanningTime(FactKind.CLOCK, 100))])
    driver.first = 8
    driver.begin()
    assert driver.journal() == [Fact(FactKind.CLOCK, 0, 100), Fact(FactKind.CLOSED, 5, 0)]


def test_joins_bases_and_silences_are_asked_here_too(server: Server) -> None:
    """Whoever settled first counts."""
    client = Driver(plan_of(server)).journal_client
    assert client.read_joins({("raw", 1): "id"}) == {}
    assert client.journal_join(("raw", 1), "id", PartitionJoin(1, 500))
    assert client.read_joins({("raw", 1): "id"}) == {("raw", 1): PartitionJoin(1, 500)}
    assert (client.settle_base(RAW, 40), client.settle_base(RAW, 50)) == (40, 40)
    assert client.share_silences({RAW: Silence(1, "boot", 2, 3)}) == {RAW: Silence(1, "boot", 2, 3)}


def test_skips_are_given_back_but_for_those_that_were_undone(own_server: Server) -> None:
    """An emptied journal knows of a skip again, and takes none for one in force that was undone."""
    kept, undone = Skip(*RAW, 12, 14), Skip(*RAW, 16, 18, is_undone=True)
    driver = Driver(replace(plan_of(own_server), skips=(kept, undone)))
    assert driver.plan_to(20)
    redis.Redis(port=own_server.port, protocol=2).flushall()
    assert driver.plan_to(30)
    assert RedisJournal.open(driver.plan.redis).dump(driver.plan.own_key(RAW)) == [kept.fact]


def test_joins_are_given_back_too_and_what_was_only_asked_for_is_asked_again(own_server: Server) -> None:
    """An emptied journal knows of a joining again; a partition of which it never knew anything is no obstacle."""
    client = Driver(plan_of(own_server)).journal_client
    assert client.journal_join(("raw", 1), "id", PartitionJoin(1, 500))
    assert client.read_joins({("raw", 2): "id"}) == {}
    redis.Redis(port=own_server.port, protocol=2).flushall()
    assert client.read_joins({("raw", 2): "id"}) == {}
    assert client.read_joins({("raw", 1): "id", ("raw", 2): "id"}) == {("raw", 1): PartitionJoin(1, 500)}


def test_a_newcomer_that_stamped_an_emptied_journal_first_is_reported(own_server: Server) -> None:
    """Its stamps stand, as somebody may have used them; that the arrivals of two jobs differ is said and counted."""
    driver = Driver(plan_of(own_server, arrival="ingest"))
    assert driver.plan_to(20)
    redis.Redis(port=own_server.port, protocol=2).flushall()
    assert Driver(driver.plan).plan_to(15)
    with what_clients_log() as logs:
        assert driver.plan_to(30)
    assert [log["code"] for log in logs if "code" in log] == ["TG-JOURNAL-WIPED", "TG-JOURNAL-CONFLICT"]
    assert driver.at.conflicts == 1
