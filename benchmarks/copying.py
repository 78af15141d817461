"""
The yardstick: a plain copy of a topic by librdkafka from Python, keys and timestamps kept, nothing ordered.

Usage: python copying.py BOOTSTRAP SOURCE SINK PARTITIONS PROCESSES - prints one JSON line a tenth of a second.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


def copy(bootstrap: str, source: str, sink: str, mine: list[int], copied: Any) -> None:
    """Copy the partitions *mine*, counting in *copied*."""
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


def main(bootstrap: str, source: str, sink: str, partitions: str, processes: str) -> None:
    """Copy with several processes and say how far they are."""
    count = int(processes)
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


if __name__ == "__main__":
    main(*sys.argv[1:])
