"""A query with OVER at a pace of its own, on the real stack, behind an ingest job whose CTIs list substreams."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bucket_oracle import INFINITY as FOREVER
from support.bucket_oracle import Event as Heard
from support.bucket_oracle import Question, Result, SlowPace, Walk, merged
from support.bucket_topics import to_oracle
from support.stack.drawn_logs import START_MS, Raw, expected, logs_of
from support.stack.jobs import settings_of, workspace
from support.stack.topics import Event, Ordered, check_promises, create, fresh, produce, read_ordered

from ordering.policies import Policies
from ordering.protocol.punctuation import Cti
from ordering.ticks import SECOND_US

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 2_000, 2
KEYS = ("a", "b", "c", "dd", "Zürich", None)
POLICIES = Policies(early_us=60 * SECOND_US, late_us=20 * SECOND_US, reorder_us=2 * SECOND_US)
PACE = SlowPace(every_events=200, every_us=5 * SECOND_US, delay_us=SECOND_US)
QUESTION = Question(over=True)
TABLES = """
[inputs.keyed]
topic = "{topic}"
timestamp_by = "t"
timestamp_format = "us"
over = "k"
early = "1m"
late = "20s"
reorder = "2s"
cti_list_substreams = true
max_events_per_batch = 300

[outputs.slow]
topic = "{topic}.slow"
cti_every_events = 200
cti_every = "5s"
cti_delay = "1s"
"""


def disorder() -> list[Raw]:
    """Return records whose event times lie behind and ahead of each other."""
    dice, stamp_ms, raws = random.Random(11), START_MS, []
    for number in range(EVENTS):
        stamp_ms += dice.choice((0, 1, 5, 40))
        event_time_us = stamp_ms * 1000 - dice.randrange(-SECOND_US, 5 * SECOND_US)
        key = dice.choice(KEYS)
        payload = {"t": event_time_us, "k": key, "w": dice.choice((1, 1, 0)), "v": number}
        value = json.dumps(payload, ensure_ascii=False).encode()
        raws.append(Raw(dice.randrange(PARTITIONS), None, value, stamp_ms, event_time_us, (key or "").encode()))
    return raws


def as_heard(number: int, record: Event | Cti) -> Heard | Cti:
    """Return a record of the ordered topic as the oracle of queries knows it."""
    if isinstance(record, Cti):
        return record
    return Heard(number, record.seq, record.system_us, record.offset, record.key or b"", record.value or b"")


def results_in(found: Ordered, bucket: int) -> list[Result]:
    """Return the results of one bucket in their order."""
    return [(event.system_us, event.key or b"", event.value or b"") for event in found.events.get((bucket, bucket), [])]


def test_a_paced_query_gives_each_substreams_rows(stack: Stack, tmp_path: Path) -> None:
    """Law, levels 2 and 3: the log with its lists says which results come when; each substream's rows follow from its events alone."""
    raws = disorder()
    topic = create(stack.bootstrap, fresh("pace"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        space.start("ingest", "keyed", "--until-end").finish()
        script = space.script("q.sql", QUESTION.sql)
        told = space.start("query", script, "--into", "slow", *settings_of(query__max_events_per_batch=700)).finish()
    log = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
    found = read_ordered(stack.bootstrap, f"{topic}.slow", PARTITIONS)
    check_promises(found)
    assert any(isinstance(record, Cti) and record.listed for arrived in log.arrived.values() for _, record in arrived)
    assert told["withheld_ctis"] > 0, "the pace held CTIs back"
    truth = expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    for bucket in range(PARTITIONS):
        walk = Walk(QUESTION, PACE)
        for number, record in log.arrived[bucket]:
            walk.accept_record(to_oracle(as_heard(number, record)))
        assert results_in(found, bucket) == walk.results
        rows: defaultdict[tuple[int, bytes], list[Heard]] = defaultdict(list)
        for (number, partition), events in truth.items():
            for event in events:
                if partition == bucket:
                    told_by = as_heard(number, event)
                    assert isinstance(told_by, Heard)
                    rows[number, told_by.key].append(told_by)
        assert Counter(walk.results) == Counter(row for events in rows.values() for row in merged(QUESTION, events, FOREVER))
