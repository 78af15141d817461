"""Sliding windows: a result wherever an event of the group enters or leaves, and none for groups that have become empty."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import SECOND
from support.script_runs import answers_of
from support.windows_oracle import COLUMNS, CUTS, EVENTS, results, sliding

from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script


def at(second: float, **payload: object) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


def ends(sql: str, events: list[Event]) -> list[tuple[float, str]]:
    """End in seconds and value of each result."""
    answers = answers_of(sql, {"a": events})
    return list(zip([us / SECOND for us in answers.times()], answers.values(), strict=True))


def test_a_result_whenever_an_event_enters_or_leaves() -> None:
    """Of 10 s: enters at 1, 5 and 9; 1 leaves at 11, 5 at 15; when 9 leaves at 19 nothing is left."""
    sql = "SELECT COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY SlidingWindow(second, 10)"
    assert ends(sql, [at(1, v=1), at(5, v=2), at(9, v=4)]) == [
        (1, '{"n":1,"s":1}'),
        (5, '{"n":2,"s":3}'),
        (9, '{"n":3,"s":7}'),
        (11, '{"n":2,"s":6}'),
        (15, '{"n":1,"s":4}'),
    ]


def test_an_event_exactly_at_the_start_is_out() -> None:
    """At 11 the event of 1 leaves as that of 11 enters: one result, with one event."""
    sql = "SELECT COUNT(*) AS n FROM a GROUP BY SlidingWindow(second, 10)"
    assert ends(sql, [at(1), at(11)]) == [(1, '{"n":1}'), (11, '{"n":1}')]


def test_events_of_one_instant_give_one_result() -> None:
    """They enter together and leave together."""
    sql = "SELECT COUNT(*) AS n FROM a GROUP BY SlidingWindow(second, 10)"
    assert ends(sql, [at(1), at(1), at(3)]) == [(1, '{"n":2}'), (3, '{"n":3}'), (11, '{"n":1}')]


def test_a_group_changes_by_its_own_events_alone() -> None:
    """What enters one group gives no result of another."""
    sql = "SELECT k, COUNT(*) AS n FROM a GROUP BY k, Sliding(Duration(second, 10))"
    assert ends(sql, [at(1, k="x"), at(2, k="y"), at(3, k="x")]) == [
        (1, '{"k":"x","n":1}'),
        (2, '{"k":"y","n":1}'),
        (3, '{"k":"x","n":2}'),
        (11, '{"k":"x","n":1}'),
    ]


def test_having_asks_the_groups_there_are() -> None:
    """The example of toll booths with more than a number of cars in a while."""
    sql = "SELECT k FROM a GROUP BY k, SlidingWindow(minute, 5) HAVING COUNT(*) > 2"
    assert ends(sql, [at(10, k="x"), at(20, k="x"), at(40, k="x"), at(50, k="y")]) == [(40, '{"k":"x"}')]


def test_aggregates_that_need_the_rows_get_those_of_the_window() -> None:
    """Values count once in each window they are in."""
    sql = "SELECT COUNT(DISTINCT v) AS d, COUNT(*) AS n FROM a GROUP BY SlidingWindow(second, 10)"
    assert ends(sql, [at(1, v=1), at(5, v=2), at(9, v=1)]) == [
        (1, '{"d":1,"n":1}'),
        (5, '{"d":2,"n":2}'),
        (9, '{"d":2,"n":3}'),
        (11, '{"d":2,"n":2}'),
        (15, '{"d":1,"n":1}'),
    ]


def test_a_plan_says_how_far_it_looks_back() -> None:
    """As far as the window is long."""
    script = parse_script("SELECT COUNT(*) AS n FROM a GROUP BY SlidingWindow(hour, 2)")
    assert bind_script(script, [InputSchema("a")], into="out").explain().splitlines()[1:4] == [
        "  WindowedAggregate sliding 2h by all: COUNT(*) AS n",
        "    Scan a",
        "look-back: 2h",
    ]


@settings(max_examples=60)
@given(EVENTS, st.integers(1, 30), CUTS, st.integers(0, 110))
def test_any_cut_gives_what_the_oracle_gives(events: list[Event], size: int, cuts: list[int], start_us: int) -> None:
    """The law: cuts show in nothing, and a start in the middle gives the rest of the sequence."""
    sql = f"SELECT {COLUMNS} INTO out FROM a GROUP BY k, SlidingWindow(mcs, {size})"
    expected = results(events, sliding(size))
    assert answers_of(sql, {"a": events}).results["out"].get(0, []) == expected
    assert answers_of(sql, {"a": events}, cuts).results["out"].get(0, []) == expected
    begun = answers_of(sql, {"a": events}, cuts, start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in expected if row[0] >= start_us]
    read_later = [event for event in events if event.system_us >= start_us - size]
    assert answers_of(sql, {"a": read_later}, cuts, start_us=start_us) == begun


@settings(max_examples=40)
@given(EVENTS, st.integers(1, 30), CUTS)
def test_each_substream_slides_on_its_own(events: list[Event], size: int, cuts: list[int]) -> None:
    """With OVER a group is one of a substream."""
    subs = {"x": 0, "y": 1, "zz": 2, None: 3}
    keyed = [Event(subs[event.payload["k"]], event.system_us, event.payload) for event in events]
    sql = f"SELECT {COLUMNS} INTO out FROM a TIMESTAMP BY t OVER k GROUP BY k, SlidingWindow(mcs, {size})"
    found = answers_of(sql, {"a": keyed}, cuts, schemas=[InputSchema("a", "t", "k")]).results["out"]
    for sub in subs.values():
        assert found.get(sub, []) == results([event for event in keyed if event.sub == sub], sliding(size))
