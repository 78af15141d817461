"""The journal on real services: stamps shared by two jobs, an outage while running, and a lost journal made again from the topic."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pydantic import SecretStr
from support.stack.drawn_logs import Raw, expected
from support.stack.jobs import Job, Workspace, error_code, workspace
from support.stack.topics import ANY_TIME, Ordered, check_promises, create, exists, fresh, produce, read_ordered, records

from ingest.journal.redis_journal import RedisJournal
from ordering.policies import Policies
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import JournalKey
from ordering.ticks import SECOND_US
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
POLICIES = Policies(late_us=SECOND_US, reorder_us=0)
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
late = "1s"
reorder = "0s"
idle = "on"
idle_cadence = "300ms"
arrival = "{arrival}"
arrival_max_ahead = "1h"

[inputs.again]
topic = "{topic}"
ordered_topic = "{topic}.again"
timestamp_by = "at"
late = "1s"
reorder = "0s"
idle = "on"
arrival = "{arrival}"
"""


class Scene:
    """A raw topic, what was produced to it, and what the journal holds of it."""

    def __init__(self, stack: OwnRedis, arrival: str) -> None:
        self.stack, self.arrival = stack, arrival
        self.topic = create(stack.bootstrap, fresh("raw"), PARTITIONS, ANY_TIME)
        self.said: list[Raw] = []
        described = Admin({"bootstrap.servers": stack.bootstrap}).require(self.topic)
        job = self.topic if arrival == "broker" else f"{self.topic}@ingest"
        self.keys = [JournalKey(job, described.topic_id, partition) for partition in range(PARTITIONS)]

    def say(self, partition: int, *behind_s: float, stamped_ahead_s: float = 0.0) -> None:
        """Produce events whose times lie so many seconds behind the wall clock, stamped so far ahead of it."""
        now_us = time.time_ns() // 1000
        for behind in behind_s:
            at_us = now_us - round(behind * SECOND_US)
            stamp_ms = now_us // 1000 + round(stamped_ahead_s * 1000)
            self.said.append(Raw(partition, None, json.dumps({"at": at_us, "n": len(self.said)}).encode(), stamp_ms, at_us))
            produce(self.stack.bootstrap, self.topic, self.said[-1:])

    def look(self, topic: str = "ordered") -> Ordered:
        """Read an ordered topic as it is now."""
        name = f"{self.topic}.{topic}"
        return read_ordered(self.stack.bootstrap, name, PARTITIONS) if exists(self.stack.bootstrap, name) else Ordered()

    def all_ordered(self, dropped: int = 0) -> bool:
        """Whether every event has left."""
        return len(self.look().all_events()) == len(self.said) - dropped

    def facts(self) -> list[list[Fact]]:
        """What the journal holds of each partition."""
        journal = RedisJournal.open(RedisSettings(url=SecretStr(self.stack.redis_url)))
        try:
            return [journal.dump(key) for key in self.keys]
        finally:
            journal.close_connection()

    def of_kind(self, partition: int, kind: FactKind) -> list[tuple[int, int]]:
        """Position and value of the facts of a kind."""
        return [(fact.position, fact.value) for fact in self.facts()[partition] if fact.kind == kind]

    def has_estimate(self, partition: int, position: int) -> bool:
        """Whether an estimate was made at this position."""
        return any(found == position for found, _ in self.of_kind(partition, FactKind.ESTIMATE))

    def lose(self) -> None:
        """Let Redis forget everything about the topic."""
        client = redis.Redis.from_url(self.stack.redis_url)
        names = list(client.scan_iter(f"tidegate:{{{self.topic}*"))
        assert names
        client.delete(*names)

    def stamped(self) -> list[list[Raw]]:
        """What was produced, by partition, each record with the arrival that the journal knows."""
        raws: list[list[Raw]] = [[], []]
        for partition in range(PARTITIONS):
            stamps = self.of_kind(partition, FactKind.STAMP)
            for offset, raw in enumerate(each for each in self.said if each.partition == partition):
                arrival_us = max(stamp for stamp in stamps if stamp[0] <= offset)[1]
                raws[partition].append(replace(raw, arrival_us=arrival_us))
        return raws


def printed(job: Job) -> list[dict[str, Any]]:
    """What a command printed, once it has ended well."""
    job.finish()
    return job.lines


def judged(facts: list[list[Fact]]) -> list[list[Fact]]:
    """Leave out estimates at positions still open: the last may have been journaled and not used before the job was stopped."""
    left = []
    for each in facts:
        end = max((fact.position for fact in each if fact.kind == FactKind.CLOSED), default=0)
        left.append([fact for fact in each if fact.kind != FactKind.ESTIMATE or fact.position < end])
    return left


def rebuild(space: Workspace, *flags: str) -> dict[str, int]:
    """Run ``tidegate journal rebuild``; return how many facts of each kind were given back."""
    counts: dict[str, int] = {}
    for line in printed(space.start("journal", "rebuild", "events", *flags)):
        assert line["contradicted"] == 0
        for kind, count in line["given_back"].items():
            counts[kind] = counts.get(kind, 0) + count
    return counts


