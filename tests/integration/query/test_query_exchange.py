"""Queries whose rows are exchanged by other keys than the substreams', and OVER over two inputs and over results, on the real stack."""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from integration.query.test_query import end_of
from integration.query.test_query_steps import POLICIES, compact
from support.chance import dice_of
from support.oracle import partition_of
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Workspace, settings_of, workspace
from support.stack.topics import Event, Ordered, check_promises, create, exists, fresh, produce, read_ordered

from ordering.ticks import INFINITY, SECOND_US

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS, BUCKETS = 6_000, 2, 5
KEYS = ("a", "bb", "ccc", "Zürich", *(f"key{number}" for number in range(6)), None)
INPUT = """
[inputs.{name}]
topic = "{topic}.{name}"
timestamp_by = "at"
over = "k"
output_partitions = 2
early = "1m"
late = "20s"
reorder = "2s"
"""
OUTPUTS = """
[outputs.classes]
topic = "{topic}.classes"
partitions = 5
files = "classes"
file_span = "1m"

[outputs.again]
topic = "{topic}.again"
partitions = 5

[outputs.both]
topic = "{topic}.both"

[outputs.resumed]
topic = "{topic}.resumed"

[outputs.minutes]
topic = "{topic}.minutes"
"""
CLASSES = "SELECT v % 11 AS class, COUNT(*) AS n, SUM(v) AS total FROM left TIMESTAMP BY at GROUP BY v % 11, TumblingWindow(second, 10)"
BOTH = """
WITH both_sides AS (SELECT k, v FROM left TIMESTAMP BY at OVER k UNION SELECT k, v FROM right TIMESTAMP BY at OVER k)
SELECT k, COUNT(*) AS n, SUM(v) AS total FROM both_sides GROUP BY k, TumblingWindow(second, 10)
"""
MINUTES = "SELECT k, SUM(n) AS n FROM both TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, TumblingWindow(minute, 1)"
Rows = list[tuple[int, bytes, bytes]]
"""System.Timestamp in microseconds, key and value of results."""


@dataclass
class Finished:
    """The space in which the jobs have finished, and the events of the ordered topics, by the oracle."""

    space: Workspace
    topic: str
    killed_after: int
    events: dict[str, list[Event]]

    def read(self, name: str, partitions: int) -> Ordered:
        """Read a result topic by the reader's rule; it must have ended."""
        found = read_ordered(self.space.stack.bootstrap, f"{self.topic}.{name}", partitions)
        check_promises(found, killed=True)
        assert {found.c(channel) for channel in found.ctis} == {INFINITY}
        return found


