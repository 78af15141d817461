"""What a running job tells about itself: to Prometheus, to ``tidegate watermarks``, and in its log; also over a kill -9."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from support.stack.drawn_logs import draw, logs_of
from support.stack.jobs import Job, settings_of, workspace
from support.stack.topics import create, fresh, produce, read_ordered
from typer.testing import CliRunner

from ordering.ticks import parse_tick
from tidegate.platform.observe.console import report_errors
from tidegate.platform.observe.progress_store import ProgressStore
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.stack.embedded import free_port
from tidegate.tools.commands.explain import explain
from tidegate.tools.staircase.command import watermarks

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 4_000, 2
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "20s"
late = "30s"
late_action = "drop"
reorder = "3s"
max_events_per_batch = 1000
"""
ABSURD = ("arrival_missing", "arrival_ahead")
DROPPED = ("early_input_events", "late_input_events")
UNUSABLE = "a record cannot be used: it and all like it go to the dead-letter topic"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(watermarks))
explanations = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
explanations.command()(report_errors(explain))

Samples = dict[str, dict[tuple[str, ...], float]]


def fetched(port: int) -> Samples:
    """What Prometheus reads: by name without prefix and ending, then by the values of its labels, those of the partition first."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    except (urllib.error.URLError, OSError):
        return {}
    found: Samples = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = dict(sample.labels)
        partition = labels.pop("partition", "")
        for name in ("input", "topic", "query"):
            labels.pop(name, None)
        name = sample.name.removeprefix("tidegate_").removesuffix("_total")
        found.setdefault(name, {})[partition, *labels.values()] = sample.value
    return found


def read_by(port: int) -> float:
    """How many records the job has read: those stamped absurdly are no events that came in."""
    found = fetched(port)
    return sum(found.get("events_in", {}).values()) + sum(absurd(found, str(number)) for number in range(PARTITIONS))


def absurd(found: Samples, partition: str) -> float:
    """How many records of a partition were not judged, as nobody can believe when they arrived."""
    return sum(value for labels, value in found.get("unreadable_events", {}).items() if labels in {(partition, each) for each in ABSURD})


def test_a_running_job_tells_its_numbers_and_takes_none_back(stack: Stack, tmp_path: Path) -> None:
    """
    Counters equal what went in and add up; they go on where they were after a kill -9; the watermarks of substreams are told to
    whoever asks; and what a worker logs bears its input, topic, partition, offsets and batch.
    """
    raws = draw(11, EVENTS, PARTITIONS, bad=0.02, keys=[f"key{number}" for number in range(30)])
    first, rest = raws[: EVENTS // 2], raws[EVENTS // 2 :]
    # Into the last partition nobody ever writes.
    topic = create(stack.bootstrap, fresh("watched"), PARTITIONS + 1)
    produce(stack.bootstrap, topic, first)
    port = free_port()
    flags = settings_of(metrics__port=port)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        job = space.start("ingest", "events", *flags)
        job.until(lambda: asked(stack, f"{topic}.ordered") and read_by(port) >= len(first), "the first half")
        before, told = fetched(port), shown(stack, space.folder)
        while not is_shown(told) and len(rest) > EVENTS // 4:
            # The answer comes with a batch that begins after the question, the state of the job when its first batch has ended.
            produce(stack.bootstrap, topic, rest[:20])
            rest, told = rest[20:], shown(stack, space.folder)
        # What workers write stands in the driver's log a moment later.
        job.until(lambda: bool(job.logged(UNUSABLE)), "a worker's word in the log")
        job.kill()
        check_log(job, topic)
        produce(stack.bootstrap, topic, rest)
        job = space.start("ingest", "events", *flags)
        job.until(lambda: read_by(port) >= EVENTS, "the second half")
        after = fetched(port)
        job.stop()
    logs = logs_of(raws, PARTITIONS)
    for number, log in enumerate(logs):
        assert after["events_in"][str(number),] + absurd(after, str(number)) == len(log)
    reasons = {(str(number), raw.reason) for number, log in enumerate(logs) for raw in log if raw.reason}
    assert {labels for labels, value in after["unreadable_events"].items() if value} == reasons
    for number in map(str, range(PARTITIONS)):
        dropped = sum(value for name in DROPPED for labels, value in after[name].items() if labels == (number, "dropped"))
        unreadable = sum(value for labels, value in after["unreadable_events"].items() if labels[0] == number)
        kept = after["released_events"][number,] + after["held_events"][number,]
        assert kept + dropped + unreadable == after["events_in"][number,] + absurd(after, number)
        assert after["consumer_lag"][number,] == 0
    for samples in (before, after):
        assert [samples[name][str(PARTITIONS),] for name in ("events_in", "held_events", "consumer_lag")] == [0, 0, 0]
    rising = [name for name in before if name.endswith(("events", "clamps")) and name != "held_events"]
    assert all(after[name][labels] >= value for name in rising for labels, value in before[name].items())
    delay = sum(value for labels, value in after["watermark_delay_seconds"].items() if labels[0] == "0")
    assert delay > 3600 * 24 * 365, "a replay of 2024 is years behind"
    check_shown(told, topic)
    check_explained(stack, space.folder, topic, len(logs[0]), after)


def at(stack: Stack) -> dict[str, str]:
    """The addresses of the stack, for a command."""
    return {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}


def asked(stack: Stack, ordered_topic: str) -> bool:
    """Ask the job for its substreams, as somebody who watches does."""
    store = ProgressStore(RedisSettings.model_validate({"url": stack.redis_url}))
    store.ask_details(ordered_topic, 5)
    store.close()
    return True


def shown(stack: Stack, folder: Path) -> list[dict[str, Any]]:
    """What ``tidegate watermarks --substreams`` shows."""
    config = str(folder / "tidegate.toml")
    result = CliRunner().invoke(app, ["events", "--config", config, "--once", "--substreams", "--format", "json"], env=at(stack))
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["rows"])


def is_shown(rows: list[dict[str, Any]]) -> bool:
    """Whether the job has told of substreams and its first batch has ended."""
    return sum("substream" in row for row in rows) >= PARTITIONS and all(row.get("state") != "starting" for row in rows)


def check_shown(rows: list[dict[str, Any]], topic: str) -> None:
    """Each partition has a line that says what drives it, also the one that never had a record; and lines of its fullest substreams."""
    fullest = [row for row in rows if "substream" in row]
    assert len(fullest) >= PARTITIONS
    assert all(row["substream"].startswith("key") and row["watermark"] > "2024" for row in fullest)
    assert any(row["held"] and row["next_release"] for row in fullest)
    partitions = [row for row in rows if "partition" in row]
    assert [row["partition"] for row in partitions] == [f"{topic}-{number}" for number in range(PARTITIONS + 1)]
    assert {row["state"] for row in partitions} <= {"live", "replaying"}
    *spoken, silent = partitions
    assert {row["driven_by"] for row in spoken} == {"late floor"}
    assert all(row["watermark"] > "2024" and row["held"] > 0 for row in spoken)
    assert (silent["driven_by"], silent["watermark"], silent["delay_s"], silent["held"]) == ("nothing", "-", None, 0)


def check_explained(stack: Stack, folder: Path, topic: str, records: int, after: Samples) -> None:
    """
    Law, level 1, of explanations: they tell of each record the system timestamp that stands in the ordered topic, and of the
    others what the counters say.
    """
    places = [f"{topic}-0@{offset}" for offset in range(records)]
    result = CliRunner().invoke(
        explanations, ["events", *places, "--config", str(folder / "tidegate.toml"), "--format", "json"], env=at(stack)
    )
    assert result.exit_code == 0, result.output
    told = [json.loads(line) for line in result.stdout.splitlines()]
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS + 1).events
    written = {event.offset: event.system_us for (number, _), events in found.items() if number == 0 for event in events}
    left = {line["offset"]: parse_tick(line["system_timestamp"]) for line in told if line.get("released_by")}
    assert left == written
    verdicts = Counter(line["verdict"] for line in told if "verdict" in line)
    dropped = sum(value for name in DROPPED for labels, value in after[name].items() if labels == ("0", "dropped"))
    assert verdicts["dropped"] == dropped > 0
    reasons = Counter(line["unusable"] for line in told if line["unusable"])
    assert reasons == {labels[1]: value for labels, value in after["unreadable_events"].items() if labels[0] == "0" and value}
    late = next(line for line in told if line.get("policies") == ["late"])
    assert late["steps"][0]["limit_set_by"]["what"] == "arrival"


def check_log(job: Job, topic: str) -> None:
    """The first unusable record of its kind is logged by the worker that met it."""
    (line, *_) = job.logged(UNUSABLE)
    assert line["input"] == "events"
    assert line["topic"] == topic
    assert line["partition"] in range(PARTITIONS)
    assert line["offset"] <= int(line["origin"].split("@")[1]) < line["until"]
    assert line["batch"] >= 0
    assert line["reason"]
