"""
Compares a plain topic with the computed spans.

Law: the consumer group's offsets say which spans are published. The topic must hold exactly the rows of these spans, by committed
transactions, with their keys, values and timestamps. A row without a key may be in any partition, so rows are compared without their order
(:mod:`query.verify.unordered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.errors import UnreachableError
from ordering.ticks import MILLISECOND_US
from query.verify.recompute import Computed
from query.verify.table_rows import TableCheck
from query.verify.unordered import UnorderedRows
from sinks.plain_topic import PlainTopicSink
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader

# How often the ends of the topic are read until no transaction is committed meanwhile.
_TRIES = 50


@dataclass
class PlainTopicCheck(TableCheck):
    """A plain topic; each span of *span_us* is one transaction."""

    span_us: int = field(kw_only=True)

    def accept(self, computed: Computed) -> None:
        """Take the spans that are published; count the rows of later ones as ahead."""
        for sheet in computed.sheets:
            if sheet.start_us // self.span_us >= self.below.get(computed.bucket, 0):
                self.ahead += len(sheet.rows)
                continue
            system_us, key, value = (sheet.rows.table[name].combine_chunks() for name in ("system_us", "key", "value"))
            system_us, key = system_us.to_numpy(), pc.if_else(pc.equal(pc.binary_length(key), 0), None, key)
            # The sink writes no timestamp below 1, since 0 means the current time to a Kafka client.
            stamp_ms = np.maximum(system_us // MILLISECOND_US, 1)
            rows = _make_table(stamp_ms, key, value)
            # A plain topic has no numbers of its own: these only order the differences.
            seq = np.arange(self.rows.computed, self.rows.computed + len(rows))
            self.rows.add_computed(rows, computed.bucket, seq, system_us, key)


def make_plain_check(admin: Admin, kafka: Mapping[str, str], topic: Topic, span_us: int) -> PlainTopicCheck | None:
    """Read a plain topic and return its check; None if retention has deleted its beginning."""
    if any(admin.starts(topic.all_partitions).values()):
        return None
    below, ends = _find_ends(admin, kafka, topic, span_us)
    rows = UnorderedRows(topic.name)
    for name, partition in topic.all_partitions:
        with RangeReader(kafka, name, partition) as reader:
            for records in reader.read(0, ends[name, partition]):
                rows.add_standing(_make_table(records.timestamp_ms, records.key, records.value))
    return PlainTopicCheck("plain topic", topic.name, rows, below, span_us=span_us)


def _find_ends(
    admin: Admin, kafka: Mapping[str, str], topic: Topic, span_us: int
) -> tuple[Mapping[int, int], Mapping[tuple[str, int], int]]:
    """Return, by partition, the first span that is not published, and the ends of the topic just behind the published rows."""
    sink = PlainTopicSink(kafka, topic.name, span_us)
    try:
        for _ in range(_TRIES):
            below = sink.first_unpublished(range(topic.partitions))
            ends = admin.ends(topic.all_partitions)
            if below == sink.first_unpublished(range(topic.partitions)):
                return below, ends
    finally:
        sink.close()
    what, fix = "transactions are committed all the time, so no moment shows what is published", "verify when fewer results come"
    raise UnreachableError(what, code="TG-KAFKA-UNREACHABLE", where=topic.name, fix=fix)


def _make_table(stamp_ms: Any, key: pa.Array, value: pa.Array) -> pa.Table:
    """Return rows with their bytes as text; bytes that are not UTF-8 as hexadecimal digits."""
    return pa.table({"timestamp_ms": pa.array(stamp_ms), "key": _text(key), "value": _text(value)})


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = []
        for data in column.to_pylist():
            try:
                texts.append(None if data is None else data.decode())
            except UnicodeDecodeError:
                texts.append(f"0x{data.hex()}")
        return pa.array(texts, pa.string())
