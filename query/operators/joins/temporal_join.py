"""
Temporal joins: pairs of rows that lie near each other in time and have equal keys.

A pair comes at the later of its two times. With LEFT JOIN a left row without any match comes once, with NULL on the right, at the last
instant at which a match of it could have come (and not before its own time): the last tick of its range of time.

A key gives at most ``pairs_max`` pairs at one instant: the first ones in the order of rows, counted before the other conditions of ON are
evaluated. The rest is left out and makes one failed row. A left row matched only by pairs that are left out does have a match.

Rows of the same instant have a fixed order: pairs by their left row, then by their right row, each in the order of its side; after them the
unmatched left rows. The work grows with the new rows: a new left row is matched with all right rows, a new right row with the left rows
from before, and a left row whose time is over is checked once for any match. A row whose key cannot be computed is bad; a pair on which
another condition of ON fails does not match.

Many pairs are made in slices, so memory grows with the rows and not with the pairs: a stretch of time with too many is divided, and the
pairs of a single instant come left row by left row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.columns.segments import stable_order
from query.columns.large_tables import text_bytes
from query.operators.joins.joined_rows import (
    JoinSides,
    add_keys,
    has_computed_keys,
    have_all_keys,
    join_rows,
    keys_of,
    meet_condition,
    portions,
    select_columns,
    unmatched_rows,
)
from query.operators.joins.matching import KeyedRows, Matches, Pairs, find_matches
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX, Excess, Quota, number_keys
from query.plan.columns_read import ColumnNumbers, columns_read
from query.plan.gathered import Gathered, tables_of
from query.plan.nodes import Join
from query.plan.operator import Operator
from query.plan.row_tables import Retained, Ticks, by_substream, concat_rows, no_rows, ticks
from tidegate.basics.budget import BUDGET, cut
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr
from tidegate.language.expressions.variant import from_columns

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
    # The bytes of each row's texts.
    row_bytes: Ints

    def between(self, from_us: int, to_us: int) -> _Side:
        """Return the side for a part of the slice."""
        return replace(self, from_us=np.maximum(self.from_us, from_us), to_us=np.minimum(self.to_us, to_us))

    def rows(self, chosen: Mask) -> KeyedRows:
        """Return the chosen rows that have a time."""
        return self.keyed.select(np.flatnonzero(chosen & self.has_time))

    @property
    def has_time(self) -> Mask:
        """Which rows have a time to compare with the other side's."""
        mask: Mask = self.keyed.time_us != _NO_TIME
        return mask

    @property
    def known(self) -> Mask:
        """Which rows lie below the end of the slice."""
        return self.system_us < self.to_us

    @property
    def fresh(self) -> Mask:
        """Which rows lie in the slice: their pairs with all known rows are due."""
        return self.known & (self.system_us >= self.from_us)

    @property
    def old(self) -> Mask:
        """Which rows lie before the slice."""
        return self.known & (self.system_us < self.from_us)


@dataclass(frozen=True)
class _TimedPairs:
    """Results as their left and right rows, -1 if there is none, and the time of each."""

    left: Ticks
    right: Ticks
    system_us: Ticks

    @classmethod
    def concat_sorted(cls, parts: Sequence[_TimedPairs], lefts: int, rights: int) -> _TimedPairs:
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

    def select(self, chosen: Mask | slice) -> _TimedPairs:
        return _TimedPairs(self.left[chosen], self.right[chosen], self.system_us[chosen])


