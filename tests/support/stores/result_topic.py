"""A result topic as a query writes it, with the results of :mod:`support.stores.kit`; also as a torn or a stale writer leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from support.stores import kit

from ordering.model.events import Released
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY
from sinks.stores.base import Rows
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer

_TOPIC = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
}


class ResultTopic:
    """A new topic; *write* adds results to a partition."""

    def __init__(self, kafka: Mapping[str, str], name: str, partitions: int = kit.PARTITIONS) -> None:
        self.name, self.partitions = name, partitions
        Admin(kafka).create(name, partitions, _TOPIC)
        self._producer = GaplessProducer(kafka)
        self._writer = ChannelWriter(self._producer, name)

    def write(self, partition: int, start: int, end: int, *, is_final: bool = False) -> None:
        """Write the results with ``start <= number < end`` and the CTI that follows them; to be repeated, or begun beyond a gap."""
        self._write(partition, kit.rows_of(partition, start, end))
        self._promise(partition, end, is_final=is_final)

    def write_values(self, partition: int, start: int, values: Sequence[bytes]) -> None:
        """Write results with values of their own, and the CTI that follows them."""
        rows = kit.rows_of(partition, start, start + len(values))
        self._write(partition, replace(rows, value=pa.array(values, pa.binary())))
        self._promise(partition, start + len(values))

    def _write(self, partition: int, rows: Rows) -> None:
        count = len(rows)
        self._writer.write_events(
            Released(
                partition,
                np.full(count, partition, dtype=np.int32),
                rows.position,
                rows.system_us,
                rows.system_us,
                rows.system_us,
                np.zeros(count, dtype=np.int64),
                np.zeros(count, dtype=np.uint16),
                rows.key,
                rows.value,
            )
        )
        self._producer.flush(self.name)

    def _promise(self, partition: int, end: int, *, is_final: bool = False) -> None:
        c, largest_us = INFINITY if is_final else 1_000_000 * end, 1_000_000 * max(end - 1, 1)
        roster = Roster(1, self.partitions, Spread.ONE, False)
        self._writer.write_ctis([Cti(partition, partition, c, end, 0, 0, 0, largest_us, roster, Cause.EVENT)])
        self._producer.flush(self.name)
