"""
Geography: points, lines and polygons, their distance and how they lie to each other. Needs the extra geo: shapely and pyproj.

A geometry is a GeoJSON object, as a record or a text, or WKT in a text; x is the longitude, y the latitude, both in degrees.
Distances are geodesics of WGS-84. Everything else is computed in the plane of longitude and latitude: there the sides of a polygon are
straight, the order of its points does not matter, and what crosses the antimeridian is written as two parts.

Law: a value follows from its arguments alone, digit by digit. A geometry is prepared or not by its own number of points, never by how
often a batch has it, and distances are rounded to the millimetre, far above what machines differ in.

>>> from tidegate.testing import run_query
>>> script = "SELECT CreatePoint(lat, lon) AS p, ST_DISTANCE(CreatePoint(lat, lon), CreatePoint(52.5, 13.4)) AS metres INTO out FROM a"
>>> run_query(script, {"a": [{"lat": 52.5, "lon": 13.5}]}).rows
[{'p': {'type': 'Point', 'coordinates': [13.5, 52.5]}, 'metres': 6791.023}]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from ordering.arrays import Mask
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.functions.column_functions import REGISTERED, ColumnFunction, FailedRows, argument_column
from tidegate.language.expressions.functions.definition import ARGUMENTS_MAX
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant

if TYPE_CHECKING:
    from pyproj import Geod

# Of each row a geometry of shapely; None without one.
Shapes = npt.NDArray[np.object_]
# Most points of a geometry: the time of a comparison grows with them.
POINTS_MAX = 100_000
# A text with more commas than this has more points, whatever its form, and is not read: four numbers a point at most, and the rings.
_COMMAS_MAX = 5 * POINTS_MAX
# Most geometries within one: readers go down one call deeper for each that lies in another.
MEMBERS_MAX = 500
_COLLECTIONS = re.compile("COLLECTION", re.IGNORECASE)
_ARCS = re.compile("CURVE|SURFACE|CIRCULAR", re.IGNORECASE)
_LONGITUDE_MAX, _LATITUDE_MAX = 180.0, 90.0
_RING_MIN = 4
_MILLIMETRE_DIGITS = 3
# Numbers of types in shapely.
_POINT, _POLYGON, _POLYGONS = 0, 3, (3, 6, 7)
# A tenth of a millimetre.
_SAME_DEGREES = 1e-9
_TOO_MANY_POINTS = f"it has more than {POINTS_MAX} points"
_UNREADABLE = {True: "it is no GeoJSON geometry", False: "it is neither GeoJSON nor WKT"}
_PACKAGES = ("shapely", "pyproj")


def missing_packages() -> list[str]:
    """Return the packages that the functions need and that are not installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def library_versions() -> str:
    """Return the versions of what computes values."""
    import shapely
    from pyproj.geod import geodesic_version_str

    return f"GEOS {shapely.geos_version_string}, GeographicLib {geodesic_version_str}"


def package_versions() -> str:
    """Return the versions of the packages that carry it."""
    return ", ".join(f"{name} {version(name)}" for name in _PACKAGES)


# Reading


def read_geometries(column: Variant, called: str) -> tuple[Shapes, list[FailedRows]]:
    """Return the geometry of each row, and the rows with a value that is none; *called* is the function's name in reasons."""
    shapes, failures = np.full(column.length, None, dtype=np.object_), list[FailedRows]()
    for kind, part in column.parts.items():
        rows = np.flatnonzero(part.is_valid().to_numpy(zero_copy_only=False))
        if kind not in (Kind.RECORD, Kind.NVARCHAR):
            failures.append(FailedRows(rows, QueryReason.WRONG_KIND.text("a geometry", kind.asa_name)))
            continue
        # A table of reference data has the same few geometries in many rows.
        coded = part.take(pa.array(rows)).dictionary_encode()
        found, problems = _read_texts(coded.dictionary.to_pylist())
        places = coded.indices.to_numpy(zero_copy_only=False)
        shapes[rows] = found[places]
        for place, problem in problems.items():
            failures.append(FailedRows(rows[places == place], QueryReason.CALL.text(called, problem)))
    return shapes, failures


def _read_texts(texts: Sequence[str]) -> tuple[Shapes, dict[int, str]]:
    """Return the geometry of each text, ready to be compared, and for each that has none why, by its place."""
    import shapely

    shapes: Shapes = np.full(len(texts), None, dtype=np.object_)
    is_json = np.array([text.lstrip()[:1] == "{" for text in texts], dtype=np.bool_)
    problems = {place: problem for place, text in enumerate(texts) if (problem := _hostile(text, is_json[place]))}
    is_read = np.array([place not in problems for place in range(len(texts))], dtype=np.bool_)
    array = np.array(texts, dtype=np.object_)
    for chosen, read in ((is_json & is_read, shapely.from_geojson), (~is_json & is_read, shapely.from_wkt)):
        if chosen.any():
            with np.errstate(all="ignore"):
                shapes[chosen] = read(array[chosen], on_invalid="ignore")
    for place in np.flatnonzero(is_read & shapely.is_missing(shapes)).tolist():
        shapes[place] = _mended_json(texts[place]) if is_json[place] else _mended_wkt(texts[place])
        if shapes[place] is None:
            problems[place] = _UNREADABLE[is_json[place]]
    _find_problems(shapes, problems)
    shapes[list(problems)] = None
    # By its own size: whether it pays off for a batch must not decide how a value is computed.
    shapely.prepare(shapes[shapely.get_num_coordinates(shapes) > 1])
    return shapes, problems


