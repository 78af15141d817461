"""Union: the rows of several operators in one sequence; of the same instant in the order of the script."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.operators.rows.instant_rows import InstantRows, due_rows
from query.plan.nodes import Union
from query.plan.row_tables import BAD_SCHEMA, Retained, concat_rows


@dataclass(frozen=True)
class UnionOfRows(InstantRows):
    """The operator of a :class:`query.plan.nodes.Union`."""

    node: Union

    @property
    def sides(self) -> int:
        return len(self.node.parts)

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        return below, BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us, ordered by (system_us, side, position)."""
        rows = concat_rows([part for part in retained if part is not None]).drop_columns(["position"])
        # Renumber side after side, so that the order of positions is the order of sides.
        rows = rows.append_column("position", pa.array(np.arange(rows.num_rows)))
        return due_rows(rows, closing).drop_columns(["position"])
