"""Silence in all its forms: estimates advance time, only what the journal holds is used, and Redis may go away."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pydantic import SecretStr
from support.stack.drawn_logs import Raw, expected
from support.stack.jobs import Job, settings_of, workspace
from support.stack.topics import (
    ANY_TIME,
    APPEND_TIME,
    CtiWatch,
    Ordered,
    check_promises,
    create,
    exists,
    fresh,
    produce,
    read_ordered,
    records,
)

from ingest.journal.redis_journal import RedisJournal
from ordering.policies import Policies
from ordering.protocol.journal import JournalKey
from ordering.protocol.punctuation import Cause
from ordering.ticks import DAY_US, INFINITY, MILLISECOND_US, SECOND_US
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.tables.redis import RedisSettings

if TYPE_CHECKING:
    from support.stack.servers import OwnRedis

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", name="stack")
def _stack(own_redis: OwnRedis) -> OwnRedis:
    """These tests stop Redis."""
    return own_redis


PARTITIONS = 2
SPEAKS, SILENT = (0, 0), (1, 1)
"""The channels: without OVER each input partition has one, into the output partition of its number."""
POLICIES = Policies(late_us=SECOND_US, reorder_us=0)
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
late = "1s"
reorder = "0s"
"""


class Scene:
    """One topic with a partition that speaks now and then, and one that never had a record."""

    def __init__(self, stack: OwnRedis, topic: str) -> None:
        self.stack, self.topic = stack, topic
        self.said = 0
        self.newest_us = 0

    def say(self, *behind_s: float) -> None:
        """Produce events whose times lie so many seconds behind the wall clock."""
        raws: list[Raw] = []
        for behind in behind_s:
            at_us = time.time_ns() // 1000 - round(behind * SECOND_US)
            raws.append(Raw(0, None, json.dumps({"at": at_us, "n": self.said + len(raws)}).encode(), 0))
            self.newest_us = max(self.newest_us, at_us)
        produce(self.stack.bootstrap, self.topic, raws)
        self.said += len(raws)

    def look(self) -> Ordered:
        """Read the ordered topic as it is now."""
        if not exists(self.stack.bootstrap, f"{self.topic}.ordered"):
            return Ordered()
        return read_ordered(self.stack.bootstrap, f"{self.topic}.ordered", PARTITIONS)

    def all_ordered(self) -> bool:
        """Whether every event has left."""
        return len(self.look().all_events()) == self.said

    def passed_by_silence(self) -> bool:
        """Whether every channel's time has passed the last event, on an estimate."""
        found = self.look()
        last_us = max((event.system_us for event in found.all_events()), default=INFINITY)
        return all(
            any(cti.c > last_us and cti.cause is Cause.IDLE for cti, _ in found.ctis.get(channel, [])) for channel in (SPEAKS, SILENT)
        )

    def time_of(self, channel: tuple[int, int]) -> int:
        """How far a channel's CTIs say its time has come."""
        return max((cti.c for cti, _ in self.look().ctis.get(channel, [])), default=0)

    def talk_until_silence_moves(self) -> None:
        """Have one partition speak without a pause until the silent one's time has moved on by seconds beside it."""
        aim_us, deadline_s = self.time_of(SILENT) + 2 * SECOND_US, time.monotonic() + 60
        while self.time_of(SILENT) < aim_us:
            assert time.monotonic() < deadline_s, "a busy partition does not keep time from moving in a silent one"
            for _ in range(20):
                self.say(0.0)
                time.sleep(0.05)

    def estimates(self) -> dict[int, dict[int, int]]:
        """The journal: estimates by partition and position."""
        described = Admin({"bootstrap.servers": self.stack.bootstrap}).require(self.topic)
        journal = RedisJournal.open(RedisSettings(url=SecretStr(self.stack.redis_url)))
        try:
            return {
                partition: dict(journal.estimates(JournalKey(self.topic, described.topic_id, partition), 0, 10**9))
                for partition in range(PARTITIONS)
            }
        finally:
            journal.close_connection()

    def log(self) -> list[Raw]:
        """The speaking partition as the broker keeps it: arrival is its own stamp."""
        return [
            Raw(0, message.key(), message.value(), message.timestamp()[1], json.loads(message.value() or b"")["at"])
            for message in records(self.stack.bootstrap, self.topic)
        ]


