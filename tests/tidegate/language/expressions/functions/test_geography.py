"""Geography against other methods: geodesics of geographiclib, and positions worked out in whole numbers."""

from __future__ import annotations

import json
from itertools import pairwise
from math import atan2
from unittest.mock import patch

import pyarrow as pa
import pytest
from geographiclib.geodesic import Geodesic
from hypothesis import given
from hypothesis import strategies as st
from support.script_runs import program_of

from ordering.errors import QueryError
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.functions import geography
from tidegate.language.expressions.functions.catalog import GEOGRAPHY
from tidegate.language.expressions.functions.column_functions import REGISTERED
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant

Point = tuple[int, int]
WHOLE = st.tuples(st.integers(-9, 9), st.integers(-9, 9))
PLACES = st.tuples(st.floats(-90, 90), st.floats(-180, 180))
HALF_A_MILLIMETRE = 0.000501


def texts(values: list[str | None]) -> Variant:
    """Return a column of texts."""
    return Variant.of(len(values), {Kind.NVARCHAR: pa.array(values, pa.string())})


def floats(values: list[float]) -> Variant:
    """Return a column of floats."""
    return Variant.of(len(values), {Kind.FLOAT: pa.array(values, pa.float64())})


def call(name: str, *args: Variant) -> tuple[list[object], list[tuple[list[int], str]]]:
    """Return the values of a function, and the rows that failed with their reasons."""
    function = REGISTERED.get(name)
    assert function is not None
    assert function.result_kind is not None
    column, failures = function.compute(args, args[0].length)
    return column.of_kind(function.result_kind).to_pylist(), [(failure.rows.tolist(), str(failure.reason)) for failure in failures]


def wkt(points: list[Point], kind: str = "POLYGON") -> str:
    """Return points as WKT."""
    listed = ",".join(f"{x} {y}" for x, y in points)
    return f"{kind}(({listed}))" if kind == "POLYGON" else f"{kind}({listed})"


def side(a: Point, b: Point, c: Point) -> int:
    """Return a positive number if c lies left of the line from a to b, a negative one if right, 0 if on it."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def is_between(a: Point, b: Point, c: Point) -> bool:
    """Return whether c lies on the segment from a to b."""
    return side(a, b, c) == 0 and min(a[0], b[0]) <= c[0] <= max(a[0], b[0]) and min(a[1], b[1]) <= c[1] <= max(a[1], b[1])


def is_inside(ring: list[Point], point: Point) -> bool:
    """Return whether a point lies inside a ring, not on it: a ray to the right crosses it an odd number of times."""
    edges = list(pairwise(ring))
    if any(is_between(a, b, point) for a, b in edges):
        return False
    crossed = [(a, b) for a, b in edges if (a[1] > point[1]) != (b[1] > point[1])]
    return sum((side(a, b, point) > 0) == (b[1] > a[1]) for a, b in crossed) % 2 == 1


@st.composite
def rings(draw: st.DrawFn) -> list[Point]:
    """Draw the ring of a polygon without crossings: points around the middle in the order of their directions."""
    points = draw(
        st.lists(WHOLE.filter(lambda point: point != (0, 0)), min_size=3, max_size=9, unique_by=lambda point: atan2(point[1], point[0]))
    )
    ring = sorted(points, key=lambda point: atan2(point[1], point[0]))
    turns = [side((0, 0), a, b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
    if min(turns) <= 0:
        # The middle would not lie inside: a triangle of other points takes its place.
        ring = [(-9, -9), (9, -8), draw(st.tuples(st.integers(-9, 9), st.integers(0, 9)))]
    ring = [*ring, ring[0]]
    return ring[::-1] if draw(st.booleans()) else ring


def test_the_distance_of_the_page() -> None:
    """Five degrees each way: the geodesic is 784,028.740 m long, which Azure's page gives as 784,028.7408."""
    assert call("st_distance", texts(["POINT(-5 -5)"]), texts(["POINT(0 0)"]))[0] == [784028.74]


