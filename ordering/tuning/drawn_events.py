"""
Events with the disorder of others, drawn: as late, as often out of order, after the same silences, with as many ties and repetitions.

Law: the events depend on the disorder, the count, the rate and the seed alone. Measured again, some thousand events have the shares that
were asked for, to one percent point (out of order: three), and each of their quantiles at a share at most two percent points off (of a key:
five), but for a step of event times. How far events lie behind the newest follows from the rest. Not kept are how silences follow each
other, and which keys take turns.

A lateness is correlated with the one before it in its timeline, as strongly as gives the share of events out of order that is asked for.
Independent ones give the most; if even more is asked for, they are taken.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ordering.arrays import Ints, Mask
from ordering.ticks import SECOND_US
from ordering.tuning.disorder import Disorder, behind_newest, count_ties
from ordering.tuning.quantiles import Floats, Quantiles

_TRIED_MAX = 20_000
_HALVINGS = 14
_REPETITIONS_TRIED = 8
# The correlation that is tried is one less ten to the minus this, at most.
_NINES_MAX = 7.0


@dataclass(frozen=True, slots=True)
class DrawnEvents:
    """Records in the order of their arrival."""

    # Microseconds since the first arrival.
    arrival_us: Ints
    # Event times, microseconds since then; those of events that happened before are negative.
    event_us: Ints
    # The number of each event; a repetition has that of its event.
    number: Ints
    # The number of each record's key in *key_names*; all 0 if there are none.
    key: Ints
    partition: Ints
    # False for records without event time.
    is_event: Mask
    key_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.arrival_us)


def draw_like(disorder: Disorder, count: int, seed: int = 0, rate_per_s: float | None = None) -> DrawnEvents:
    """
    Draw *count* records with a disorder.

    Args:
        rate_per_s: How many come in a second on average: silences are stretched or shortened, latenesses are not. None: as measured.
    """
    # Of numpy's generators the one whose numbers no version changes.
    chance = np.random.RandomState(seed)
    arrival_us = _draw_arrivals(chance, disorder.gaps, count, rate_per_s)
    places = chance.permutation(np.arange(1, count))
    bad = places[: round(disorder.unreadable * count)]
    repeated, after_us = _draw_repetitions(chance, disorder, arrival_us, places[len(bad) :])
    is_event, is_first = np.ones(count, dtype=np.bool_), np.ones(count, dtype=np.bool_)
    is_event[bad] = False
    is_first[repeated] = False
    is_first &= is_event
    keys = _draw_keys(chance, disorder, int(is_first.sum()))
    partition_of_key = np.array([zlib.crc32(name.encode()) % max(disorder.partitions, 1) for name in keys.names], dtype=np.int64)
    first_partition = (
        partition_of_key[keys.of_events] if disorder.keys else chance.permutation(len(keys.of_events)) % max(disorder.partitions, 1)
    )
    timeline = keys.of_events if disorder.keys else first_partition
    event_us = np.zeros(count, dtype=np.int64)
    event_us[is_first] = _draw_times(chance, disorder, keys.lateness, arrival_us[is_first], keys.of_events, timeline)
    key, partition, number = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.arange(count)
    key[is_first], partition[is_first] = keys.of_events, first_partition
    firsts = np.flatnonzero(is_first)
    if len(firsts) and len(repeated):
        originals = firsts[np.minimum(_nearest(arrival_us[firsts], arrival_us[repeated] - after_us), np.searchsorted(firsts, repeated) - 1)]
        for column in (event_us, key, partition, number):
            column[repeated] = column[originals]
    return DrawnEvents(arrival_us, event_us, number, key, partition, is_event, keys.names)


def _spread(chance: np.random.RandomState, count: int) -> Floats:
    """Return evenly spaced shares in a random order: a sample without the error of one."""
    shares: Floats = (chance.permutation(count) + 0.5) / max(count, 1)
    return shares


def _draw_repetitions(chance: np.random.RandomState, disorder: Disorder, arrival_us: Ints, free: Ints) -> tuple[Ints, Ints]:
    """Return which of the *free* records repeat others, and how long after these: of several, those that find a record at that time."""
    count = min(round(disorder.duplicates * len(arrival_us)), len(free))
    after_us = disorder.repeated_after.at(_spread(chance, count))
    if not count:
        return free[:0], after_us
    tries = min(_REPETITIONS_TRIED, len(free) // count)
    places = free[: tries * count].reshape(tries, count)
    wanted_us = arrival_us[places] - after_us
    earlier = np.minimum(_nearest(arrival_us, wanted_us.ravel()).reshape(places.shape), places - 1)
    best = np.argmin(np.abs(arrival_us[earlier] - wanted_us), axis=0)
    chosen = places[best, np.arange(count)]
    order = np.argsort(chosen)
    return chosen[order], after_us[order]


def _nearest(times_us: Ints, wanted_us: Ints) -> Ints:
    """Return the place of the time nearest to each one that is wanted; *times_us* never fall."""
    after = np.minimum(np.searchsorted(times_us, wanted_us), len(times_us) - 1)
    before = np.maximum(after - 1, 0)
    found: Ints = np.where(wanted_us - times_us[before] <= times_us[after] - wanted_us, before, after)
    return found


def _draw_arrivals(chance: np.random.RandomState, gaps: Quantiles, count: int, rate_per_s: float | None) -> Ints:
    drawn_us = gaps.at(_spread(chance, max(count - 1, 0))).astype(np.float64)
    if rate_per_s is not None and (total_us := float(drawn_us.sum())) > 0:
        drawn_us *= len(drawn_us) / rate_per_s * SECOND_US / total_us
    elif rate_per_s is not None:
        drawn_us[:] = SECOND_US / rate_per_s
    arrivals: Ints = np.rint(np.concatenate([np.zeros(min(count, 1)), np.cumsum(drawn_us)])).astype(np.int64)
    return arrivals


class _DrawnKeys(NamedTuple):
    """The names of keys, how late the events of each are, and the number of each event's key."""

    names: tuple[str, ...]
    lateness: list[Quantiles]
    of_events: Ints


