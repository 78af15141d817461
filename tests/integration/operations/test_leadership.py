"""
A broker that is gone for a while loses its partitions and wins them back: whoever asks and reads learns of it and goes on, and a job
says meanwhile what it waits for.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.stack.jobs import workspace
from support.stack.keyed_input import TABLES
from support.stack.topics import create

from ordering.errors import TidegateError
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.integration

PAUSE_S = 15.0
"""Longer than the controller waits for a broker's heartbeat (broker.session.timeout.ms, 9 s)."""
SOON_S = 90.0
"""librdkafka looks for leaders every five minutes by default; a broker on a busy machine wins its partitions back in up to a minute."""
SAID_WITHIN_S = 10.0
"""How long a running job may be without Kafka before it says so."""


def test_a_broker_that_lost_its_partitions_is_read_on(tmp_path: Path) -> None:
    """
    While records are written all the time, ends are told and ranges read soon after, by the same clients as before; a job that
    runs says in time that it waits for Kafka, and later that it does no longer.
    """
    table = TABLES.format(topic="idle")
    with EmbeddedStack(tmp_path / "stack") as stack, workspace(tmp_path / "job", stack, table) as space:
        create(stack.bootstrap, "idle", 1)
        job = space.start("ingest", "events").once_started()
        topic = create(stack.bootstrap, "lost", 2)
        over, reading = threading.Event(), Reading(stack.bootstrap, topic)
        # Where nothing comes any more, a reader waits for ever.
        threading.Thread(target=reading.go_on, args=(over,), daemon=True).start()
        writing = threading.Thread(target=_write, args=(stack.bootstrap, topic, over))
        writing.start()
        try:
            assert reading.reaches(100)
            job.until(lambda: job.batches > 0, "a first batch")
            assert stack.kafka_pid is not None
            paused_s = time.monotonic()
            os.kill(stack.kafka_pid, signal.SIGSTOP)
            job.until(lambda: "waiting for Kafka" in job.errors, "it says so in its log", PAUSE_S)
            assert time.monotonic() - paused_s < SAID_WITHIN_S
            time.sleep(max(PAUSE_S - (time.monotonic() - paused_s), 0))
            os.kill(stack.kafka_pid, signal.SIGCONT)
            assert reading.reaches(reading.read + 200)
            job.until(lambda: "waits for Kafka no longer" in job.errors, "it says that it goes on", SOON_S)
        finally:
            over.set()
            writing.join()


class Reading:
    """Reads what comes, as the planner and a worker of a job do."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        properties = {"bootstrap.servers": bootstrap}
        self._admin, self._topic = Admin(properties, 5.0), topic
        self._readers = [RangeReader(properties, topic, partition) for partition in range(2)]
        self._position = [0, 0]

    @property
    def read(self) -> int:
        """How many records have been read."""
        return sum(self._position)

    def reaches(self, records: int) -> bool:
        """Wait until so many have been read, not longer than SOON_S."""
        end_s = time.monotonic() + SOON_S
        while self.read < records and time.monotonic() < end_s:
            time.sleep(0.1)
        return self.read >= records

    def go_on(self, over: threading.Event) -> None:
        """Ask and read in turn."""
        while not over.wait(0.2):
            for partition, reader in enumerate(self._readers):
                end = min(self._end(partition), self._position[partition] + 50)
                for piece in reader.read(self._position[partition], end):
                    self._position[partition] = int(piece.offset[-1]) + 1

    def _end(self, partition: int) -> int:
        try:
            return self._admin.ends([(self._topic, partition)])[self._topic, partition]
        except TidegateError:
            return -1


def _write(bootstrap: str, topic: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 0})
    for row in itertools.count():
        producer.produce(topic, b"%d" % row, partition=row % 2)
        producer.poll(0)
        if over.wait(0.006):
            break
    producer.purge()