@dataclass(frozen=True)
class TemporalJoin(Operator):
    """The operator of a :class:`query.plan.nodes.Join`; *pairs_max* pairs of a key count at one instant."""

    node: Join
    pairs_max: int = JOIN_PAIRS_MAX
    # The columns that the nodes above read.
    needed: ColumnNumbers = None

    @cached_property
    def _keys(self) -> tuple[tuple[Expr, ...], ...]:
        """The keys of each side."""
        return tuple(tuple(pair[side] for pair in self.node.keys) for side in (LEFT, RIGHT))

    @property
    def sides(self) -> int:
        return 2

    @property
    def reach_us(self) -> int:
        return self.node.reach_us

    @property
    def computes_keys(self) -> bool:
        return has_computed_keys(self.node.keys)

    def prepare(self, below: pa.Table, side: int = LEFT) -> tuple[pa.Table, pa.Table]:
        """
        Return the rows with their computed keys (``g0_s``, ...), without those that can give no result, and the bad rows.

        Columns that a step computes only because it can fail on them go no further.
        """
        kept, bad = add_keys(select_columns(below, columns_read(self.node, self.needed)[side]), self._keys[side])
        if side == RIGHT or not self.node.outer:
            can_match = (self._time(kept, side) != _NO_TIME) & have_all_keys(kept, self._keys[side])
            kept = kept if can_match.all() else kept.filter(pa.array(can_match))
        return kept, bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        tables = [*self._tables_of_sides(retained, closing)]
        return concat_rows(tables) if tables else no_rows()

    def slices(self, gathered: Sequence[Gathered | None], closing: pa.Table) -> Iterator[pa.Table]:
        yield from self._tables_of_sides(tables_of(gathered), closing)

    def _tables_of_sides(self, retained: Retained, closing: pa.Table) -> Iterator[pa.Table]:
        left, right = (None if rows is None else self._side(rows, closing, side) for side, rows in enumerate(retained))
        if left is not None:
            yield from self._slices(left, right, int(pc.min(closing["from_us"]).as_py()), int(pc.max(closing["to_us"]).as_py()))

    @property
    def can_outgrow(self) -> bool:
        return True

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
            # Rows without a time hold the least int64, from which the bounds would overflow: 0 takes its place, and their result is set
            # below.
            _, until = bounds.right_range(np.maximum(time_us, 0))
            last = np.maximum(system_us, until - 1)
            last[time_us == _NO_TIME] = system_us[time_us == _NO_TIME]
            return last
        _, until = bounds.left_range(time_us)
        latest = until - 1
        last = np.maximum(system_us, latest + self.node.left_spread_us)
        return np.maximum(last, bounds.right_range(latest)[1] - 1) if self.node.outer else last

    # Retained rows

    def _side(self, table: pa.Table, closing: pa.Table, side: int) -> _Side:
        sub = ticks(table, "sub")
        keyed = KeyedRows(np.arange(table.num_rows), sub, self._time(table, side), keys_of(table, self._keys[side]))
        from_us, to_us = (by_substream(sub, closing, name) for name in ("from_us", "to_us"))
        return _Side(table, keyed, ticks(table, "system_us"), from_us, to_us, text_bytes(table))

    def _time(self, table: pa.Table, side: int) -> Ticks:
        """Return the times that DATEDIFF compares."""
        slot = self.node.left_time if side == LEFT else None
        if slot is None:
            return ticks(table, "system_us")
        times = from_columns(table, f"s{slot.index}").of_kind(Kind.DATETIME)
        time_us: Ticks = pc.fill_null(times, int(_NO_TIME)).to_numpy()
        return time_us

    # Slices

    def _slices(self, left: _Side, right: _Side | None, from_us: int, to_us: int) -> Iterator[pa.Table]:
        """Yield the results with ``from_us <= System.Timestamp < to_us`` in their order."""
        matches = [] if right is None else [*self._find_matches(left, right)]
        count = sum(matched.total for matched in matches)
        if right is None or count <= BUDGET.pairs:
            yield from self._slice(left, right, matches, count)
            return
        if to_us - from_us == 1:
            yield from self._slices_of_instant(left, right, from_us)
            return
        # Pairs come at the instants of new rows only.
        instants = np.unique(np.concatenate([side.system_us[side.fresh] for side in (left, right)]))
        parts = min(len(instants), -(-count // BUDGET.pairs))
        first, last = int(instants[0]), int(instants[-1])
        inner = instants[np.arange(1, parts) * len(instants) // parts].tolist()
        cuts = sorted({from_us, first, *inner, last + 1, to_us})
        for low_us, high_us in pairwise(cuts):
            yield from self._slices(left.between(low_us, high_us), right.between(low_us, high_us), low_us, high_us)

    def _slice(self, left: _Side, right: _Side | None, matches: Sequence[Matches], count: int) -> Iterator[pa.Table]:
        """Yield the results of a stretch of time with *count* pairs, of which there are not too many to sort at once."""
        parts: list[_TimedPairs] = []
        excess = None
        if right is not None:
            unfiltered = (self._add_times(left, right, pairs) for matched in matches for pairs in matched.pairs())
            if count > self.pairs_max:
                admitted, excess = self._limit(left, self._sort_pairs(left, right, [*unfiltered]))
                parts = [self._filter_pairs(left, right, admitted)]
            else:
                parts = [self._filter_pairs(left, right, pairs) for pairs in unfiltered]
        if self.node.outer:
            parts.append(self._unmatched_rows(left, right))
        if any(len(part.left) for part in parts):
            yield from self._tables(left, right, self._sort_pairs(left, right, parts))
        if excess is not None:
            yield excess.failed_rows(left.table, self.pairs_max)

    def _slices_of_instant(self, left: _Side, right: _Side, instant_us: int) -> Iterator[pa.Table]:
        """Yield the results of one instant in portions of left rows, so that no more pairs are made than fit in memory."""
        ranges = self.node.bounds.right_range
        matches = [
            matched
            for asking, eligible in ((left.rows(left.fresh), right.known), (left.rows(left.old), right.fresh))
            for matched in find_matches(asking, *ranges(asking.time_us), right.keyed, eligible)
        ]
        count = np.zeros(left.table.num_rows, dtype=np.int64)
        for matched in matches:
            np.add.at(count, matched.asking, matched.count)
        key = number_keys(left.keyed)
        quota = Quota(np.full(int(key.max()) + 1, self.pairs_max))
        rows = np.flatnonzero(count)
        for portion in cut(count[rows], BUDGET.pairs):
            chosen = np.zeros(len(count), dtype=np.bool_)
            chosen[rows[portion]] = quota.room[key[rows[portion]]] > 0
            parts = [self._add_times(left, right, pairs) for matched in matches for pairs in matched.select(chosen[matched.asking]).pairs()]
            if parts:
                pairs = self._sort_pairs(left, right, parts)
                yield from self._tables(left, right, self._filter_pairs(left, right, pairs.select(quota.admit(key[pairs.left]))))
        if self.node.outer:
            yield from self._tables(left, right, self._unmatched_rows(left, right))
        total = np.bincount(key, weights=count).astype(np.int64)
        if (total > self.pairs_max).any():
            yield _excess_of_instant(key, count, instant_us, self.pairs_max).failed_rows(left.table, self.pairs_max)

    def _tables(self, left: _Side, right: _Side | None, pairs: _TimedPairs) -> Iterator[pa.Table]:
        """Yield the joined rows of pairs in their order, in parts of limited size."""
        if right is None:
            yield unmatched_rows(left.table, pairs.left, pairs.system_us)
            return
        for part in portions((pairs.left, pairs.right), left.row_bytes, right.row_bytes):
            chosen = pairs.select(part)
            yield join_rows(left.table, right.table, (chosen.left, chosen.right), self._width, chosen.system_us)

    # Pairs

    def _find_matches(self, left: _Side, right: _Side) -> Iterator[Matches]:
        """Yield the matches whose pairs have their later time in the slice; conditions are not evaluated yet."""
        bounds = self.node.bounds
        fresh = left.rows(left.fresh)
        yield from find_matches(fresh, *bounds.right_range(fresh.time_us), right.keyed, right.known)
        fresh = right.rows(right.fresh)
        # Only with left rows from before: pairs of two new rows have been yielded above.
        for matches in find_matches(fresh, *bounds.left_range(fresh.time_us), left.keyed, left.old & left.has_time):
            yield replace(matches, is_swapped=True)

    def _limit(self, left: _Side, pairs: _TimedPairs) -> tuple[_TimedPairs, Excess | None]:
        """Return the pairs that count, and those that are left out."""
        key = number_keys(left.keyed)[pairs.left]
        instant = np.unique(pairs.system_us, return_inverse=True)[1].astype(np.int64)
        group = np.unique(instant * (int(key.max()) + 1) + key, return_inverse=True)[1].astype(np.int64)
        is_admitted = Quota(np.full(int(group.max()) + 1, self.pairs_max)).admit(group)
        rest = np.flatnonzero(~is_admitted)
        excess = Excess.of(group[rest], pairs.left[rest], pairs.system_us[rest], np.ones(len(rest), dtype=np.int64))
        return pairs.select(is_admitted), excess if len(rest) else None

    def _add_times(self, left: _Side, right: _Side, pairs: Pairs) -> _TimedPairs:
        return _TimedPairs(*pairs, np.maximum(left.system_us[pairs[LEFT]], right.system_us[pairs[RIGHT]]))

    def _sort_pairs(self, left: _Side, right: _Side | None, parts: Sequence[_TimedPairs]) -> _TimedPairs:
        return _TimedPairs.concat_sorted(parts, left.table.num_rows, 0 if right is None else right.table.num_rows)

    def _filter_pairs(self, left: _Side, right: _Side, pairs: _TimedPairs) -> _TimedPairs:
        """Return the pairs on which the other conditions of ON are true."""
        if self.node.residual is None:
            return pairs
        rows = pairs.left, pairs.right
        sides = JoinSides(left.table, right.table, self._width, left.row_bytes, right.row_bytes)
        return pairs.select(meet_condition(self.node.residual, sides, rows))

    @property
    def _width(self) -> int:
        return len(self.node.left.columns)

    # Left rows without a match

    def _unmatched_rows(self, left: _Side, right: _Side | None) -> _TimedPairs:
        """Return the left rows without a match whose last chance to match lies in the slice."""
        time_us = left.keyed.time_us
        # As in _last: rows without a time would overflow.
        _, until = self.node.bounds.right_range(np.maximum(time_us, 0))
        certain_us = np.where(left.has_time, np.maximum(left.system_us, until - 1), left.system_us)
        due = (certain_us >= left.from_us) & (certain_us < left.to_us)
        if right is not None and due.any():
            asking = left.rows(due)
            for matches in find_matches(asking, *self.node.bounds.right_range(asking.time_us), right.keyed, right.known):
                due[self._matched_rows(left, right, matches)] = False
        rows = np.flatnonzero(due)
        return _TimedPairs(rows, np.full(len(rows), -1, dtype=np.int64), certain_us[rows])

    def _matched_rows(self, left: _Side, right: _Side, matches: Matches) -> Ticks:
        if self.node.residual is None:
            return matches.asking[matches.count > 0]
        parts = (self._filter_pairs(left, right, self._add_times(left, right, pairs)) for pairs in matches.pairs())
        lefts = [np.unique(part.left) for part in parts]
        return np.unique(np.concatenate(lefts)) if lefts else np.empty(0, dtype=np.int64)


def _excess_of_instant(key: Ints, count: Ints, instant_us: int, pairs_max: int) -> Excess:
    """Return the pairs that are left out at one instant, given the key and the number of pairs of each left row."""
    order = stable_order(key, int(key.max()) + 1)
    total = np.cumsum(count[order])
    first = np.flatnonzero(np.append(True, np.diff(key[order]) != 0))
    before = np.repeat(total[first] - count[order][first], np.diff(np.append(first, len(order))))
    # How many pairs of its key each row and the rows before it have beyond the limit; a row's own share of that is left out.
    beyond = np.maximum(total - before - pairs_max, 0)
    left_out = np.minimum(beyond, count[order])
    rows = order[left_out > 0]
    return Excess.of(key[rows], rows, np.full(len(rows), instant_us), left_out[left_out > 0])
