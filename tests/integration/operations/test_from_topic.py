"""``tidegate new``: its project runs on a real Kafka; ``--from-topic``, ``tune`` and ``profile``: what a topic holds."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.stack.commands import run_command
from support.stack.jobs import workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, fresh, produce

from tidegate.tools.project.files import read_template, write_project

pytestmark = pytest.mark.integration

START_MS = 1_767_600_000_000


@dataclass(frozen=True)
class Sent:
    """A record to produce."""

    partition: int
    key: bytes | None
    value: bytes | None
    stamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


def tidegate(stack: SharedStack, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without Java."""
    own = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "JAVA_HOME": "/nowhere"}
    return run_command(folder, *arguments, environment=os.environ | own)


def order(number: int) -> Sent:
    """Return an order: one a second, each two seconds late; 4 of 1,000 two minutes, and every fiftieth 8 s behind the others."""
    delay_ms = 120_000 if number % 250 == 100 else 10_000 if number % 50 == 3 else 2_000
    at_ms = START_MS + number * 1_000 - delay_ms
    record = {"id": number, "placed at": at_ms, "customer": f"c{number % 2}", "amount": 1.5 if number % 3 else 2, "to": {"zip": "0150"}}
    record |= {"note": None, "tags": ["x"], "code": number if number % 2 else "x"}
    return Sent(number % 2, record["customer"].encode(), json.dumps(record).encode(), START_MS + number * 1_000)


def test_a_project_out_of_a_topic_runs(stack: SharedStack, tmp_path: Path) -> None:
    """Fields, types, event time, key and measured policies are those of the records; case, script and configuration agree."""
    topic = create(stack.bootstrap, fresh("shop.orders"), 2)
    produce(stack.bootstrap, topic, [*map(order, range(1_000)), Sent(0, b"c0", b"no JSON", START_MS + 1_000_000)])
    made = tidegate(stack, tmp_path, "new", "shop", "--from-topic", topic, "--format", "json")
    assert made.returncode == 0, made.stderr
    folder, told = tmp_path / "shop", json.loads(made.stdout)
    text = (folder / "tidegate.toml").read_text()
    tables = tomllib.loads(text)
    [(name, table)] = tables["inputs"].items()
    assert tables["kafka"]["bootstrap"] == stack.bootstrap
    assert (table["topic"], table["timestamp_by"], table["over"]) == (topic, "[placed at]", "customer")
    assert (table["early"], table["late"], table["reorder"]) == ("5m", "10s", "10s")
    assert 'late = "10s"  # 0.4 % arrive more than 10s late, 2.4 % more than 5s' in text
    assert "1 records beside them are no JSON objects" in text
    assert "(CreateTime)" in text
    assert table["fields"] == {
        "id": "bigint",
        "placed at": "bigint",
        "customer": "nvarchar(max)",
        "amount": "float",
        "to.zip": "nvarchar(max)",
        "tags": "array",
    }
    assert "of several types: code" in text
    tested = tidegate(stack, folder, "test", "cases")
    assert tested.stdout.splitlines()[-1] == "1 good, 0 differ, 0 broken", tested.stdout + tested.stderr
    assert (folder / "cases" / "counts" / "expected.counts.ndjson").read_text()
    local = tidegate(stack, folder, *told["next"][2].split()[1:])
    assert local.returncode == 0, local.stderr
    assert sum(json.loads(line)["events"] for line in local.stdout.splitlines()) == 200
    linted = tidegate(stack, folder, "lint", "counts.sql", "--config", "tidegate.toml")
    assert linted.stdout.splitlines()[0].startswith("0 errors"), linted.stdout
    assert name == topic.replace(".", "_").replace("-", "_")


def test_a_topic_without_times_is_taken_by_arrival(stack: SharedStack, tmp_path: Path) -> None:
    """No field has a time near to arrival in every record, and no key says which the substreams are."""
    topic = create(stack.bootstrap, fresh("plain"), 1)
    produce(stack.bootstrap, topic, [Sent(0, None, b'{"n": %d, "born": "1970-02-03T00:00:00Z"}' % n, START_MS + n) for n in range(30)])
    made = tidegate(stack, tmp_path, "new", "--from-topic", topic)
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "tidegate.toml").read_text()
    assert "timestamp_by" not in text
    assert "in the order of their arrival" in text
    assert tidegate(stack, tmp_path, "test", "cases").returncode == 0


def test_a_topic_that_says_nothing_is_refused(stack: SharedStack, tmp_path: Path) -> None:
    """Without records, without JSON, or not there: in words, and nothing is written."""
    empty, other = create(stack.bootstrap, fresh("empty"), 1), create(stack.bootstrap, fresh("csv"), 1)
    produce(stack.bootstrap, other, [Sent(0, None, b"1,2,3", START_MS)])
    for topic, code in ((empty, "TG-NEW-TOPIC"), (other, "TG-NEW-TOPIC"), ("no-such-topic", "TG-TOPIC-MISSING")):
        done = tidegate(stack, tmp_path, "new", "--from-topic", topic)
        assert (done.returncode, done.stderr.partition(":")[0]) == (3, code)
    assert list(tmp_path.iterdir()) == []


