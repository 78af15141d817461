"""Results that policies change: the windows whose events differ, against the model that walks the same records and a naive count."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import SettingError
from ordering.policies import Action, Policies
from ordering.ticks import HOUR_US, MINUTE_US
from ordering.tuning.forecast import EventWalk
from ordering.tuning.recording import Recording
from ordering.tuning.results import EventWindows, WindowShape

SHAPES = st.builds(WindowShape, st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
TIMES = st.integers(-20, 60)
Contents = dict[tuple[int, int], set[int]]


def contents(shape: WindowShape, times: list[int], kept: list[bool], groups: list[int]) -> Contents:
    """Return the events of each window, by group and end, looked for end by end."""
    found: Contents = defaultdict(set)
    for number, (time, is_kept, group) in enumerate(zip(times, kept, groups, strict=True)):
        for end in range(time, time + shape.size_us):
            if is_kept and (end - shape.offset_us) % shape.hop_us == 0:
                found[group, end].add(number)
    return found


def different(left: Contents, right: Contents) -> int:
    """Return how many windows have other events."""
    return sum(left.get(window, set()) != right.get(window, set()) for window in {*left, *right})


@given(st.lists(st.tuples(TIMES, TIMES, TIMES, st.booleans(), st.booleans(), st.integers(0, 2)), max_size=25), SHAPES)
def test_a_window_is_changed_if_its_events_are(events: list[tuple[int, int, int, bool, bool, int]], shape: WindowShape) -> None:
    """Counted window by window: those with other events than by their own times, and than under other policies."""
    own, after, before = ([event[place] for event in events] for place in range(3))
    kept, kept_before = ([event[place] for event in events] for place in (3, 4))
    groups = [event[5] for event in events]
    columns = [np.array(column, dtype=np.int64) for column in (own, after, before, groups)]
    masks = [np.array(column, dtype=np.bool_) for column in (kept, kept_before)]
    found = EventWindows(shape, columns[0], columns[3]).compare(columns[1], masks[0], (columns[2], masks[1]))
    by_own, by_policies = contents(shape, own, [True] * len(events), groups), contents(shape, after, kept, groups)
    assert found.windows == len({*by_own, *by_policies})
    assert found.changed == different(by_own, by_policies)
    assert found.differ == different(contents(shape, before, kept_before, groups), by_policies)


def test_times_after_policies_are_those_of_the_model() -> None:
    """An event moved to the next minute leaves one window and enters another; one that is dropped leaves its own."""
    arrival = np.array([10, 70, 71, 200], dtype=np.int64) * 1_000_000
    event = np.array([10, 70, 5, 100], dtype=np.int64) * 1_000_000
    recording = Recording.of(np.zeros(4, np.int64), arrival, event, np.ones(4, np.bool_))
    walk, windows = EventWalk(recording), EventWindows(WindowShape(MINUTE_US, MINUTE_US), event, np.zeros(4, np.int64))
    policies = Policies(late_us=50 * 1_000_000, reorder_us=0)
    times, kept = walk.times(policies)
    # Late by 16 s, then below the newest: it counts at 70 s. The last is late by 50 s: 150 s.
    assert (times // 1_000_000).tolist() == [10, 70, 70, 150]
    # Of three windows, all have other events: 5 s leaves the first, enters the second, which 100 s leaves for the third.
    assert windows.compare(times, kept).to_json() == {"window": "1m", "windows": 3, "changed": 3}
    times, kept = walk.times(Policies(late_us=50 * 1_000_000, late_action=Action.DROP))
    assert kept.tolist() == [True, True, False, False]
    assert windows.compare(times, kept).to_json() == {"window": "1m", "windows": 2, "changed": 2}


def test_absurd_times_count_like_any_other() -> None:
    """An event at the end of time lies in its own window and overflows nothing."""
    own = np.array([0, 2**60, -(2**60)], dtype=np.int64)
    windows = EventWindows(WindowShape(HOUR_US, MINUTE_US), own, np.array([0, 1, 2], dtype=np.int64))
    found = windows.compare(own, np.array([True, False, True]))
    assert (found.windows, found.changed) == (180, 60)


@pytest.mark.parametrize("text", ["1m", "5m/1m", "1h/1h+15m", "1h/30m+15m"])
def test_a_shape_reads_back_as_it_is_written(text: str) -> None:
    """Size, hop and offset."""
    assert str(WindowShape.parse(text)) == text


@pytest.mark.parametrize("text", ["", "x", "0s", "5m/0s", "5m/x", "-1m"])
def test_what_is_no_window_is_refused(text: str) -> None:
    """With what would be one."""
    with pytest.raises(SettingError):
        WindowShape.parse(text)
