"""
How many results policies change: windows, the events of which are not those that the events' own times would give.

A window ``(start, end]`` ends at an instant e with ``(e - offset) mod hop = 0``, as in the query language; its start is e - size. With
substreams each has its windows for itself. Law: a window is changed if and only if an event lies in it that would not, or one is
missing, compared with the other times. What a query computes of the events is not looked at: a changed window may give the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ordering.arrays import Ints, Mask
from ordering.columns.segments import running_max
from ordering.errors import SettingError, TickRangeError
from ordering.ticks import format_duration, parse_duration


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Windows of *size_us*, the ends of which are *hop_us* apart and shifted by *offset_us* against the epoch."""

    size_us: int
    hop_us: int
    offset_us: int = 0

    @classmethod
    def parse(cls, text: str) -> WindowShape:
        """Return the shape of ``1m`` (tumbling), ``5m/1m`` (by a hop) or ``1h/1h+15m`` (shifted). SettingError: it is none."""
        size, slash, rest = text.partition("/")
        hop, plus, offset = rest.partition("+")
        try:
            size_us = parse_duration(size)
            shape = cls(size_us, parse_duration(hop) if slash else size_us, parse_duration(offset) if plus else 0)
        except TickRangeError as error:
            raise SettingError(error.what, code=error.code, where="--window", fix=error.fix, example="--window 5m/1m") from None
        if min(shape.size_us, shape.hop_us) < 1:
            fix = "give a size and a hop above zero"
            raise SettingError(f"{text} is no window", code="TG-SETTING-VALUE", where="--window", fix=fix, example="--window 5m/1m")
        return shape

    def __str__(self) -> str:
        hop = f"/{format_duration(self.hop_us)}" if self.hop_us != self.size_us or self.offset_us else ""
        return f"{format_duration(self.size_us)}{hop}{f'+{format_duration(self.offset_us)}' if self.offset_us else ''}"

    def numbers(self, times_us: Ints) -> tuple[Ints, Ints]:
        """Return for each time the numbers of the first and the last window that contain it; the last is below the first if none does."""
        first = -((self.offset_us - times_us) // self.hop_us)
        return first, -((self.offset_us - self.size_us - times_us) // self.hop_us) - 1


@dataclass(frozen=True, slots=True)
class ResultChange:
    """What policies change of the windows of one shape."""

    shape: WindowShape
    # How many have an event, by the events' own times or by those that the policies give them.
    windows: int
    # How many of these have other events than by the events' own times.
    changed: int
    # How many have other events than under the policies that these are compared with; None: with none.
    differ: int | None = None

    @property
    def changed_share(self) -> float:
        return self.changed / self.windows if self.windows else 0.0

    def to_json(self) -> dict[str, Any]:
        differ = {} if self.differ is None else {"differ": self.differ}
        return {"window": str(self.shape), "windows": self.windows, "changed": self.changed, **differ}


class _Runs(NamedTuple):
    """Runs of windows with successive numbers: the first and the last number of each, and the substream that it belongs to."""

    first: Ints
    last: Ints
    group: Ints


class EventWindows:
    """The windows of one shape over events; *group* is the number of each event's substream, rising from 0."""

    def __init__(self, shape: WindowShape, event_time_us: Ints, group: Ints) -> None:
        self.shape, self._event_time_us, self._group = shape, event_time_us, group
        first, last = shape.numbers(event_time_us)
        self._all = _merge(first, last, group)

    def compare(self, times_us: Ints, kept: Mask, before: tuple[Ints, Mask] | None = None) -> ResultChange:
        """Return what the times, of the events *kept*, change; *before* are times, and which events they keep, to compare with as well."""
        changed = self._differences(self._event_time_us, np.ones(len(kept), dtype=np.bool_), times_us, kept)
        both = _merge(*(np.concatenate(pair) for pair in zip(self._all, changed, strict=True)))
        differ = None if before is None else _count(self._differences(*before, times_us, kept))
        return ResultChange(self.shape, _count(both), _count(changed), differ)

    def _differences(self, left_us: Ints, left: Mask, right_us: Ints, right: Mask) -> _Runs:
        """Return the runs of windows in which an event lies by one of two times alone."""
        rows = np.flatnonzero((left != right) | (left & right & (left_us != right_us)))
        group = self._group[rows]
        one, other = self._numbers(left_us[rows], left[rows]), self._numbers(right_us[rows], right[rows])
        pieces = [
            piece
            for (first, last), (first_not, last_not) in ((one, other), (other, one))
            for piece in ((first, np.minimum(last, first_not - 1)), (np.maximum(first, last_not + 1), last))
        ]
        firsts, lasts = (np.concatenate([piece[side] for piece in pieces]) for side in (0, 1))
        return _merge(firsts, lasts, np.tile(group, len(pieces)))

    def _numbers(self, times_us: Ints, kept: Mask) -> tuple[Ints, Ints]:
        """Return the first and the last window of each event; one that is dropped is in none."""
        first, last = self.shape.numbers(times_us)
        return first, np.where(kept, last, first - 1)


def _merge(first: Ints, last: Ints, group: Ints) -> _Runs:
    """Return runs of numbers as runs that neither meet nor overlap within a group."""
    there = first <= last
    if not there.all():
        first, last, group = first[there], last[there], group[there]
    if len(first) > 1:
        # Events come in nearly the order of time: most lie in the run of the one before.
        again = np.concatenate([[False], (first[1:] == first[:-1]) & (last[1:] == last[:-1]) & (group[1:] == group[:-1])])
        first, last, group = first[~again], last[~again], group[~again]
    if not len(first):
        return _Runs(first, last, group)
    order = np.lexsort((first, group))
    first, last, group = first[order], last[order], group[order]
    is_other = np.concatenate([[True], group[1:] != group[:-1]])
    top = running_max(last, np.cumsum(is_other) - 1)
    begins = is_other.copy()
    begins[1:] |= first[1:] > top[:-1] + 1
    starts = np.flatnonzero(begins)
    return _Runs(first[starts], top[np.append(starts[1:], len(top)) - 1], group[starts])


def _count(runs: _Runs) -> int:
    first, last, _ = runs
    return int((last - first + 1).sum())
