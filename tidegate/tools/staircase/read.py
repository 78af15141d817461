"""
The newest stretch of an ordered topic as a picture needs it: its events, and the steps of each input partition's promise.

Law: events and promises are those of the topic; the promise of an input partition rises where all its channels have. Events are thinned
evenly to a bound, steps never. A replay may be one batch with one promise at its end: then the steps are those that the policies give the
partition's events, without those that were dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints
from ordering.model.watermark import watermark_of
from ordering.policies import Policies
from ordering.protocol.punctuation import Cause, Cti
from ordering.protocol.wire import Flag
from ordering.ticks import INFINITY, NEVER
from tidegate.ordered_topic.decode import OrderedPiece, decode
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader

# How many of the newest records are looked at, and how many events and CTIs a picture shows.
RECORDS_MAX, EVENTS_MAX, CTIS_MAX = 50_000, 2_000, 400
# A page may stand open for days beside jobs: reading ahead would cost it more than what it keeps.
PREFETCH_BYTES = 2 * 2**20
MOVED = Flag.EARLY | Flag.LATE | Flag.OUT_OF_ORDER | Flag.CTI_VIOLATION


class ShownCti(NamedTuple):
    """A CTI of a picture, ordered by its arrival frontier."""

    arrival_us: int
    promise_us: int
    # The roster number of its input partition.
    number: int
    cause: str


@dataclass(frozen=True, slots=True)
class Staircase:
    """Events as columns, thinned, and by roster number the steps of each input partition. Times are microseconds."""

    topic: str
    arrival_us: Ints
    event_us: Ints
    system_us: Ints
    flags: Ints
    # How many events were looked at.
    events: int
    # (arrival frontier, promise) of each rise.
    steps: Mapping[int, list[tuple[int, int]]] = field(default_factory=dict)
    # The roster number of each event's input partition, and its place there.
    number: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    offset: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    # CTIs, thinned.
    ctis: list[ShownCti] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of an ordered topic: the headers of its events (``EVENT_HEADER``), the hashes of their keys, and its CTIs."""

    tables: Sequence[NDArray[Any]]
    ctis: Sequence[Cti]
    key_hashes: Sequence[NDArray[np.uint64]] = ()

    @classmethod
    def of(cls, piece: OrderedPiece) -> Stretch:
        ctis = [cti for _, cti in piece.ctis]
        if not len(piece.events):
            return cls([], ctis)
        # A copy: the records' keys and values are let go.
        return cls([piece.events.fields.copy()], ctis, [hash_keys(piece.events.key)])


