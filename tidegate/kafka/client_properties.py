"""librdkafka properties that every client of a kind is made with, and why."""

from __future__ import annotations

from tidegate.fault_points import is_armed

# A client that connects only to brokers it has something to ask may never connect again after a broker was silent for a while
# (librdkafka 2.16): it takes a connection that it has given up for one under way. [kafka.client] may say otherwise.
STEADY = {"enable.sparse.connections": "false"}

CONSUMER = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "fetch.error.backoff.ms": "100",
    # Where a broker lost its partitions and won them back, librdkafka may fetch nothing more until it looks for leaders again.
    "topic.metadata.refresh.interval.ms": "10000",
    # A consumer that starts elsewhere first waits for the answer to what it had asked for.
    "fetch.wait.max.ms": "100",
    # After a full queue librdkafka waits a whole second by default, and the reader runs dry meanwhile.
    "fetch.queue.backoff.ms": "5",
    "check.crcs": "false",
    "log_level": "2",
}

PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",
    "enable.gapless.guarantee": "true",
    "message.timeout.ms": "0",
    "delivery.report.only.error": "true",
    # What a task has written is flushed at its end, whatever this says; until then records to many partitions gain by company.
    "linger.ms": "0" if is_armed else "250",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    "message.max.bytes": "104857600",
    "compression.type": "lz4",
    "log_level": "2",
}