@given(st.lists(st.tuples(PLACES, PLACES), min_size=1, max_size=20))
def test_distances_are_geodesics(pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> None:
    """Against geographiclib, an implementation of its own; to the millimetre, and the same both ways."""
    first, second = (
        Variant.of(len(pairs), {Kind.RECORD: pa.array(call("createpoint", floats([a for a, _ in ends]), floats([o for _, o in ends]))[0])})
        for ends in zip(*pairs, strict=True)
    )
    metres, failures = call("st_distance", first, second)
    assert not failures
    assert metres == call("st_distance", second, first)[0]
    for ((lat1, lon1), (lat2, lon2)), found in zip(pairs, metres, strict=True):
        assert isinstance(found, float)
        assert abs(found - Geodesic.WGS84.Inverse(lat1, lon1, lat2, lon2)["s12"]) < HALF_A_MILLIMETRE
        assert found == round(found, 3)


@given(rings(), st.lists(WHOLE, min_size=1, max_size=30))
def test_a_point_lies_within_a_polygon_or_not(ring: list[Point], points: list[Point]) -> None:
    """Whichever way round the ring goes, as WKT or GeoJSON; on its edge is not within."""
    expected = [int(is_inside(ring, point)) for point in points]
    places = texts([wkt([point], "POINT") for point in points])
    polygon = json.dumps({"type": "Polygon", "coordinates": [ring]})
    for fence in (wkt(ring), polygon):
        assert call("st_within", places, texts([fence] * len(points))) == (expected, [])
        # Level 1 of a function's law: a batch of one row gives the same.
        assert call("st_within", places.take_rows([0]), texts([fence]))[0] == expected[:1]  # type: ignore[arg-type]


@given(WHOLE, WHOLE, WHOLE, WHOLE)
def test_lines_meet_or_not(a: Point, b: Point, c: Point, d: Point) -> None:
    """Two segments; they may touch, lie in one another, or be a single point."""
    crosses = side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0
    touches = is_between(a, b, c) or is_between(a, b, d) or is_between(c, d, a) or is_between(c, d, b)
    found, failures = call("st_intersects", texts([wkt([a, b], "LINESTRING")]), texts([wkt([c, d], "LINESTRING")]))
    assert (found, failures) == ([int(crosses or touches)], [])


@given(*[st.tuples(st.integers(-9, 8), st.integers(1, 9))] * 4)
def test_rectangles_overlap_or_not(left: Point, low: Point, other_left: Point, other_low: Point) -> None:
    """They overlap if they share an area and neither holds the other."""

    def box(x: Point, y: Point) -> tuple[int, int, int, int]:
        return x[0], y[0], x[0] + x[1], y[0] + y[1]

    a, b = box(left, low), box(other_left, other_low)
    shared = (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    expected = int(shared[0] < shared[2] and shared[1] < shared[3] and shared not in (a, b))
    first, second = (texts([wkt([(w, s), (e, s), (e, n), (w, n), (w, s)])]) for w, s, e, n in (a, b))
    assert call("st_overlaps", first, second) == ([expected], [])


@given(st.lists(PLACES, min_size=1, max_size=10))
def test_points_come_back_digit_by_digit(places: list[tuple[float, float]]) -> None:
    """CreatePoint writes what a line of such points reads."""
    points, failures = call("createpoint", floats([latitude for latitude, _ in places]), floats([longitude for _, longitude in places]))
    assert not failures
    assert [tuple(json.loads(str(point))["coordinates"]) for point in points] == [(x + 0.0, y + 0.0) for y, x in places]
    column = Variant.of(len(points), {Kind.RECORD: pa.array(points, pa.string())})
    lines, _ = call("createlinestring", column, column, column)
    assert [json.loads(str(line))["coordinates"][2] for line in lines] == [json.loads(str(point))["coordinates"] for point in points]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is neither GeoJSON nor WKT"),
        ("somewhere", "it is neither GeoJSON nor WKT"),
        ("SRID=4326;POINT(1 2)", "it is neither GeoJSON nor WKT"),
        ("POINT(1 2)\0", "it is neither GeoJSON nor WKT"),
        ("POINT(1 nan)", "a latitude is outside -90 to 90"),
        ("POINT(1 90.5)", "a latitude is outside -90 to 90"),
        ("POINT(1e400 2)", "a longitude is outside -180 to 180"),
        ("CIRCULARSTRING(0 0,1 1,2 0)", "it has arcs"),
        ("POLYGON((0 0,1 1,0 1,1 0,0 0))", "it is no polygon: Self-intersection"),
        ("(" * 100_000, "it is neither GeoJSON nor WKT"),
        ("GEOMETRYCOLLECTION(" * 50_000, "it has more than 500 members"),
        ('{"type":"GeometryCollection","geometries":[' * 50_000, "it has more than 500 members"),
        ('{"type":"Point","coordinates":' + "[" * 100_000, "it is no GeoJSON geometry"),
        ('{"type":"Point","coordinates":["a",2]}', "it is no GeoJSON geometry"),
        ('{"type":"Point","coordinates":[1e999,2]}', "it is no GeoJSON geometry"),
        ('{"kind":"Point"}', "it is no GeoJSON geometry"),
        ("LINESTRING(" + ",".join(["0 0"] * 100_001) + ")", "it has more than 100000 points"),
        ("POLYGON((" + ",".join(["0 0"] * 1_000_000) + "))", "it has more than 100000 points"),
    ],
)
def test_what_is_no_geometry_costs_its_row_alone(text: str, reason: str) -> None:
    """Broken, hostile and huge texts: one clear reason, and the other rows have their values."""
    found = call("st_within", texts(["POINT(1 1)", text, None]), texts(["POLYGON((0 0,2 0,2 2,0 2,0 0))"] * 3))
    assert found == ([1, None, None], [([1], f"ST_WITHIN failed: {reason}")])


