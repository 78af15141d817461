"""Conditions on how geometries lie are met by the same pairs as if they were evaluated over the joined rows."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import shapely
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Geod

from query.operators.joins import joined_rows
from query.operators.joins.lying import Geometries, lying_of
from query.operators.joins.near import NearRecords
from query.operators.joins.reach import are_within_reach
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Expr, Literal, Required, Requirement, Slot

PLACES = st.sampled_from(["POINT(1 1)", "POINT(5 5)", "POINT(0 1)", "nowhere", None, "LINESTRING(0 0,9 9)"])
LONGITUDES = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, 180.0, 179.999, 0.0]))
LATITUDES = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 89.95, 0.0]))
POINTS = st.builds(lambda x, y: f"POINT({x:.6f} {y:.6f})", LONGITUDES, LATITUDES)
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
    found = joined_rows.meet_condition(condition, joined_rows.JoinSides(left, right, 2, *sizes), (pairs[0], pairs[1]))
    with patch.object(joined_rows, "lying_of", lambda condition, width: ([], condition)):
        assert (
            found.tolist()
            == joined_rows.meet_condition(condition, joined_rows.JoinSides(left, right, 2, *sizes), (pairs[0], pairs[1])).tolist()
        )


@given(
    st.lists(st.one_of(PLACES, POINTS), min_size=1, max_size=6),
    st.lists(st.one_of(AREAS, POINTS), min_size=1, max_size=6),
    st.sampled_from([0, 1, 111_195, 500_000.5, 20_100_000]),
    st.sampled_from(["<", "<="]),
    st.booleans(),
)
def test_the_same_pairs_are_near(
    lefts: list[str | None], rights: list[str | None], metres: float, comparison: str, is_turned: bool
) -> None:
    """Across the antimeridian and near the poles too; the distance from a line or an area is 0."""
    call = Call("st_distance", (Slot(0, "p", None), Slot(2, "q", None)))
    value = Literal(metres, Kind.FLOAT if isinstance(metres, float) else Kind.BIGINT)
    condition: Expr = Call({"<": ">", "<=": ">="}[comparison], (value, call)) if is_turned else Call(comparison, (call, value))
    left, right = side(lefts), side(rights)
    pairs = tuple(numbers.ravel() for numbers in np.meshgrid(np.arange(len(lefts)), np.arange(len(rights)), indexing="ij"))
    sizes = np.ones(len(lefts), dtype=np.int64), np.ones(len(rights), dtype=np.int64)
    (lying,), _ = lying_of(condition, 2)
    found = joined_rows.meet_condition(condition, joined_rows.JoinSides(left, right, 2, *sizes), (pairs[0], pairs[1]))
    with patch.object(joined_rows, "lying_of", lambda condition, width: ([], condition)):
        due = joined_rows.meet_condition(condition, joined_rows.JoinSides(left, right, 2, *sizes), (pairs[0], pairs[1]))
    assert found.tolist() == due.tolist()
    geometries = Geometries(left, right, 2)
    near = NearRecords.of(lying, lying.of_side(geometries, 1).all()).pairs(lying.of_side(geometries, 0).all())
    assert {*zip(*(each[found].tolist() for each in pairs), strict=True)} <= {*zip(*(each.tolist() for each in near), strict=True)}


@given(LATITUDES, LONGITUDES, st.floats(0, 360), st.floats(0.001, 21_000_000))
def test_a_point_that_is_near_lies_in_the_box(latitude: float, longitude: float, azimuth: float, metres: float) -> None:
    """The end of a geodesic of that length, or of a shorter one."""
    for length in (metres, metres / 3):
        east, north, _ = Geod(ellps="WGS84").fwd(longitude, latitude, azimuth, length)
        first, second = (np.array([shapely.Point(x, y)], dtype=np.object_) for x, y in ((longitude, latitude), (east, north)))
        assert are_within_reach(first, second, metres).all()


def test_other_conditions_are_left_to_the_joined_row() -> None:
    """Two geometries of one side, a comparison with a column, a distance that is not to be small."""
    of_one_side = Call("=", (Call("st_within", (Slot(0, "p", None), Slot(1, "q", None))), Literal(1, Kind.BIGINT)))
    far = Call(">", (Call("st_distance", (Slot(0, "p", None), Slot(2, "q", None))), Literal(5, Kind.BIGINT)))
    equal = Call("=", (Call("st_distance", (Slot(0, "p", None), Slot(2, "q", None))), Literal(5, Kind.BIGINT)))
    with_column = Call("=", (Call("st_within", (Slot(0, "p", None), Slot(2, "q", None))), Slot(3, "n", Kind.BIGINT)))
    for condition in (of_one_side, with_column, far, equal):
        assert lying_of(condition, 2) == ([], condition)
