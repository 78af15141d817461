"""A plain topic with results, a transaction for each span, on a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.stack.topics import create, fresh

from query.start.result_limits import ensure_plain_topic
from sinks.base import SinkError
from sinks.plain_topic import PlainTopicSink
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.tables.outputs import OutputSettings

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration
SPAN_US = 60_000_000


def seen(bootstrap: str, topic: str, partitions: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """Key, value and timestamp of each record that a consumer without uncommitted reads sees, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": fresh("looker"), "isolation.level": "read_committed"})
    found = []
    for partition in range(partitions):
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, 10)
        consumer.assign([place])
        while consumer.position([place])[0].offset < end:
            message = consumer.poll(1.0)
            if message is None:
                break
            found.append((message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    return found


def test_a_sheet_is_seen_once_however_often_it_is_published(stack: Stack) -> None:
    """The idempotence contract: again, by another writer, and after one that died in the middle of a transaction."""
    topic = create(stack.bootstrap, fresh("plain"), 2)
    properties = {"bootstrap.servers": stack.bootstrap}
    sheets = {(0, 0): [(1_000, b"a", b'{"n":1}'), (2_000, b"", b'{"n":2}')], (SPAN_US, 0): [(SPAN_US, b"a", b'{"n":3}')]}
    sheets[0, 1] = [(5_000, b"b", b'{"n":4}')]
    first = PlainTopicSink(properties, topic, SPAN_US)
    first.publish(0, 0, sheets[0, 0])
    first.publish(0, 0, sheets[0, 0])
    first.publish(0, 1, sheets[0, 1])
    died = Producer({**properties, "transactional.id": f"{topic}-0"})
    died.init_transactions(30)
    died.begin_transaction()
    died.produce(topic, b"never seen", b"a")
    died.flush(30)
    second = PlainTopicSink(properties, topic, SPAN_US)
    for (start_us, partition), rows in sorted(sheets.items()):
        second.publish(start_us, partition, rows)
    first.publish(SPAN_US, 0, [(SPAN_US, b"a", b"a zombie's")])
    second.close()
    assert sorted(seen(stack.bootstrap, topic, 2), key=lambda row: row[2]) == [
        (b"a", b'{"n":1}', 1),
        (None, b'{"n":2}', 2),
        (b"b", b'{"n":4}', 5),
        (b"a", b'{"n":3}', 60_000),
    ]


def test_results_of_any_time_are_published(stack: Stack) -> None:
    """Time may be ahead of the clock without end (early off), and by default brokers refuse what is an hour ahead."""
    properties = {"bootstrap.servers": stack.bootstrap}
    mine, theirs = fresh("plain"), create(stack.bootstrap, fresh("plain"), 1, {"message.timestamp.after.max.ms": "3600000"})
    ensure_plain_topic(Admin(properties, 8.0), OutputSettings(plain_topic=mine), 1, 1_000)
    day_us = 32503680000000000  # of the year 3000
    PlainTopicSink(properties, mine, SPAN_US).publish(day_us, 0, [(day_us, b"a", b"{}")])
    assert seen(stack.bootstrap, mine, 1) == [(b"a", b"{}", day_us // 1000)]
    with pytest.raises(SinkError) as refused:
        PlainTopicSink(properties, theirs, SPAN_US).publish(day_us, 0, [(day_us, b"a", b"{}")])
    assert "message.timestamp.after.max.ms=9223372036854775807" in refused.value.fix


def test_two_workers_publish_in_turns(stack: Stack) -> None:
    """A bucket's task falls now to one worker, now to the other: each fences the other off, and goes on when its turn comes again."""
    topic = create(stack.bootstrap, fresh("plain"), 1)
    workers = [PlainTopicSink({"bootstrap.servers": stack.bootstrap}, topic, SPAN_US) for _ in range(2)]
    for number, worker in enumerate([0, 1, 0, 1, 1, 0]):
        workers[worker].publish(number * SPAN_US, 0, [(number * SPAN_US, b"a", b"%d" % number)])
    assert [value for _, value, _ in seen(stack.bootstrap, topic, 1)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_worker_whose_turn_comes_again_learns_of_its_fence_within_a_large_sheet(stack: Stack) -> None:
    """The client may learn of it at any call of the transaction: here while rows are queued, which it then refuses as such."""
    topic = create(stack.bootstrap, fresh("plain"), 1)
    fenced, other = (PlainTopicSink({"bootstrap.servers": stack.bootstrap}, topic, SPAN_US) for _ in range(2))
    fenced.publish(0, 0, [(0, b"a", b"0")])
    other.publish(SPAN_US, 0, [(SPAN_US, b"a", b"1")])
    queue = fenced._queue

    def slowly(producer: Producer, row: Any, *rest: Any) -> None:
        queue(producer, row, *rest)
        time.sleep(0.05)

    fenced._queue = slowly  # type: ignore[method-assign]
    fenced.publish(2 * SPAN_US, 0, [(2 * SPAN_US, b"a", b"%03d" % number) for number in range(40)])
    assert [value for _, value, _ in seen(stack.bootstrap, topic, 1)] == [b"0", b"1", *(b"%03d" % number for number in range(40))]


def test_a_zombie_does_not_end_the_job(stack: Stack) -> None:
    """It begins a transaction while that of the job's first producer is open, and publishes the same sheet, whose rows are seen once."""
    topic = create(stack.bootstrap, fresh("plain"), 1)
    zombie, worker = (PlainTopicSink({"bootstrap.servers": stack.bootstrap}, topic, SPAN_US) for _ in range(2))
    queue = worker._queue

    def overtaken(producer: Producer, *row: Any) -> None:
        queue(producer, *row)
        zombie.publish(0, 0, [(1_000, b"a", b"1")])

    worker._queue = overtaken  # type: ignore[method-assign]
    worker.publish(0, 0, [(1_000, b"a", b"1")])
    assert seen(stack.bootstrap, topic, 1) == [(b"a", b"1", 1)]
