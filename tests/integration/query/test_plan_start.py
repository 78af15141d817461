"""
``tidegate plan`` with a broker: what a start will read is what it then reads; retention that has deleted what is needed; and
reference data that comes, comes too late, and is changed while a query runs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from support.poison import OrderedWriter, Row, padded
from support.stack.drawn_logs import START_MS, Raw, draw
from support.stack.jobs import Job, Workspace, error_code, settings_of, workspace
from support.stack.topics import check_promises, create, delete, exists, fresh, produce, read_ordered

from ordering.ticks import SECOND_US, format_tick, parse_tick
from query.absent_columns import absent_in_topics
from query.config import Feed, QueryPlan
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.kafka.admin import Admin

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 8_000, 2
# Enough for a job to tell how fast it catches up.
MANY_EVENTS = 20_000
START_US = START_MS * 1000
MIDDLE_US = START_US + 120 * SECOND_US
TABLES = """
[inputs.events]
topic = "{topic}"
ordered_topic = "{topic}.ordered"
timestamp_by = "at"
early = "1m"
late = "20s"
reorder = "2s"

[inputs.short]
topic = "{topic}"
ordered_topic = "{topic}.short"
timestamp_by = "at"

[outputs.whole]
topic = "{topic}.whole"
partitions = 1

[outputs.middle]
topic = "{topic}.middle"
partitions = 1

[outputs.cut]
topic = "{topic}.cut"
partitions = 1

[outputs.later]
topic = "{topic}.later"
partitions = 1

[outputs.found]
topic = "{topic}.found"
partitions = 1

[outputs.expected]
topic = "{topic}.expected"
partitions = 1

[outputs.added]
topic = "{topic}.added"
partitions = 1

[references.r]
path = "versions/r-{{date}}T{{time}}.csv"

[query]
max_events_per_batch = 2000
"""
COUNTS = "SELECT k, COUNT(*) AS n FROM {} TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)"
LOOKED_UP = "SELECT e.v AS v, r.name AS name FROM events TIMESTAMP BY at e LEFT JOIN r ON r.one = 1"


@dataclass
class Scene:
    """A raw topic, and a workspace to run in."""

    space: Workspace
    topic: str
    raws: list[Raw]

    def results(self, name: str) -> list[tuple[int, bytes]]:
        """Return time and value of what an output holds, by the reader's rule."""
        found = read_ordered(self.space.stack.bootstrap, f"{self.topic}.{name}", 1)
        check_promises(found, killed=True)
        return [(event.system_us, event.value or b"") for event in found.events.get((0, 0), [])]

    def plan(self, script: str, into: str, *arguments: str) -> dict[str, Any]:
        """Return what ``tidegate plan`` prints for programs."""
        return self.space.start("plan", script, "--into", into, *arguments).finish()

    def produce(self, since: float, until: float) -> int:
        """Send a share of the raw records; return how many are there then."""
        first, last = round(since * len(self.raws)), round(until * len(self.raws))
        produce(self.space.stack.bootstrap, self.topic, self.raws[first:last])
        return last


