"""One query job over two inputs, with steps and two outputs, on the real stack; killed in the middle, and started at a time."""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest
from integration.query.test_query import end_of, iso
from support.chance import dice_of
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Workspace, settings_of, workspace
from support.stack.topics import check_promises, create, exists, fresh, produce, read_ordered

from ordering.policies import Policies
from ordering.ticks import INFINITY, SECOND_US
from sinks.files import FileSink
from tidegate.testing.stack.real_stack import session_of

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, LEFT, RIGHT = 4_000, 2, 1
POLICIES = Policies(early_us=60 * SECOND_US, late_us=20 * SECOND_US, reorder_us=2 * SECOND_US)
SPAN_US = 60 * SECOND_US
TABLES = """
[inputs.left]
topic = "{topic}.l"
timestamp_by = "at"
early = "1m"
late = "20s"
reorder = "2s"

[inputs.right]
topic = "{topic}.r"
timestamp_by = "at"
early = "1m"
late = "20s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"

[outputs.most]
topic = "{topic}.most"
files = "most"
file_span = "1m"

[outputs.later]
topic = "{topic}.later"
partitions = 1
"""
RESUMED = """
[outputs.resumed]
topic = "{topic}.resumed"
partitions = 1
"""
HELD = """
[outputs.held]
topic = "{topic}.held"
partitions = 1
files = "held"
file_span = "1m"
"""
STEPS = """
WITH
both_sides AS (
    SELECT k, v FROM left TIMESTAMP BY at
    UNION
    SELECT k, v FROM right TIMESTAMP BY at WHERE v > 0
),
counts AS (
    SELECT k, COUNT(*) AS n, SUM(v) AS total FROM both_sides GROUP BY k, TumblingWindow(second, 10)
)
"""
SCRIPT = f"""{STEPS}
SELECT k, n, total INTO counts FROM counts;
SELECT MAX(n) AS most, COUNT(*) AS keys INTO most FROM counts GROUP BY TumblingWindow(minute, 1)
"""
LATER = f"{STEPS} SELECT k, n, total INTO later FROM counts"


@dataclass
class Finished:
    """The space in which the job has finished, and what it must have written."""

    space: Workspace
    topic: str
    killed_after: int
    counts: list[tuple[int, bytes]]
    most: list[tuple[int, bytes]]

    def results(self, name: str) -> list[tuple[int, bytes]]:
        """Return system timestamp and value of each result, by the reader's rule."""
        found = read_ordered(self.space.stack.bootstrap, f"{self.topic}.{name}", 1)
        check_promises(found, killed=True)
        assert {found.c(channel) for channel in found.ctis} == {INFINITY}
        return [(event.system_us, event.value or b"") for event in found.events[0, 0]]


def compact(**row: object) -> bytes:
    """Write a row as results are written."""
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()


def iso_us(us: int) -> str:
    """Write a time to the microsecond."""
    return f"{iso(us)[:-1]}.{us % SECOND_US:06d}Z"


