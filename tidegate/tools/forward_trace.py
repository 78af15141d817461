"""
An event forward: its place and number in the ordered topic, and the windows of the queries over it that it went into.

Law: what is returned stands in the topic, or follows from the script. The event is searched from the least time on that the policies can
have given it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ingest.commands.journal import plan_for_journal
from ordering.ticks import MILLISECOND_US, format_tick
from query.output_plan import find_plan, window_of
from tidegate.ordered_topic.decode import decode
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.settings.load import Settings

# Of more windows the first and the last are named.
_WINDOWS_MAX = 6


@dataclass(frozen=True, slots=True)
class Windows:
    """The results of an output that an event went into: the ends of its windows, or none if the query has no such windows."""

    output: str
    ends_us: tuple[int, ...]

    @property
    def in_words(self) -> str:
        if not self.ends_us:
            return f"{self.output} reads it"
        ends = [format_tick(us) for us in self.ends_us]
        shown = ends if len(ends) <= _WINDOWS_MAX else [*ends[:2], "...", ends[-1]]
        return f"{self.output}: the window{'s' if len(ends) > 1 else ''} ending at {', '.join(shown)}"


@dataclass(frozen=True, slots=True)
class ForwardTrace:
    """Where an event went: its place and seq in the ordered topic, its system timestamp, and the windows of queries."""

    place: str
    channel: int
    seq: int
    system_us: int
    windows: tuple[Windows, ...]

    def to_json(self) -> dict[str, Any]:
        members = {"place": self.place, "channel": self.channel, "seq": self.seq, "system_timestamp": format_tick(self.system_us)}
        outputs = [{"output": each.output, "window_ends": [format_tick(us) for us in each.ends_us]} for each in self.windows]
        return {**members, "outputs": outputs}

    def lines(self) -> Iterator[str]:
        """Yield the trace in words."""
        yield f"It is {self.place}, seq {self.seq:,} of channel {self.channel}, at {format_tick(self.system_us)}."
        yield from (f"  {each.in_words}" for each in self.windows)


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
                    system_us = int(events.system_us[row])
                    windows = tuple(_windows_of(settings, admin, folder, name, system_us))
                    found = f"{topic}-{output}@{int(events.log_offset[row])}"
                    return ForwardTrace(found, number, int(events.seq[row]), system_us, windows)
    return None


def _stamp_ms(kafka: Any, partition: tuple[str, int], offset: int) -> int:
    with RangeReader(kafka, *partition) as reader:
        for records in reader.read(offset, offset + 1):
            if len(records):
                return int(records.timestamp_ms[0])
    return -1


def _windows_of(settings: Settings, admin: Admin, folder: Path, name: str, system_us: int) -> Iterator[Windows]:
    for output, table in settings.outputs.items():
        topic = table.topic or output
        plan = find_plan(settings, table, folder, partial(admin.find, topic))
        if plan is None or name not in plan.inputs:
            continue
        ends: tuple[int, ...] = ()
        if (window := window_of(plan)) is not None:
            at = np.array([system_us], dtype=np.int64)
            first, last = int(window.first_end(at)[0]), int(window.last_end(at)[0])
            ends = tuple(range(first, last + 1, window.hop_us))
        yield Windows(output, ends)
