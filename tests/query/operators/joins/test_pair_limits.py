"""
The limit of a join against nested loops: the first pairs of each key and instant count, however time and pairs are cut (law, levels 2
and 3), and every other pair is told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.budgets import budget_of
from support.query_oracle import Event
from support.script_runs import answers_of

from query.operators.joins.pair_limits import Quota
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.binding.input_schema import InputSchema

KEYS = (None, 1, "1", 2)
EVENTS = st.lists(
    st.builds(
        lambda instant, key, number: Event(0, instant * 1_000, {"k": key, "v": number}),
        st.integers(1, 5),
        st.sampled_from(KEYS),
        st.integers(0, 3),
    ),
    max_size=14,
).map(lambda events: sorted(events, key=lambda event: event.system_us))
CUTS = st.lists(st.integers(1, 7_000), max_size=4)


def line(**values: Any) -> str:
    """A result's value."""
    return json.dumps(values, separators=(",", ":"))


def equal(left: Any, right: Any) -> bool:
    """What ``=`` says of two keys."""
    return left is not None and right is not None and str(left) == str(right)


def oracle(left: Sequence[Event], right: Sequence[Event], pairs_max: int, outer: bool, residual: bool) -> tuple[list[Any], list[str]]:
    """The results in order and the reasons of what is left out: all pairs in order, counted by key and instant."""
    rows: list[tuple[tuple[int, ...], str]] = []
    count: dict[tuple[int, str], int] = {}
    near = [[equal(x.payload["k"], y.payload["k"]) and abs(x.system_us - y.system_us) <= 1_000 for y in right] for x in left]
    for i, x in enumerate(left):
        fits = [not residual or x.payload["v"] <= y.payload["v"] for y in right]
        for j, y in enumerate(right):
            if near[i][j]:
                instant_us = max(x.system_us, y.system_us)
                group = instant_us, repr(x.payload["k"])
                count[group] = count.get(group, 0) + 1
                if count[group] <= pairs_max and fits[j]:
                    rows.append(((instant_us, 0, i, j), line(x=i, y=j)))
        if outer and not any(is_near and is_fit for is_near, is_fit in zip(near[i], fits, strict=True)):
            rows.append(((x.system_us + 1_999, 1, i, 0), line(x=i, y=None)))
    reasons = [QueryReason.JOIN_TOO_LARGE.text(pairs_max, n - pairs_max) for n in count.values() if n > pairs_max]
    return [(order[0], value) for order, value in sorted(rows)], sorted(reasons)


@settings(max_examples=60, deadline=None)
@given(EVENTS, EVENTS, st.sampled_from([1, 2, 5, 100]), st.booleans(), st.booleans(), CUTS, st.sampled_from([2, 7, 1_000_000]))
def test_the_first_pairs_of_a_key_at_an_instant_count(
    left: list[Event], right: list[Event], pairs_max: int, outer: bool, residual: bool, cuts: list[int], at_once: int
) -> None:
    """Levels 2 and 3: results and dead letters are those of nested loops, wherever time is cut and however many pairs are made at once."""
    numbered = {
        name: [Event(0, event.system_us, {**event.payload, "n": number}) for number, event in enumerate(events)]
        for name, events in (("a", left), ("b", right))
    }
    sql = f"SELECT x.n AS x, y.n AS y INTO out FROM a x {'LEFT' if outer else 'INNER'} JOIN b y ON DATEDIFF(ms, x, y) BETWEEN -1 AND 1 "
    sql += "AND x.k = y.k" + (" AND x.v <= y.v" if residual else "")
    with budget_of(pairs=at_once):
        found = answers_of(sql, numbered, cuts, join_pairs_max=pairs_max)
    assert ([(us, value.decode()) for us, _, value in found.results["out"].get(0, [])], found.reasons) == oracle(
        left, right, pairs_max, outer, residual
    )


def test_what_is_left_out_is_one_dead_letter_with_the_row_at_the_limit() -> None:
    """Three times three pairs, four of which count: the second left row loses the first pair."""
    events = {name: [Event(0, 1_000, {"k": "p", "v": number}) for number in range(3)] for name in ("a", "b")}
    sql = "SELECT x.v AS x, y.v AS y INTO out FROM a x JOIN b y ON DATEDIFF(ms, x, y) = 0 AND x.k = y.k"
    found = answers_of(sql, events, join_pairs_max=4)
    assert found.values() == [line(x=0, y=0), line(x=0, y=1), line(x=0, y=2), line(x=1, y=0)]
    assert found.reasons == ["join too large: more than 4 pairs of one key at one instant, 5 left out"]


def test_substreams_have_limits_of_their_own() -> None:
    """The same key in another substream is another group."""
    over = "a TIMESTAMP BY t OVER sub"
    sql = f"SELECT x.v AS x, y.v AS y INTO out FROM {over} x JOIN {over} y ON DATEDIFF(ms, x, y) = 0 AND x.k = y.k AND x.sub = y.sub"
    events = [Event(sub, 1_000, {"k": 1, "v": number, "sub": sub}) for sub in range(2) for number in range(2)]
    found = answers_of(sql, {"a": events}, schemas=[InputSchema("a", is_free=True)], join_pairs_max=3)
    assert [len(rows) for rows in found.results["out"].values()] == [3, 3]
    assert len(found.reasons) == 2


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), max_size=5), st.integers(1, 4))
def test_a_quota_admits_the_first_of_each_group_over_all_portions(portions: list[list[int]], limit: int) -> None:
    """However the pairs are divided."""
    quota, seen = Quota(np.full(4, limit)), dict.fromkeys(range(4), 0)
    for portion in portions:
        expected = []
        for group in portion:
            seen[group] += 1
            expected.append(seen[group] <= limit)
        assert quota.admit(np.array(portion, dtype=np.int64)).tolist() == expected
