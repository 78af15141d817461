"""JOIN ... ON is taken apart into bounds of time, keys and the rest; plans print what they will do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import QueryError
from ordering.ticks import DAY_US, HOUR_US, MINUTE_US
from query.plan.join_bounds import Bound, Bounds
from query.plan.nodes import Join, Plan, walk
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

A, B, C = (InputSchema(name) for name in "abc")
FLIGHTS = InputSchema("flights", timestamp_by="scheduled", over="origin", fields={"delay": "bigint"})
WEEK_US = 7 * DAY_US


def bound(text: str) -> Plan:
    """Bind a script with the output ``out``."""
    return bind_script(parse_script(text), (A, B, C, FLIGHTS), into="out")


def join(on: str, kind: str = "JOIN") -> Join:
    """Bind ON between a and b."""
    found = next(node for node in walk(bound(f"SELECT a.v AS v FROM a {kind} b ON {on}").root) if isinstance(node, Join))
    assert isinstance(found, Join)
    return found


@pytest.mark.parametrize(
    ("on", "bounds"),
    [
        ("DATEDIFF(minute, a, b) BETWEEN 0 AND 5", [Bound("minute", MINUTE_US, 0, 0, 5)]),
        ("DATEDIFF(mi, b, a) BETWEEN 0 AND 5", [Bound("minute", MINUTE_US, 0, -5, 0)]),
        ("DATEDIFF(hour, a, b) = -2", [Bound("hour", HOUR_US, 0, -2, -2)]),
        ("3 = DATEDIFF(hour, a, b)", [Bound("hour", HOUR_US, 0, 3, 3)]),
        ("DATEDIFF(day, a, b) > 0 AND DATEDIFF(day, a, b) < 3", [Bound("day", DAY_US, 0, 1, 2)]),
        ("(0 >= DATEDIFF(day, a, b)) AND (-1 < DATEDIFF(day, a, b))", [Bound("day", DAY_US, 0, 0, 0)]),
        ("DATEDIFF(week, a, b) = 0", [Bound("week", WEEK_US, 4 * DAY_US, 0, 0)]),
        (
            "DATEDIFF(hour, a, b) >= 0 AND DATEDIFF(day, a, b) = 0",
            [Bound("hour", HOUR_US, 0, 0, None), Bound("day", DAY_US, 0, 0, 0)],
        ),
    ],
)
def test_datediff_with_constants_bounds_the_time(on: str, bounds: list[Bound]) -> None:
    """In either order of sides and operands, and several together."""
    found = join(on)
    assert found.bounds == Bounds(tuple(bounds))
    assert (found.keys, found.residual) == ((), None)


def test_conditions_find_their_places() -> None:
    """Equality of both sides is a key, whichever way round; what concerns one side only is asked below the join, where that may be."""
    on = "DATEDIFF(minute, a, b) = 0 AND b.k = LOWER(a.k) AND a.x < b.y AND b.z = 1 AND a.w = 2"
    inner = bound(f"SELECT a.v AS v FROM a JOIN b ON {on}").explain()
    assert "Join on DATEDIFF(minute, left, right) = 0 AND LOWER(a.k) = b.k AND a.x < b.y\n" in inner
    assert "Filter z = 1\n          Scan b" in inner
    assert "Filter w = 2\n          Scan a" in inner
    outer = bound(f"SELECT a.v AS v FROM a LEFT JOIN b ON {on}").explain()
    assert (
        "LeftJoin, unmatched at the last instant, on DATEDIFF(minute, left, right) = 0 AND LOWER(a.k) = b.k AND (a.x < b.y) AND (a.w = 2)\n"
        in outer
    )
    assert "Filter z = 1\n          Scan b" in outer
    assert "Filter w" not in outer


def test_what_must_be_read_again_follows_from_the_bounds() -> None:
    """A pair needs the earlier row; a row that stays alone needs all that could have matched it."""
    assert bound("SELECT a.v FROM a JOIN b ON DATEDIFF(minute, a, b) BETWEEN -10 AND 4").lookback_us == 11 * MINUTE_US
    assert bound("SELECT a.v FROM a LEFT JOIN b ON DATEDIFF(minute, a, b) BETWEEN -10 AND 4").lookback_us == 15 * MINUTE_US
    assert bound("SELECT a.v FROM a LEFT JOIN b ON DATEDIFF(minute, a, b) BETWEEN 0 AND 60").lookback_us == 61 * MINUTE_US
    three = "SELECT a.v FROM a JOIN b ON DATEDIFF(minute, a, b) BETWEEN 0 AND 4 JOIN c ON DATEDIFF(minute, a, c) BETWEEN -1 AND 1"
    assert bound(three).lookback_us == (2 + 5) * MINUTE_US + 5 * MINUTE_US


def test_longer_distances_are_a_matter_of_a_setting() -> None:
    """Seven days is the limit unless the caller raises it."""
    script = parse_script("SELECT a.v FROM a JOIN b ON DATEDIFF(day, a, b) BETWEEN -8 AND 0")
    with pytest.raises(QueryError):
        bind_script(script, [A, B], into="out")
    assert bind_script(script, [A, B], into="out", window_us_max=8 * DAY_US).lookback_us == 9 * DAY_US


def test_the_columns_of_joined_relations_stand_one_after_the_other() -> None:
    """Declared kinds, a step's own column that is its time, and the time of a side: each is found where it was put."""
    plan = bound(
        """WITH s AS (SELECT k, System.Timestamp() AS at, n FROM a)
           SELECT f.delay AS delay, s.at AS at, s.n AS n, c.v AS v
           FROM flights TIMESTAMP BY scheduled f JOIN s ON DATEDIFF(minute, f, s) = 0
           JOIN c ON DATEDIFF(minute, s, c) = 0 AND c.n = s.n"""
    )
    assert plan.columns == (("delay", "bigint"), ("at", "datetime"), ("n", "any"), ("v", "any"))
    outer, inner = (node for node in walk(plan.root) if isinstance(node, Join))
    assert [column.name for column in outer.columns] == ["f.delay", "s.k", "s.at", "s.n", "s.System.Timestamp()", "c.v", "c.n"]
    assert outer.columns[:5] == inner.columns
    assert [str(column.expr) for column in outer.right.columns] == ["v", "n"]
    assert outer.left_time is not None
    assert (inner.left_time, outer.left_time.index, outer.left_spread_us) == (None, 4, MINUTE_US)


ENDS = st.one_of(st.none(), st.integers(-3, 3))
BOUND = st.builds(
    lambda unit_us, offset_us, low, high: Bound("u", unit_us, offset_us, low, high), st.integers(1, 9), st.integers(0, 8), ENDS, ENDS
)


@given(st.lists(BOUND, min_size=1, max_size=3), st.integers(30, 60), st.integers(0, 90))
def test_both_sides_see_the_same_bounds(parts: list[Bound], left: int, right: int) -> None:
    """The range of right rows, the range of left rows and the conditions themselves say the same."""
    closed = Bounds((*parts, Bound("u", 5, 0, -6, None), Bound("u", 7, 1, None, 5)))
    holds = all(
        (part.low is None or part.low <= crossed) and (part.high is None or crossed <= part.high)
        for part in closed.parts
        for crossed in [(right + part.offset_us) // part.unit_us - (left + part.offset_us) // part.unit_us]
    )
    for (first, until), other in ((closed.right_range(np.array([left])), right), (closed.left_range(np.array([right])), left)):
        assert (first[0] <= other < until[0]) == holds
    if holds:
        assert -closed.before_us < right - left < closed.after_us
    first, until = closed.right_range(np.array([left]))
    assert until[0] - first[0] <= closed.width_us