def hash_keys(keys: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of each key, 0 for none: enough to find those of one substream again, without keeping the keys."""
    found = keys.dictionary_encode()
    hashes = np.array([hash_key(key) for key in found.dictionary.to_pylist()] or [0], dtype=np.uint64)
    return np.where(found.indices.is_valid().to_numpy(False), hashes[found.indices.fill_null(0).to_numpy(False)], np.uint64(0))


def hash_key(key: bytes) -> int:
    """Return the hash of one key."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Section:
    """
    What of a stretch is shown: arrivals in [from_us, until_us), of one input partition or, with None, of all; of events with the *key*, or,
    with None, of all.
    """

    from_us: int = NEVER
    until_us: int = INFINITY
    number: int | None = None
    key: bytes | None = None


WHOLE = Section()


def read_staircase(
    admin: Admin, kafka: Mapping[str, str], topic: Topic, policies: Policies | None = None, over: bool = False, shown: Section = WHOLE
) -> Staircase:
    """Return the newest stretch of an ordered topic; *policies* are those of its input, *over* says whether that has substreams."""
    starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions)
    share = max(RECORDS_MAX // topic.partitions, 1)
    stretches = [
        stretch
        for place in topic.all_partitions
        for stretch, _ in read_stretches(kafka, place, max(starts[place], ends[place] - share), ends[place])
    ]
    return make_staircase(topic.name, stretches, policies, over, shown)


def read_stretches(kafka: Mapping[str, str], place: tuple[str, int], start: int, end: int) -> list[tuple[Stretch, int]]:
    """Return a range of a partition of an ordered topic in stretches, each with how many offsets it covers."""
    found = []
    with RangeReader(kafka, *place, headers=True, prefetch_bytes=PREFETCH_BYTES) as reader:
        for records in reader.read(start, end):
            piece = decode(records, *place)
            found.append((Stretch.of(piece), len(records)))
    return found


def make_staircase(
    topic: str, stretches: Iterable[Stretch], policies: Policies | None = None, over: bool = False, shown: Section = WHOLE
) -> Staircase:
    """Return the staircase in stretches of a topic; only what *shown* names is thinned, so a narrow section has more detail."""
    stretches = list(stretches)
    tables = [table for stretch in stretches for table in stretch.tables]
    columns = {name: np.concatenate([table[name] for table in tables]) if tables else np.empty(0, dtype=np.int64) for name in _SHOWN}
    ctis = [cti for stretch in stretches for cti in stretch.ctis]
    steps = find_steps(ctis)
    is_own = np.ones(len(columns["number"]), dtype=bool)
    if shown.key is not None:
        hashes = [each for stretch in stretches for each in stretch.key_hashes]
        is_own = np.concatenate(hashes) == np.uint64(hash_key(shown.key)) if hashes else np.empty(0, dtype=bool)
    if policies is not None:
        if shown.key is not None and over:
            steps = _substream_steps(columns, is_own, policies)
        for number in np.unique(columns["number"]).tolist() if shown.key is None or not over else ():
            if len(steps.get(number, ())) < 2:
                own = columns["number"] == number
                steps[number] = compute_steps(columns["arrival_us"][own], columns["system_us"][own], policies, over)
    inside = (columns["arrival_us"] >= shown.from_us) & (columns["arrival_us"] < shown.until_us)
    inside &= is_own
    if shown.number is not None:
        inside &= columns["number"] == shown.number
    rows = np.flatnonzero(inside)
    count = len(rows)
    # The same event may stand there twice, after a writer that failed: a dot on a dot.
    chosen = np.linspace(0, count - 1, min(count, EVENTS_MAX)).round().astype(np.int64) if count else np.empty(0, dtype=np.int64)
    order = rows[np.argsort(columns["arrival_us"][rows], kind="stable")[chosen]]
    arrival, event, system, flags, numbers, offsets = (columns[name][order].astype(np.int64) for name in _SHOWN)
    return Staircase(
        topic,
        arrival,
        event,
        system,
        flags,
        count,
        {number: _clip(rises, shown) for number, rises in sorted(steps.items()) if shown.number in (None, number)},
        numbers,
        offsets,
        _thin_ctis(ctis, shown),
    )


def _substream_steps(columns: Mapping[str, Ints], is_own: NDArray[np.bool_], policies: Policies) -> dict[int, list[tuple[int, int]]]:
    """Return the rises of the watermark of one substream, by the partitions in which it occurs: all arrivals there raise its floor."""
    steps = {}
    for number in np.unique(columns["number"][is_own]).tolist():
        rows = columns["number"] == number
        system = np.where(is_own[rows], columns["system_us"][rows], NEVER)
        steps[number] = compute_steps(columns["arrival_us"][rows], system, policies, over=False)
    return steps


def _clip(rises: list[tuple[int, int]], shown: Section) -> list[tuple[int, int]]:
    """Return the rises within a section; the promise that holds at its beginning is a rise there."""
    before = [promise for arrival, promise in rises if arrival < shown.from_us]
    inside = [rise for rise in rises if shown.from_us <= rise[0] < shown.until_us]
    return [(shown.from_us, before[-1]), *inside] if before else inside


def _thin_ctis(ctis: Sequence[Cti], shown: Section) -> list[ShownCti]:
    """Return CTIs of a section, one of those that each input partition wrote at the same time into several output partitions."""
    first_us = max(shown.from_us, NEVER + 1)
    inside = (cti for cti in ctis if NEVER < cti.c < INFINITY and first_us <= cti.arrival_us < shown.until_us)
    ordered = sorted({ShownCti(cti.arrival_us, cti.c, cti.number, cti.cause.value) for cti in inside if shown.number in (None, cti.number)})
    # An estimate is rare, and is what one looks for: all of them stay, up to the bound.
    estimates = [cti for cti in ordered if cti.cause == Cause.IDLE.value][-CTIS_MAX:]
    others = [cti for cti in ordered if cti.cause != Cause.IDLE.value]
    return sorted(estimates + others[:: max(-(-len(others) // CTIS_MAX), 1)])


_SHOWN = ("arrival_us", "event_time_us", "system_us", "flags", "number", "offset")


def compute_steps(arrival_us: Ints, system_us: Ints, policies: Policies, over: bool) -> list[tuple[int, int]]:
    """Return the rises of a partition's watermark, with substreams of its floor, that its events give."""
    order = np.argsort(arrival_us, kind="stable")
    arrival, system = arrival_us[order].astype(np.int64), system_us[order].astype(np.int64)
    floor = np.full(len(arrival), NEVER) if policies.late_us is None else arrival - policies.late_us
    watermark = floor if over else watermark_of(np.maximum.accumulate(system), policies.reorder_us, floor)
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
