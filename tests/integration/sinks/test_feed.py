"""What a feed says of results that a CTI promises and that are not there, from a real topic."""

from __future__ import annotations

import time

import pytest
from support.stack.servers import SharedStack
from support.stores.result_topic import ResultTopic

from ordering.errors import GapError
from sinks.copying import feed
from sinks.stores.base import Progress, Stream

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
