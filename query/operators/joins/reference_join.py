"""
Joins with reference data: each row with the records of a table that it matches, at the row's own time.

A table has versions; each is valid until the next one is. Rows keep their order; the records that one row matches come in the order of
their file. With LEFT JOIN a row without any match comes once, with NULL on the right. A record on which a condition or a key of ON fails
matches nothing.

Law: a row is matched with the version that is valid at its System.Timestamp, so its matches do not depend on when the table was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from query.operators.joins.joined_rows import add_keys, filter_pairs, have_all_keys, join_rows, keys_of, unmatched_rows
from query.operators.joins.matching import KeyedRows, Pairs, find_matches
from query.operators.rows.instant_rows import InstantRows
from query.operators.rows.row_stage import RowStage
from query.plan.nodes import ReferenceJoin, predicates_of
from query.plan.row_tables import Retained, Ticks, concat_rows, in_slice, no_rows, only_side, rows_table, ticks
from query.reference.tables import ReferenceTable
from tidegate.expressions.tree import Expr


@dataclass(frozen=True)
class ReferenceTableJoin(InstantRows):
    """The operator of a :class:`query.plan.nodes.ReferenceJoin`."""

    node: ReferenceJoin
    table: ReferenceTable
    _records: pa.Table = field(init=False, repr=False)
    _keyed: KeyedRows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        exprs = tuple(column.expr for column in self.node.reference.columns)
        kept, columns, _ = RowStage(predicates_of(self.node.reference), exprs).apply(self.table.records)
        rows = rows_table(kept["sub"], kept["system_us"], kept["value"], columns).append_column("position", kept["position"])
        records, _ = add_keys(rows, self._keys(1))
        keyed = KeyedRows(np.arange(records.num_rows), ticks(records, "sub"), _zeros(records.num_rows), keys_of(records, self._keys(1)))
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_keyed", keyed)

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        kept, bad = add_keys(below, self._keys(0))
        if not self.node.outer:
            can_match = have_all_keys(kept, self._keys(0))
            kept = kept if can_match.all() else kept.filter(pa.array(can_match))
        return kept, bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us and their matches, ordered by (system_us, position, record)."""
        table = only_side(retained)
        system_us = ticks(table, "system_us")
        due = in_slice(ticks(table, "sub"), system_us, closing)
        rows = table.filter(pa.array(due)).combine_chunks()
        system_us = system_us[due]
        width = len(self.node.left.columns)
        matches = [
            filter_pairs(self.node.residual, rows, self._records, pairs, width)
            for pairs in self._pairs(rows, self.table.version_at(system_us))
        ]
        lefts, rights = (np.concatenate([_zeros(0), *(pairs[side] for pairs in matches)]) for side in (0, 1))
        parts = [join_rows(rows, self._records, (lefts, rights), width, system_us[lefts])]
        if self.node.outer:
            unmatched = np.setdiff1d(np.arange(rows.num_rows), lefts)
            parts.append(unmatched_rows(rows, unmatched, system_us[unmatched]))
            # An unmatched row has no other result, so any number may stand for its record.
            lefts, rights = np.concatenate([lefts, unmatched]), np.concatenate([rights, unmatched])
        results = concat_rows(parts)
        order = np.lexsort((rights, lefts, ticks(results, "system_us")))
        return results.take(pa.array(order)) if results.num_rows else no_rows()

    def _keys(self, side: int) -> tuple[Expr, ...]:
        return tuple(pair[side] for pair in self.node.keys)

    def _pairs(self, rows: pa.Table, version: Ticks) -> Iterator[Pairs]:
        """Yield the pairs (row, record) of equal keys in the valid version; conditions are not evaluated yet."""
        has_version = np.flatnonzero(version >= 0)
        # Versions take the place of substreams in find_matches: rows match only records of their version.
        asking = KeyedRows(np.arange(rows.num_rows), version, _zeros(rows.num_rows), keys_of(rows, self._keys(0))).select(has_version)
        first = _zeros(len(has_version))
        all_records = np.ones(self._records.num_rows, dtype=np.bool_)
        for matches in find_matches(asking, first, first + 1, self._keyed, all_records):
            yield from matches.pairs()


def _zeros(length: int) -> Ticks:
    return np.zeros(length, dtype=np.int64)
