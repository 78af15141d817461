"""
Which records a condition in the language of queries is true of, by the rules by which a query reads their payloads.

Law: a record of which the condition is false or NULL, or whose payload cannot be read, is not among them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ordering.arrays import Mask
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, Field
from tidegate.language.expressions.variant import Variant
from tidegate.records.payloads.formats import PayloadFormat, reader_of


def is_true(condition: Expr, payloads: pa.Array, payload_format: PayloadFormat) -> Mask:
    """Return for each payload whether *condition* is true of it."""
    leaves = list(dict.fromkeys(leaf for leaf in condition.leaves() if isinstance(leaf, Field)))
    read = reader_of(payload_format).extract(payloads, leaves)
    columns: dict[Expr, Variant] = {leaf: read.columns[leaf] for leaf in leaves}
    [found], _ = evaluate([condition], columns, len(payloads))
    bits = found.parts.get(Kind.BIT)
    none: Mask = np.zeros(len(payloads), dtype=np.bool_)
    return none if bits is None else bits.fill_null(False).to_numpy(zero_copy_only=False)
