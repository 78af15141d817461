"""
The yardsticks: a plain copy of a topic by librdkafka, keys and timestamps kept, nothing ordered.

Usage: python copying.py python|columns BOOTSTRAP SOURCE SINK PARTITIONS PROCESSES - prints one JSON line a tenth of a second.

``python`` is what a Python program does: confluent-kafka's messages, one by one. ``columns`` goes the way that ingest goes,
by whole columns: what is left of ingest's cost beyond it is parsing, ordering, headers and Spark.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import sys
import time
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.writer import Columns, GaplessProducer


def copy_messages(bootstrap: str, source: str, sink: str, mine: list[int], copied: Any) -> None:
    """Copy the partitions *mine* message by message, counting in *copied*."""
    gc.disable()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "copy",
            "enable.auto.commit": False,
            "queued.min.messages": 200000,
            "check.crcs": False,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1000000,
            "queue.buffering.max.messages": 500000,
            "compression.type": "lz4",
            "enable.idempotence": True,
        }
    )
    partitions = [TopicPartition(source, partition, 0) for partition in mine]
    left = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    while left > 0:
        messages = consumer.consume(5000, 1.0)
        for message in messages:
            while True:
                try:
                    producer.produce(sink, message.value(), message.key(), message.partition(), timestamp=message.timestamp()[1])
                    break
                except BufferError:
                    producer.poll(0.05)
        left -= len(messages)
        producer.poll(0)
        copied.value += len(messages)
    producer.flush()


def copy_columns(bootstrap: str, source: str, sink: str, mine: list[int], copied: Any) -> None:
    """Copy the partitions *mine* by whole columns, a piece of each in turn, counting in *copied*."""
    properties = {"bootstrap.servers": bootstrap}
    ends = Admin(properties).ends([(source, partition) for partition in mine])
    producer = GaplessProducer(properties)
    ranges = {partition: RangeReader(properties, source, partition).read(0, ends[source, partition]) for partition in mine}
    while ranges:
        for partition, pieces in list(ranges.items()):
            piece = next(pieces, None)
            if piece is None:
                del ranges[partition]
                continue
            to = np.full(len(piece), partition, dtype=np.int32)
            producer.send_columns(sink, Columns(piece.value, piece.key, to, piece.timestamp_ms, "", None))
            copied.value += len(piece)
    producer.flush(sink)
    producer.discard()


def main(way: str, bootstrap: str, source: str, sink: str, partitions: str, processes: str) -> None:
    """Copy with several processes and say how far they are."""
    count = int(processes)
    copy = copy_messages if way == "python" else copy_columns
    counters = [multiprocessing.Value("q", 0, lock=False) for _ in range(count)]
    shares = [[partition for partition in range(int(partitions)) if partition % count == place] for place in range(count)]
    workers = [
        multiprocessing.Process(target=copy, args=(bootstrap, source, sink, share, counter))
        for share, counter in zip(shares, counters, strict=True)
    ]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.1)
        print(json.dumps({"events_in": sum(counter.value for counter in counters)}), flush=True)
    sys.exit(max(worker.exitcode or 0 for worker in workers))


if __name__ == "__main__":
    main(*sys.argv[1:])