def _draw_keys(chance: np.random.RandomState, disorder: Disorder, count: int) -> _DrawnKeys:
    if not disorder.keys:
        return _DrawnKeys(("",), [disorder.lateness], np.zeros(count, dtype=np.int64))
    names, quantiles, shares = list[str](), list[Quantiles](), list[float]()
    known = {key.name for key in disorder.keys if key.name}
    for key in disorder.keys:
        own = [key.name] if key.name else [f"other{number}" for number in range(key.keys + len(known)) if f"other{number}" not in known]
        for name in own[: key.keys]:
            names.append(name)
            quantiles.append(key.lateness)
            shares.append(key.share / key.keys)
    bounds = np.rint(np.cumsum(np.array(shares) / sum(shares)) * count).astype(np.int64)
    numbers = np.searchsorted(bounds, np.arange(count), side="right")
    return _DrawnKeys(tuple(names), quantiles, chance.permutation(numbers))


def _draw_times(
    chance: np.random.RandomState, disorder: Disorder, quantiles: list[Quantiles], arrival_us: Ints, key: Ints, timeline: Ints
) -> Ints:
    normal = chance.standard_normal(len(arrival_us))
    tried = slice(0, _TRIED_MAX)

    def out_of_order(correlation: float) -> float:
        event_us = _times(disorder, quantiles, normal[tried], arrival_us[tried], key[tried], timeline[tried], correlation)
        return float(np.count_nonzero(behind_newest(event_us, timeline[tried]))) / max(len(event_us), 1)

    low, high = 0.0, _NINES_MAX
    if out_of_order(0.0) <= disorder.out_of_order:
        high = 0.0
    for _ in range(_HALVINGS if high else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if out_of_order(1 - 10**-middle) > disorder.out_of_order else (low, middle)
    event_us = _times(disorder, quantiles, normal, arrival_us, key, timeline, 1 - 10**-high)
    return _tie(event_us, timeline, round(disorder.ties * len(event_us)))


def _times(
    disorder: Disorder, quantiles: list[Quantiles], normal: Floats, arrival_us: Ints, key: Ints, timeline: Ints, correlation: float
) -> Ints:
    """Return event times whose latenesses are correlated, in the timelines, and spread as those of each key."""
    order = np.argsort(timeline, kind="stable")
    chained = normal.copy()
    if correlation > 0:
        starts = np.concatenate([[True], np.diff(timeline[order]) != 0]) if len(order) else np.empty(0, dtype=np.bool_)
        rest, before, column = (1 - correlation**2) ** 0.5, 0.0, []
        for value, is_start in zip(normal[order].tolist(), starts.tolist(), strict=True):
            before = value if is_start else correlation * before + rest * value
            column.append(before)
        chained[order] = column
    event_us = arrival_us.copy()
    by_key = np.lexsort((chained, key))
    edges = np.searchsorted(key[by_key], np.arange(len(quantiles) + 1))
    for number, spread in enumerate(quantiles):
        rows = by_key[edges[number] : edges[number + 1]]
        event_us[rows] -= spread.at((np.arange(len(rows)) + 0.5) / max(len(rows), 1))
    unit = disorder.resolution_us
    stepped = (event_us + unit // 2) // unit * unit
    # A step must not bring an event ahead of where any was.
    return np.where(arrival_us - stepped < disorder.lateness.least_us, stepped - unit, stepped)


def _tie(event_us: Ints, timeline: Ints, wanted: int) -> Ints:
    """Give as many events the time of the one before them in time as are wanted, those that move least."""
    missing = wanted - count_ties(event_us, timeline)
    if missing <= 0:
        return event_us
    order = np.lexsort((event_us, timeline))
    times_us = event_us[order]
    distance_us = np.where(np.diff(timeline[order]) == 0, np.diff(times_us), np.iinfo(np.int64).max)
    candidates = np.flatnonzero((distance_us > 0) & (distance_us < np.iinfo(np.int64).max))
    chosen = candidates[np.argsort(distance_us[candidates], kind="stable")[:missing]] + 1
    is_tied = np.zeros(len(order), dtype=np.bool_)
    is_tied[chosen] = True
    # An event at the time of the one before it stays with it.
    is_tied[1:] |= distance_us == 0
    tied = event_us.copy()
    tied[order] = times_us[np.maximum.accumulate(np.where(is_tied, 0, np.arange(len(order))))]
    return tied
