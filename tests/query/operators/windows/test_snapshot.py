"""Snapshot windows: what has the same timestamp."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import SECOND
from support.script_runs import answers_of
from support.windows_oracle import COLUMNS, CUTS, EVENTS, hopping, results


def at(second: float, **payload: object) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


@pytest.mark.parametrize("window", ["SnapshotWindow()", "System.Timestamp()", "System.Timestamp", "Windows(SnapshotWindow())"])
def test_events_of_one_instant_belong_together(window: str) -> None:
    """A microsecond later is another instant."""
    events = [at(1, k="x"), at(1, k="y"), at(1, k="x"), Event(0, SECOND + 1, {"k": "x"})]
    answers = answers_of(f"SELECT k, COUNT(*) AS n FROM a GROUP BY k, {window}", {"a": events})
    assert answers.values() == ['{"k":"x","n":2}', '{"k":"y","n":1}', '{"k":"x","n":1}']
    assert answers.times() == [SECOND, SECOND, SECOND + 1]


def test_windows_that_end_together_meet_in_a_snapshot() -> None:
    """What a window gives for each key is put together at its end."""
    sql = """WITH parts AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 10))
             SELECT COUNT(*) AS keys, SUM(n) AS events INTO out FROM parts GROUP BY System.Timestamp()"""
    answers = answers_of(sql, {"a": [at(1, k="x"), at(2, k="y"), at(3, k="x"), at(11, k="y")]})
    assert answers.values() == ['{"keys":2,"events":3}', '{"keys":1,"events":1}']


def test_beside_a_window_the_timestamp_is_a_key() -> None:
    """The results of several instants come at once, at the window's end."""
    sql = "SELECT MIN(v) AS v, COUNT(*) AS n, System.Timestamp() AS at FROM a GROUP BY System.Timestamp(), TumblingWindow(second, 10)"
    answers = answers_of(sql, {"a": [at(1, v=1), at(1, v=2), at(5, v=3)]})
    assert answers.values() == ['{"v":1,"n":2,"at":"1970-01-01T00:00:10Z"}', '{"v":3,"n":1,"at":"1970-01-01T00:00:10Z"}']


@settings(max_examples=40)
@given(EVENTS, CUTS, st.integers(0, 90))
def test_any_cut_gives_what_the_oracle_gives(events: list[Event], cuts: list[int], start_us: int) -> None:
    """The law; nothing before the start need be read."""
    sql = f"SELECT {COLUMNS} INTO out FROM a GROUP BY k, SnapshotWindow()"
    expected = results(events, hopping(1, 1))
    assert answers_of(sql, {"a": events}, cuts).results["out"].get(0, []) == expected
    read_later = [event for event in events if event.system_us >= start_us]
    begun = answers_of(sql, {"a": read_later}, cuts, start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in expected if row[0] >= start_us]
