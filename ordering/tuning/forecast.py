"""
What policies do to a recording, computed for all events at once.

Law: counts and held events equal those of the model (:mod:`ordering.model.step`) that walks the same records, for every setting of the
policies but a reorder of -1 tick. Source CTIs and imported CTIs are no part of a recording, so they are no part of a forecast.

The *watermark delay* is measured after each event: the arrival frontier minus the watermark of the event's timeline. It is the smaller of
``late`` and of the distance to the newest event of the timeline plus ``reorder``. A job is behind by the length of a batch as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.segments import first_above, running_max, stable_order
from ordering.errors import SettingError
from ordering.model.watermark import largest_at_release
from ordering.policies import Action, Policies
from ordering.ticks import SECOND_US, format_duration
from ordering.tuning.recording import Recording
from ordering.tuning.results import ResultChange

_ROOM = 2**62
_NOWHERE = 2**61


@dataclass(frozen=True, slots=True)
class Forecast:
    """
    What policies did. Times are microseconds. An event that is moved as late and as out of order counts in both, and once in ``touched``.
    """

    policies: Policies
    events: int
    early_dropped: int
    early_moved: int
    late_moved: int
    late_dropped: int
    out_of_order_moved: int
    out_of_order_dropped: int
    touched: int
    # The watermark delay that half, and 99 of 100 events, did not exceed; None: there was no watermark.
    delay_p50_us: int | None
    delay_p99_us: int | None
    # The most events held at once, summed over the input partitions.
    held_max: int
    held_bytes: int | None
    # What they change of windows, for each shape of these that was asked for.
    results: tuple[ResultChange, ...] = ()

    @property
    def dropped(self) -> int:
        return self.early_dropped + self.late_dropped + self.out_of_order_dropped

    @property
    def moved(self) -> int:
        """How many events have another time than their own: those touched, and not dropped."""
        return self.touched - self.dropped

    @property
    def touched_share(self) -> float:
        return self.touched / self.events if self.events else 0.0

    def to_json(self) -> dict[str, Any]:
        policies = self.policies
        return {
            "early": _duration(policies.early_us),
            "late": _duration(policies.late_us),
            "reorder": _duration(policies.reorder_us),
            "early_action": policies.early_action.value,
            "late_action": policies.late_action.value,
            "out_of_order_action": policies.out_of_order_action.value,
            "events": self.events,
            "moved": self.moved,
            "dropped": self.dropped,
            "touched_share": round(self.touched_share, 9),
            "by_policy": {
                "early": {"moved": self.early_moved, "dropped": self.early_dropped},
                "late": {"moved": self.late_moved, "dropped": self.late_dropped},
                "out_of_order": {"moved": self.out_of_order_moved, "dropped": self.out_of_order_dropped},
            },
            "watermark_delay_s": {"p50": _seconds(self.delay_p50_us), "p99": _seconds(self.delay_p99_us)},
            "held_max": self.held_max,
            "held_bytes": self.held_bytes,
            **({"results": [each.to_json() for each in self.results]} if self.results else {}),
        }


def _duration(us: int | None) -> str:
    return "off" if us is None else format_duration(us)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / SECOND_US


def quantiles(values: Ints, shares: Sequence[float]) -> list[int]:
    """Return for each share the least of *values* that at least so many of them do not exceed."""
    places = [min(max(int(np.ceil(share * len(values))) - 1, 0), len(values) - 1) for share in shares]
    parted = np.partition(values, sorted(set(places)))
    return [int(parted[place]) for place in places]


@dataclass(frozen=True, slots=True)
class Judged:
    """The events of a recording, timeline by timeline, under an early and a late policy; every reorder tolerance can be tried on them."""

    counts: dict[str, int]
    # Events dropped, and events moved, by the early and the late policy.
    rejected: Mask
    lifted: Mask
    # System timestamps after these policies.
    adjusted_us: Ints
    largest_us: Ints
    # How far each event lies behind the newest of its timeline before it; negative if it is the newest, or rejected.
    behind_us: Ints
    # After each event, how far the newest of its timeline lies behind its arrival; ``_NOWHERE`` if there is none.
    lag_us: Ints


class EventWalk:
    """The events of a recording, sorted by timeline once for all forecasts over it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        rows = np.flatnonzero(recording.readable)
        timeline = recording.timeline[rows]
        order = stable_order(timeline, recording.substreams)
        self.rows: Ints = rows[order]
        ordered = timeline[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.zeros(0, dtype=np.int64)
        self._first, self._starts = first, np.append(first, len(ordered))
        self._segment = np.repeat(np.arange(len(first)), np.diff(self._starts))
        event_us, arrival_us = recording.event_us[self.rows], recording.arrival_us[self.rows]
        self._lateness_us: Ints = arrival_us - event_us
        # Shifted so that each timeline lies above the one before, one running maximum serves them all.
        times = [int(column.min()) for column in (event_us, arrival_us) if len(column)]
        low = min(times, default=0) - 1
        span = max((int(column.max()) for column in (event_us, arrival_us) if len(column)), default=0) - low + 2
        self._fits = span * max(len(first), 1) < _ROOM
        self._base: Ints | int = self._segment * span - low if self._fits else 0
        self._bottom: Ints | int = self._base + low if self._fits else low
        self._event_us: Ints = event_us + self._base
        self._arrival_us: Ints = arrival_us + self._base

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def timelines(self) -> int:
        """How many timelines have an event."""
        return len(self._first)

    @property
    def lateness_us(self) -> Ints:
        """Arrival minus event time, of each event."""
        return self._lateness_us

    def judge(self, policies: Policies) -> Judged:
        """Apply the early and the late policy."""
        count = len(self)
        early = late = np.zeros(count, dtype=np.bool_)
        rejected = lifted = early
        own = self._event_us
        if policies.early_us is not None:
            early = self._lateness_us < -policies.early_us
            if policies.early_action is Action.DROP:
                rejected = early
            elif early.any():
                lifted, own = early, np.where(early, self._arrival_us + policies.early_us, own)
        if policies.late_us is not None:
            late = self._lateness_us > policies.late_us
            if policies.late_action is Action.DROP:
                rejected = rejected | late
            else:
                lifted, own = lifted | late, np.maximum(own, self._arrival_us - policies.late_us)
        raising = np.where(rejected, self._bottom, own) if rejected.any() else own
        largest = np.maximum.accumulate(raising) if self._fits else running_max(raising, self._segment)
        behind = np.empty(count, dtype=np.int64)
        behind[1:] = largest[:-1] - own[1:]
        # The first of a timeline is behind nothing, and nor is one that comes after rejected events only.
        behind[self._first] = -1
        if rejected.any():
            before_is_none = np.empty(count, dtype=np.bool_)
            before_is_none[1:] = (largest == self._bottom)[:-1]
            before_is_none[:1] = True
            behind[rejected | before_is_none] = -1
        lag = self._arrival_us - largest
        if rejected.any():
            lag = np.where(largest == self._bottom, _NOWHERE, lag)
        early_count, late_count = int(np.count_nonzero(early)), int(np.count_nonzero(late))
        counts = {
            "early_dropped": early_count if policies.early_action is Action.DROP else 0,
            "early_moved": early_count if policies.early_action is Action.ADJUST else 0,
            "late_moved": late_count if policies.late_action is Action.ADJUST else 0,
            "late_dropped": late_count if policies.late_action is Action.DROP else 0,
        }
        return Judged(counts, rejected, lifted, own, largest, behind, lag)

    def forecast(self, policies: Policies) -> Forecast:
        """Return what *policies* do. SettingError: a reorder of -1 tick."""
        if policies.reorder_us < 0:
            fix = "give --reorder 0s or more"
            raise SettingError(
                "a reorder of -1us cannot be forecast", code="TG-TUNE-REORDER", where="reorder", fix=fix, example="--reorder 0s"
            )
        judged = self.judge(policies)
        out_of_order = judged.behind_us > policies.reorder_us
        count = int(np.count_nonzero(out_of_order))
        drops = policies.out_of_order_action is Action.DROP
        touched = int(np.count_nonzero(judged.rejected | judged.lifted | out_of_order))
        p50_us, p99_us = delays(judged.lag_us, policies)
        held = self._most_held(judged, out_of_order, policies)
        mean = self.recording.record_bytes
        counts: dict[str, Any] = {**judged.counts}
        return Forecast(
            policies,
            len(self),
            **counts,
            out_of_order_moved=0 if drops else count,
            out_of_order_dropped=count if drops else 0,
            touched=touched,
            delay_p50_us=p50_us,
            delay_p99_us=p99_us,
            held_max=held,
            held_bytes=None if mean is None else round(held * mean),
        )

    def times(self, policies: Policies) -> tuple[Ints, Mask]:
        """Return the system timestamp of each event, and which events are kept; the time of one that is dropped is of no meaning."""
        judged = self.judge(policies)
        out_of_order = judged.behind_us > policies.reorder_us
        kept = ~judged.rejected & ~out_of_order if policies.out_of_order_action is Action.DROP else ~judged.rejected
        return judged.adjusted_us + np.where(out_of_order, judged.behind_us - policies.reorder_us, 0) - self._base, kept

    def _most_held(self, judged: Judged, out_of_order: Mask, policies: Policies) -> int:
        """Return the most events held at once: the sum over the input partitions."""
        recording, drops = self.recording, policies.out_of_order_action is Action.DROP
        kept = np.flatnonzero(~judged.rejected & ~out_of_order if drops else ~judged.rejected)
        if not len(kept):
            return 0
        system = judged.adjusted_us + np.where(out_of_order, judged.behind_us - policies.reorder_us, 0)
        # The row, counted over all partitions, that releases each event: by its timeline, or by the floor.
        segment = self._segment[kept]
        place = first_above(judged.largest_us, self._segment, self._starts, largest_at_release(system[kept], policies.reorder_us), segment)
        after_all = len(recording)
        by_event = np.where(place < self._starts[segment + 1], np.append(self.rows, after_all)[place], after_all)
        rows = self.rows[kept]
        ends = np.searchsorted(recording.partition, np.arange(recording.partitions + 1)).astype(np.int64)
        partition = recording.partition[rows]
        if policies.late_us is None:
            released = by_event
        else:
            limit_us = system[kept] - (self._base[kept] if isinstance(self._base, np.ndarray) else 0) + policies.late_us
            by_floor = first_above(recording.arrival_us, recording.partition, ends, limit_us, partition)
            released = np.minimum(by_event, np.where(by_floor < ends[partition + 1], by_floor, after_all))
        # One more place for each partition: events held at its end count to its last row.
        change = np.bincount(rows, minlength=after_all + 1)
        change -= np.bincount(np.minimum(released, ends[partition + 1]), minlength=after_all + 1)
        held = np.cumsum(change)
        return sum(_peak(held, start, end) for start, end in pairwise(ends.tolist()))


def _peak(held: NDArray[np.int64], start: int, end: int) -> int:
    return int(held[start:end].max(initial=0))


def delays(lag_us: Ints, policies: Policies) -> tuple[int | None, int | None]:
    """Return the watermark delay of half, and of 99 of 100 events, from their ``lag_us``."""
    known = lag_us if policies.late_us is not None else lag_us[lag_us < _NOWHERE]
    if not len(known):
        return None, None
    p50_us, p99_us = quantiles(known, (0.5, 0.99))
    return delay_of(p50_us, policies), delay_of(p99_us, policies)


def delay_of(lag_us: int, policies: Policies) -> int:
    """Return the watermark delay after an event, the newest of whose timeline lies *lag_us* behind its arrival."""
    adjusted_us = lag_us + policies.reorder_us
    return adjusted_us if policies.late_us is None else min(adjusted_us, policies.late_us)