def test_two_jobs_share_the_stamps_of_ingest_and_a_lost_journal_is_made_again(stack: OwnRedis, tmp_path: Path) -> None:
    """
    Law, level 1, with journaled stamps: a second job that reads the topic later writes the same events, byte for byte, and both
    write what the oracle makes of the stamps; silence and an empty partition are told by estimates. The journal that
    ``rebuild`` makes from the ordered topic equals the one that was lost.
    """
    scene = Scene(stack, "ingest")
    scene.say(0, 0.1, 3.0, 0.2)
    with workspace(tmp_path, stack, TABLES.format(topic=scene.topic, arrival="ingest")) as space:
        first = space.start("ingest", "events")
        first.until(lambda: scene.all_ordered() and bool(scene.of_kind(1, FactKind.ESTIMATE)), "estimates beside the first events")
        # Ingest does not look at Kafka's timestamps: these lie in the past and in the future.
        scene.say(0, 0.0, 2.0, stamped_ahead_s=-1e6)
        scene.say(1, 0.5, 0.1, stamped_ahead_s=1e6)
        first.until(scene.all_ordered, "the last events")
        first.stop()
        before = scene.facts()
        shown = printed(space.start("journal", "show", "events"))
        again = space.start("ingest", "again", "--until-end").finish()
        assert scene.facts() == before, "a second job that reads what was judged adds nothing"
        scene.lose()
        would = rebuild(space, "--dry-run")
        assert scene.facts() == [[], []]
        assert rebuild(space) == would
        assert rebuild(space) == {}
    check_promises(scene.look())
    found, replayed = scene.look(), scene.look("again")
    assert again["events_in"] == len(scene.said)
    assert found.events == replayed.events
    estimates = {partition: dict(scene.of_kind(partition, FactKind.ESTIMATE)) for partition in range(PARTITIONS)}
    assert found.events == expected(scene.stamped(), POLICIES, PARTITIONS, over=False, estimates=estimates, finish=False)
    assert judged(scene.facts()) == judged(before)
    assert set(would) >= {"stamp", "estimate", "closed"}
    assert [(fact["position"], fact["value_us"]) for line in shown for fact in line["facts"] if fact["kind"] == "stamp"] == [
        (fact.position, fact.value) for facts in before for fact in facts if fact.kind == FactKind.STAMP
    ]


def test_an_outage_and_a_loss_of_everything_but_the_topic_change_nothing(stack: OwnRedis, tmp_path: Path) -> None:
    """
    Law, level 1: while Redis is away records nobody judged are ordered on, and told it afterwards. With the checkpoint gone and
    the journal empty a start rebuilds the journal from the topic: an absurd timestamp is judged by the clock of the first
    time, estimates by what they were.
    """
    scene = Scene(stack, "broker")
    scene.say(0, 0.1, 0.2)
    scene.say(0, 0.1, stamped_ahead_s=4_000.0)
    scene.say(1, 0.3)
    with workspace(tmp_path, stack, TABLES.format(topic=scene.topic, arrival="broker")) as space:
        job = space.start("ingest", "events")
        job.until(lambda: scene.all_ordered(dropped=1) and bool(scene.of_kind(0, FactKind.ESTIMATE)), "estimates after the first events")
        # A batch that is open for some seconds judges these, and makes the estimates that follow.
        for number in (1, 2, 3):
            job.until(lambda number=number: job.batches >= number, "the short batches of a start")  # type: ignore[misc]
            # Without records the next batch would wait for an estimate.
            scene.say(0, 0.1)
        scene.say(0, 0.1)
        scene.say(1, 0.1)
        ends = [sum(raw.partition == partition for raw in scene.said) for partition in range(PARTITIONS)]
        job.until(lambda: all(scene.has_estimate(partition, end) for partition, end in enumerate(ends)), "estimates of the open batch")
        stack.stop_redis()
        scene.say(0, 0.1, 0.2)
        scene.say(1, 0.1)
        job.until(lambda: job.last.get("events_in") == len(scene.said) - 1, "events judged without the journal")
        stack.start_redis()
        job.until(lambda: bool(job.logged("the journal answers again")), "the journal's return")
        closed = sum(raw.partition == 0 for raw in scene.said)
        job.until(lambda: scene.of_kind(0, FactKind.CLOSED) == [(closed, 0)], "what was judged, told to the journal")
        assert not job.logged("another job journaled facts where records were judged without them: the two differ there")
        job.until(lambda: scene.all_ordered(dropped=1), "their release, by estimates")
        job.stop()
        before, written = scene.facts(), scene.look().events
        scene.lose()
        for folder in space.folder.rglob("ingest-*.ordered"):
            folder.rename(folder.with_suffix(".gone"))
        heir = space.start("ingest", "events")
        heir.until(lambda: bool(heir.batches) or bool(scene.facts()[0]), "the rebuilt journal")
        scene.say(0, 0.1)
        heir.until(lambda: scene.all_ordered(dropped=1), "an event after the loss")
        heir.stop()
    found, after = scene.look(), scene.facts()
    check_promises(found)
    assert heir.logged("the journal had lost facts: they were given back from the ordered topic")
    for partition, facts in enumerate(judged(before)):
        kept = [fact for fact in facts if fact.kind != FactKind.CLOSED]
        assert [fact for fact in after[partition] if fact in kept] == kept
    assert {channel: events[: len(written[channel])] for channel, events in found.events.items()} == written
    dead = list(records(stack.bootstrap, f"{scene.topic}.ordered.dead"))
    assert {dict(message.headers() or [])["reason"] for message in dead} == {b"arrival_ahead"}


