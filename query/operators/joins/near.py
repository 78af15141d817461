"""
Which records of a table can meet a condition on how geometries lie: a tree of the records' boxes is asked for each row.

Law: every pair that meets the condition is found; others may be found too, and are judged by the condition itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ordering.arrays import Ints
from query.operators.joins.lying import DISTANCE, Lying
from query.operators.joins.matching import Pairs
from query.operators.joins.reach import reach_of
from tidegate.language.expressions.functions.geography import Shapes

if TYPE_CHECKING:
    from shapely import STRtree


@dataclass(frozen=True)
class NearRecords:
    """The records of a table by their geometries, for one condition."""

    lying: Lying
    tree: STRtree
    # The records that are there and no points: their distance from anything is 0.
    extended: Ints
    # All that are there.
    known: Ints

    @classmethod
    def of(cls, lying: Lying, shapes: Shapes) -> NearRecords:
        """Return the records with these geometries."""
        import shapely

        is_known = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
        is_point = shapely.get_type_id(shapes) == shapely.GeometryType.POINT
        return cls(lying, shapely.STRtree(shapes), np.flatnonzero(is_known & ~is_point), np.flatnonzero(is_known))

    def pairs(self, shapes: Shapes) -> Pairs:
        """Return row and record of each pair that can meet the condition, given the rows' geometries; in order, each pair once."""
        if self.lying.function != DISTANCE:
            row, record = self.tree.query(shapes)
            return _sorted(row, record)
        return self._near(shapes)

    def _near(self, shapes: Shapes) -> Pairs:
        import shapely

        is_known = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
        is_point = is_known & (shapely.get_type_id(shapes) == shapely.GeometryType.POINT)
        points, others = np.flatnonzero(is_point), np.flatnonzero(is_known & ~is_point)
        longitude, latitude = shapely.get_x(shapes[points]), shapely.get_y(shapes[points])
        in_longitude, in_latitude = reach_of(latitude, self.lying.value)
        found = [_all_pairs(points, self.extended), _all_pairs(others, self.known)]
        # A box beyond 180 degrees reaches the other side of the world map.
        for turn in (-360.0, 0.0, 360.0):
            west, east = longitude - in_longitude + turn, longitude + in_longitude + turn
            touches = np.flatnonzero((west <= 180) & (east >= -180))
            boxes = shapely.box(west[touches], latitude[touches] - in_latitude, east[touches], latitude[touches] + in_latitude)
            row, record = self.tree.query(boxes)
            found.append((points[touches[row]], record))
        return _sorted(*(np.concatenate([pairs[side] for pairs in found]) for side in (0, 1)))


def _all_pairs(rows: Ints, records: Ints) -> Pairs:
    return np.repeat(rows, len(records)), np.tile(records, len(rows))


def _sorted(row: Ints, record: Ints) -> Pairs:
    if not len(row):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    count = int(record.max()) + 1
    packed = np.unique(row.astype(np.int64) * count + record)
    return packed // count, packed % count
