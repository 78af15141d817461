"""
The newest stretch of an ordered topic as a picture needs it: its events, and the steps of each input partition's promise.

Law: events and promises are those of the topic; the promise of an input partition rises where all its channels have. Events are thinned
evenly to a bound, steps never. A replay may be one batch with one promise at its end: then the steps are those that the policies give the
partition's events, without those that were dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ordering.arrays import Ints
from ordering.policies import Policies
from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import Flag
from ordering.ticks import INFINITY, NEVER
from tidegate.ordered_topic.decode import OrderedPiece, decode
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader

# How many of the newest records are looked at, and how many events a picture shows.
RECORDS_MAX, EVENTS_MAX = 50_000, 2_000
MOVED = Flag.EARLY | Flag.LATE | Flag.OUT_OF_ORDER | Flag.CTI_VIOLATION


@dataclass(frozen=True, slots=True)
class Staircase:
    """
    Events as columns, thinned, and by roster number the steps of each input partition. Times are microseconds.

    Attributes:
        steps: (arrival frontier, promise) of each rise.
        events: How many events were looked at.
    """

    topic: str
    arrival_us: Ints
    event_us: Ints
    system_us: Ints
    flags: Ints
    events: int
    steps: Mapping[int, list[tuple[int, int]]] = field(default_factory=dict)


def read_staircase(admin: Admin, kafka: Mapping[str, str], topic: Topic, policies: Policies | None = None, over: bool = False) -> Staircase:
    """Return the newest stretch of an ordered topic; *policies* are those of its input, *over* says whether that has substreams."""
    starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions)
    share = max(RECORDS_MAX // topic.partitions, 1)
    pieces = []
    for place in topic.all_partitions:
        with RangeReader(kafka, *place, headers=True) as reader:
            pieces += [decode(records, *place) for records in reader.read(max(starts[place], ends[place] - share), ends[place])]
    return make_staircase(topic.name, pieces, policies, over)


def make_staircase(topic: str, pieces: list[OrderedPiece], policies: Policies | None = None, over: bool = False) -> Staircase:
    """Return the staircase in decoded pieces of a topic."""
    tables = [piece.events.fields for piece in pieces if len(piece.events)]
    columns = {name: np.concatenate([table[name] for table in tables]) if tables else np.empty(0) for name in _NAMES}
    count = len(columns["seq"])
    # The same event may stand there twice, after a writer that failed: a dot on a dot.
    chosen = np.linspace(0, count - 1, min(count, EVENTS_MAX)).round().astype(np.int64) if count else np.empty(0, dtype=np.int64)
    order = np.argsort(columns["arrival_us"], kind="stable")[chosen]
    arrival, event, system, flags = (columns[name][order].astype(np.int64) for name in _NAMES[2:])
    steps = find_steps([cti for piece in pieces for _, cti in piece.ctis])
    if policies is not None:
        for number in np.unique(columns["number"]).tolist():
            if len(steps.get(number, ())) < 2:
                own = columns["number"] == number
                steps[number] = compute_steps(columns["arrival_us"][own], columns["system_us"][own], policies, over)
    return Staircase(topic, arrival, event, system, flags, count, dict(sorted(steps.items())))


_NAMES = ("seq", "number", "arrival_us", "event_time_us", "system_us", "flags")


def compute_steps(arrival_us: Ints, system_us: Ints, policies: Policies, over: bool) -> list[tuple[int, int]]:
    """Return the rises of a partition's watermark, with substreams of its floor, that its events give."""
    order = np.argsort(arrival_us, kind="stable")
    arrival, system = arrival_us[order].astype(np.int64), system_us[order].astype(np.int64)
    floor = np.full(len(arrival), NEVER) if policies.late_us is None else arrival - policies.late_us
    watermark = floor if over else np.maximum(floor, np.maximum.accumulate(system) - policies.reorder_us)
    rises = np.flatnonzero(np.diff(watermark, prepend=NEVER) > 0)
    return list(zip(arrival[rises].tolist(), watermark[rises].tolist(), strict=True))


def find_steps(ctis: list[Cti]) -> dict[int, list[tuple[int, int]]]:
    """Return the rises of each input partition's promise: the least one of its channels, of those that are seen."""
    by_number: dict[int, list[Cti]] = {}
    for cti in ctis:
        if NEVER < cti.c < INFINITY and cti.arrival_us > NEVER:
            by_number.setdefault(cti.number, []).append(cti)
    steps: dict[int, list[tuple[int, int]]] = {}
    for number, own in sorted(by_number.items()):
        channels = {cti.output_partition for cti in own}
        promises: dict[int, int] = {}
        rises = steps.setdefault(number, [])
        for cti in sorted(own, key=lambda cti: (cti.arrival_us, cti.c)):
            promises[cti.output_partition] = max(promises.get(cti.output_partition, NEVER), cti.c)
            least = min(promises.values())
            if len(promises) == len(channels) and (not rises or least > rises[-1][1]):
                rises.append((cti.arrival_us, least))
    return steps
