"""
Whoever may write to Redis writes what cannot be into every entry of the journal, while the real planner plans over a real Valkey.

Level 1's premises: nothing that cannot be is planned, each range is still planned, and no record that comes now is judged by a clock
reading that is older than it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
import redis
import structlog
from structlog.typing import EventDict
from support.ingest_plans import ingest_plan, input_settings
from support.valkey_server import Server

from ingest.config import Partition
from ingest.journal.impossible_facts import FactBounds, remove_impossible
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.skip_book import SkipBook
from ingest.journal.topic_fingerprint import TopicOrigin, check_fingerprint
from ingest.offsets import IngestOffset, PlannedPosition
from ingest.planner.arrival_stamps import PlanningTimes
from ingest.planner.planner import IngestPlanner
from ingest.planner.stage_progress import StageProgressWriter
from ingest.skips import Skip
from ingest.start.survey import _check_skips
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import Close, ImpossibleFactError, PlanningTime, Raise, Read
from ordering.ticks import MINUTE_US, SECOND_US
from tidegate.platform.checkpoint.output_start import BEGINNING
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.records import Records
from tidegate.platform.observe.reports import IngestReport

RAW: Partition = ("raw", 0)
AHEAD_US = 2 * MINUTE_US
_ids = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Valkey that everybody may write to."""
    running = Server(tmp_path_factory.mktemp("valkey"), "--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.kill()


class World:
    """A job's planner, the brokers that it asks, and a stranger at its Redis; ``now_us`` is the wall clock of the process."""

    def __init__(self, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shift_ns, real = 0, time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + self._shift_ns)
        self.plan = ingest_plan(
            settings=input_settings(idle_cadence="1ms", idle_margin="1ms"),
            redis=server.settings(),
            topic_ids={"raw": f"id{next(_ids)}"},
            starts={RAW: PlannedPosition(0)},
            estimates=frozenset({"raw"}),
            checkpoint=str(folder),
            arrival_max_ahead_us=AHEAD_US,
        )
        self.stranger = redis.Redis(port=server.port)
        self.name = f"tidegate:{{raw}}:journal:{self.plan.topic_ids['raw']}:0"
        self.end, self.offset = 0, IngestOffset(self.plan.starts)
        self.logs: list[EventDict] = []
        self.restart()

    def restart(self) -> None:
        """Begin with a new planner, from Spark's offset."""
        self.planner = IngestPlanner(self.plan)
        self.planner.__dict__["_admin"] = self
        self.planner.__dict__["_log"] = structlog.wrap_logger(None, processors=[self._keep])

    def _keep(self, _: object, level: str, event: EventDict) -> EventDict:
        self.logs.append({**event, "log_level": level})
        raise structlog.DropEvent

    @property
    def now_us(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1000

    def pass_time(self, us: int) -> None:
        """Let time pass."""
        self._shift_ns += us * 1000

    # What the planner asks of the brokers.

    def ends(self, partitions: object, committed: bool = True) -> dict[Partition, int]:
        """Where the partition ends."""
        return {RAW: self.end}

    def starts(self, partitions: object) -> dict[Partition, int]:
        """Nothing was deleted."""
        return {RAW: 0}

    def partition_counts(self) -> dict[str, int]:
        """There is one partition."""
        return {"raw": 1}

    def topic_ids(self, names: list[str]) -> dict[str, str]:
        """The id of the topic."""
        return dict.fromkeys(names, self.plan.topic_ids["raw"])

    def find(self, name: str) -> Topic:
        """A topic that brokers stamp."""
        return Topic(name, self.plan.topic_ids["raw"], 1, {"message.timestamp.type": "LogAppendTime"})

    # What the job does.

    def silence(self) -> PlannedPosition:
        """Plan once while nothing comes, with the stage's report of the last record's arrival; return the position."""
        report = IngestReport(*RAW, next_offset=self.end, arrival_us=self.now_us - SECOND_US, complete_us=0, held=1)
        StageProgressWriter(Path(self.plan.checkpoint)).accept_reports([report])
        self.offset = IngestOffset.from_json(self.planner.plan_end(self.offset.to_json()))
        position = self.offset.partitions[RAW]
        assert position.frontier_us <= self.now_us + AHEAD_US, "time was pushed ahead"
        return position

    def records_come(self, count: int = 10) -> PlannedPosition:
        """Append records, plan until they are planned, and check what they are judged by; return the end of their range."""
        first, self.end = self.end, self.end + count
        deadline_s = time.monotonic() + 20
        while self.offset.partitions[RAW].next_offset < self.end:
            assert time.monotonic() < deadline_s, f"nothing is planned: {self.logs}"
            self.offset = IngestOffset.from_json(self.planner.plan_end(self.offset.to_json()))
        planned = self.offset.partitions[RAW]
        stamp_ms = np.full(count, self.now_us // 1000)
        nothing = pa.nulls(count, pa.binary())
        records = Records(np.arange(first, self.end), stamp_ms, nothing, nothing)
        times = PlanningTimes(FactKind.CLOCK, planned.spans, planned.planned_ms, AHEAD_US)
        assert not times.absurd_rows(records).any(), f"honest records are arrival_ahead by {planned.spans}"
        limit_us = self.now_us + AHEAD_US
        assert all(us <= limit_us for _, us in (*planned.marks, *planned.spans)), "time was pushed ahead"
        assert planned.frontier_us <= limit_us
        return planned

    def errors(self) -> set[str]:
        """The codes that were logged as errors."""
        return {str(event.get("code")) for event in self.logs if event["log_level"] == "error"}

    def mended(self) -> list[Fact]:
        """Go on until the planner uses the journal again; return what it holds."""
        deadline_s = time.monotonic() + 20
        while True:
            self.silence()
            if self.planner._journal.is_available():
                with contextlib.suppress(ImpossibleFactError):
                    return RedisJournal.open(self.plan.redis).dump(self.plan.journal_key(RAW))
            assert time.monotonic() < deadline_s, f"the journal is not mended: {self.logs}"
            time.sleep(0.1)


@pytest.fixture
def world(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that has planned some records."""
    made = World(server, tmp_path, monkeypatch)
    made.records_come()
    return made


def digits(number: int) -> str:
    """A number as the journal writes it."""
    return f"{number:019d}"


def put(world: World, kind: str, positions: str, position: str | bytes, value: str | bytes) -> None:
    """Write a fact with a position."""
    world.stranger.hset(f"{world.name}:{kind}", position, value)
    world.stranger.zadd(f"{world.name}:{positions}", {position: 0})


FAR = digits(9_200_000_000_000_000_000)
Write = Callable[[World], object]
IMPOSSIBLE: dict[str, Write] = {
    **{
        f"closed = {text!r}": lambda world, text=text: world.stranger.hset(world.name, "closed", text)
        for text in ("9999999999999999999", digits(1_000_000), "9" * 40, "-5", "garbage", "", b"\xff\xfe", "1e9", "７" * 19)
    },
    "an estimate at the end, ahead of the clock": lambda world: put(world, "estimates", "positions", digits(world.end), FAR),
    "an estimate at the end that is no number": lambda world: put(world, "estimates", "positions", digits(world.end), "soon"),
    "an estimate below zero": lambda world: put(world, "estimates", "positions", digits(world.end), "-" + digits(5)[1:]),
    "an estimate without its value": lambda world: world.stranger.zadd(f"{world.name}:positions", {digits(world.end): 0}),
    "an estimate wider than 63 bits": lambda world: put(world, "estimates", "positions", digits(world.end), "9" * 19),
    "a clock reading far ahead, at a position that is none": lambda world: put(world, "verdicts", "verdict_positions", "zzz", FAR),
    "a clock reading far ahead, beyond the end": lambda world: put(world, "verdicts", "verdict_positions", digits(10**9), FAR),
    "the clock reading in force set far ahead": lambda world: put(world, "verdicts", "verdict_positions", digits(0), FAR),
    "the clock reading in force set to 1970": lambda world: put(world, "verdicts", "verdict_positions", digits(0), digits(1)),
    "the clock reading in force is no number": lambda world: put(world, "verdicts", "verdict_positions", digits(0), b"\xff"),
    "a count of writes that is no number": lambda world: world.stranger.hset(world.name, "writes", "many"),
    "a count of writes beyond all numbers": lambda world: world.stranger.hset(world.name, "writes", "9" * 30),
    "a count of writes below zero": lambda world: world.stranger.hset(world.name, "writes", "-3"),
    "another era": lambda world: world.stranger.hset(world.name, "era", b"\xff"),
    "the whole hash is a text": lambda world: world.stranger.set(world.name, "x"),
    "the estimates are a text": lambda world: world.stranger.set(f"{world.name}:estimates", "x"),
    "the positions of estimates are a list": lambda world: (
        world.stranger.delete(f"{world.name}:positions"),
        world.stranger.rpush(f"{world.name}:positions", "x"),
    ),
    "the positions of readings are a text": lambda world: world.stranger.set(f"{world.name}:verdict_positions", "x"),
    "a silence that is none": lambda world: world.stranger.hset(world.name, "silence", "z" * 30),
    "a base that is none": lambda world: world.stranger.hset(world.name, "base", "z"),
}


# What the journal's own rules overwrite before anybody reads it: a larger number replaces it.
OVERWRITTEN = {
    *("a count of writes that is no number", "a count of writes beyond all numbers", "a count of writes below zero"),
    *("closed = '-5'", "closed = ''", "an estimate below zero", "an estimate without its value", "the clock reading in force set to 1970"),
}


# What could be: it takes a job that knows the reading, or that there was one, to tell.
POSSIBLE = {"closed = ''", "the clock reading in force set to 1970"}


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("write", IMPOSSIBLE)
def test_what_cannot_be_is_never_a_premise(world: World, write: str, restarts: bool) -> None:
    """The job goes on, in a silence and with records, and ten minutes later as well: by then old clock readings would kill all of them."""
    IMPOSSIBLE[write](world)
    if restarts:
        world.restart()
    world.silence()
    world.records_come()
    world.pass_time(10 * MINUTE_US)
    world.silence()
    world.records_come()
    world.planner._journal.settle_base(RAW, 5_000)
    facts = world.mended()
    limit_us = world.now_us + AHEAD_US
    assert all(fact.position <= world.end and fact.value <= limit_us for fact in facts), facts
    assert max(fact.position for fact in facts if fact.kind == FactKind.CLOSED) == world.end
    assert world.errors() <= {"TG-JOURNAL-IMPOSSIBLE"}
    assert world.errors() or write in OVERWRITTEN


@pytest.mark.parametrize("write", [write for write in IMPOSSIBLE if "writes" not in write and "era" not in write])
def test_a_rebuild_removes_what_cannot_be_and_nothing_else(world: World, write: str) -> None:
    """The fix that the error prints, without any job: what another job wrote stays, and a dry run only tells."""
    key, journal = world.plan.journal_key(RAW), RedisJournal.open(world.plan.redis)
    before = journal.dump(key)
    IMPOSSIBLE[write](world)
    bounds = FactBounds(world.plan, world.ends)
    would = remove_impossible(world.plan, journal, bounds, world.now_us, dry_run=True)
    assert remove_impossible(world.plan, journal, bounds, world.now_us) == would
    assert sum(would.values()) or write in POSSIBLE
    facts = RedisJournal.open(world.plan.redis).dump(key)
    assert set(facts) <= {*before, Fact(FactKind.CLOSED, 0, 0), Fact(FactKind.CLOCK, 0, 1)}
    assert not sum(remove_impossible(world.plan, journal, bounds, world.now_us).values())


def test_a_fingerprint_that_cannot_be_read_is_written_again_by_the_job(world: World) -> None:
    """A running job knows what it was; a rebuild deletes it, so that a start takes it for unknown."""
    text = json.dumps({"settings": {"late": "5s"}, "starts": {"raw/0": 0}, "start": None})
    world.plan = replace(world.plan, fingerprint=text, ordered_topic_id=(oid := world.plan.topic_ids["raw"]))
    world.restart()
    name = f"tidegate:{{{world.plan.settings.ordered_topic}}}:fingerprint:{oid}"
    journal = RedisJournal.open(world.plan.redis)
    for wrong in (
        "garbage",
        "[]",
        '{"settings": 1, "starts": {}, "start": null}',
        '{"settings": {}, "starts": {"x": 1}, "start": null}',
        b"\xff",
    ):
        world.stranger.hset(name, "settings", wrong)
        assert not journal.has_readable_fingerprint(world.plan.settings.ordered_topic, oid)
        world.records_come()
        assert journal.read_fingerprint(world.plan.settings.ordered_topic, oid) == text
    assert world.errors() == {"TG-JOURNAL-IMPOSSIBLE"}
    world.stranger.hset(name, "settings", "garbage")
    remove_impossible(world.plan, journal, FactBounds(world.plan, world.ends), world.now_us)
    assert journal.read_fingerprint(world.plan.settings.ordered_topic, oid) is None


NO_FINGERPRINT: dict[str, str | bytes | None] = {
    "no JSON": "garbage",
    "no UTF-8": b"\xff",
    "another start": '{"settings": {}, "starts": {}, "start": {"x": 1}}',
    "a start of another kind": '{"settings": {}, "starts": {}, "start": {"text": "now", "start_us": "soon"}}',
    "a setting that is no text": '{"settings": {"late": 5}, "starts": {}, "start": null}',
    "topics that are no table": '{"settings": {"topic_ids": "garbage"}, "starts": {}, "start": null}',
    "ids that are no texts": '{"settings": {"topic_ids": "[1]"}, "starts": {}, "start": null}',
    "a first offset that is none": '{"settings": {}, "starts": {"raw/0": -1}, "start": null}',
    "a partition in other digits": '{"settings": {}, "starts": {"raw/\u0664": 1}, "start": null}',
    "another type of Redis": None,
}


@pytest.mark.parametrize("wrong", NO_FINGERPRINT)
def test_a_start_without_checkpoint_is_refused_by_such_a_fingerprint_until_the_rebuild_that_its_error_gives(
    wrong: str, world: World
) -> None:
    """Never a traceback. After the rebuild the settings count as unknown, and the start goes on."""
    oid, settings = world.plan.topic_ids["raw"], {"late": "5s", "topic_ids": "{}"}
    plan = replace(world.plan, ordered_topic_id=oid)
    name = f"tidegate:{{{plan.settings.ordered_topic}}}:fingerprint:{oid}"
    journal = RedisJournal.open(plan.redis, input_name="rides")

    def start() -> TopicOrigin:
        ordered = Topic(plan.settings.ordered_topic, oid, 1, {})
        return check_fingerprint(plan, journal, ordered, settings, BEGINNING, has_events=True, has_checkpoint=False)

    if (text := NO_FINGERPRINT[wrong]) is None:
        world.stranger.rpush(name, "x")
    else:
        world.stranger.hset(name, "settings", text)
    for _ in range(2):
        with pytest.raises(ImpossibleFactError) as refusal:
            start()
        assert (refusal.value.code, refusal.value.example) == ("TG-JOURNAL-IMPOSSIBLE", "tidegate journal rebuild rides")
    remove_impossible(plan, journal, FactBounds(plan, world.ends), world.now_us, dry_run=True)
    with pytest.raises(ImpossibleFactError):
        start()
    remove_impossible(plan, journal, FactBounds(plan, world.ends), world.now_us)
    assert start() == start()
    assert not start().starts


def test_skips_that_cannot_be_are_refused(world: World) -> None:
    """A skip over records to come would lose them without a word."""
    journal, plan = RedisJournal.open(world.plan.redis), replace(world.plan, ordered_topic_id="oid")
    book = SkipBook.of(plan, journal)
    for skip in (Skip(*RAW, 5, 10**15), Skip(*RAW, 7, 7)):
        journal.execute([Raise(FactKind.SKIP, plan.own_key(RAW), skip.start, skip.end)])
        with pytest.raises(ImpossibleFactError) as refusal:
            _check_skips(book.read(), cast(Admin, world), "rides")
        assert refusal.value.example == "tidegate journal rebuild rides"
        remove_impossible(plan, journal, FactBounds(plan, world.ends), world.now_us)
        assert not book.read().in_force
    book.write(Skip(*RAW, 5, 10**15, "forged"))
    with pytest.raises(ImpossibleFactError) as refusal:
        _check_skips(book.read(), cast(Admin, world), "rides")
    assert refusal.value.example == "tidegate skip rides raw-0@5 --undo"
    book.undo(Skip(*RAW, 5, 10**15, "forged"))
    _check_skips(book.read(), cast(Admin, world), "rides")


def test_positions_closed_by_nobody_are_opened_again(world: World) -> None:
    """Each of them could be, if another job had judged the records: but then there would be a clock reading as young as they are."""
    key = world.plan.journal_key(RAW)
    world.silence()
    world.pass_time(5 * MINUTE_US)
    world.silence()
    world.stranger.hset(world.name, "closed", digits(world.end + 10))
    world.records_come()
    assert "TG-JOURNAL-IMPOSSIBLE" in world.errors()
    assert max(fact.position for fact in world.mended() if fact.kind == FactKind.CLOSED) == world.end
    assert [us for _, us in RedisJournal.open(world.plan.redis).execute([Read(FactKind.CLOCK, key, world.end - 1, world.end)])[0]]


def test_an_estimate_far_ahead_of_the_clock_is_not_used(world: World) -> None:
    """It is removed, and the silence is estimated as before."""
    put(world, "estimates", "positions", digits(world.end), digits(world.now_us + 60 * MINUTE_US))
    world.silence()
    planned = world.records_come()
    assert all(us <= world.now_us for _, us in planned.marks)
    assert world.errors() == {"TG-JOURNAL-IMPOSSIBLE"}


def test_what_another_job_may_have_written_is_believed(world: World) -> None:
    """A job ahead of this one: it has closed what it judged, and made an estimate at the end. Nothing is an error, and both judge alike."""
    key, journal = world.plan.journal_key(RAW), RedisJournal.open(world.plan.redis)
    first, estimate_us = world.end, world.now_us - 2 * SECOND_US
    journal.execute([Raise(FactKind.ESTIMATE, key, first, estimate_us)])
    world.end += 5
    journal.execute([Close(key, world.end, PlanningTime(FactKind.CLOCK, world.now_us))])
    planned = world.records_come(5)
    assert (first, estimate_us) in planned.marks
    assert not world.errors()


def test_a_forged_estimate_that_could_be_moves_time_within_the_bound_only(world: World) -> None:
    """It cannot be told from one of another job, and is no further ahead of the clock than records may be."""
    put(world, "estimates", "positions", digits(world.end), digits(world.now_us + MINUTE_US))
    assert world.records_come().marks
    assert not world.errors()
