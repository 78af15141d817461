"""The services of the integration tests, in containers or embedded, obey the same switches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

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
