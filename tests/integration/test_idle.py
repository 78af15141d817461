"""Silence: estimates advance a LogAppendTime topic, only what the journal holds is used, and Redis may go away."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.drawn import Raw, expected
from integration.running import Job, workspace
from integration.topics import APPEND_TIME, Ordered, check_promises, create, exists, fresh, produce, read_ordered, records
from pydantic import SecretStr

from ingest.journal_redis import RedisJournal
from ordering.journal import JournalKey
from ordering.policies import Policies
from ordering.punctuation import Cause
from ordering.ticks import INFINITY, SECOND_US
from tidegate.runtime.kafka.admin import Admin
from tidegate.runtime.setting_tables import RedisSettings

if TYPE_CHECKING:
    from integration.conftest import Stack

pytestmark = pytest.mark.integration

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

    def __init__(self, stack: Stack, topic: str) -> None:
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


def test_silence_advances_time_by_journaled_estimates_only_and_redis_may_go_away(stack: Stack, tmp_path: Path) -> None:
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