def test_silence_advances_time_by_journaled_estimates_only_and_redis_may_go_away(stack: OwnRedis, tmp_path: Path) -> None:
    """
    Law, level 1, with the journal as input: one long run is stopped, loses Redis, gets it back, and is started again.

    Estimates carry every channel past the last event, are all in the journal, and stop while Redis does not answer;
    events are ordered all the same.
    """
    scene = Scene(stack, create(stack.bootstrap, fresh("idle"), PARTITIONS, APPEND_TIME))
    scene.say(0.1, 0.5, 0.0)
    with workspace(tmp_path, stack, TABLES.format(topic=scene.topic)) as space:
        job = space.start("ingest", "events")
        job.until(scene.passed_by_silence, "estimates past the last event in all channels")
        assert all(scene.estimates()[partition] for partition in range(PARTITIONS)), "what was used stands in the journal"
        scene.say(0.0, 0.3)
        job.until(scene.all_ordered, "events after the silence")
        scene.talk_until_silence_moves()
        job.until(scene.all_ordered, "what was said meanwhile")
        _without_redis(scene, job)
        job.stop()
        assert not scene.look().ended, "a plain stop writes no final CTI"
        scene.say(0.0)
        job = space.start("ingest", "events")
        job.until(scene.all_ordered, "the event said meanwhile")
        job.until(scene.passed_by_silence, "estimates after the restart")
        job.stop()
    found = scene.look()
    assert not found.ended
    check_promises(found)
    story = expected([scene.log(), []], POLICIES, PARTITIONS, over=False, estimates=scene.estimates(), finish=False)
    assert found.events == story


def _without_redis(scene: Scene, job: Job) -> None:
    scene.stack.stop_redis()
    try:
        job.until(lambda: "the journal does not answer" in job.errors, "the job says that the journal is away")
        before = scene.look()
        for _ in range(4):  # more than the cadence of estimates apart
            scene.say(0.0)
            time.sleep(1.0)
            # The newest event waits for time to move beyond it: here only the next event can do that.
            job.until(lambda: scene.look().c(SPEAKS) == scene.newest_us, "an event that moves time without Redis")
        found = scene.look()
        assert len(found.all_events()) == scene.said - 1, "what came without Redis is ordered all the same"
        assert found.c(SILENT) == before.c(SILENT), "silence moved time without the journal"
    finally:
        scene.stack.start_redis()
    job.until(lambda: "the journal answers again" in job.errors, "the job says that the journal is back")
    job.until(scene.passed_by_silence, "estimates go on")


MANY, LATE_US = 16, 8 * SECOND_US
FORMS = """
[inputs.many]
topic = "{many}"
timestamp_by = "at"
late = "8s"
reorder = "0s"
idle_cadence = "500ms"
idle_margin = "200ms"
max_events_per_batch = 60

[inputs.stepped]
topic = "{stepped}"
arrival_max_ahead = "1d"
timestamp_by = "at"
late = "1s"
early = "off"
reorder = "0s"
idle = "on"
idle_cadence = "2s"
"""
STEPPED = Policies(early_us=None, late_us=SECOND_US, reorder_us=0)
BACKLOG, SLOW, OPEN = 400, 15, 14


def now_us() -> int:
    """The wall clock, microseconds."""
    return time.time_ns() // 1000


class Input:
    """One raw topic, what is said in it, and what became of it."""

    def __init__(self, stack: OwnRedis, topic: str, partitions: int) -> None:
        self.stack, self.topic, self.partitions = stack, topic, partitions
        self.said = 0

    def say(self, partition: int, behind_us: int = 0, stamp_us: int | None = None, count: int = 1) -> int:
        """Produce events, a millisecond apart, the last of which lies so far behind the wall clock; return its time."""
        at_us = now_us() - behind_us
        times = range(at_us - (count - 1) * MILLISECOND_US, at_us + 1, MILLISECOND_US)
        value = [json.dumps({"at": each, "n": self.said + number}).encode() for number, each in enumerate(times)]
        stamp_ms = (at_us if stamp_us is None else stamp_us) // 1000
        produce(self.stack.bootstrap, self.topic, [Raw(partition, None, each, stamp_ms) for each in value])
        self.said += count
        return at_us

    def look(self) -> Ordered:
        """Read the ordered topic as it is now."""
        name = f"{self.topic}.ordered"
        return read_ordered(self.stack.bootstrap, name, self.partitions) if exists(self.stack.bootstrap, name) else Ordered()

    def least_c(self, *partitions: int) -> int:
        """How far time has come in the channels of these partitions, by default of all."""
        found = self.look()
        return min(found.c((number, number)) for number in partitions or range(self.partitions))

    def estimates(self, partition: int) -> dict[int, int]:
        """The journal's estimates of a partition, by position."""
        described = Admin({"bootstrap.servers": self.stack.bootstrap}).require(self.topic)
        journal = RedisJournal.open(RedisSettings(url=SecretStr(self.stack.redis_url)))
        try:
            return dict(journal.estimates(JournalKey(self.topic, described.topic_id, partition), 0, 10**9))
        finally:
            journal.close_connection()

    def logs(self) -> list[list[Raw]]:
        """The partitions as the broker keeps them."""
        logs: list[list[Raw]] = [[] for _ in range(self.partitions)]
        for message in records(self.stack.bootstrap, self.topic):
            log, stamp_ms = logs[message.partition() or 0], message.timestamp()[1]
            reason = "arrival_ahead" if stamp_ms * 1000 > now_us() + DAY_US else ""
            log.append(
                Raw(
                    message.partition() or 0,
                    message.key(),
                    message.value(),
                    stamp_ms,
                    json.loads(message.value() or b"")["at"],
                    reason=reason,
                )
            )
        return logs

    def is_told(self, policies: Policies, but: int | None = None) -> Ordered:
        """Compare the ordered topic with what the oracle tells of log and journal, *but* for one partition; return it."""
        found = self.look()
        check_promises(found)
        estimates = {number: self.estimates(number) for number in range(self.partitions)}
        story = expected(self.logs(), policies, self.partitions, over=False, estimates=estimates, finish=False)
        for channel, events in story.items():
            # The last estimate in the journal may be one that no batch has applied yet.
            accepted = found.events.get(channel, [])
            assert channel[0] == but or (accepted == events[: len(accepted)] and len(events) - len(accepted) <= 1), channel
        return found