def refusal(job: Job) -> dict[str, Any]:
    """The one error by which a start was refused, as it was printed."""
    assert error_code(job) == "TG-JOURNAL-IMPOSSIBLE", job.errors
    return next(json.loads(line)["error"] for line in job.errors.splitlines() if line.startswith('{"error": '))


def follow(space: Workspace, example: str) -> list[dict[str, Any]]:
    """Run the command that an error gives as its example; return what it printed."""
    program, *arguments = example.split()
    assert program == "tidegate"
    return printed(space.start(*arguments))


def overwrite(scene: Scene, client: redis.Redis) -> None:
    """A stranger closes records that have not come yet, writes what is no number, and what is no fingerprint."""
    for key, closed in zip(scene.keys, (b"8999999999999999999", b"9999999999999999999"), strict=True):
        name = f"tidegate:{{{key.job}}}:journal:{key.topic_id}:{key.partition}"
        assert client.exists(name)
        client.hset(name, "closed", closed)
    names = list(client.scan_iter(f"tidegate:{{{scene.topic}.ordered}}:fingerprint:*"))
    assert len(names) == 1
    client.hset(names[0], "settings", "garbage")


# With the checkpoint lost the journal is all that a start has. One that is kept: tests/ingest/journal/test_hostile_journal.py.
@pytest.mark.parametrize("checkpoint", [pytest.param("kept", marks=pytest.mark.deep), "lost"])
def test_the_fix_for_a_hostile_journal_leads_from_the_refused_start_to_a_running_job(
    checkpoint: str, stack: OwnRedis, tmp_path: Path
) -> None:
    """
    Law, level 1, on a journal that says what cannot be. The start is refused; the command that it prints removes what cannot be and gives
    back the rest; the next start goes on, also through a rebuild beside it, dead-letters nothing, and writes what another job writes.
    """
    scene, client = Scene(stack, "broker"), redis.Redis.from_url(stack.redis_url)
    scene.say(0, 0.1, 3.0, 0.2)
    scene.say(1, 0.3)
    with workspace(tmp_path, stack, TABLES.format(topic=scene.topic, arrival="broker")) as space:
        first = space.start("ingest", "events")
        first.until(lambda: scene.all_ordered() and bool(scene.of_kind(0, FactKind.ESTIMATE)), "estimates after the first events")
        first.stop()
        before, written = scene.facts(), scene.look().events
        for folder in space.folder.rglob("ingest-*.ordered") if checkpoint == "lost" else ():
            folder.rename(folder.with_suffix(".gone"))
        overwrite(scene, client)
        error = refusal(space.start("ingest", "events"))
        would = follow(space, f"{error['example']} --dry-run")
        assert refusal(space.start("ingest", "events"))["example"] == error["example"], "a dry run changes nothing"
        did = follow(space, error["example"])
        assert [line["removed"] for line in did if "removed" in line] == [line["removed"] for line in would if "removed" in line] == [1, 1]
        heir = space.start("ingest", "events").once_started()
        scene.say(0, 0.1, 2.0)
        scene.say(1, 0.2)
        heir.until(scene.all_ordered, "the events after the repair")
        assert "TG-JOURNAL-" not in heir.errors
        overwrite(scene, client)
        follow(space, error["example"])
        scene.say(0, 0.1)
        scene.say(1, 0.2, 0.1)
        heir.until(scene.all_ordered, "the events after a rebuild beside the job")
        counts = [sum(raw.partition == partition for raw in scene.said) for partition in range(PARTITIONS)]
        heir.until(lambda: [scene.of_kind(partition, FactKind.CLOSED) for partition in (0, 1)] == [[(n, 0)] for n in counts], "the journal")
        heir.stop()
        space.start("ingest", "again", "--until-end").finish()
    found, after = scene.look(), scene.facts()
    check_promises(found)
    assert {channel: events[: len(written[channel])] for channel, events in found.events.items()} == written
    assert found.events == scene.look("again").events
    assert not list(records(stack.bootstrap, f"{scene.topic}.ordered.dead"))
    for partition, facts in enumerate(judged(before)):
        kept = [fact for fact in facts if fact.kind != FactKind.CLOSED]
        assert [fact for fact in after[partition] if fact in kept] == kept
