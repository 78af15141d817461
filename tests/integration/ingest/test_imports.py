"""Imported CTIs: a slow reference input, which time would never pass, is driven by the time of a fast one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from pydantic import SecretStr
from support.stack.drawn_logs import START_MS, Raw, expected
from support.stack.jobs import settings_of, workspace
from support.stack.topics import Ordered, check_promises, create, exists, fresh, produce, read_ordered

from ingest.journal.redis_journal import RedisJournal
from ordering.policies import Action, Policies
from ordering.protocol.journal import JournalKey
from ordering.protocol.punctuation import Cause
from ordering.protocol.wire import Flag
from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.tables.redis import RedisSettings

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

FAST_PARTITIONS = 2
START_US = START_MS * 1000
POLICIES = Policies(late_us=60 * SECOND_US, cti_violation_action=Action.ADJUST)
TABLES = """
[inputs.fast]
topic = "{fast}"
timestamp_by = "at"

[inputs.slow]
topic = "{slow}"
timestamp_by = "from"
shape = "interval"
end = "to"
late = "1m"
import_ctis_from = "fast"
idle_cadence = "200ms"
"""


class Scene:
    """A fast topic of two partitions and a slow one, and what was said in the slow one."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.fast = create(stack.bootstrap, fresh("fast"), FAST_PARTITIONS)
        self.slow = create(stack.bootstrap, fresh("slow"), 1)
        self.said: list[Raw] = []

    def pass_time(self, second: int) -> None:
        """Let both partitions of the fast input reach a second after the start."""
        at_us = START_US + second * SECOND_US
        produce(
            self.stack.bootstrap,
            self.fast,
            [Raw(partition, None, json.dumps({"at": at_us}).encode(), at_us // 1000) for partition in range(FAST_PARTITIONS)],
        )

    def say(self, arrival: int, *spans: tuple[int, int]) -> None:
        """Produce spans to the slow input; all times in seconds after the start."""
        raws = []
        for start, end in spans:
            times = [START_US + second * SECOND_US for second in (start, end)]
            value = json.dumps({"from": times[0], "to": times[1]}).encode()
            raws.append(Raw(0, None, value, START_MS + arrival * 1000, times[0], end_us=times[1]))
        produce(self.stack.bootstrap, self.slow, raws)
        self.said += raws

    def look(self, topic: str, partitions: int) -> Ordered:
        """Read an ordered topic as it is now."""
        return read_ordered(self.stack.bootstrap, topic, partitions) if exists(self.stack.bootstrap, topic) else Ordered()

    def reached(self, topic: str, partitions: int, second: int) -> bool:
        """Whether every channel of an ordered topic has come to a second after the start."""
        found = self.look(topic, partitions)
        return min((found.c((number, number)) for number in range(partitions)), default=NEVER) >= START_US + second * SECOND_US

    def imports(self) -> dict[int, int]:
        """The journal: imports by position."""
        described = Admin({"bootstrap.servers": self.stack.bootstrap}).require(self.slow)
        journal = RedisJournal.open(RedisSettings(url=SecretStr(self.stack.redis_url)))
        try:
            return dict(journal.imports(JournalKey(f"{self.slow}<{self.fast}.ordered", described.topic_id, 0), 0, 10**9))
        finally:
            journal.close_connection()

    def forget_imports(self) -> None:
        """Let Redis forget them."""
        client = redis.Redis.from_url(self.stack.redis_url)
        names = list(client.scan_iter(f"tidegate:{{{self.slow}<*"))
        assert names
        client.delete(*names)


def test_a_slow_input_is_driven_by_the_time_of_a_fast_one(stack: Stack, tmp_path: Path) -> None:
    """
    Law, level 1, with journaled imports: what is imported releases what waits, judges what comes after it, and is the
    same for a second job that reads the slow topic again. The end of the fast input is not the end of the slow one. The ordered
    topic tells a journal that has lost them which imports there were.
    """
    scene = Scene(stack)
    scene.say(1, (0, 5), (1, 100))
    scene.pass_time(10)
    with workspace(tmp_path, stack, TABLES.format(fast=scene.fast, slow=scene.slow)) as space:
        ordered = f"{scene.slow}.ordered"
        fast = space.start("ingest", "fast")
        fast.until(lambda: scene.reached(f"{scene.fast}.ordered", FAST_PARTITIONS, 10), "the fast input's first CTIs")
        slow = space.start("ingest", "slow")
        slow.until(lambda: scene.reached(ordered, 1, 10), "the time of the fast input in the slow one")
        scene.say(2, (3, 7), (4, 50), (12, 13))
        scene.pass_time(40)
        slow.until(lambda: scene.reached(ordered, 1, 40), "more time of the fast input")
        fast.stop()
        space.start("ingest", "fast", "--until-end").finish()
        scene.say(41, (41, 42))
        slow.until(lambda: scene.reached(ordered, 1, 41), "the slow input's own time")
        slow.stop()
        found, imports = scene.look(ordered, 1), scene.imports()
        again = space.start("ingest", "slow", "--until-end", *settings_of(inputs__slow__ordered_topic=f"{ordered}.again"))
        summary = again.finish()
        scene.forget_imports()
        space.start("journal", "rebuild", "slow").finish()
    assert scene.imports() == imports, "the ordered topic told of them"
    check_promises(found)
    assert not found.ended, "the fast input's end was imported"
    assert {Cause.IMPORT} <= {cti.cause for cti, _ in found.ctis[0, 0]}
    assert found.events == expected([scene.said], POLICIES, 1, over=False, imports={0: imports}, finish=False)
    moved = [event for event in found.events[0, 0] if event.flags & Flag.CTI_VIOLATION]
    assert [(event.offset, event.system_us) for event in moved] == [(3, START_US + 10 * SECOND_US)], "the span that reached past it"
    assert summary["cti_violation_dropped"] == 1, "the span wholly before it"
    replayed = scene.look(f"{ordered}.again", 1)
    assert replayed.events == expected([scene.said], POLICIES, 1, over=False, imports={0: imports})
    assert replayed.c((0, 0)) == INFINITY