def test_the_commands_at_the_end_of_the_configuration_work(stack: SharedStack, tmp_path: Path) -> None:
    """Level 3: history, ordered and queried by jobs as they say, has the results that ``tidegate local`` gives."""
    topic, results = fresh("taxis"), fresh("rides")
    files = read_template()
    said = re.findall(r"^#   tidegate (.*)$", files["tidegate.toml"], re.MULTILINE)
    own = files["tidegate.toml"].replace('topic = "taxis"', f'topic = "{topic}"').replace('topic = "rides"', f'topic = "{results}"')
    write_project(tmp_path, files)
    with workspace(tmp_path, stack, own) as space:
        for command in said:
            words = [topic if word == "taxis" and "ingest" not in command else word for word in shlex.split(command)]
            if words[0] in ("ingest", "query"):
                space.start(*words, "--until-end").finish()
            elif words[0] == "peek":
                shown = tidegate(stack, tmp_path, "peek", results, "-n", "100", "--no-ctis", "--format", "json")
            elif "--sample" not in words and words != ["topic", "create", topic]:
                done = tidegate(stack, tmp_path, *words)
                assert done.returncode == 0, done.stderr
        found = [json.loads(line)["value"] for line in shown.stdout.splitlines()]
        local = tidegate(stack, tmp_path, "local", "rides.sql", "--input", "taxis=sample.ndjson", "--config", "tidegate.toml")
    assert sorted(map(json.dumps, found)) == sorted(json.dumps(json.loads(line)) for line in local.stdout.splitlines())
    assert sum(row["fixes"] for row in found) == 150


def test_topics_of_the_brokers_are_completed(stack: SharedStack, tmp_path: Path) -> None:
    """Those that no configuration names too."""
    topic = create(stack.bootstrap, fresh("completed"), 1)
    own = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "_TIDEGATE_COMPLETE": "bash"}
    command = [sys.executable, "-P", "-m", "tidegate", "peek", "completed-"]
    shown = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=True, timeout=60).stdout
    assert topic in shown.split()


def test_tune_forecasts_from_a_topic(stack: SharedStack, tmp_path: Path) -> None:
    """The policies of an input are tried on what its topic holds: counts are those of the records, and the difference is printed."""
    topic = create(stack.bootstrap, fresh("shop.orders"), 2)
    produce(stack.bootstrap, topic, [*map(order, range(1_000)), Sent(0, b"c0", b"no JSON", START_MS + 1_000_000)])
    policies = 'over = "customer"\nlate = "30s"\nreorder = "0s"\n'
    table = f'[inputs.orders]\ntopic = "{topic}"\ntimestamp_by = "[placed at]"\ntimestamp_format = "ms"\n{policies}'
    (tmp_path / "tidegate.toml").write_text(table)
    told = tidegate(stack, tmp_path, "tune", "orders", "--touch", "2", "--format", "json")
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    assert (answer["records"], answer["unreadable"], answer["partitions"], answer["substreams"]) == (1_001, 1, 2, 2)
    # Four records are two minutes late, and lifted they are still behind; so is every fiftieth by eight seconds.
    assert answer["now"]["by_policy"]["late"]["moved"] == 4
    assert answer["now"]["by_policy"]["out_of_order"]["moved"] == 24
    assert answer["proposed"]["touched_share"] <= 0.02
    printed = tidegate(stack, tmp_path, "tune", "orders", "--touch", "2")
    assert f'+ reorder = "{answer["changes"]["reorder"]["new"]}"' in printed.stdout.splitlines()
    none = tidegate(stack, tmp_path, "tune", "orders", "--until", "2001-01-01T00:00:00Z")
    assert (none.returncode, "TG-TUNE-EMPTY" in none.stderr) == (3, True)


def test_a_topic_is_profiled_and_another_one_made_like_it(stack: SharedStack, tmp_path: Path) -> None:
    """A topic that no input reads; the events that are produced like it have its disorder, and come to Kafka with key and time."""
    topic, like = create(stack.bootstrap, fresh("shop.orders"), 2), create(stack.bootstrap, fresh("shop.like"), 2)
    produce(stack.bootstrap, topic, [*map(order, range(1_000)), Sent(0, b"c0", b"no JSON", START_MS + 1_000_000)])
    columns = ["--timestamp-by", "[placed at]", "--over", "customer", "--format", "json"]
    told = tidegate(stack, tmp_path, "profile", topic, *columns, "--write", "orders.toml")
    assert told.returncode == 0, told.stderr
    asked = json.loads(told.stdout)
    assert (asked["records"], asked["partitions"], asked["keys"], asked["timestamp_by"]) == (1_001, 2, 2, "at")
    assert asked["lateness_us"]["p50"] == 2_000_000
    assert asked["lateness_us"]["most"] == 120_000_000
    made = tidegate(stack, tmp_path, "produce", "--like", "orders.toml", like, "--count", "3000", "--format", "json")
    assert (made.returncode, json.loads(made.stdout)["records"]) == (0, 3_000), made.stderr
    (tmp_path / "tidegate.toml").write_text(f'[inputs.made]\ntopic = "{like}"\ntimestamp_by = "at"\nover = "customer"\n')
    # By its input's name, and by its own.
    for name in ("made", like):
        found = json.loads(tidegate(stack, tmp_path, "profile", name, "--format", "json").stdout)
        assert (found["records"], found["keys"], found["lateness_us"]["p50"]) == (3_000, 2, 2_000_000)
        assert found["out_of_order"] == pytest.approx(asked["out_of_order"], abs=0.03)
        assert {key["name"] for key in found["by_key"]} == {"c0", "c1"}
    missing = tidegate(stack, tmp_path, "profile", "made.not")
    assert (missing.returncode, "or a topic with --timestamp-by" in missing.stderr) == (2, True)
