"""Durations as people write them, in microseconds and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import TickRangeError
from ordering.ticks import DAY_US, DURATION_US_MAX, HOUR_US, MINUTE_US, SECOND_US, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [("5s", 5 * SECOND_US), ("1h30m", HOUR_US + 30 * MINUTE_US), ("0.5s", SECOND_US // 2), ("7d", 7 * DAY_US), (" 0us ", 0)],
)
def test_what_a_duration_says(text: str, duration_us: int) -> None:
    """Numbers and units, one behind the other."""
    assert parse_duration(text) == duration_us


@given(st.integers(0, DURATION_US_MAX))
def test_a_duration_is_written_exactly(duration_us: int) -> None:
    """What is written is read as the same."""
    assert parse_duration(format_duration(duration_us)) == duration_us


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5s?", "1.s", "0.5us", "٣5m", "1e3s", "3652060d"])
def test_what_is_no_duration(text: str) -> None:
    """Digits are those of ASCII, and nothing is rounded."""
    with pytest.raises(TickRangeError) as refusal:
        parse_duration(text)
    assert refusal.value.code == "TG-DURATION"