def test_every_form_of_silence_in_one_process(stack: OwnRedis, tmp_path: Path) -> None:
    """
    Law, level 1, with the journal as input, for two inputs of a process, each with a cadence of its own.

    Partitions that never spoke, fell silent, speak ten times less often than others or of an hour ago hold nothing up;
    one that is read slowly, or has an open transaction, is not silent; stamps that step move time as they say, once.
    """
    many = Input(stack, create(stack.bootstrap, fresh("many"), MANY, APPEND_TIME), MANY)
    stepped = Input(stack, create(stack.bootstrap, fresh("stepped"), 2, ANY_TIME), 2)
    many.say(SLOW, count=BACKLOG)
    transaction = _opened(stack, many.topic, OPEN)
    for partition in (*range(1, 8), OPEN):
        many.say(partition)
    stepped.say(1)
    for step_us in (0, -3_600 * SECOND_US, 1_200 * SECOND_US, 0, 3 * DAY_US):
        stepped.say(0, stamp_us=now_us() + step_us)
    with workspace(tmp_path, stack, FORMS.format(many=many.topic, stepped=stepped.topic)) as space:
        # The waits below are of seconds: three batches a second of each input would take a whole core.
        job = space.start("ingest", "many", "stepped", *settings_of(spark__trigger="1s"))
        job.until(lambda: {line["input"] for line in job.lines if line["event"] == "batch"} == {"many", "stepped"}, "the first batches")
        job.until(lambda: len(many.look().events.get((SLOW, SLOW), [])) > BACKLOG // 2, "half of what is read slowly")
        job.until(lambda: bool(many.estimates(SLOW)) and bool(many.estimates(1)), "what is read to its end is silent")
        assert all(position >= BACKLOG for position in many.estimates(SLOW)), "a slow reader was taken for an idle partition"
        assert not many.estimates(OPEN), "nothing was read beyond an open transaction, so nobody knows what comes"
        transaction.commit_transaction()
        many.say(OPEN)
        for turn in range(20):
            many.say(0)
            if turn % 10 == 0:
                many.say(1)
                many.say(2, behind_us=3_600 * SECOND_US)
            time.sleep(0.05)
        watch = CtiWatch(stack.bootstrap, f"{many.topic}.ordered", MANY)
        delays_s = [_delay_s(job, many, watch, partition) for partition in (12, 0)]
        watch.close()
        late_s = LATE_US / SECOND_US  # and the estimate after it, and what two busy cores need for the batches of two inputs
        assert late_s <= min(delays_s) <= max(delays_s) < 2 * late_s, f"results came {delays_s} s after their events"
        job.until(lambda: stepped.least_c(0) > now_us() + 1_100 * SECOND_US, "time counts on from the largest stamp that counts")
        assert stepped.least_c(0) < now_us() + 1_300 * SECOND_US, "nobody refused the stamp of the day after tomorrow"
        stepped.say(0, stamp_us=now_us())
        job.until(lambda: len(stepped.look().all_events()) == stepped.said - 1, "what came after the clock went back")
        job.stop()
    stepped.is_told(STEPPED)
    check_promises(many.look())
    told = many.is_told(Policies(late_us=LATE_US, reorder_us=0), but=OPEN)
    assert told.ctis.keys() == {(number, number) for number in range(MANY)}, "time moved in every channel"


def _delay_s(job: Job, spoken: Input, watch: CtiWatch, partition: int) -> float:
    """Let one of many silent partitions speak; return how long it takes until its event is final for every reader."""
    watch.drain()
    at_us = spoken.say(partition)
    channels = [(number, number) for number in range(spoken.partitions)]
    job.until(lambda: watch.least(channels) > at_us, "time passes an event in all channels")
    return (now_us() - at_us) / SECOND_US


def _opened(stack: OwnRedis, topic: str, partition: int) -> Producer:
    """Begin a transaction, write in it and leave it open."""
    producer = Producer({"bootstrap.servers": stack.bootstrap, "transactional.id": fresh("open"), "transaction.timeout.ms": 600_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, json.dumps({"at": now_us(), "n": -1}).encode(), partition=partition)
    assert producer.flush(30) == 0
    return producer
