"""
An event forward: its place and number in the ordered topic, and the windows and results that it went into.

Law: what is returned stands in the topics, or follows from the scripts. The event is searched from the least time on that the policies can
have given it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.commands.journal import plan_for_journal
from ordering.ticks import MILLISECOND_US, format_tick
from query.trace.onward import OnwardOutput, OnwardTracer
from query.trace.rows import row_at
from tidegate.ordered_topic.decode import decode
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.settings.load import Settings


@dataclass(frozen=True, slots=True)
class ForwardTrace:
    """Where an event went: its place and seq in the ordered topic, its system timestamp, and the outputs that it went into."""

    place: str
    channel: int
    seq: int
    system_us: int
    outputs: tuple[OnwardOutput, ...]

    def to_json(self) -> dict[str, Any]:
        members = {"place": self.place, "channel": self.channel, "seq": self.seq, "system_timestamp": format_tick(self.system_us)}
        return {**members, "outputs": [each.to_json() for each in self.outputs]}

    def lines(self) -> Iterator[str]:
        """Yield the trace in words."""
        yield f"It is {self.place}, seq {self.seq:,} of channel {self.channel}, at {format_tick(self.system_us)}."
        for each in self.outputs:
            yield from each.lines("  ")


def trace_event(settings: Settings, admin: Admin, folder: Path, name: str, partition: tuple[str, int], place: int) -> ForwardTrace | None:
    """Return where the event at a place of a raw partition went; None: it is not in the ordered topic, or not yet."""
    table = settings.input(name)
    plan = plan_for_journal(settings, name, admin)
    number = plan.partitions.index(partition)
    ordered = admin.require(table.ordered_topic)
    kafka = settings.kafka.client_properties()
    starts, ends = admin.starts(ordered.all_partitions), admin.ends(ordered.all_partitions)
    late_us = table.policies().late_us
    stamp_ms = _stamp_ms(kafka, partition, table.places.offset_of(place))
    if late_us is not None and stamp_ms > 0 and table.arrival == "broker":
        # The least time that it can have: no event is lifted less far.
        first = admin.offsets_from(ordered.all_partitions, max(stamp_ms * MILLISECOND_US - late_us, 0))
        starts = {each: max(starts[each], first[each]) for each in starts}
    for topic, output in ordered.all_partitions:
        with RangeReader(kafka, topic, output, headers=True) as reader:
            for records in reader.read(starts[topic, output], ends[topic, output]):
                events = decode(records, topic, output).events
                rows = np.flatnonzero((events.number == number) & (events.fields["offset"] == place))
                if len(rows):
                    row = int(rows[0])
                    found = row_at(events, row, topic, output)
                    outputs = tuple(OnwardTracer(settings, admin, folder).follow(name, found))
                    return ForwardTrace(found.place, number, found.seq, found.system_us, outputs)
    return None


def _stamp_ms(kafka: Any, partition: tuple[str, int], offset: int) -> int:
    with RangeReader(kafka, *partition) as reader:
        for records in reader.read(offset, offset + 1):
            if len(records):
                return int(records.timestamp_ms[0])
    return -1