def _hostile(text: str, is_json: bool) -> str:
    """Return why a text is not even read; empty if it is."""
    if text.count(",") > _COMMAS_MAX:
        return _TOO_MANY_POINTS
    if (text.count("{") if is_json else len(_COLLECTIONS.findall(text))) > MEMBERS_MAX:
        return f"it has more than {MEMBERS_MAX} members"
    if not is_json and _ARCS.search(text):
        return "it has arcs"
    return _UNREADABLE[is_json] if "\0" in text else ""


def _find_problems(shapes: Shapes, problems: dict[int, str]) -> None:
    import shapely

    for place in np.flatnonzero(shapely.get_num_coordinates(shapes) > POINTS_MAX):
        problems[int(place)] = _TOO_MANY_POINTS
        shapes[place] = None
    limits = np.array([_LONGITUDE_MAX, _LATITUDE_MAX, _LONGITUDE_MAX, _LATITUDE_MAX])
    # Written so that a coordinate that is no number is outside too.
    is_inside = (np.abs(shapely.bounds(shapes)) <= limits) | shapely.is_empty(shapes)[:, None] | shapely.is_missing(shapes)[:, None]
    for place in np.flatnonzero(~is_inside.all(axis=1)):
        problems[int(place)] = (
            "a longitude is outside -180 to 180" if not is_inside[place, ::2].all() else "a latitude is outside -90 to 90"
        )
        shapes[place] = None
    is_area = np.isin(shapely.get_type_id(shapes), _POLYGONS)
    for place in np.flatnonzero(is_area & ~shapely.is_valid(shapes)):
        problems[int(place)] = f"it is no polygon: {shapely.is_valid_reason(shapes[place]).partition('[')[0]}"


def _mended_json(text: str) -> object:
    """Return the polygon whose coordinates are one ring, not a list of rings: pages of Stream Analytics write them so. Else None."""
    import shapely

    try:
        value = orjson.loads(text)
        ring = value["coordinates"]
        is_ring = value["type"] == "Polygon" and isinstance(ring[0][0], (int, float))
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return None
    whole = orjson.dumps({"type": "Polygon", "coordinates": [ring]}).decode()
    return shapely.from_geojson(whole, on_invalid="ignore") if is_ring else None


def _mended_wkt(text: str) -> object:
    """Return the polygon with its rings closed: the last point may be left out, or differ from the first in its last digits. Else None."""
    import shapely

    shape = shapely.from_wkt(text, on_invalid="fix")
    if shapely.get_type_id(shape) != _POLYGON:
        return shape
    rings = [_without_near_end(shapely.get_coordinates(ring)) for ring in (shape.exterior, *shape.interiors)]
    return shapely.Polygon(rings[0], rings[1:])


