"""The services of the integration tests, in containers or embedded, obey the same switches; a writer outlives a restart of the broker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.stack.kafka_columns import columns, rows_of
from support.stack.topics import create, fresh

from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.writer import GaplessProducer

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", name="stack")
def _stack(own_stack: Stack) -> Stack:
    """These tests kill servers."""
    return own_stack


def test_a_broker_that_was_killed_comes_back_with_what_it_acknowledged(stack: Stack) -> None:
    """A record acknowledged before the kill is read after it, at the same address."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    admin.create_topics([NewTopic("faults", 1, 1)])["faults"].result(20)
    producer = Producer({"bootstrap.servers": stack.bootstrap})
    producer.produce("faults", b"kept")
    assert producer.flush(20) == 0
    stack.stop_kafka(grace_s=0)
    stack.start_kafka()
    consumer = Consumer({"bootstrap.servers": stack.bootstrap, "group.id": "faults", "auto.offset.reset": "earliest"})
    consumer.subscribe(["faults"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"kept"


def test_a_redis_that_was_killed_comes_back_with_what_was_on_disk(stack: Stack) -> None:
    """What WAITAOF confirmed before the kill is there after it."""
    client = redis.Redis.from_url(stack.redis_url)
    client.set("faults", "kept")
    assert client.execute_command("WAITAOF", 1, 0, 2000)[0] == 1
    stack.stop_redis(grace_s=0)
    stack.start_redis()
    assert redis.Redis.from_url(stack.redis_url).get("faults") == b"kept"


@pytest.mark.parametrize("path", ["auto", pytest.param("off", marks=pytest.mark.deep)])
def test_a_full_queue_and_a_broker_that_restarts_lose_and_double_nothing(stack: Stack, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 1: more than the queue holds, the broker stopped in the middle: every record once, in order, by writer and by reader."""
    monkeypatch.setenv(NATIVE_SWITCH, path)
    properties = {"bootstrap.servers": stack.bootstrap}
    topic, count = create(stack.bootstrap, fresh("paths"), 1), 250_000
    value = pa.array([b"%07d" % row for row in range(count)], type=pa.binary())
    producer, reader = GaplessProducer(properties), RangeReader(properties, topic, 0)
    producer.send_columns(topic, columns(value[:1000], pa.nulls(1000, pa.binary()), 0, np.ones(1000)))
    producer.flush(topic)
    stack.stop_kafka()
    back = threading.Timer(1.0, stack.start_kafka)
    back.start()
    producer.send_columns(topic, columns(value[1000:], pa.nulls(count - 1000, pa.binary()), 0, np.ones(count - 1000)))
    producer.flush(topic)
    back.join()
    producer.discard()
    read = [payload for _, _, _, payload in rows_of(reader.read(0, count))]
    assert read == value.to_pylist()
    reader.close()
