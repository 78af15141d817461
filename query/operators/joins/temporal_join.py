"""
Temporal joins: pairs of rows that lie near each other in time and have equal keys.

A pair comes at the later of its two times. With LEFT JOIN a left row without any match comes once, with NULL on the right, at the first
instant from which no match of it can come (and not before its own time): the upper end of its range of time.

Rows of the same instant have a fixed order: pairs by their left row, then by their right row, each in the order of its side; after them the
unmatched left rows. The work grows with the new rows: a new left row is matched with all right rows, a new right row with the left rows
from before, and a left row whose time is over is checked once for any match. A row whose key cannot be computed is bad; a pair on which
another condition of ON fails does not match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from query.operators.joins.joined_rows import add_keys, filter_pairs, have_all_keys, join_rows, keys_of, unmatched_rows
from query.operators.joins.matching import KeyedRows, Matches, Pairs, find_matches
from query.plan.nodes import Join
from query.plan.operator import Operator
from query.plan.row_tables import Mask, Retained, Ticks, by_substream, no_rows, ticks
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Expr
from tidegate.expressions.variant import from_columns

LEFT, RIGHT = 0, 1
_NO_TIME = np.iinfo(np.int64).min
_PACKED_MAX = 2**63


@dataclass(frozen=True)
class _Side:
    """The retained rows of one side, and for each the slice of time of its substream."""

    table: pa.Table
    keyed: KeyedRows
    system_us: Ticks
    from_us: Ticks
    to_us: Ticks

    def rows(self, chosen: Mask) -> KeyedRows:
        """Return the chosen rows that have a time."""
        return self.keyed.select(np.flatnonzero(chosen & self.timed))

    @property
    def timed(self) -> Mask:
        """Which rows have a time to compare with the other side's."""
        mask: Mask = self.keyed.time_us != _NO_TIME
        return mask

    @property
    def known(self) -> Mask:
        return self.system_us < self.to_us

    @property
    def fresh(self) -> Mask:
        return self.known & (self.system_us >= self.from_us)

    @property
    def old(self) -> Mask:
        return self.known & (self.system_us < self.from_us)


