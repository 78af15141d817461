"""Means and deviations are exact until they are rounded, once, in every window and frame."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import SECOND
from support.script_runs import answers_of

FRAMES = {
    "tumbling": "GROUP BY k, TumblingWindow(second, 10)",
    "hopping": "GROUP BY k, HoppingWindow(second, 20, 10)",
    "sliding": "GROUP BY k, SlidingWindow(second, 10)",
    "session": "GROUP BY k, SessionWindow(second, 2, 10)",
    "snapshot": "GROUP BY k, SnapshotWindow()",
    "windows": "GROUP BY k, Windows(TumblingWindow(second, 10), HoppingWindow(second, 20, 10))",
}
FUNCTIONS = ("AVG", "VAR", "STDEV", "VARP", "STDEVP")
NUMBERS = (
    st.sampled_from([18014398509481984.0, 1.0, 1, 0.1, 2**62, 2**53 + 1, -(2**63), 5e-324, 1.7e308, -1.7e308, 3.0e-310])
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)
)


def rounded_once(numbers: Sequence[float]) -> list[float | None]:
    """The value of each function, from fractions."""
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact, Fraction(0)) / len(exact)
    found: list[float | None] = [float(mean)]
    for fewer in (1, 0):
        if len(exact) <= fewer:
            found += [None, None]
            continue
        variance = sum(((number - mean) ** 2 for number in exact), Fraction(0)) / (len(exact) - fewer)
        try:
            found.append(float(variance))
        except OverflowError:
            found.append(None)
        try:
            # Deviations of fractions are rounded once by Python too.
            found.append((statistics.pstdev, statistics.stdev)[fewer](exact))
        except OverflowError:
            found.append(None)
    return found


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_mean_is_rounded_once_in_every_window(frame: str) -> None:
    """18014398509481984, 1 and 1: their sum is no float, their mean is one."""
    events = [Event(0, SECOND, {"k": "x", "v": value}) for value in (18014398509481984.0, 1.0, 1.0)]
    found = answers_of(f"SELECT AVG(v) AS mean FROM a {frame}", {"a": events}).values()
    assert set(found) == {'{"mean":6004799503160662.0}'}


def test_a_mean_is_rounded_once_looking_back() -> None:
    """In a running aggregate too, of floats as of bigints."""
    for one in (1.0, 1):
        events = [Event(0, at * SECOND, {"v": value}) for at, value in enumerate((18014398509481984 * one, one, one), start=1)]
        found = answers_of("SELECT AVG(v) OVER (LIMIT DURATION(minute, 1)) AS mean FROM a", {"a": events}).values()
        assert found[-1] == '{"mean":6004799503160662.0}'


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from(sorted(FRAMES)), st.sampled_from([(), (2,), (1, 2)]))
def test_every_frame_rounds_each_function_once(numbers: list[float], frame: str, cuts: tuple[int, ...]) -> None:
    """Level 3: whatever is kept between the cuts, fractions are the judge, of whole windows and of running aggregates."""
    events = [Event(0, SECOND, {"k": "x", "v": number}) for number in numbers]
    columns = ", ".join(f"{function}(v) AS f{at}" for at, function in enumerate(FUNCTIONS))
    running = ", ".join(f"{function}(v) OVER (LIMIT DURATION(second, 1)) AS f{at}" for at, function in enumerate(FUNCTIONS))
    times = [cut * SECOND for cut in cuts]
    expected = rounded_once(numbers)
    for row in answers_of(f"SELECT {columns} FROM a {FRAMES[frame]}", {"a": events}, times).values():
        assert list(json.loads(row).values()) == expected
    running_rows = answers_of(f"SELECT {running} FROM a", {"a": events}, times).values()
    assert [list(json.loads(row).values()) for row in running_rows] == [rounded_once(numbers[: at + 1]) for at in range(len(numbers))]