def test_a_nested_collection_within_the_limit_is_read() -> None:
    """As deep as it may be: readers go down one call deeper for each."""
    deep = "GEOMETRYCOLLECTION(" * geography.MEMBERS_MAX + "POINT(1 1)" + ")" * geography.MEMBERS_MAX
    assert call("st_intersects", texts([deep]), texts(["POINT(1 1)"])) == ([1], [])


def test_a_polygon_of_100_000_points_is_compared() -> None:
    """A saw with teeth: the largest that is accepted."""
    teeth = [(x / 1_000, y) for x in range(49_998) for y in (1, 2)]
    saw = f"POLYGON((0 0,{','.join(f'{x} {y}' for x, y in teeth)},50 0,0 0))"
    assert saw.count(",") + 1 == geography.POINTS_MAX - 1
    points = texts(["POINT(25.0005 1.2)", "POINT(60 0.5)", "POINT(25 0.5)"])
    assert call("st_within", points, texts([saw] * 3)) == ([1, 0, 1], [])


def test_a_missing_package_says_how_to_install_it() -> None:
    """Without the extra a script is refused, and only one that needs it."""
    missing = patch.object(geography, "find_spec", return_value=None)
    script = "SELECT {} AS x INTO out FROM a TIMESTAMP BY at"
    with missing, pytest.raises(QueryError, match="ST_DISTANCE needs shapely and pyproj") as caught:
        program_of(script.format("ST_DISTANCE(p, q)"), [InputSchema("a", is_free=True)])
    assert caught.value.example == "pip install 'tidegate[geo]'"
    with missing:
        program_of(script.format("LOWER(p)"), [InputSchema("a", is_free=True)])


def test_every_function_is_called_by_its_name() -> None:
    """The seven of Stream Analytics."""
    names = {"createpoint", "createlinestring", "createpolygon", "st_distance", "st_intersects", "st_overlaps", "st_within"}
    assert names == GEOGRAPHY