@dataclass(frozen=True)
class _Pairs:
    """Results as their left and right rows, -1 if there is none, and the time of each."""

    left: Ticks
    right: Ticks
    system_us: Ticks

    @classmethod
    def sorted(cls, parts: Sequence[_Pairs], lefts: int, rights: int) -> _Pairs:
        """Concatenate parts in the order of the module's docstring; *lefts* and *rights* are the numbers of rows on the two sides."""
        left, right, system_us = (np.concatenate([getattr(part, name) for part in parts]) for name in ("left", "right", "system_us"))
        low_us = system_us.min()
        instant = (system_us - low_us) * 2 + (right < 0)
        if (int(instant.max()) + 1) * lefts * (rights + 1) < _PACKED_MAX:
            # Sorting instant, left and right row as one number takes a tenth of the time of sorting by several columns.
            packed = np.sort((instant * lefts + left) * (rights + 1) + right + 1)
            rest, right = np.divmod(packed, rights + 1)
            instant, left = np.divmod(rest, lefts)
            return cls(left, right - 1, instant // 2 + low_us)
        order = np.lexsort((right, left, instant))
        return cls(left[order], right[order], system_us[order])


@dataclass(frozen=True)
class TemporalJoin(Operator):
    """The operator of a :class:`query.plan.nodes.Join`."""

    node: Join
    _keys: tuple[tuple[Expr, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", tuple(tuple(pair[side] for pair in self.node.keys) for side in (LEFT, RIGHT)))

    @property
    def sides(self) -> int:
        return 2

    @property
    def reach_us(self) -> int:
        return self.node.reach_us

    def prepare(self, below: pa.Table, side: int = LEFT) -> tuple[pa.Table, pa.Table]:
        """Return the rows with their computed keys (``g0_s``, ...), without those that can give no result, and the bad rows."""
        kept, bad = add_keys(below, self._keys[side])
        if side == RIGHT or not self.node.outer:
            can_match = (self._time(kept, side) != _NO_TIME) & have_all_keys(kept, self._keys[side])
            kept = kept if can_match.all() else kept.filter(pa.array(can_match))
        return kept, bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        left, right = (None if rows is None else self._side(rows, closing, side) for side, rows in enumerate(retained))
        if left is None:
            return no_rows()
        parts = [] if right is None else [self._join_pairs(left, right, pairs) for pairs in self._new_pairs(left, right)]
        if self.node.outer:
            parts.append(self._unmatched(left, right))
        if not any(len(part.left) for part in parts):
            return no_rows()
        pairs = _Pairs.sorted(parts, left.table.num_rows, 0 if right is None else right.table.num_rows)
        if right is None:
            return unmatched_rows(left.table, pairs.left, pairs.system_us)
        return join_rows(left.table, right.table, (pairs.left, pairs.right), self._width, pairs.system_us)

    def span_us(self, instant_us: int, side: int = LEFT) -> tuple[int, int]:
        # If another time than the row's own is compared, it is never the later of the two.
        instant = np.array([instant_us])
        return instant_us, int(self._last(instant, instant, side)[0])

    @property
    def can_look_up(self) -> bool:
        return True

    def lookup_keys(self, retained: pa.Table, side: int) -> pa.Table:
        """Return the substream and the keys of rows; if keys of different kinds are equal, they are in different columns."""
        columns = {"sub": retained["sub"]}
        for number, key in enumerate(keys_of(retained, self._keys[side])):
            columns |= key.columns(f"k{number}")
        return pa.table(columns)

    def asking_rows(self, retained: pa.Table, closing: pa.Table, side: int) -> Mask:
        """Return which rows are new, and which left rows may turn out to have no match."""
        sub, system_us = ticks(retained, "sub"), ticks(retained, "system_us")
        from_us, to_us = (by_substream(sub, closing, name) for name in ("from_us", "to_us"))
        mask: Mask = (system_us >= from_us) & (system_us < to_us)
        if side == LEFT and self.node.outer:
            last = self._last(system_us, self._time(retained, side), side)
            mask |= (last >= from_us) & (last < to_us)
        return mask

    def may_ask(self, instants_us: tuple[int, int], from_us: int, to_us: int, side: int) -> bool:
        if side == LEFT and self.node.outer and (self.node.left_time is not None or self.span_us(instants_us[0], side)[1] < to_us):
            return True
        return instants_us[1] >= from_us

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = LEFT) -> pa.Table:
        """Return the rows that a pair at or after ``to_us`` can contain, or that decide whether a left row has a match."""
        last = self._last(ticks(retained, "system_us"), self._time(retained, side), side)
        needed = last >= by_substream(ticks(retained, "sub"), horizon, "to_us")
        return retained if needed.all() else retained.filter(pa.array(needed))

    def _last(self, system_us: Ticks, time_us: Ticks, side: int) -> Ticks:
        """Return the last instant of a result that depends on each row."""
        bounds = self.node.bounds
        if side == LEFT:
            # Rows without a time hold the least int64, from which the bounds would overflow: 0 takes its place here, and they are set
            # below.
            _, until = bounds.right_range(np.maximum(time_us, 0))
            last = np.maximum(system_us, until if self.node.outer else until - 1)
            last[time_us == _NO_TIME] = system_us[time_us == _NO_TIME]
            return last
        _, until = bounds.left_range(time_us)
        latest = until - 1
        last = np.maximum(system_us, latest + self.node.left_spread_us)
        return np.maximum(last, bounds.right_range(latest)[1]) if self.node.outer else last

    # Retained rows

    def _side(self, table: pa.Table, closing: pa.Table, side: int) -> _Side:
        sub = ticks(table, "sub")
        keyed = KeyedRows(np.arange(table.num_rows), sub, self._time(table, side), keys_of(table, self._keys[side]))
        slices = (by_substream(sub, closing, name) for name in ("from_us", "to_us"))
        return _Side(table, keyed, ticks(table, "system_us"), *slices)

    def _time(self, table: pa.Table, side: int) -> Ticks:
        """Return the times that DATEDIFF compares."""
        slot = self.node.left_time if side == LEFT else None
        if slot is None:
            return ticks(table, "system_us")
        times = from_columns(table, f"s{slot.index}").of_kind(Kind.DATETIME)
        time_us: Ticks = pc.fill_null(times, int(_NO_TIME)).to_numpy()
        return time_us

    # Pairs

    def _new_pairs(self, left: _Side, right: _Side) -> Iterator[Pairs]:
        """Yield the pairs (left row, right row) whose later time lies in the slice; conditions are not evaluated yet."""
        bounds = self.node.bounds
        fresh = left.rows(left.fresh)
        for matches in find_matches(fresh, *bounds.right_range(fresh.time_us), right.keyed, right.known):
            yield from matches.pairs()
        fresh = right.rows(right.fresh)
        # Only with left rows from before: pairs of two new rows have been yielded above.
        for matches in find_matches(fresh, *bounds.left_range(fresh.time_us), left.keyed, left.old & left.timed):
            yield from ((lefts, rights) for rights, lefts in matches.pairs())

    def _join_pairs(self, left: _Side, right: _Side, pairs: Pairs) -> _Pairs:
        lefts, rights = self._filter_pairs(left, right, pairs)
        return _Pairs(lefts, rights, np.maximum(left.system_us[lefts], right.system_us[rights]))

    def _filter_pairs(self, left: _Side, right: _Side, pairs: Pairs) -> Pairs:
        return filter_pairs(self.node.residual, left.table, right.table, pairs, self._width)

    @property
    def _width(self) -> int:
        return len(self.node.left.columns)

    # Left rows without a match

    def _unmatched(self, left: _Side, right: _Side | None) -> _Pairs:
        """Return the left rows without a match whose last chance to match has passed in the slice."""
        time_us = left.keyed.time_us
        # As in _last: rows without a time would overflow.
        _, until = self.node.bounds.right_range(np.maximum(time_us, 0))
        certain_us = np.where(left.timed, np.maximum(left.system_us, until), left.system_us)
        due = (certain_us >= left.from_us) & (certain_us < left.to_us)
        if right is not None and due.any():
            asking = left.rows(due)
            for matches in find_matches(asking, *self.node.bounds.right_range(asking.time_us), right.keyed, right.known):
                due[self._matched_rows(left, right, matches)] = False
        rows = np.flatnonzero(due)
        return _Pairs(rows, np.full(len(rows), -1, dtype=np.int64), certain_us[rows])

    def _matched_rows(self, left: _Side, right: _Side, matches: Matches) -> Ticks:
        if self.node.residual is None:
            return matches.asking[matches.count > 0]
        lefts = [self._filter_pairs(left, right, pairs)[LEFT] for pairs in matches.pairs()]
        return np.unique(np.concatenate(lefts)) if lefts else np.empty(0, dtype=np.int64)
