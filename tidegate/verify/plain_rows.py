"""
A plain topic as it stands, compared with the spans computed anew.

Law: the consumer group's offsets tell which spans are published; the rows of these must be there, as transactions have committed them: key,
value and timestamp. Rows without a key go to any partition, so they are compared without their order (:mod:`tidegate.verify.unordered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.errors import UnreachableError
from ordering.ticks import MILLISECOND_US
from sinks.plain_topic import PlainTopicSink
from tidegate.kafka.admin import Admin, Topic
from tidegate.kafka.ranges import RangeReader
from tidegate.verify.recompute import Computed
from tidegate.verify.table_rows import TableCheck
from tidegate.verify.unordered import UnorderedRows

# How often the topic's ends are asked for until no transaction comes between.
_TRIES = 50


@dataclass
class PlainTopicCheck(TableCheck):
    """A plain topic; each span of *span_us* is one transaction."""

    span_us: int = field(kw_only=True)

    def accept(self, computed: Computed) -> None:
        """Take those spans whose transactions are recorded."""
        for sheet in computed.sheets:
            if sheet.start_us // self.span_us >= self.below.get(computed.bucket, 0):
                self.ahead += len(sheet.rows)
                continue
            times, keys, values = (list(column) for column in zip(*sheet.rows, strict=True))
            system_us, key = np.array(times, dtype=np.int64), pa.array([each or None for each in keys], pa.binary())
            rows = _make_table(np.maximum(system_us // MILLISECOND_US, 1), key, pa.array(values, pa.binary()))
            seq = np.arange(self.rows.computed, self.rows.computed + len(rows))
            self.rows.add_computed(rows, computed.bucket, seq, system_us, key)


def make_plain_check(admin: Admin, kafka: Mapping[str, str], topic: Topic, span_us: int) -> PlainTopicCheck | None:
    """Return the check of a plain topic with what stands there; None if retention has deleted its beginning."""
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
    """Return which spans are published, and the ends of the topic just behind their rows."""
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
    """Return rows with their bytes as text; such as are not UTF-8 as hexadecimal digits."""
    return pa.table({"timestamp_ms": pa.array(stamp_ms), "key": _text(key), "value": _text(value)})


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = []
        for octets in column.to_pylist():
            try:
                texts.append(None if octets is None else octets.decode())
            except UnicodeDecodeError:
                texts.append(f"0x{octets.hex()}")
        return pa.array(texts, pa.string())
