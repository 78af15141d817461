"""
The limit of a join: how many pairs one key may give at one instant.

Law: which pairs count depends on the rows alone: the first ones in the order (left row, right row), however pairs are cut into slices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.columns.segments import stable_order
from query.columns.same_values import canonicalize
from query.operators.joins.joined_rows import unmatched_rows
from query.operators.joins.matching import KeyedRows
from query.plan.row_tables import Ticks
from tidegate.basics.dead_letter_reasons import QueryReason

# Most pairs of one key at one instant, unless the settings say otherwise.
JOIN_PAIRS_MAX = 1_000_000


def number_keys(rows: KeyedRows) -> Ints:
    """Number the keys of rows densely: rows have the same number if substream and keys are the same values."""
    number: Ints = np.unique(rows.sub, return_inverse=True)[1].astype(np.int64)
    for key in rows.keys:
        for part in canonicalize(key).parts.values():
            coded = part.dictionary_encode(null_encoding="encode")
            number = np.unique(number * len(coded.dictionary) + coded.indices.to_numpy(), return_inverse=True)[1].astype(np.int64)
    return number


@dataclass(slots=True)
class Quota:
    """How many pairs each group, a key at an instant, may still give."""

    room: Ints

    def admit(self, group: Ints) -> Mask:
        """Return which of the next pairs count, given the group of each; pairs come in their order."""
        counts = np.bincount(group, minlength=len(self.room))
        order = stable_order(group, len(self.room))
        rank = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_admitted = np.empty(len(group), dtype=np.bool_)
        is_admitted[order] = rank < self.room[group[order]]
        self.room -= np.minimum(counts, self.room)
        return is_admitted


@dataclass(frozen=True, slots=True)
class Excess:
    """The pairs that were left out: for each group the left row of the first one, their instant and their number."""

    left: Ints
    system_us: Ticks
    count: Ints

    @classmethod
    def of(cls, group: Ints, left: Ints, system_us: Ticks, count: Ints) -> Excess:
        """Gather by group: the first left row and instant, and the sum of the counts."""
        groups, first, place = np.unique(group, return_index=True, return_inverse=True)
        total = np.bincount(place, weights=count, minlength=len(groups)).astype(np.int64)
        return cls(left[first], system_us[first], total)

    def failed_rows(self, left: pa.Table, pairs_max: int) -> pa.Table:
        """Return one failed row for each group: the left row alone, with the reason."""
        order = np.lexsort((self.left, self.system_us))
        rows = unmatched_rows(left, self.left[order], self.system_us[order])
        reasons = [QueryReason.JOIN_TOO_LARGE.text(pairs_max, count) for count in self.count[order].tolist()]
        return rows.append_column("reason", pa.array(reasons, pa.string()))
