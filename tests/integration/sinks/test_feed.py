"""A feed over a real topic: results that a CTI promises and that are not there, and results that come while it waits."""

from __future__ import annotations

import time

import pytest
from support.stack.servers import SharedStack
from support.stores.result_topic import ResultTopic

from ordering.errors import GapError
from sinks.copying import feed
from sinks.stores.base import Progress, Stream
from tidegate.platform.kafka.ranges import SharedConnections, wait_for_any

pytestmark = pytest.mark.integration


def test_a_gap_is_waited_for_anew_once_store_and_brokers_answer_again(
    stack: SharedStack, topic: ResultTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure a copier goes back to the store's progress: while it waited, nobody could fill the gap."""
    monkeypatch.setattr(feed, "GAP_WAIT_S", 0.2)
    topic.write(0, 0, 3)
    topic.write(0, 5, 8)
    kafka = {"bootstrap.servers": stack.bootstrap}
    reading = feed.PartitionFeed(kafka, Stream(topic.name, "id", topic.partitions), 0)
    assert [rows.position.tolist() for rows in reading.read(8)] == [[0, 1, 2]]
    time.sleep(0.3)
    reading.seek(Progress("id", 0, 0))
    assert [rows.position.tolist() for rows in reading.read(8)] == [[0, 1, 2]]
    time.sleep(0.3)
    with pytest.raises(GapError, match="below 8, but after number 2 none follows"):
        list(reading.read(8))
    reading.close()


def test_feeds_read_on_as_results_come(stack: SharedStack, topic: ResultTopic) -> None:
    """Those that are written again are passed over, and a planned range goes on behind what was read on; a wait ends by data."""
    connections = SharedConnections()
    stream = Stream(topic.name, "id", topic.partitions)
    feeds = [feed.PartitionFeed({"bootstrap.servers": stack.bootstrap}, stream, number, connections) for number in (0, 1)]

    def read_on(number: int, count: int) -> list[int]:
        found: list[int] = []
        deadline_s = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline_s:
            rows = feeds[number].read_on()
            found += [] if rows is None else rows.position.tolist()
            if rows is None:
                wait_for_any([each.source for each in feeds], 10_000)
        return found

    topic.write(0, 0, 3)
    assert [rows.position.tolist() for rows in feeds[0].read(4)] == [[0, 1, 2]]
    topic.write(0, 1, 5)
    topic.write(1, 0, 2)
    assert read_on(0, 2) == [3, 4]
    assert read_on(1, 2) == [0, 1]
    assert (feeds[0].position, feeds[1].position) == (5, 2)
    topic.write(0, 5, 7)
    end = feeds[0].offset + 3
    assert [rows.position.tolist() for rows in feeds[0].read(end)] == [[5, 6]]
    for each in feeds:
        each.close()
    connections.close()
