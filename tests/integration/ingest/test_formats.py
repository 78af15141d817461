"""
Inputs that are no plain JSON, through real jobs: framed Avro in a transactional topic, CSV with an expression for its time.

One process orders both. The registry is away at first and an open transaction comes later: nothing is given up, nothing is
read before its time, and the input beside it goes on.
"""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest
from confluent_kafka import Producer
from support.registry_server import Registered, RegistryServer
from support.stack.drawn_logs import Raw
from support.stack.jobs import workspace
from support.stack.topics import ANY_TIME, Event, check_promises, create, exists, fresh, header, produce, read_ordered, records

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "base", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "delay", "type": ["null", "int"]}],
}
TABLES = """
[schema_registry]
url = "{registry}"
username = "reader"
request_timeout = "1s"

[inputs.framed]
topic = "{framed}"
format = "avro_registry"
timestamp_by = "DATEADD(second, delay, base)"
late = "1h"

[inputs.lines]
topic = "{lines}"
format = "csv"
csv_columns = ["event time", "k"]
timestamp_by = "[event time]"
over = "k"
late = "1h"
"""


def reading(base_ms: int, delay: int | None, number: int = 7) -> bytes:
    """A framed payload."""
    out = io.BytesIO()
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType": "timestamp-millis"', '"doc": ""'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"base": base_ms, "delay": delay})
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


class Source:
    """A transactional producer of readings, each a little later than the one before."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        self._producer.init_transactions(30)
        self._topic = topic

    def send(self, *payloads: bytes) -> None:
        """Begin a transaction and have the broker hold *payloads* in it."""
        self._producer.begin_transaction()
        for payload in payloads:
            self._producer.produce(self._topic, payload)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        """End it: what it sent counts."""
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        """End it: nothing it sent was ever there."""
        self._producer.abort_transaction(30)


def events(bootstrap: str, topic: str) -> list[Event]:
    """What an ordered topic of one partition holds."""
    return read_ordered(bootstrap, f"{topic}.ordered", 1).all_events() if exists(bootstrap, f"{topic}.ordered") else []


def test_transactions_registry_outages_and_lines_of_csv(stack: Stack, tmp_path: Path) -> None:
    """Level 1 for what is committed: each payload once, byte for byte, at the time its expression gives; the rest is told apart."""
    framed, lines = create(stack.bootstrap, fresh("framed"), 1, ANY_TIME), create(stack.bootstrap, fresh("lines"), 1, ANY_TIME)
    registry = RegistryServer("reader:canary-pass")
    registry.ids[7] = Registered(json.dumps(SCHEMA))
    registry.stop()
    now_ms = time.time_ns() // 1_000_000
    source = Source(stack.bootstrap, framed)
    first, gone, second, open_ones = ([reading(now_ms + 10 * at, 1) for at in range(low, low + 5)] for low in (0, 5, 10, 15))
    bad = {"schema_unknown": reading(now_ms, 1, number=8), "malformed": b"{}", "timestamp": reading(now_ms, None)}
    source.send(*first)
    source.commit()
    source.send(*gone)
    source.abort()
    source.send(*bad.values(), *second)
    source.commit()
    text = [f'{now_ms + at},"k,{at % 2}"'.encode() for at in range(20)]
    ahead = [f'{now_ms + 60_000},"k,{key}"'.encode() for key in (0, 1)]
    produce(stack.bootstrap, lines, [Raw(0, None, line, 0) for line in [*text, b"1,2,3", b"soon,k", *ahead]])
    tables = TABLES.format(registry=registry.url, framed=framed, lines=lines)
    with workspace(tmp_path, stack, tables) as space:
        job = space.start("ingest", "framed", "lines", TIDEGATE_SCHEMA_REGISTRY__PASSWORD="canary-pass")
        job.until(lambda: "waiting for the schema registry" in job.errors, "a word about the outage")
        job.until(lambda: len(events(stack.bootstrap, lines)) == 20, "the other input")
        assert not events(stack.bootstrap, framed)
        registry.start()
        job.until(lambda: len(events(stack.bootstrap, framed)) == 9, "what was committed, but for the last that the next releases")
        source.send(*open_ones)
        time.sleep(3)
        assert len(events(stack.bootstrap, framed)) == 9, "an open transaction is not there yet"
        source.commit()
        job.until(lambda: len(events(stack.bootstrap, framed)) == 14, "the transaction that was open")
        assert job.running
        job.stop()
        assert "canary-pass" not in job.errors
    registry.stop()
    found = read_ordered(stack.bootstrap, f"{framed}.ordered", 1)
    check_promises(found)
    ordered = sorted(found.all_events(), key=lambda event: event.offset)
    assert [event.value for event in ordered] == [*first, *second, *open_ones][:-1]
    assert [event.event_time_us for event in ordered] == [(now_ms + 10 * at + 1000) * 1000 for at in (*range(5), *range(10, 19))]
    # Once in each of the two workers, whichever of them Spark had read the partition.
    assert set(registry.asked) == {"/schemas/ids/7", "/schemas/ids/8"}
    assert max(registry.asked.values()) <= 2
    dead = {(header(message, "reason").decode(), message.value()) for message in records(stack.bootstrap, f"{framed}.ordered.dead")}
    assert dead == set(bad.items())
    from_lines = read_ordered(stack.bootstrap, f"{lines}.ordered", 1)
    check_promises(from_lines)
    assert {event.value for event in from_lines.all_events()} == set(text)
    assert {event.key for event in from_lines.all_events()} == {b"k,0", b"k,1"}
    reasons = {(header(message, "reason").decode(), message.value()) for message in records(stack.bootstrap, f"{lines}.ordered.dead")}
    assert reasons == {("malformed", b"1,2,3"), ("timestamp", b"soon,k")}


def test_a_run_to_the_present_end_waits_for_a_transaction_that_is_open_there(stack: Stack, tmp_path: Path) -> None:
    """What stands behind an open transaction is acknowledged, so it belongs to the present; the topic would end without it."""
    topic = create(stack.bootstrap, fresh("open"), 1, ANY_TIME)
    payloads = [json.dumps({"t": time.time() + at}).encode() for at in range(4)]
    source = Source(stack.bootstrap, topic)
    produce(stack.bootstrap, topic, [Raw(0, None, payload, 0) for payload in payloads[:2]])
    source.send(payloads[2])
    produce(stack.bootstrap, topic, [Raw(0, None, payloads[3], 0)])
    with workspace(tmp_path, stack, f'[inputs.x]\ntopic = "{topic}"\ntimestamp_by = "t"\n') as space:
        job = space.start("ingest", "x", "--until-end")
        job.until(lambda: len(events(stack.bootstrap, topic)) > 0, "the event before those that must wait")
        source.commit()
        job.finish()
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", 1)
    check_promises(found)
    assert found.ended
    assert [event.value for event in found.all_events()] == payloads
