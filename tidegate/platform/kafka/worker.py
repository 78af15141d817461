"""
The worker: what a process keeps between the batches that it runs. It has clients of Kafka, shared by all jobs of the process, and for each
job what its stage remembers.

Law: results do not depend on it. A batch in a new worker reads, computes and writes the same; it only connects and reads again. After an
error nothing of unknown state is used again: the stage drops the clients that took part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from tidegate.platform.kafka.dead_letters import DeadLetterWriter
from tidegate.platform.kafka.ranges import PREFETCH_BYTES, RangeReader, SharedConnections
from tidegate.platform.kafka.records import Framed
from tidegate.platform.kafka.writer import GaplessProducer

Memory = TypeVar("Memory")


class Worker:
    """The clients and memories of one process; each is made at first use. A process has one: :data:`WORKER`."""

    def __init__(self) -> None:
        # By cluster; then by topic, and what else tells two clients of it apart.
        self._producers: dict[str, GaplessProducer] = {}
        self._letters: dict[tuple[str, str, int], DeadLetterWriter] = {}
        self._readers: dict[tuple[str, str, int, bool, Framed], RangeReader] = {}
        self._connections = SharedConnections()
        self._memories: dict[tuple[str, type], Any] = {}

    def producer(self, kafka: Mapping[str, str]) -> GaplessProducer:
        """Return the producer for a cluster."""
        cluster = kafka["bootstrap.servers"]
        if cluster not in self._producers:
            self._producers[cluster] = GaplessProducer(kafka)
        return self._producers[cluster]

    def drop_producer(self, kafka: Mapping[str, str]) -> None:
        """Discard the producer for a cluster: after an error its queued records must never be sent."""
        producer = self._producers.pop(kafka["bootstrap.servers"], None)
        if producer is not None:
            producer.discard()

    def dead_letters(self, kafka: Mapping[str, str], topic: str, bytes_max: int) -> DeadLetterWriter:
        """Return the writer of a dead-letter topic."""
        name = kafka["bootstrap.servers"], topic, bytes_max
        if name not in self._letters:
            self._letters[name] = DeadLetterWriter(kafka, topic, bytes_max)
        return self._letters[name]

    def drop_dead_letters(self, kafka: Mapping[str, str], topic: str, bytes_max: int) -> None:
        """Forget the writer of a dead-letter topic, with all that is not acknowledged: the batch is repeated."""
        letters = self._letters.pop((kafka["bootstrap.servers"], topic, bytes_max), None)
        if letters is not None:
            letters.close()

    def reader(
        self,
        kafka: Mapping[str, str],
        topic: str,
        partition: int,
        headers: bool = False,
        prefetch_bytes: int = PREFETCH_BYTES,
        framed: Framed = (),
    ) -> RangeReader:
        """Return the reader of a partition."""
        name = kafka["bootstrap.servers"], topic, partition, headers, framed
        if name not in self._readers:
            self._readers[name] = RangeReader(
                kafka, topic, partition, headers, prefetch_bytes, connections=self._connections, framed=framed
            )
        return self._readers[name]

    def drop_reader(self, kafka: Mapping[str, str], topic: str, partition: int, headers: bool = False, framed: Framed = ()) -> None:
        """Close the reader of a partition, because its position is unknown after an error."""
        reader = self._readers.pop((kafka["bootstrap.servers"], topic, partition, headers, framed), None)
        if reader is not None:
            reader.close()

    def memory(self, job: str, kind: type[Memory]) -> Memory:
        """Return the memory of this *kind* of a job, named by its checkpoint, which is unique on this machine."""
        if (job, kind) not in self._memories:
            self._memories[job, kind] = kind()
        return cast(Memory, self._memories[job, kind])

    def close(self) -> None:
        """Disconnect and forget everything; what is queued and not acknowledged is never sent."""
        for producer in self._producers.values():
            producer.discard()
        for letters in self._letters.values():
            letters.close()
        for reader in self._readers.values():
            reader.close()
        for held in (self._producers, self._letters, self._readers, self._memories):
            held.clear()
        self._connections = SharedConnections()


WORKER = Worker()