def _without_near_end(ring: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    is_near = len(ring) > _RING_MIN and (np.abs(ring[-2] - ring[0]) < _SAME_DEGREES).all()
    return np.delete(ring, -2, axis=0) if is_near else ring


# Points, lines, polygons


def _create_point(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
    latitude, longitude = (argument_column(arg, Kind.FLOAT).to_numpy(zero_copy_only=False) + 0.0 for arg in args)
    is_known = ~(np.isnan(latitude) | np.isnan(longitude))
    failures = []
    for values, limit, name in ((latitude, _LATITUDE_MAX, "latitude"), (longitude, _LONGITUDE_MAX, "longitude")):
        outside = np.flatnonzero(is_known & ~(np.abs(values) <= limit))
        if len(outside):
            failures.append(FailedRows(outside, QueryReason.CALL.text("CreatePoint", f"a {name} is outside -{limit:.0f} to {limit:.0f}")))
            is_known[outside] = False
    texts: list[bytes | None] = [None] * length
    pairs = np.column_stack((longitude, latitude))[is_known].tolist()
    for row, pair in zip(np.flatnonzero(is_known).tolist(), pairs, strict=True):
        texts[row] = b'{"type":"Point","coordinates":%s}' % orjson.dumps(pair)
    return _records(texts, length), failures


def _connect(called: str, kind: str, is_ring: bool) -> Callable[[Sequence[Variant], int], tuple[Variant, Sequence[FailedRows]]]:
    """Return the function that makes a line or a ring of points."""

    def compute(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
        import shapely

        failures, is_known = list[FailedRows](), np.ones(length, dtype=np.bool_)
        points = np.empty((length, len(args), 2), dtype=np.float64)
        for number, arg in enumerate(args):
            shapes, failed = read_geometries(arg, called)
            is_point = (shapely.get_type_id(shapes) == _POINT) & ~shapely.is_empty(shapes)
            others = np.flatnonzero(~is_point & ~shapely.is_missing(shapes))
            if len(others):
                failed.append(FailedRows(others, QueryReason.CALL.text(called, "a point is needed")))
            failures += failed
            is_known &= is_point
            points[:, number, 0], points[:, number, 1] = shapely.get_x(shapes) + 0.0, shapely.get_y(shapes) + 0.0
        if is_ring:
            is_open = np.flatnonzero(is_known & (points[:, 0] != points[:, -1]).any(axis=1))
            if len(is_open):
                failures.append(FailedRows(is_open, QueryReason.CALL.text(called, "the first and the last point differ")))
                is_known[is_open] = False
        texts: list[bytes | None] = [None] * length
        for row in np.flatnonzero(is_known).tolist():
            coordinates = orjson.dumps(points[row].tolist())
            texts[row] = b'{"type":"%s","coordinates":%s}' % (kind.encode(), b"[%s]" % coordinates if is_ring else coordinates)
        return _records(texts, length), failures

    return compute


def _records(texts: Sequence[bytes | None], length: int) -> Variant:
    return Variant.of(length, {Kind.RECORD: pa.array(texts, pa.binary()).cast(Kind.RECORD.arrow)})


# Comparisons


def relate(name: str, first: Shapes, second: Shapes) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return for each pair 1 or 0, and whether both geometries are there; *name* is that of the function, in lower case."""
    import shapely

    is_known: Mask = ~(shapely.is_missing(first) | shapely.is_missing(second))
    # The geometry named first is the one whose preparation is used.
    if name == "st_within":
        verdict = shapely.contains(second, first)
    else:
        verdict = (shapely.intersects if name == "st_intersects" else shapely.overlaps)(first, second)
    return np.asarray(verdict, dtype=np.int64), is_known


def _relation(name: str) -> Callable[[Sequence[Variant], int], tuple[Variant, Sequence[FailedRows]]]:
    def compute(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
        (first, failures), (second, more) = (read_geometries(arg, name.upper()) for arg in args)
        verdict, is_known = relate(name, first, second)
        return Variant.of(length, {Kind.BIGINT: pa.array(verdict, mask=~is_known)}), [*failures, *more]

    return compute


def distances(first: Shapes, second: Shapes, enough: Mask | None = None) -> tuple[npt.NDArray[np.float64], Mask]:
    """
    Return for each pair the length of the geodesic between points, and whether both geometries are there; 0 if one of the two is a line or
    a polygon, as in Stream Analytics. Pairs of points that are not *enough* get infinity: nobody needs to know more.
    """
    import shapely

    is_known: Mask = ~(shapely.is_missing(first) | shapely.is_missing(second) | shapely.is_empty(first) | shapely.is_empty(second))
    are_points = is_known & (shapely.get_type_id(first) == _POINT) & (shapely.get_type_id(second) == _POINT)
    metres = np.zeros(len(first), dtype=np.float64)
    if enough is not None:
        metres[are_points & ~enough] = np.inf
        are_points &= enough
    ends: list[Any] = [read(shapes[are_points]) for shapes in (first, second) for read in (shapely.get_x, shapely.get_y)]
    if are_points.any():
        metres[are_points] = np.round(_ellipsoid().inv(*ends)[2], _MILLIMETRE_DIGITS)
    return metres, is_known


def _distance(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
    (first, failures), (second, more) = (read_geometries(arg, "ST_DISTANCE") for arg in args)
    metres, is_known = distances(first, second)
    return Variant.of(length, {Kind.FLOAT: pa.array(metres, mask=~is_known)}), [*failures, *more]


@cache
def _ellipsoid() -> Geod:
    from pyproj import Geod

    return Geod(ellps="WGS84")


RELATIONS = ("st_intersects", "st_overlaps", "st_within")
_FUNCTIONS = {
    "createpoint": ColumnFunction(2, 2, _create_point, Kind.RECORD, (Kind.FLOAT, Kind.FLOAT)),
    "createlinestring": ColumnFunction(2, ARGUMENTS_MAX, _connect("CreateLineString", "LineString", is_ring=False), Kind.RECORD),
    "createpolygon": ColumnFunction(_RING_MIN, ARGUMENTS_MAX, _connect("CreatePolygon", "Polygon", is_ring=True), Kind.RECORD),
    "st_distance": ColumnFunction(2, 2, _distance, Kind.FLOAT),
    **{name: ColumnFunction(2, 2, _relation(name), Kind.BIGINT) for name in RELATIONS},
}
# The functions of this module, by name in lower case.
GEOGRAPHY_FUNCTIONS = tuple(_FUNCTIONS)
for _name, _function in _FUNCTIONS.items():
    REGISTERED[_name] = _function
