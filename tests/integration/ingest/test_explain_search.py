"""``tidegate explain`` by content: records are found by a condition over the payload or by their key, and explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from support.stack.drawn_logs import START_MS
from support.stack.servers import SharedStack
from support.stack.topics import fresh
from typer.testing import CliRunner

from ingest.commands.raw_topic import produce, topic
from ordering.ticks import format_tick
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.console import report_errors
from tidegate.tools.commands.explain import explain

pytestmark = pytest.mark.integration
app = typer.Typer(pretty_exceptions_enable=False)
for name, command in (("topic", topic), ("produce", produce), ("explain", explain)):
    app.command(name)(report_errors(command))


def run(*arguments: str, exit_code: int = 0) -> Any:
    """Call a command in this process."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == exit_code, result.output
    return result


@pytest.fixture
def raw(tmp_path: Path, stack: SharedStack, monkeypatch: pytest.MonkeyPatch) -> str:
    """A raw topic with orders, late ones and unusable ones among them; no job has read it."""
    name = fresh("orders")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_KAFKA__BOOTSTRAP", stack.bootstrap)
    monkeypatch.setenv("TIDEGATE_REDIS__URL", stack.redis_url)
    Path("tidegate.toml").write_text(f'[inputs.orders]\ntopic = "{name}"\ntimestamp_by = "at"\nover = "customer"\nlate = "1m"\n')
    run("topic", "create", name, "--partitions", "2", "--timestamp-type", "create")
    lines = [
        json.dumps(
            {
                "order_id": f"o-{number}",
                "customer": f"c{number % 7}",
                "at": START_MS / 1000 + number - (300 if number == 41 else 0),
                "arrived": START_MS / 1000 + number,
            }
        )
        for number in range(60)
    ]
    lines[50] = '{"order_id": "o-50", "customer": "c1",, "arrived": 0}'
    lines[51] = json.dumps({"order_id": "o-51", "customer": "c2", "at": "soon", "arrived": START_MS / 1000 + 51})
    Path("orders.ndjson").write_text("\n".join(lines))
    run("produce", "orders.ndjson", name, "--key", "customer", "--timestamp-by", "arrived")
    Admin({"bootstrap.servers": stack.bootstrap}).ensure_ordered_topic(f"{name}.ordered", 2, None, 1_000_000)
    return name


def test_a_record_is_found_by_what_is_in_it_and_explained(raw: str) -> None:
    """The condition is of the query language, names ignore case, and the place need not be known."""
    [line] = run("explain", "orders", "--where", "order_id = 'o-41'", "--format", "json").stdout.splitlines()
    told = json.loads(line)
    assert (told["topic"], told["verdict"]) == (raw, "adjusted")
    assert "late" in told["policies"]
    place = f"{raw}-{told['partition']}@{told['offset']}"
    assert json.loads(run("explain", "orders", place, "--format", "json").stdout) == told
    words = run("explain", "orders", "--where", "ORDER_ID IN ('o-41') AND orders.customer LIKE 'c%'").stdout
    assert "was adjusted (late" in words


def test_records_are_found_by_key_up_to_a_limit(raw: str) -> None:
    """With OVER the key is the substream's."""
    of_key = [json.loads(line) for line in run("explain", "orders", "--key", "c3", "--format", "json").stdout.splitlines()]
    assert len(of_key) == len(range(3, 60, 7))
    limited = run("explain", "orders", "--key", "c3", "--limit", "2", "--format", "json")
    assert [json.loads(line) for line in limited.stdout.splitlines()] == of_key[:2]
    assert "more than 2 records are like that; --limit 20 shows more" in limited.stderr
    both = run("explain", "orders", "--key", "c3", "--where", "order_id = 'o-3'", "--format", "json")
    assert [json.loads(line)["offset"] for line in both.stdout.splitlines()] == [of_key[0]["offset"]]


def test_a_search_is_limited_to_a_range_of_arrivals(raw: str) -> None:
    """From the first record of the one time up to before that of the other; the range without any finds nothing."""

    def found(*span: str, exit_code: int = 0) -> list[int]:
        told = run("explain", "orders", "--key", "c3", *span, "--format", "json", exit_code=exit_code).stdout.splitlines()
        return [json.loads(line)["offset"] for line in told]

    def word(second: int) -> str:
        return format_tick((START_MS + second * 1_000) * 1_000)

    # Records 3, 10, 17, 24 and so on are those of the key, each as many seconds after the start.
    everything = found()
    assert found("--from", word(10), "--until", word(24)) == everything[1:3]
    assert found("--from", word(18)) == everything[3:]
    assert found("--until", word(10)) == everything[:1]
    assert found("--from", word(1_000), exit_code=1) == []
    assert "TG-SETTING-CONFLICT" in run("explain", "orders", "--key", "c3", "--from", word(9), "--until", word(9), exit_code=2).output


def test_a_dead_letter_is_explained_by_its_place_and_the_bytes_around(raw: str) -> None:
    """A wrong time is found by the condition; what is no JSON by its place alone."""
    words = run("explain", "orders", "--where", "order_id = 'o-51'").stdout
    assert "went to the dead-letter topic: timestamp, at byte " in words
    assert '"at": "soon"' in words
    assert json.loads(run("explain", "orders", "--where", "order_id = 'o-51'", "--format", "json").stdout)["unusable"] == "timestamp"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        ([], 2, "TG-SETTING-FLAG"),
        (["PLACE-0@1", "--key", "c1"], 2, "TG-SETTING-FLAG"),
        (["PLACE-0@1", "--from", "2026-01-05T08:00:00Z"], 2, "TG-SETTING-FLAG"),
        (["--key", "c1", "--until", "soon"], 2, "TG-TICK-RANGE"),
        (["--where", "COUNT(*) > 1"], 2, "TG-QUERY-GROUP"),
        (["--where", "1 = 1"], 2, "TG-QUERY-CONDITION"),
        (["--where", "order_id ="], 2, "TG-QUERY-SYNTAX"),
        (["--where", "order_id = 'nobody'"], 1, "no record of orders is like that"),
    ],
)
def test_a_search_that_cannot_be_or_finds_nothing_says_so(raw: str, arguments: list[str], exit_code: int, code: str) -> None:
    """Nothing that is asked for is passed over silently."""
    assert code in run("explain", "orders", *arguments, exit_code=exit_code).output
