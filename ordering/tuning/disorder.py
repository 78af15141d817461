"""
The disorder of recorded events: how late they come, how far behind, after what silence, how often at one time, and how often twice.

Law: a disorder depends on the recording alone. A record that repeats the content of an earlier one counts as a repetition, not as a late
event: its lateness, ties and order are not measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ordering.arrays import Ints, Mask
from ordering.columns.segments import running_max
from ordering.ticks import HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US
from ordering.tuning.quantiles import Quantiles
from ordering.tuning.recording import Recording

KEYS_MAX = 12
"""So many keys, those with most events, are measured by themselves; the others together."""
_STEPS_OF_KEY = 20
_RESOLUTIONS_US = (HOUR_US, MINUTE_US, SECOND_US, MILLISECOND_US, 1)


@dataclass(frozen=True, slots=True)
class KeyDisorder:
    """The events of a key, or of several together: their share of all, and how late they come."""

    name: str
    share: float
    lateness: Quantiles
    keys: int = 1


@dataclass(frozen=True, slots=True)
class Disorder:
    """The disorder of an input. Shares of events leave repetitions out."""

    # How many records were measured, of *partitions* partitions.
    records: int
    partitions: int
    # Event times are whole multiples of this, microseconds.
    resolution_us: int
    # The share of records that are no events.
    unreadable: float
    # The share of records that repeat an earlier one.
    duplicates: float
    # The share of events at the time of an earlier one in their timeline.
    ties: float
    # The share of events below the newest one before them in their timeline.
    out_of_order: float
    # From the arrival of each record to the next one.
    gaps: Quantiles
    # From event time to arrival.
    lateness: Quantiles
    # How far the events that are out of order lie behind the newest one.
    behind: Quantiles
    # From the arrival of a record to that of its repetition.
    repeated_after: Quantiles
    # The keys with most events, then all others together; none if the input has no substreams.
    keys: tuple[KeyDisorder, ...] = ()

    @property
    def key_count(self) -> int:
        return sum(key.keys for key in self.keys)


def measure(recording: Recording, content: Ints, key_names: Sequence[str] = ()) -> Disorder:
    """
    Measure a recording.

    Args:
        content: A number for the content of each record, the same for equal contents; in the order of the recording.
        key_names: The name of each substream by its number; none if the input has no substreams.
    """
    count, is_event = len(recording), recording.readable
    is_repeated, after_us = _repetitions(recording, content)
    is_first = is_event & ~is_repeated
    event_us, arrival_us, timeline = recording.event_us[is_first], recording.arrival_us[is_first], recording.timeline[is_first]
    events, late_us = max(len(event_us), 1), arrival_us - event_us
    behind_us = behind_newest(event_us, timeline)
    gaps_us: Ints = np.diff(np.sort(recording.arrival_us)).astype(np.int64)
    return Disorder(
        records=count,
        partitions=recording.partitions,
        resolution_us=next(us for us in _RESOLUTIONS_US if not np.any(event_us % us)) if len(event_us) else 1,
        unreadable=1 - float(is_event.sum()) / max(count, 1),
        duplicates=float(is_repeated.sum()) / max(count, 1),
        ties=count_ties(event_us, timeline) / events,
        out_of_order=float(np.count_nonzero(behind_us)) / events,
        gaps=Quantiles.of(gaps_us),
        lateness=Quantiles.of(late_us),
        behind=Quantiles.of(behind_us[behind_us > 0]),
        repeated_after=Quantiles.of(after_us),
        keys=_by_key(recording.key[is_first], late_us, key_names) if recording.key is not None else (),
    )


def behind_newest(event_us: Ints, timeline: Ints) -> Ints:
    """Return how far each event lies behind the newest one before it in its timeline, microseconds; 0 for one that is the newest."""
    order = np.argsort(timeline, kind="stable")
    behind_us = np.empty(len(event_us), dtype=np.int64)
    behind_us[order] = running_max(event_us[order], timeline[order]) - event_us[order]
    return behind_us


def count_ties(event_us: Ints, timeline: Ints) -> int:
    """Return how many events have the time of another one of their timeline that is counted already."""
    order = np.lexsort((event_us, timeline))
    return int(np.count_nonzero((np.diff(event_us[order]) == 0) & (np.diff(timeline[order]) == 0)))


def _repetitions(recording: Recording, content: Ints) -> tuple[Mask, Ints]:
    """Return which records repeat an earlier one, and how long after the first of these, microseconds."""
    is_repeated = np.zeros(len(recording), dtype=np.bool_)
    rows = np.flatnonzero(recording.readable)
    order = rows[np.lexsort((recording.arrival_us[rows], content[rows], recording.event_us[rows]))]
    is_same = (np.diff(content[order]) == 0) & (np.diff(recording.event_us[order]) == 0)
    is_repeated[order[1:]] = is_same
    starts = np.concatenate([np.zeros(min(len(order), 1), dtype=np.int64), np.where(is_same, 0, np.arange(1, len(order)))])
    first = order[np.maximum.accumulate(starts)]
    after_us = (recording.arrival_us[order] - recording.arrival_us[first])[1:][is_same]
    return is_repeated, after_us


def _by_key(key: Ints, late_us: Ints, names: Sequence[str]) -> tuple[KeyDisorder, ...]:
    counts = np.bincount(key, minlength=len(names))
    by_count = np.lexsort((np.arange(len(counts)), -counts))
    by_count = by_count[counts[by_count] > 0]
    order = np.argsort(key, kind="stable")
    starts = np.searchsorted(key[order], np.arange(len(counts) + 1))
    found = []
    for number in by_count[:KEYS_MAX].tolist():
        of_key_us = late_us[order[starts[number] : starts[number + 1]]]
        found.append(KeyDisorder(names[number], len(of_key_us) / len(key), Quantiles.of(of_key_us, _STEPS_OF_KEY)))
    if len(others := by_count[KEYS_MAX:]):
        others_us = late_us[np.isin(key, others)]
        found.append(KeyDisorder("", len(others_us) / len(key), Quantiles.of(others_us, _STEPS_OF_KEY), len(others)))
    return tuple(found)
