"""
The reach of a point: the box of longitudes and latitudes outside of which every point is farther than a distance.

Law: a point within the distance lies in the box. A way of d metres leaves its latitude by at most d / 110,000 degrees, since a degree of a
meridian has at least 110,574 m; it stays where a parallel has at least the radius a * cos(latitude), a being the radius of the equator, so
it leaves its longitude by at most d over that radius.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ordering.arrays import Mask
from tidegate.language.expressions.functions.geography import Shapes

Degrees = npt.NDArray[np.float64]
_METRES_OF_DEGREE = 110_000.0
_EQUATOR_M = 6_378_137.0
# Nearer to a pole all longitudes are in reach.
_POLAR_DEGREES = 89.9
_ROUND = 1.0 + 1e-9


def reach_of(latitude: Degrees, metres: float) -> tuple[Degrees, float]:
    """Return how far a box reaches to both sides of points: in longitude, for each, and in latitude; 360 stands for all longitudes."""
    # Distances are compared rounded to the millimetre.
    far = (max(metres, 0.0) + 0.001) * _ROUND
    in_latitude = far / _METRES_OF_DEGREE
    highest = np.abs(latitude) + in_latitude
    is_polar = highest >= _POLAR_DEGREES
    radius = _EQUATOR_M * np.cos(np.radians(np.minimum(highest, _POLAR_DEGREES)))
    in_longitude = np.where(is_polar, 360.0, np.minimum(np.degrees(far / radius) * _ROUND, 360.0))
    return in_longitude, in_latitude


def are_within_reach(first: Shapes, second: Shapes, metres: float) -> Mask:
    """Return which pairs of points may be at most so far apart; pairs of other geometries may."""
    import shapely

    # What is no point has no coordinates here, and a comparison with those is false.
    longitude, latitude = shapely.get_x(first), shapely.get_y(first)
    in_longitude, in_latitude = reach_of(np.nan_to_num(latitude), metres)
    apart = np.abs(longitude - shapely.get_x(second))
    beyond: Mask = (np.abs(latitude - shapely.get_y(second)) > in_latitude) | (np.minimum(apart, 360.0 - apart) > in_longitude)
    return ~beyond
