"""A newer ingest's record in a topic: the query that reads it stops before it, by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from confluent_kafka import Producer
from support.stack.jobs import error_code, workspace
from support.stack.topics import create, fresh, read_ordered

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import HEADER_NAME, VERSION, encode_cti, encode_event_headers
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


def event_headers(seqs: range) -> list[bytes]:
    """Return the headers of events a second apart."""
    seq = np.array(seqs, dtype=np.int64)
    start_us = np.full(len(seq), START_US)
    return encode_event_headers(seq, START_US + seq * SECOND_US, start_us, start_us, seq, (seq % 4).astype(np.uint16), 0)


def test_a_query_stops_at_a_newer_ingests_record(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """
    A record of the next version stops the query before it, with an error that says who is upgraded first; what the query
    had written stands.
    """
    topic = create(stack.bootstrap, fresh("newer"), 1, SETTINGS)
    headers, c = event_headers(range(25)), START_US + 24 * SECOND_US
    promise = encode_cti(Cti(0, 0, c, 25, 1, 0, 0, c, Roster(1, 1, Spread.ONE, False), Cause.EVENT))
    # Some events twice, as a writer leaves them that has died and written again.
    send(stack, topic, [*headers[:9], *headers[3:]], [promise])
    with workspace(tmp_path_factory.mktemp("versions"), stack, TABLES.format(topic=topic)) as space:
        job = space.start("query", space.script("counts.sql", COUNTS), "--into", "counts")
        job.until(lambda: job.last.get("results", 0) >= 3, "three windows")
        newer = bytes([VERSION + 1]) + event_headers(range(25, 26))[0][1:]
        send(stack, topic, [newer], [])
        assert error_code(job) == "TG-PROTOCOL-VERSION"
        assert job.wait() == 5
        assert f"version {VERSION + 1}" in job.errors
    results = read_ordered(stack.bootstrap, f"{topic}.counts", 1).all_events()
    # A window is (start, end]: the event at the end of one belongs to it.
    assert [json.loads(result.value or b"")["n"] for result in results] == [1, 10, 10]
