"""Fixed librdkafka properties of consumers and producers, with reasons."""

from __future__ import annotations

from tidegate.basics.fault_points import is_armed

# With sparse connections a client may never reconnect after a broker was silent for a while (librdkafka 2.16): it mistakes a connection
# that it has given up for one in progress. [kafka.client] may override this.
STEADY = {"enable.sparse.connections": "false"}

# Largest event, key and value together: it must fit into the producer's queue.
EVENT_BYTES_MAX = 63 * 2**20

CONSUMER = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "fetch.error.backoff.ms": "100",
    # If a broker lost its partitions and regained them, librdkafka may fetch nothing more until it refreshes the leaders.
    "topic.metadata.refresh.interval.ms": "10000",
    # A consumer that seeks waits for the answer to its earlier request first.
    "fetch.wait.max.ms": "100",
    # After a full queue librdkafka pauses for a second by default, in which the reader would run dry.
    "fetch.queue.backoff.ms": "5",
    "check.crcs": "false",
    # A record may be larger than a response usually is: uncompressed, or once it is decompressed. The default would make it unreadable.
    "receive.message.max.bytes": str(2**31 - 1),
    "log_level": "2",
}

PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",
    "enable.gapless.guarantee": "true",
    "message.timeout.ms": "0",
    # By default brokers create a missing topic: one that was deleted under a running job would be back at once, and empty.
    "allow.auto.create.topics": "false",
    "delivery.report.only.error": "true",
    # Every task flushes at its end, whatever this value; until then lingering makes larger batches for many partitions.
    "linger.ms": "0" if is_armed else "250",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    # The most that librdkafka allows. Tidegate has already checked each record against its topic's limit.
    "message.max.bytes": "1000000000",
    "compression.type": "lz4",
    "log_level": "2",
}
