"""An older ingest's topic read by today's query from end to end; and a newer ingest's record, which it refuses by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.stack.jobs import error_code, workspace
from support.stack.topics import create, fresh, read_ordered
from support.version1 import Event1, cti_record, event_header

from ordering.protocol.wire import HEADER_NAME, VERSION
from ordering.ticks import SECOND_US

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

START_US = 1_709_251_200 * SECOND_US  # 2024-03-01
TABLES = """
[inputs.old]
topic = "{topic}.raw"
ordered_topic = "{topic}"
timestamp_by = "at"

[outputs.counts]
topic = "{topic}.counts"
"""
COUNTS = "SELECT System.Timestamp() AS w, COUNT(*) AS n FROM old TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)"
SETTINGS = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}


def send(stack: Stack, topic: str, events: list[bytes], ctis: list[tuple[bytes, bytes]]) -> None:
    """Write records of one partition in their order."""
    producer = Producer({"bootstrap.servers": stack.bootstrap, "enable.idempotence": True})
    for header, value in [*((header, b"{}") for header in events), *ctis]:
        producer.produce(topic, value, None, 0, timestamp=START_US // 1000, headers=[(HEADER_NAME, header)])
    assert producer.flush(30) == 0


def test_a_query_reads_an_older_ingest_and_stops_at_a_newer_ones_record(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """
    Law, level 3, over versions: results of what a frozen version-1 writer wrote. Then a record of the next version stops the query
    before it, with an error that says who is upgraded first; what it had written stands.
    """
    topic = create(stack.bootstrap, fresh("older"), 1, SETTINGS)
    events = [Event1(0, seq, START_US + seq * SECOND_US, START_US, START_US, seq, seq % 4) for seq in range(25)]
    headers = [event_header(event) for event in events]
    promise = cti_record(0, c=START_US + 24 * SECOND_US, n=25, ahead=1, largest_us=events[-1].system_us)
    send(stack, topic, [*headers[:9], *headers[3:]], [promise])
    with workspace(tmp_path_factory.mktemp("versions"), stack, TABLES.format(topic=topic)) as space:
        job = space.start("query", space.script("counts.sql", COUNTS), "--into", "counts")
        job.until(lambda: job.last.get("results", 0) >= 3, "three windows")
        newer = bytes([VERSION + 1]) + event_header(Event1(0, 25, START_US, START_US, START_US, 25))[1:]
        send(stack, topic, [newer], [])
        assert error_code(job) == "TG-PROTOCOL-VERSION"
        assert job.wait() == 5
        assert f"version {VERSION + 1}" in job.errors
    results = read_ordered(stack.bootstrap, f"{topic}.counts", 1).all_events()
    # A window is (start, end]: the event at the end of one belongs to it.
    assert [json.loads(result.value or b"")["n"] for result in results] == [1, 10, 10]