@pytest.fixture
def scene(stack: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A raw topic that is empty, what a test sends to it, and scripts."""
    topic = create(stack.bootstrap, fresh("planned"), PARTITIONS)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        space.script("counts.sql", COUNTS.format("events"))
        space.script("short.sql", COUNTS.format("short"))
        space.script("looked_up.sql", LOOKED_UP)
        yield Scene(space, topic, draw(21, getattr(request, "param", EVENTS), PARTITIONS, keys=["a", "b", "c"]))


def test_a_plan_says_what_a_start_then_reads(scene: Scene) -> None:
    """From where, up to where, how many; nothing is made by asking; and what the start gives is what it must."""
    space, bootstrap = scene.space, scene.space.stack.bootstrap
    scene.produce(0, 1)
    space.start("ingest", "events", "--until-end").finish()
    start = format_tick(MIDDLE_US)
    planned = scene.plan("counts.sql", "middle", "--start", start)
    assert planned["warnings"] == []
    (space.folder / "misspelled.sql").write_text(COUNTS.format("events").replace("COUNT(*)", "SUM(vv)"))
    told = {(warning["code"], warning["what"].partition(" in ")[0]) for warning in scene.plan("misspelled.sql", "middle")["warnings"]}
    assert told == {("TG-LINT-ABSENT", "vv has no value")}
    linted = space.start("lint", "misspelled.sql", "--into", "middle", "--config", "tidegate.toml").finish()
    assert ("TG-LINT-ABSENT", "vv has no value") in {(each["code"], each["what"].partition(" in ")[0]) for each in linted["findings"]}
    reading = planned["reading"]
    partitions = [(f"{scene.topic}.ordered", number) for number in range(PARTITIONS)]
    admin = Admin({"bootstrap.servers": bootstrap})
    ends, found = admin.ends(partitions), admin.offsets_from(partitions, MIDDLE_US - 10 * SECOND_US)
    expected = {partition: min(found[partition], ends[partition] - 1_000) for partition in partitions}
    assert {(each["topic"], each["partition"]): each["from"] for each in reading["partitions"]} == expected
    assert reading["records"] == sum(ends.values()) - sum(expected.values()) > 1_000
    assert (reading["start"], reading["how"], reading["read_from"]) == (start, "start", format_tick(MIDDLE_US - 10 * SECOND_US))
    assert (reading["rate"], reading["rate_is_measured"]) == (100_000, False)
    assert planned["parallelism"]["buckets"] == 1
    (kept,) = planned["state"]
    assert 0 < kept["rows"] < sum(ends.values())
    assert 10 * kept["rows"] < kept["bytes"] < 1_000 * kept["rows"]
    assert not exists(bootstrap, f"{scene.topic}.middle")
    assert not (space.folder / ".tidegate" / "checkpoints" / f"query-{scene.topic}.middle").exists()
    ran = space.start("query", "counts.sql", "--into", "middle", "--start", start).finish()
    assert ran["recovery"]["from"] == {f"{topic}/{number}": at for (topic, number), at in expected.items()}
    assert ran["recovery"]["ahead"] == reading["records"]
    space.start("query", "counts.sql", "--into", "whole", "--start", "last-stopped").finish()
    assert scene.results("middle") == [row for row in scene.results("whole") if row[0] >= MIDDLE_US]
    refused = space.start("plan", "counts.sql", "--into", "middle", "--start", "now")
    assert (error_code(refused), refused.wait()) == ("TG-START-BOUND", 3)
    again = space.start("query", "counts.sql", "--into", "whole", "--start", "last-stopped").finish()
    assert (again["had_ended"], again["records_since"]) == (True, 0), "a supervisor that starts it again may rest"
    ended = space.start("plan", "counts.sql", "--into", "middle", "--start", "last-stopped")
    assert error_code(ended) == "TG-TOPIC-ENDED"


@pytest.mark.parametrize("scene", [MANY_EVENTS], indirect=True)
def test_what_retention_has_deleted_is_refused_unless_nobody_needs_it(scene: Scene) -> None:
    """
    A run from the beginning is refused, by plan as well, and binds nothing: the way out that is named is open.

    A job that has read it goes on; how fast it had caught up is what plan counts with. A short retention is told ahead.
    """
    space, bootstrap = scene.space, scene.space.stack.bootstrap
    count = scene.produce(0, 1)
    ingest = space.start("ingest", "events").once_started()
    ingest.until(lambda: ingest.last.get("events_in") == count, "all is ordered")
    ingest.stop()
    whole = space.start("query", "counts.sql", "--into", "whole")
    whole.until(lambda: caught_up(whole), "it has caught up")
    whole.stop()
    partitions = [(f"{scene.topic}.ordered", number) for number in range(PARTITIONS)]
    cut = Admin({"bootstrap.servers": bootstrap}).offsets_from(partitions, START_US + 60 * SECOND_US)
    gone = [TopicPartition(topic, number, at) for (topic, number), at in cut.items()]
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.delete_records(gone).values():
        future.result(30)
    for command in ("plan", "query"):
        refused = space.start(command, "counts.sql", "--into", "cut", "--start", "earliest")
        assert (error_code(refused), refused.wait()) == ("TG-RETENTION", 3)
        assert "needed is offset 0, the first record left is at offset" in refused.errors
    early = space.start("plan", "counts.sql", "--into", "cut", "--start", format_tick(START_US + 65 * SECOND_US))
    assert error_code(early) == "TG-RETENTION", "the look-back reaches what was deleted"
    later = space.start("query", "counts.sql", "--into", "cut", "--start", format_tick(MIDDLE_US))
    goes_on = scene.plan("counts.sql", "whole", "--start", "last-stopped")["reading"]
    assert (goes_on["how"], goes_on["records"], goes_on["rate_is_measured"]) == ("checkpoint", 0, True)
    again = space.start("query", "counts.sql", "--into", "whole")
    space.start("ingest", "events", "--until-end").finish()
    assert again.finish()["finished"]
    assert later.finish()["finished"]
    assert scene.results("cut") == [row for row in scene.results("whole") if row[0] >= MIDDLE_US]
    assert min(row[0] for row in scene.results("whole")) < START_US + 60 * SECOND_US
    Admin({"bootstrap.servers": bootstrap}).ensure_ordered_topic(f"{scene.topic}.short", 1, 5 * SECOND_US, 1_000_000)
    (warning,) = scene.plan("short.sql", "later")["warnings"]
    assert (warning["code"], warning["what"]) == ("TG-LINT-RETENTION", "later looks 10s back, short keeps 5s")


def test_reference_data_comes_while_a_killed_job_runs(scene: Scene) -> None:
    """
    Level 3: a version that comes in time counts as if it had been there from the beginning, over kill -9.

    One that comes too late is told and counted; one that was changed is refused at the next start.
    """
    space = scene.space
    (space.folder / "versions").mkdir()
    write(space, START_US - 3600 * SECOND_US, "first")
    count = scene.produce(0, 0.4)
    ingest = space.start("ingest", "events").once_started()
    ingest.until(lambda: ingest.last.get("events_in") == count, "the first part is ordered")
    job = space.start("query", "looked_up.sql", "--into", "found")
    job.until(lambda: caught_up(job) and job.last["watermark"] is not None, "the first part is looked up")
    reached_us = parse_tick(job.last["watermark"])
    second_us = math.ceil(reached_us / SECOND_US) * SECOND_US + 3 * SECOND_US
    second = write(space, second_us, "second")
    job.until(lambda: len(job.logged("new reference data is read")) == 1, "the second version")
    before = job.batches
    scene.produce(0.4, 0.6)
    job.until(lambda: job.batches > before, "something after it")
    job.kill()
    count = scene.produce(0.6, 0.8)
    job = space.start("query", "looked_up.sql", "--into", "found")
    ingest.until(lambda: ingest.last.get("events_in") == count, "most is ordered")
    job.until(lambda: parse_tick(job.last.get("watermark") or format_tick(START_US)) > second_us, "it has passed the second version")
    write(space, START_US + SECOND_US, "late")
    job.until(lambda: len(job.logged("new reference data is read")) == 1, "the late version")
    count = scene.produce(0.8, 1)
    job.until(lambda: bool(job.logged("reference data came too late")), "it is told")
    assert {told["code"] for told in job.logged("reference data came too late")} == {"TG-REFERENCE-LATE"}
    ingest.until(lambda: ingest.last.get("events_in") == count, "all is ordered")
    job.stop()
    kept = second.read_text()
    second.write_text("one,name\n1,changed\n")
    refused = space.start("query", "looked_up.sql", "--into", "found")
    assert (error_code(refused), refused.wait()) == ("TG-REFERENCE-CHANGED", 3)
    second.write_text(kept)
    ingest.stop()
    space.start("ingest", "events", "--until-end").finish()
    summary = space.start("query", "looked_up.sql", "--into", "found").finish()
    assert summary["late_reference_versions"] == 1
    (space.folder / "versions" / version_name(START_US + SECOND_US)).unlink()
    space.start("query", "looked_up.sql", "--into", "expected").finish()
    found = scene.results("found")
    assert found == scene.results("expected")
    assert {json.loads(value)["name"] for at, value in found if at < second_us} == {"first"}
    assert {json.loads(value)["name"] for at, value in found if at >= second_us} == {"second"}


SAME = COUNTS.format("events")
SUMS = SAME.replace("COUNT(*)", "SUM(v)")
CHANGES: list[tuple[str, str, list[str]]] = [
    ("plan", SUMS, []),
    ("plan", SAME.replace("10)", "20)"), []),
    ("types", SAME, settings_of(inputs__events__fields__k="nvarchar(max)")),
    ("pace", SAME, settings_of(outputs__whole__cti_every="1m")),
    ("output", SAME, settings_of(outputs__whole__files="out")),
    ("spark.shuffle_partitions", SAME, settings_of(spark__shuffle_partitions=3)),
    ("reads", SAME, settings_of(inputs__events__ordered_topic="{topic}.other")),
]
"""What is changed, as the refusal names it; the script and the settings."""
if not os.environ.get("TIDEGATE_TEST_ALL_CASES"):
    # A plan, a setting of the output, a setting of the job, and what is read.
    CHANGES = [change for change in CHANGES if change[0] not in ("types", "pace")][1:]


def test_each_kind_of_change_is_refused_or_goes_on_as_the_manual_says(scene: Scene) -> None:
    """
    What decides results is bound to the checkpoint, all else is free.

    The way out: the query that was changed goes on after the last CTI, what stands before it stays the old one's, and an output
    that was added has everything.
    """
    space, bootstrap = scene.space, scene.space.stack.bootstrap
    count = scene.produce(0, 0.5)
    ingest = space.start("ingest", "events").once_started()
    ingest.until(lambda: ingest.last.get("events_in") == count, "the first half is ordered")
    job = space.start("query", "counts.sql", "--into", "whole")
    job.until(lambda: caught_up(job), "it is counted")
    # As somebody at a terminal does, who gets the summary and no traceback of Spark's.
    job.interrupt()
    _refuse_without_its_results(scene)
    Admin({"bootstrap.servers": bootstrap}).ensure_ordered_topic(f"{scene.topic}.other", PARTITIONS, None, 1_000_000)
    for what, script, flags in CHANGES:
        named = [flag.format(topic=scene.topic) for flag in flags]
        refused = space.start("plan", space.script("changed.sql", script), "--into", "whole", "--start", "last-stopped", *named)
        assert (error_code(refused), refused.wait()) == ("TG-CHECKPOINT-SETTINGS", 3), what
        assert f"{what}: " in refused.errors, what
    config = (space.folder / "tidegate.toml").read_text().replace("[outputs.whole]", "[outputs.renamed]")
    others = "--config", space.script("renamed.toml", config)
    renamed = space.start("plan", "counts.sql", "--into", "renamed", "--start", "last-stopped", *others)
    assert error_code(renamed) == "TG-CHECKPOINT-SETTINGS"
    space.script("same.sql", "-- written otherwise\n" + SAME.replace(" FROM", "\nfrom"))
    goes_on = scene.plan("same.sql", "whole", "--start", "last-stopped", *settings_of(query__max_events_per_batch=5))
    assert (goes_on["reading"]["how"], goes_on["reading"]["records"]) == ("checkpoint", 0)
    both = space.script("both.sql", ";\n".join(SUMS.replace(" FROM", f" INTO {name} FROM") for name in ("whole", "added")))
    refused = space.start("query", both)
    assert error_code(refused) == "TG-CHECKPOINT-SETTINGS"
    before = scene.results("whole")
    found = read_ordered(bootstrap, f"{scene.topic}.whole", 1)
    last_us = found.c((0, 0))
    shutil.rmtree(space.folder / ".tidegate" / "checkpoints" / f"query-{scene.topic}.whole")
    assert error_code(space.start("query", both)) == "TG-CHECKPOINT-LOST"
    produce(bootstrap, scene.topic, scene.raws[count:])
    ingest.until(lambda: ingest.last.get("events_in") == EVENTS, "all is ordered")
    ingest.stop()
    space.start("ingest", "events", "--until-end").finish()
    space.start("query", both, "--start", "last-stopped").finish()
    space.start("query", space.script("anew.sql", SUMS), "--into", "expected").finish()
    expected = scene.results("expected")
    assert scene.results("added") == expected
    assert scene.results("whole") == [*before, *(row for row in expected if row[0] >= last_us)]
    assert before == [row for row in before if row[0] < last_us]


def _refuse_without_its_results(scene: Scene) -> None:
    """A result topic that was deleted is not made anew, neither while the job runs nor at a start: it would lack what stood in it."""
    job = scene.space.start("query", "counts.sql", "--into", "cut")
    job.until(lambda: caught_up(job), "it is counted")
    delete(scene.space.stack.bootstrap, f"{scene.topic}.cut")
    assert error_code(job) == "TG-TOPIC-RECREATED"
    assert error_code(scene.space.start("query", "counts.sql", "--into", "cut")) == "TG-TOPIC-RECREATED"


def caught_up(job: Job) -> bool:
    """Tell whether a query has read what lay ahead of it."""
    return "caught up after" in job.errors


def version_name(valid_from_us: int) -> str:
    """Return the name of the file of a version."""
    return f"r-{format_tick(valid_from_us).removesuffix('Z').replace(':', '-')}.csv"


def write(space: Workspace, valid_from_us: int, name: str) -> Path:
    """Write a version with one record."""
    file = space.folder / "versions" / version_name(valid_from_us)
    file.write_text(f"one,name\n1,{name}\n")
    return file


def test_a_start_looks_at_few_large_records(stack: Stack) -> None:
    """At 8 MiB of them: a thousand records of 1 MB would take the driver a gigabyte, and seconds."""
    topic = create(stack.bootstrap, fresh("large"), 1)
    OrderedWriter(stack.bootstrap, topic, over=False).write([Row(padded(b'{"a": "', b'"}', 1_000_000))] * 20, "gzip")
    plans = bind_outputs(parse_script("SELECT a, b INTO out FROM events", "q.sql"), [InputSchema("events", is_free=True)])
    properties = {"bootstrap.servers": stack.bootstrap}
    layout = SimpleNamespace(feeds=[Feed("events", topic, 1)], kafka=properties, plans=plans)
    ((what, _),) = absent_in_topics(cast(QueryPlan, layout), Admin(properties))
    assert what == "b has no value in 9 records of events: it is NULL"
