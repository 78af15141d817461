"""Conditions on how geometries lie are met by the same pairs as if they were evaluated over the joined rows."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from query.operators.joins import joined_rows
from query.operators.joins.lying import lying_of
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Expr, Literal, Required, Requirement, Slot

PLACES = st.sampled_from(["POINT(1 1)", "POINT(5 5)", "POINT(0 1)", "nowhere", None, "LINESTRING(0 0,9 9)"])
AREAS = st.sampled_from(["POLYGON((0 0,2 0,2 2,0 2,0 0))", "POLYGON((4 4,6 4,6 6,4 6,4 4))", "POLYGON((0 0,1 1,0 1,1 0,0 0))", None])
RELATIONS = st.sampled_from(["st_within", "st_intersects", "st_overlaps"])


def side(texts: list[str | None]) -> pa.Table:
    """Return the rows of a side: a geometry, and a number."""
    zeros = pa.array(np.zeros(len(texts), dtype=np.int64))
    columns = {"s0_s": pa.array(texts, pa.string()), "s1_i": pa.array(range(len(texts)), pa.int64())}
    return pa.table({"sub": zeros, "system_us": zeros, "key": pa.array([b""] * len(texts), pa.binary()), **columns})


@given(
    st.lists(PLACES, min_size=1, max_size=6),
    st.lists(AREAS, min_size=1, max_size=4),
    RELATIONS,
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
def test_the_same_pairs_meet_it(
    places: list[str | None], areas: list[str | None], relation: str, value: int, is_turned: bool, has_more: bool
) -> None:
    """Bad geometries, NULL, another condition beside it, and either order of arguments."""
    geometries = (Slot(0, "p", None), Slot(2, "q", None))
    call = Call(relation, geometries[::-1] if is_turned else geometries)
    condition: Expr = Call("=", (Literal(value, Kind.BIGINT), call) if is_turned else (call, Literal(value, Kind.BIGINT)))
    if has_more:
        condition = Call("and", (condition, Call("<=", (Slot(1, "n", Kind.BIGINT), Slot(3, "m", Kind.BIGINT)))))
    condition = Required(condition, Requirement.CONDITION)
    left, right = side(places), side(areas)
    pairs = tuple(numbers.ravel() for numbers in np.meshgrid(np.arange(len(places)), np.arange(len(areas)), indexing="ij"))
    sizes = np.ones(len(places), dtype=np.int64), np.ones(len(areas), dtype=np.int64)
    assert lying_of(condition, 2)[0]
    found = joined_rows.meet_condition(condition, left, right, (pairs[0], pairs[1]), 2, *sizes)
    with patch.object(joined_rows, "lying_of", lambda condition, width: ([], condition)):
        assert found.tolist() == joined_rows.meet_condition(condition, left, right, (pairs[0], pairs[1]), 2, *sizes).tolist()


def test_other_conditions_are_left_to_the_joined_row() -> None:
    """Two geometries of one side, a comparison with a column, a distance."""
    of_one_side = Call("=", (Call("st_within", (Slot(0, "p", None), Slot(1, "q", None))), Literal(1, Kind.BIGINT)))
    with_column = Call("=", (Call("st_within", (Slot(0, "p", None), Slot(2, "q", None))), Slot(3, "n", Kind.BIGINT)))
    distance = Call("<", (Call("st_distance", (Slot(0, "p", None), Slot(2, "q", None))), Literal(5, Kind.BIGINT)))
    for condition in (of_one_side, with_column, distance):
        assert lying_of(condition, 2) == ([], condition)
