"""The commands that ask brokers show hostile keys, payloads and reasons, and a terminal obeys none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.hostile_text import HOSTILE, commands_in
from support.pseudo_terminal import run_on_terminal
from support.stack.jobs import workspace
from support.stack.topics import create, fresh

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "key"

[outputs.counted]
topic = "{topic}.counted"
"""
KEY = HOSTILE.replace("\ud800", "")
AT, BEGIN_MS = "2001-01-01T00:00:0{}Z", 978_307_200_000


def test_of_a_hostile_topic_every_command_shows_all_and_the_terminal_obeys_nothing(stack: Stack, tmp_path: Path) -> None:
    """ingest, query, explain, journal, compare, skip and plan on events whose key, payload and bytes are commands."""
    topic = create(stack.bootstrap, fresh("hostile"), 1)
    producer = Producer({"bootstrap.servers": stack.bootstrap})
    for second in (5, 3, 7):
        event = json.dumps({"at": AT.format(second), "key": KEY, KEY: KEY}, ensure_ascii=False)
        producer.produce(topic, event, key=KEY.encode(), timestamp=BEGIN_MS + 1_000 * second)
    producer.produce(topic, HOSTILE.encode("utf-8", "replace"), timestamp=BEGIN_MS + 9_000)
    assert producer.flush(30) == 0
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        space.script("q.sql", "SELECT key, CAST(key AS bigint) AS n INTO counted FROM events TIMESTAMP BY at OVER key")
        ingest = space.start("ingest", "events", "--until-end")
        ingest.finish()
        query = space.start("query", "q.sql", "--until-end")
        query.finish()
        logs = ingest.errors + query.errors
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        printed = {
            arguments: run_on_terminal(tmp_path, *arguments, **addresses)
            for arguments in (
                ("explain", "events", *(f"{topic}-0@{offset}" for offset in range(4))),
                ("journal", "show", "events"),
                ("compare", "events", "events"),
                ("skip", "events", f"{topic}-0@900", "--why", KEY.replace("\0", "")),
                ("plan", "q.sql"),
                ("watermarks", "--substreams", "--once"),
                ("status",),
            )
        }
    assert commands_in(logs) == []
    for arguments, (_, text) in printed.items():
        assert commands_in(text, on_terminal=True) == [], arguments
        assert "Traceback" not in text, arguments
    assert f"{topic}-0@3 went to the dead-letter topic" in printed[next(iter(printed))][1]