@pytest.fixture(scope="module")
def finished(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Two inputs are ordered while queries run; the exchanging one is killed, and all go on to the end."""
    topic = fresh("exchange")
    sides = {"left": (draw(31, EVENTS, 3, keys=KEYS), 3), "right": (draw(32, EVENTS, 1, keys=KEYS), 1)}
    for name, (raws, partitions) in sides.items():
        create(stack.bootstrap, f"{topic}.{name}", partitions)
        produce(stack.bootstrap, f"{topic}.{name}", raws[: EVENTS // 2])
    tables = "".join(INPUT.format(name=name, topic=topic) for name in sides) + OUTPUTS.format(topic=topic)
    with workspace(tmp_path_factory.mktemp("exchange"), stack, tables) as space:
        scripts = {name: space.script(f"{name}.sql", text) for name, text in (("classes", CLASSES), ("both", BOTH), ("minutes", MINUTES))}
        ingest = space.start("ingest", "left", "right").once_started(inputs=2)
        for name in sides:
            ingest.until(lambda name=name: exists(stack.bootstrap, f"{topic}.{name}.ordered"), "the ordered topics")  # type: ignore[misc]
        classes = space.start("query", scripts["classes"], "--into", "classes")
        classes.until(lambda: classes.last.get("events", 0) > 0, "something of the first half")
        for name, (raws, _) in sides.items():
            produce(stack.bootstrap, f"{topic}.{name}", raws[EVENTS // 2 :])
        time.sleep(dice_of("a kill of an exchange").uniform(0, 1.5))
        classes.kill()
        killed_after = classes.last["events"]
        both = space.start("query", scripts["both"], "--into", "both")
        both.until(lambda: exists(stack.bootstrap, f"{topic}.both") and both.batches > 0, "results of both sides")
        ingest.stop()
        space.start("ingest", "left", "right", "--until-end").finish()
        assert both.finish()["finished"]
        summary = space.start("query", scripts["classes"], "--into", "classes").finish()
        assert summary["finished"]
        assert summary["events"] == EVENTS, "each event is counted once, whoever reads it"
        assert space.start("query", scripts["minutes"], "--into", "minutes").finish()["finished"]
        ordered = {
            name: [event for events in expected(logs_of(raws, partitions), POLICIES, PARTITIONS, over=True).values() for event in events]
            for name, (raws, partitions) in sides.items()
        }
        yield Finished(space, topic, killed_after, ordered)


def classes_of(events: list[Event]) -> Rows:
    """Tell the classes' results in plain Python."""
    groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for event in events:
        v = json.loads(event.value or b"")["v"]
        # As in T-SQL: the sign is the dividend's.
        groups[end_of(event.system_us, 10 * SECOND_US), v % 11 if v >= 0 else -(-v % 11)].append(v)
    rows = [(end, b"%d" % of, compact(**{"class": of, "n": len(values), "total": sum(values)})) for (end, of), values in groups.items()]
    return sorted(rows, key=lambda row: row[:2])


def test_each_bucket_of_a_killed_job_holds_what_falls_to_it(finished: Finished) -> None:
    """Law, level 3: the results of plain Python, split by Java's partitioner over their keys, each bucket in the order (s, key)."""
    assert finished.killed_after > 0, "the query was killed in the middle"
    found = finished.read("classes", BUCKETS)
    told = classes_of(finished.events["left"])
    for bucket in range(BUCKETS):
        rows = [(event.system_us, event.key or b"", event.value or b"") for event in found.events[bucket, bucket]]
        assert rows == [row for row in told if partition_of(row[1], BUCKETS) == bucket]
    lines = b"".join(file.read_bytes() for file in sorted((finished.space.folder / "classes").iterdir()))
    assert sorted(lines.splitlines()) == sorted(value for _, _, value in told)


def test_the_same_buckets_give_the_same_bytes_with_other_tasks(finished: Finished) -> None:
    """Law, level 2: five buckets in one task, which reads each range once, instead of two."""
    arguments = "--into", "again", "--set", "spark.shuffle_partitions=1"
    assert finished.space.start("query", "classes.sql", *arguments).finish()["finished"]
    again, classes = finished.read("again", BUCKETS), finished.read("classes", BUCKETS)
    for channel, events in classes.events.items():
        assert [(event.seq, event.system_us, event.key, event.value) for event in again.events[channel]] == [
            (event.seq, event.system_us, event.key, event.value) for event in events
        ]


def counts_of(finished: Finished) -> dict[bytes, list[tuple[int, int, int]]]:
    """Tell for each key the end, count and sum of its windows over both sides, in plain Python."""
    groups: defaultdict[tuple[bytes, int], list[int]] = defaultdict(list)
    for event in (event for events in finished.events.values() for event in events):
        groups[event.key or b"", end_of(event.system_us, 10 * SECOND_US)].append(json.loads(event.value or b"")["v"])
    found: defaultdict[bytes, list[tuple[int, int, int]]] = defaultdict(list)
    for (key, end), values in sorted(groups.items()):
        found[key].append((end, len(values), sum(values)))
    return found


def by_key(found: Ordered) -> dict[bytes, list[tuple[int, bytes]]]:
    """Return time and value of each key's results in their order; a key has one partition."""
    rows: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    for (_, partition), events in found.events.items():
        for event in events:
            assert partition_of(event.key or b"", PARTITIONS) == partition
            rows[event.key or b""].append((event.system_us, event.value or b""))
    return rows


def test_over_over_two_inputs_joins_their_substreams(finished: Finished) -> None:
    """Law, level 3: of each key the results of plain Python over the events of both inputs, of all their partitions, in order."""
    assert by_key(finished.read("both", PARTITIONS)) == {
        key: [(end, compact(k=key.decode() or None, n=n, total=total)) for end, n, total in rows]
        for key, rows in counts_of(finished).items()
    }


# In process, after every loss: over_two_inputs of tests/query/buckets/test_each_instant.py.
@pytest.mark.deep
def test_over_over_two_inputs_goes_on_without_its_checkpoint(finished: Finished) -> None:
    """Law, level 3: killed in the middle and robbed of its checkpoint, the job writes of each key what is missing, numbered on."""
    space, slowly = finished.space, settings_of(query__max_events_per_batch=700)
    job = space.start("query", "both.sql", "--into", "resumed", *slowly)
    job.until(lambda: job.last.get("results", 0) > 0, "some results")
    job.kill()
    assert job.last["events"] < 2 * EVENTS, "the query was killed in the middle"
    shutil.rmtree(space.folder / ".tidegate" / "checkpoints" / f"query-{finished.topic}.resumed")
    before = {
        channel: list(events) for channel, events in read_ordered(space.stack.bootstrap, f"{finished.topic}.resumed", 2).events.items()
    }
    assert any(before.values())
    assert space.start("query", "both.sql", "--into", "resumed", "--start", "last-stopped").finish()["finished"]
    found = finished.read("resumed", PARTITIONS)
    assert by_key(found) == by_key(finished.read("both", PARTITIONS))
    for channel, events in found.events.items():
        assert [event.seq for event in events] == list(range(len(events)))
        assert events[: len(before.get(channel, []))] == before.get(channel, [])


def test_over_over_results_goes_on_key_by_key(finished: Finished) -> None:
    """Law, level 3: over the whole chain."""
    told = {}
    for key, rows in counts_of(finished).items():
        minutes: defaultdict[int, int] = defaultdict(int)
        for end, n, _ in rows:
            minutes[end_of(end, 60 * SECOND_US)] += n
        told[key] = [(end, compact(k=key.decode() or None, n=n)) for end, n in sorted(minutes.items())]
    assert by_key(finished.read("minutes", PARTITIONS)) == told
