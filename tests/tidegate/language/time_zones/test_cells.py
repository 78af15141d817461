"""Hours and days of local time, against what is found by looking at the clock step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import CHANGES, DAY, HOUR, MINUTE, ends_of_cells, us_of, zone

from ordering.ticks import TICK_MAX, TICK_MIN
from tidegate.language.time_zones.cells import ZoneSpans

LENGTHS = (15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 7 * HOUR, DAY, 2 * DAY)
OFFSETS = (0, 6 * HOUR, -HOUR, 45 * MINUTE)


def ends(name: str, from_: str, to: str, length_us: int, offset_us: int = 0) -> list[str]:
    """The ends of cells in (from, to], as hours and minutes of UTC after a space and the day."""
    cells = ZoneSpans.of(zone(name), length_us, offset_us)
    first, last = cells.number_of(np.array([us_of(from_) + 1, us_of(to) + 1])).tolist()
    return [str(np.datetime64(end, "us"))[8:16] for end in cells.end_of(np.arange(first, last)).tolist()]


@pytest.mark.parametrize(("name", "day", "step_us"), CHANGES, ids=[f"{name} {day}" for name, day, _ in CHANGES])
def test_cells_are_those_that_a_look_at_the_clock_finds(name: str, day: str, step_us: int) -> None:
    """A day and a half around a change, for every length and offset; numbers and ends say the same."""
    from_us, to_us = us_of(day) - 36 * HOUR, us_of(day) + 36 * HOUR
    for length_us in LENGTHS if step_us >= MINUTE else (HOUR, DAY):
        for offset_us in OFFSETS if length_us >= HOUR else (0,):
            found = list(ends_of_cells(name, from_us, to_us, length_us, offset_us, step_us))
            cells = ZoneSpans.of(zone(name), length_us, offset_us)
            first = int(cells.number_of(np.array([from_us + 1]))[0])
            numbers = np.arange(first, first + len(found))
            assert cells.end_of(numbers).tolist() == found, f"{length_us} {offset_us}"
            assert cells.number_of(np.array(found, dtype=np.int64)).tolist() == numbers.tolist()
            assert cells.number_of(np.array(found, dtype=np.int64) + 1).tolist() == (numbers + 1).tolist()


@given(st.sampled_from(CHANGES), st.sampled_from(LENGTHS) | st.integers(1, 10 * DAY), st.integers(-DAY, DAY), st.data())
def test_every_instant_lies_in_its_cell(change: tuple[str, str, int], length_us: int, offset_us: int, data: st.DataObject) -> None:
    """Cells follow each other without gaps, from the first tick to the last, and none exceeds the longest."""
    cells = ZoneSpans.of(zone(change[0]), length_us, offset_us)
    instants = np.array(data.draw(st.lists(st.integers(TICK_MIN, TICK_MAX) | st.integers(-2 * DAY, 2 * DAY).map(us_of(change[1]).__add__))))
    instants = instants[instants >= TICK_MIN].astype(np.int64)
    numbers = cells.number_of(instants)
    starts, stops = cells.end_of(numbers - 1), cells.end_of(numbers)
    assert (starts < instants).all()
    assert (instants <= stops).all()
    count = data.draw(st.integers(1, 8))
    assert (cells.end_of(numbers + (count - 1)) - starts <= cells.longest_us(count, 0)).all()


def test_days_of_berlin() -> None:
    """23 hours in spring, 25 in autumn."""
    assert ends("Europe/Berlin", "2024-03-29T23:00", "2024-04-01T23:00", DAY) == ["30T23:00", "31T22:00", "01T22:00"]
    assert ends("Europe/Berlin", "2024-10-25T22:00", "2024-10-28T23:00", DAY) == ["26T22:00", "27T23:00", "28T23:00"]


def test_hours_of_berlin() -> None:
    """In spring the hour from 2 to 3 falls out; in autumn it comes twice."""
    assert ends("Europe/Berlin", "2024-03-31T00:00", "2024-03-31T03:00", HOUR) == ["31T01:00", "31T02:00", "31T03:00"]
    assert ends("Europe/Berlin", "2024-10-27T00:00", "2024-10-27T03:00", HOUR) == ["27T01:00", "27T02:00", "27T03:00"]


def test_half_an_hour_back() -> None:
    """On Lord Howe Island the hour from 1 to 2 lasts 90 minutes, and the half hour from 1:30 to 2 comes twice."""
    day = "Australia/Lord_Howe", "2024-04-06T14:00", "2024-04-06T16:30"
    assert ends(*day, HOUR) == ["06T15:30", "06T16:30"]
    assert ends(*day, 30 * MINUTE) == ["06T14:30", "06T15:00", "06T15:30", "06T16:00", "06T16:30"]


def test_a_day_that_fell_out() -> None:
    """Apia had no 30th of December 2011."""
    assert ends("Pacific/Apia", "2011-12-29T10:00", "2012-01-01T10:00", DAY) == ["30T10:00", "31T10:00", "01T10:00"]


def test_no_midnight_and_two() -> None:
    """Sao Paulo changed its clocks at midnight: the day in spring begins at 1, the one in autumn has its last hour twice."""
    assert ends("America/Sao_Paulo", "2018-11-03T03:00", "2018-11-05T02:00", DAY) == ["04T03:00", "05T02:00"]
    assert ends("America/Sao_Paulo", "2018-02-17T02:00", "2018-02-19T03:00", DAY) == ["18T03:00", "19T03:00"]
    assert ends("America/Sao_Paulo", "2018-02-18T01:00", "2018-02-18T04:00", HOUR) == ["18T02:00", "18T03:00", "18T04:00"]


def test_the_longest_are_known() -> None:
    """So that a restart reads back far enough, and no further."""
    berlin = zone("Europe/Berlin")
    assert ZoneSpans.of(berlin, DAY, 0).longest_us(1, 0) == 25 * HOUR
    assert ZoneSpans.of(berlin, DAY, 0).longest_us(7, 0) == 7 * DAY + HOUR
    assert ZoneSpans.of(berlin, HOUR, 0).longest_us(24, 0) == DAY
    assert ZoneSpans.of(zone("Australia/Lord_Howe"), HOUR, 0).longest_us(1, 0) == 90 * MINUTE
    assert ZoneSpans.of(zone("Asia/Kolkata"), DAY, 0).longest_us(3, 0) == 3 * DAY
