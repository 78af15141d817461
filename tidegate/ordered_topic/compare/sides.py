"""Chooses the records of a topic to compare: all of them, or those from an instant on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti
from ordering.ticks import INFINITY, MILLISECOND_US, NEVER, format_tick
from tidegate.ordered_topic.decode import decode_ctis
from tidegate.ordered_topic.tails import TAIL_RECORDS
from tidegate.ordered_topic.walk import TopicRange
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Framed


@dataclass(frozen=True, slots=True)
class Side(TopicRange):
    """What is compared of one of the two topics, ``label`` A or B; with *framed* headers are compared too."""

    label: str = field(kw_only=True)
    # Whether retention has deleted the beginning of a partition.
    is_trimmed: bool = field(default=False, kw_only=True)
    # Whether the seq of an event may differ from that in the other topic, because one was begun in the middle.
    has_own_numbers: bool = field(default=False, kw_only=True)


def make_side(label: str, admin: Admin, properties: Mapping[str, str], topic: Topic, start_us: int | None, framed: Framed = ()) -> Side:
    """
    Return a topic to be compared from *start_us* on (None: all of it), with the headers that *framed* names. Raises RefusedError
    (TG-RETENTION): all of it is wanted, and retention has deleted its beginning.
    """
    partitions = topic.all_partitions
    starts, ends = admin.starts(partitions), admin.ends(partitions)
    trimmed_places = [f"{topic.name}-{number}@{starts[topic.name, number]}" for _, number in partitions if starts[topic.name, number]]
    if trimmed_places and start_us is None:
        what = f"retention has deleted the beginning of {topic.name}"
        fix = "compare from a time on that is still there"
        raise RefusedError(what, code="TG-RETENTION", where=", ".join(trimmed_places), fix=fix, example="--from 2001-01-02T00:00:00Z")
    # A trimmed topic is read from its first record on: its CTIs must prove that no needed event was deleted.
    if start_us is not None and not trimmed_places:
        first_offsets = admin.offsets_from(partitions, start_us)
        # The last CTI of a channel may be before the first event to compare.
        starts = {partition: min(first_offsets[partition], max(ends[partition] - TAIL_RECORDS, 0)) for partition in partitions}
    first, end = (tuple(offsets[partition] for partition in partitions) for offsets in (starts, ends))
    is_trimmed = bool(trimmed_places)
    return Side(topic.name, properties, topic.partitions, first, end, start_us, framed, label=label, is_trimmed=is_trimmed)


def complete_from_us(admin: Admin, properties: Mapping[str, str], topic: Topic) -> int:
    """
    Return an instant, microseconds, from which on a topic still has all events, by the first CTIs that are left. ``NEVER``: retention has
    deleted nothing. ``INFINITY``: no CTI shows such an instant.
    """
    partitions = topic.all_partitions
    starts, ends = admin.starts(partitions), admin.ends(partitions)
    trimmed = [partition for partition in partitions if starts[partition]]
    # Kafka finds records by whole milliseconds.
    instants_us = [
        _largest_deleted_us(properties, *partition, topic.partitions, starts[partition], ends[partition]) + MILLISECOND_US
        for partition in trimmed
    ]
    return min(max(instants_us, default=NEVER), INFINITY)


def _largest_deleted_us(properties: Mapping[str, str], topic: str, number: int, partitions: int, start: int, end: int) -> int:
    """Return a system timestamp that no deleted event of a partition exceeds: that of the first CTI of each channel."""
    first_ctis: dict[int, Cti] = {}
    with RangeReader(properties, topic, number, headers=True) as reader:
        for records in reader.read(start, end):
            for _, cti, _ in decode_ctis(records, topic, number):
                first_ctis.setdefault(cti.number, cti)
                if first_ctis.keys() >= set(cti.roster.channels_of(number, partitions)):
                    return max(cti.largest_us for cti in first_ctis.values())
    return INFINITY - MILLISECOND_US


def describe_since(us: int | None) -> str | None:
    """Return from which instant on something holds, in words; None: not known, ``NEVER``: of all."""
    return None if us is None else "the beginning" if us == NEVER else format_tick(us)
