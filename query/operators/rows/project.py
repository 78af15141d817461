"""
Projection without a window: each row that passes WHERE gives one result at its own system timestamp, in the order of rows.

If it is the last operator and takes events, it encodes each result when the event comes, and keeps the bytes until the result is final.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from query.columns.encode import encode_objects, encode_over_keys
from query.operators.rows.event_fields import EventFields
from query.operators.rows.instant_rows import InstantRows, due_rows
from query.operators.rows.row_stage import RowStage
from query.plan.columns_read import ColumnNumbers, computed_columns
from query.plan.nodes import Project, predicates_of, scan_of
from query.plan.row_tables import RESULT_SCHEMA, Retained, only_side, rows_table
from tidegate.language.expressions.tree import keys_of
from tidegate.language.expressions.variant import Variant


class _Computed(NamedTuple):
    """The rows that pass, their substream key if events have one, their columns, and the bad rows."""

    kept: pa.Table
    over: list[Variant]
    columns: list[Variant]
    bad: pa.Table


@dataclass(frozen=True)
class Projection(InstantRows):
    """The operator of a :class:`query.plan.nodes.Project` whose rows are input of other operators."""

    node: Project
    fields: EventFields = field(default_factory=EventFields)
    # The columns that other operators read; None: all.
    needed: ColumnNumbers = None

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        kept, over, columns, bad = self._compute_columns(below)
        key = kept["key"] if "key" in kept.column_names else encode_over_keys(over, kept.num_rows)
        rows = rows_table(kept["sub"], kept["system_us"], key, columns)
        return rows.append_column("position", kept["position"]), bad

    def _compute_columns(self, below: pa.Table) -> _Computed:
        scan = scan_of(self.node)
        over = keys_of(None if scan is None else scan.over)
        computed = computed_columns(self.node, self.needed)
        exprs = (*over, *computed.values())
        kept, columns, bad = RowStage(predicates_of(self.node), exprs, self.fields, not self.node.columns).apply(below)
        # To operators a column that is not computed is one without values.
        values = dict(zip(computed, columns[len(over) :], strict=True))
        nothing = Variant.of(kept.num_rows, {})
        return _Computed(kept, columns[: len(over)], [values.get(number, nothing) for number in range(len(self.node.columns))], bad)


class EncodedProjection(Projection):
    """The operator of a last :class:`query.plan.nodes.Project` over events; without columns it passes the payload on unchanged."""

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return position, sub, system_us, the encoded key and value of the rows that pass, and the bad rows."""
        kept, over, columns, bad = self._compute_columns(below)
        count = kept.num_rows
        names = [column.name for column in self.node.columns]
        value = encode_objects(names, columns, count) if names else self.fields.bare_payloads(kept).cast(pa.binary())
        retained = {name: kept[name] for name in ("position", "sub", "system_us")}
        return pa.table({**retained, "key": encode_over_keys(over, count), "value": value}), bad

    def encoded(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the results with from_us <= system_us < to_us, ordered by (system_us, position)."""
        return due_rows(only_side(retained), closing).select(RESULT_SCHEMA.names).cast(RESULT_SCHEMA)