def told(sides: dict[str, list[tuple[int, dict[str, object]]]]) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Tell the results of both outputs in plain Python, one event at a time."""
    groups: defaultdict[tuple[int, object], list[int]] = defaultdict(list)
    for name, events in sides.items():
        for system_us, payload in events:
            value = payload["v"]
            assert isinstance(value, int)
            if name == "l" or value > 0:
                groups[end_of(system_us, 10 * SECOND_US), payload["k"]].append(value)
    rows = sorted((end, str(key or "").encode(), key, values) for (end, key), values in groups.items())
    counts = [(end, compact(k=key, n=len(values), total=sum(values))) for end, _, key, values in rows]
    minutes: defaultdict[int, list[int]] = defaultdict(list)
    for end, _, _, values in rows:
        minutes[end_of(end, SPAN_US)].append(len(values))
    return counts, [(end, compact(most=max(sizes), keys=len(sizes))) for end, sizes in sorted(minutes.items())]


@pytest.fixture(scope="module")
def finished(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Two inputs are ordered while one query over both runs, is killed, and goes on to the end."""
    topic = fresh("steps")
    sides = {"l": (draw(11, EVENTS, LEFT), LEFT), "r": (draw(12, EVENTS, RIGHT), RIGHT)}
    for name, (raws, partitions) in sides.items():
        create(stack.bootstrap, f"{topic}.{name}", partitions)
        produce(stack.bootstrap, f"{topic}.{name}", raws[: EVENTS // 2])
    with workspace(tmp_path_factory.mktemp("steps"), stack, TABLES.format(topic=topic)) as space:
        script = space.script("steps.sql", SCRIPT)
        ingest = space.start("ingest", "left", "right").once_started(inputs=2)
        for name in sides:
            ingest.until(lambda name=name: exists(stack.bootstrap, f"{topic}.{name}.ordered"), "the ordered topics")  # type: ignore[misc]
        query = space.start("query", script)
        query.until(lambda: query.last.get("events", 0) > 0, "something of the first half")
        for name, (raws, _) in sides.items():
            produce(stack.bootstrap, f"{topic}.{name}", raws[EVENTS // 2 :])
        time.sleep(dice_of("a kill of a step").uniform(0, 1.5))
        query.kill()
        killed_after = query.last["events"]
        ingest.stop()
        space.start("ingest", "left", "right", "--until-end").finish()
        assert space.start("query", script).finish()["finished"]
        ordered = {
            name: [
                (event.system_us, json.loads(event.value or b""))
                for events in expected(logs_of(raws, partitions), POLICIES, partitions, over=False).values()
                for event in events
            ]
            for name, (raws, partitions) in sides.items()
        }
        yield Finished(space, topic, killed_after, *told(ordered))


def test_both_outputs_of_a_killed_job_are_those_of_plain_python(finished: Finished) -> None:
    """Law, level 3: steps over two inputs, each output a channel of its own, the same sequence as one event at a time gives."""
    assert 0 < finished.killed_after < 2 * EVENTS, "the query was killed in the middle"
    assert finished.results("counts") == finished.counts
    assert finished.results("most") == finished.most
    lines = b"".join(file.read_bytes() for file in sorted((finished.space.folder / "most").iterdir()))
    assert lines.splitlines() == [value for _, value in finished.most]


# Of one input: test_query.py.
@pytest.mark.deep
def test_a_start_at_a_time_gives_the_suffix(finished: Finished) -> None:
    """Law, level 3: a step's rows from before the start are computed where later results need them, and leave nowhere."""
    middle = finished.counts[len(finished.counts) // 2][0]
    finished.space.start("query", finished.space.script("later.sql", LATER), "--start", iso(middle)).finish()
    assert finished.results("later") == [row for row in finished.counts if row[0] >= middle]


def test_last_stopped_goes_on_after_the_last_cti(finished: Finished) -> None:
    """Law, level 3: a run up to an instant, whose checkpoint is lost, and one that goes on from its CTI make one run together."""
    space = finished.space
    (space.folder / "tidegate.toml").write_text((space.folder / "tidegate.toml").read_text() + RESUMED.format(topic=finished.topic))
    script = space.script("resumed.sql", LATER.replace("INTO later", "INTO resumed"))
    middle = finished.counts[len(finished.counts) // 2][0] + 1
    space.start("query", script, "--until", iso_us(middle)).finish()
    found = read_ordered(space.stack.bootstrap, f"{finished.topic}.resumed", 1)
    check_promises(found)
    assert [(event.system_us, event.value) for event in found.events[0, 0]] == [row for row in finished.counts if row[0] < middle]
    assert {found.c(channel) for channel in found.ctis} == {middle}
    shutil.rmtree(space.folder / ".tidegate" / "checkpoints" / f"query-{finished.topic}.resumed")
    refused = space.start("query", script)
    assert refused.wait() == 3
    assert "TG-CHECKPOINT-LOST" in refused.errors
    space.start("query", script, "--start", "last-stopped").finish()
    assert finished.results("resumed") == finished.counts
    seqs = [event.seq for event in read_ordered(space.stack.bootstrap, f"{finished.topic}.resumed", 1).events[0, 0]]
    assert seqs == list(range(len(finished.counts)))


def test_a_cti_says_that_files_are_written(finished: Finished) -> None:
    """Law, level 3: no CTI passes a file that could not be written, so whoever has but the topic to go on from writes it."""
    space, held = finished.space, finished.space.folder / "held"
    (space.folder / "tidegate.toml").write_text((space.folder / "tidegate.toml").read_text() + HELD.format(topic=finished.topic))
    script = space.script("held.sql", LATER.replace("INTO later", "INTO held"))
    span_us = finished.counts[len(finished.counts) // 2][0] // SPAN_US * SPAN_US
    in_the_way = held / FileSink(held, "ndjson", SPAN_US).name(span_us, 0)
    (in_the_way / "folder").mkdir(parents=True)
    # Its JVM ends with it: else a task that has not heard of the end would still write into the checkpoint that is deleted below.
    failed = space.start_alone("query", script, *settings_of(query__max_events_per_batch=600))
    assert failed.wait() != 0
    assert "java" not in [process.name() for process in psutil.process_iter() if session_of(process.pid) == failed.pid]
    assert "TG-SINK-FILE" in failed.errors
    found = read_ordered(space.stack.bootstrap, f"{finished.topic}.held", 1)
    assert [found.c(channel) <= span_us + SPAN_US for channel in found.ctis] == [True]
    shutil.rmtree(in_the_way)
    shutil.rmtree(space.folder / ".tidegate" / "checkpoints" / f"query-{finished.topic}.held")
    space.start("query", script, "--start", "last-stopped").finish()
    assert finished.results("held") == finished.counts
    assert b"".join(file.read_bytes() for file in sorted(held.iterdir())).splitlines() == [value for _, value in finished.counts]
