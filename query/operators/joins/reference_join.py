"""
Joins with reference data: each row with the records of a table that it matches, at the row's own time.

A table has versions; each is valid until the next one is. Rows keep their order; the records that one row matches come in the order of
their file. With LEFT JOIN a row without any match comes once, with NULL on the right. A record on which a condition or a key of ON fails
matches nothing.

A row is compared with at most ``pairs_max`` records of equal keys, the first ones of the file; the rest makes one failed row. Results are
made in slices, so memory grows with the rows and the table, not with the pairs.

Law: a row is matched with the version that is valid at its System.Timestamp, so its matches do not depend on when the table was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

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
)
from query.operators.joins.lying import Geometries, SideShapes, lying_of
from query.operators.joins.matching import KeyedRows, Matches, Pairs, find_matches
from query.operators.joins.near import NearRecords
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX, Excess
from query.operators.rows.instant_rows import InstantRows, due_rows
from query.operators.rows.row_stage import RowStage
from query.plan.gathered import Gathered, tables_of
from query.plan.nodes import ReferenceJoin, predicates_of
from query.plan.row_tables import Retained, Ticks, concat_rows, no_rows, only_side, rows_table, ticks
from query.reference.tables import ReferenceTable
from tidegate.basics.budget import BUDGET, cut
from tidegate.language.expressions.tree import Expr

# With fewer records for each row than this a tree of their geometries does not pay.
_FEW_RECORDS = 16
# The geometry of a row takes as much memory as so many pairs that the tree rules out.
_PAIRS_OF_GEOMETRY = 1_000


@dataclass(frozen=True)
class ReferenceTableJoin(InstantRows):
    """The operator of a :class:`query.plan.nodes.ReferenceJoin`."""

    node: ReferenceJoin
    table: ReferenceTable
    pairs_max: int = JOIN_PAIRS_MAX
    _records: pa.Table = field(init=False, repr=False)
    _record_bytes: Ticks = field(init=False, repr=False)
    _keyed: KeyedRows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        exprs = tuple(column.expr for column in self.node.reference.columns)
        kept, columns, _ = RowStage(predicates_of(self.node.reference), exprs, keeps_payload=True).apply(self.table.records)
        rows = rows_table(kept["sub"], kept["system_us"], kept["value"], columns).append_column("position", kept["position"])
        records, _ = add_keys(rows, self._keys(1))
        keyed = KeyedRows(np.arange(records.num_rows), ticks(records, "sub"), _zeros(records.num_rows), keys_of(records, self._keys(1)))
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_record_bytes", text_bytes(records))
        object.__setattr__(self, "_keyed", keyed)

    @property
    def computes_keys(self) -> bool:
        return has_computed_keys(self.node.keys)

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        kept, bad = add_keys(below, self._keys(0))
        if not self.node.outer:
            can_match = have_all_keys(kept, self._keys(0))
            kept = kept if can_match.all() else kept.filter(pa.array(can_match))
        return kept, bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us and their matches, ordered by (system_us, position, record)."""
        return concat_rows([no_rows(), *self._slices(only_side(retained), closing)])

    def slices(self, gathered: Sequence[Gathered | None], closing: pa.Table) -> Iterator[pa.Table]:
        yield from self._slices(only_side(tables_of(gathered)), closing)

    def _slices(self, retained: pa.Table, closing: pa.Table) -> Iterator[pa.Table]:
        rows = due_rows(retained, closing)
        system_us = ticks(rows, "system_us")
        matches = self._find_matches(rows, self.table.version_at(system_us))
        count = np.zeros(rows.num_rows, dtype=np.int64)
        for matched in matches:
            np.add.at(count, matched.asking, matched.count)
        row_bytes = text_bytes(rows)
        geometries = Geometries(rows, self._records, len(self.node.left.columns), self._record_shapes)
        # If pairs are too many for the limit, which counts them before conditions, all are made.
        has_many = len(count) > 0 and count.sum() > _FEW_RECORDS * len(count) and int(count.max()) <= self.pairs_max
        by_tree = has_many and self._near is not None
        for block in self._blocks(count, by_tree):
            first, last = block.start, block.stop
            left, right = self._pairs_of_rows(rows, matches, count, first, last, geometries, by_tree)
            for part in portions((left, right), row_bytes, self._record_bytes):
                yield join_rows(rows, self._records, (left[part], right[part]), len(self.node.left.columns), system_us[left[part]])
        excess = np.flatnonzero(count > self.pairs_max)
        if len(excess):
            yield Excess(excess, system_us[excess], count[excess] - self.pairs_max).failed_rows(rows, self.pairs_max)

    @staticmethod
    def _blocks(count: Ticks, by_tree: bool) -> Iterator[slice]:
        """Yield the rows whose pairs are made at once; at least one range."""
        if by_tree:
            yield from cut(np.maximum(count, _PAIRS_OF_GEOMETRY), BUDGET.asked_pairs)
            return
        yield from cut(count, BUDGET.pairs) if len(count) else [slice(0, 0)]

    def _pairs_of_rows(
        self, rows: pa.Table, matches: Sequence[Matches], count: Ticks, first: int, last: int, geometries: Geometries, by_tree: bool
    ) -> Pairs:
        """Return the results of the rows first <= row < last in their order, as row and record; -1: the row has no match."""
        left, right = (
            self._near_pairs(matches, first, last, geometries) if by_tree else _all_pairs(matches, np.arange(first, last), rows.num_rows)
        )
        # By the tree all pairs count.
        rank = _zeros(len(left)) if by_tree else np.arange(len(left)) - (np.cumsum(count[first:last]) - count[first:last])[left - first]
        is_admitted = rank < self.pairs_max
        matched, found_right = self._filter(rows, (left[is_admitted], right[is_admitted]), geometries)
        if not self.node.outer:
            return matched, found_right
        # A row matched only by records that are left out does have a match.
        also_matched, _ = self._filter(rows, (left[~is_admitted], right[~is_admitted]), geometries)
        unmatched = np.setdiff1d(np.arange(first, last), np.concatenate([matched, also_matched]))
        left, right = np.concatenate([matched, unmatched]), np.concatenate([found_right, np.full(len(unmatched), -1)])
        order = np.argsort(left, kind="stable")
        return left[order], right[order]

    def _near_pairs(self, matches: Sequence[Matches], first: int, last: int, geometries: Geometries) -> Pairs:
        """Return the pairs of the rows first <= row < last that can meet the condition on how their geometries lie, in their order."""
        assert self._near is not None
        row, right = self._near.pairs(self._near.lying.of_side(geometries, 0).at(np.arange(first, last)))
        left = row + first
        is_match = np.zeros(len(left), dtype=np.bool_)
        for matched in matches:
            is_match |= matched.holds(left, right, geometries.left.num_rows, geometries.right.num_rows)
        return left[is_match], right[is_match]

    @cached_property
    def _near(self) -> NearRecords | None:
        """The records by their geometries, if ON asks how these lie to those of rows; read when they are first needed."""
        width = len(self.node.left.columns)
        lying = [] if self.node.residual is None else lying_of(self.node.residual, width)[0]
        near = next((one for one in lying if one.needs_nearness), None)
        if near is None:
            return None
        return NearRecords.of(near, near.of_side(Geometries(self._records, self._records, width, self._record_shapes), 1).all())

    @cached_property
    def _record_shapes(self) -> dict[Expr, SideShapes]:
        """The geometries of records that have been read."""
        return {}

    def _filter(self, rows: pa.Table, pairs: Pairs, geometries: Geometries) -> Pairs:
        """Return the pairs on which the other conditions of ON are true."""
        if self.node.residual is None:
            return pairs
        sides = JoinSides(rows, self._records, len(self.node.left.columns), text_bytes(rows), self._record_bytes)
        is_met = meet_condition(self.node.residual, sides, pairs, geometries)
        return pairs[0][is_met], pairs[1][is_met]

    def _keys(self, side: int) -> tuple[Expr, ...]:
        return tuple(pair[side] for pair in self.node.keys)

    def _find_matches(self, rows: pa.Table, version: Ticks) -> list[Matches]:
        """Return the records of equal keys in the valid version; conditions are not evaluated yet."""
        has_version = np.flatnonzero(version >= 0)
        # Versions take the place of substreams in find_matches: rows match only records of their version.
        asking = KeyedRows(np.arange(rows.num_rows), version, _zeros(rows.num_rows), keys_of(rows, self._keys(0))).select(has_version)
        first = _zeros(len(has_version))
        all_records = np.ones(self._records.num_rows, dtype=np.bool_)
        return list(find_matches(asking, first, first + 1, self._keyed, all_records))


def _all_pairs(matches: Sequence[Matches], rows: Ticks, number: int) -> Pairs:
    """Return all pairs of some of the *number* rows, in their order."""
    chosen = np.zeros(number, dtype=np.bool_)
    chosen[rows] = True
    parts = [pairs for matched in matches for pairs in matched.select(chosen[matched.asking]).pairs()]
    left, right = (np.concatenate([_zeros(0), *(pairs[side] for pairs in parts)]) for side in (0, 1))
    order = np.lexsort((right, left))
    return left[order], right[order]


def _zeros(length: int) -> Ticks:
    return np.zeros(length, dtype=np.int64)
