"""What one record with a wrong time can do: nothing with the default policies; without them it is named."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from support.stack.drawn_logs import Raw, draw, expected, logs_of
from support.stack.jobs import workspace
from support.stack.topics import check_promises, create, fresh, header, produce, read_ordered, records
from typer.testing import CliRunner

from ordering.policies import Policies
from ordering.ticks import DAY_US, MINUTE_US, SECOND_US
from tidegate.platform.observe.console import report_errors
from tidegate.tools.commands.explain import explain

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
{early}
"""
EVENTS, ATTACK = 600, 300
POLICIES = Policies(early_us=5 * MINUTE_US, late_us=5 * SECOND_US, reorder_us=0)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(explain))


def attacked(wrong: Raw) -> list[Raw]:
    """A partition of honest events of the last minute, stamped by their producers, with one wrong record in the middle."""
    now_ms = time.time_ns() // 1_000_000
    raws = draw(7, EVENTS, 1, start_ms=now_ms - 60_000)
    assert raws[-1].stamp_ms < now_ms
    return [*raws[:ATTACK], wrong, *raws[ATTACK:]]


def wrong_record(stamp_ms: int, event_time_us: int, reason: str = "") -> Raw:
    """The attacker's record, stamped and timed as it likes."""
    value = json.dumps({"at": event_time_us, "k": "attacker"}).encode()
    return Raw(0, b"wrong", value, stamp_ms, event_time_us, b"attacker", reason)


def explained(stack: Stack, folder: Path, *places: str) -> list[dict[str, Any]]:
    """What ``tidegate explain`` says of these records."""
    addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
    arguments = ["events", *places, "--config", str(folder / "tidegate.toml"), "--format", "json"]
    result = CliRunner().invoke(app, arguments, env=addresses)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_record_stamped_an_hour_ahead_leaves_all_others_as_they_were(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1: with default settings a CreateTime topic is ordered as if the record were not there; it is a dead letter."""
    now_ms = time.time_ns() // 1_000_000
    log = attacked(wrong_record(now_ms + 59 * 60_000, now_ms * 1_000, "arrival_ahead"))
    topic = create(stack.bootstrap, fresh("attacked"), 1)
    produce(stack.bootstrap, topic, log)
    with workspace(tmp_path, stack, TABLES.format(topic=topic, early="")) as space:
        summary = space.start("ingest", "events", "--until-end").finish()
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", 1)
    assert found.events == expected(logs_of(log, 1), POLICIES, 1, over=False)
    check_promises(found)
    (dead,) = records(stack.bootstrap, f"{topic}.ordered.dead")
    assert (header(dead, "reason"), header(dead, "origin")) == (b"arrival_ahead", f"{topic}-0@{ATTACK}".encode())
    assert summary["dead_letter_arrival_ahead"] == 1
    assert not any(name.startswith("time_jumps") for name in summary)


def test_a_producer_whose_clock_is_ninety_seconds_ahead_is_heard(stack: Stack, tmp_path: Path) -> None:
    """Level 1: clocks that differ by a minute and a half are honest; ``explain`` names the record by which later events are late."""
    now_ms = time.time_ns() // 1_000_000
    log = attacked(wrong_record(now_ms + 90_000, now_ms * 1_000))
    topic = create(stack.bootstrap, fresh("skewed"), 1)
    produce(stack.bootstrap, topic, log)
    with workspace(tmp_path, stack, TABLES.format(topic=topic, early="")) as space:
        summary = space.start("ingest", "events", "--until-end").finish()
        (victim,) = explained(stack, space.folder, f"{topic}-0@{ATTACK + 1}")
    assert read_ordered(stack.bootstrap, f"{topic}.ordered", 1).events == expected(logs_of(log, 1), POLICIES, 1, over=False)
    assert summary["released"] == EVENTS + 1
    assert victim["policies"][0] == "late"
    limit = victim["steps"][0]["limit_set_by"]
    assert (limit["what"], limit["offset"]) == ("arrival", ATTACK)


def test_an_event_of_years_ahead_is_named_if_early_is_off(stack: Stack, tmp_path: Path) -> None:
    """Log, status and counters name the record and its jump; ``explain`` names it to each event that it made out of order."""
    now_us = time.time_ns() // 1_000
    log = attacked(wrong_record(now_us // 1_000 - 50_000, now_us + 5 * 365 * DAY_US))
    topic = create(stack.bootstrap, fresh("years"), 1)
    produce(stack.bootstrap, topic, log)
    with workspace(tmp_path, stack, TABLES.format(topic=topic, early='early = "off"')) as space:
        job = space.start("ingest", "events")
        job.until(lambda: job.last.get("events_in") == EVENTS + 1, "all events")
        job.until(lambda: bool(jumps(space.start("status"))), "the status")
        (told,) = jumps(space.start("status"))
        os.kill(job.pid, signal.SIGTERM)
        job.wait()
        (victim,) = explained(stack, space.folder, f"{topic}-0@{EVENTS}")
    (warning,) = job.logged(
        "an event's time is far ahead of its arrival: later events of its timeline are out of order until time has caught up"
    )
    origin = f"{topic}-0@{ATTACK}"
    assert (warning["origin"], warning["jump"].split("d")[0]) == (origin, "1825")
    assert job.logged("early is off: one event with a wrong time in the future makes all later events of its timeline out of order")
    assert (told["origin"], told["cause"], told["by_us"] // DAY_US) == (origin, "event_time", 1825)
    assert job.last["time_jumps_event_time"] == 1
    assert "out_of_order" in victim["policies"]
    limit = victim["steps"][-1]["limit_set_by"]
    assert (limit["what"], limit["offset"]) == ("event", ATTACK)


def jumps(status: Any) -> list[dict[str, Any]]:
    """The jumps that ``tidegate status`` shows."""
    status.wait()
    return [job["jump"] for job in status.last["jobs"] if "jump" in job]
