"""
Forgetting substreams: a bucket that meets ever new keys must not keep them all.

Substreams have dense numbers, those of a bucket. Forgetting costs a pass over what is kept, so it is done when a bucket knows
twice as many as were needed last time, and only where half of them can go: then the others are numbered anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from query.engine.retention import Retention

SUBS_MIN = 1024
"""With fewer substreams none are looked at."""
PROGRESS = "progress"
"""Kept rows that say how far each substream is."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Pruning:
    """When a bucket forgets, and what that makes of the rows it keeps."""

    def __init__(self) -> None:
        self._needed_last = 0

    def is_due(self, known: int) -> bool:
        """Tell whether to look at all, with so many substreams *known*."""
        return known >= max(2 * self._needed_last, SUBS_MIN)

    def kept(self, needed: Bools, retention: Retention, names: Sequence[str]) -> Bools | None:
        """
        Forget the substreams that are not needed, if they are at least half of all.

        Args:
            needed: Which ones are needed without a look at rows; those with rows are marked, too.
            retention: What is kept. Rows get the new numbers, and nothing is left of how far each substream is.
            names: Of the rows that count, those with ``sub``.

        Returns:
            Which ones stay, in the order of their new numbers; None if all do.
        """
        for name in names:
            for part in retention.tables(name):
                needed[part["sub"].to_numpy()] = True
        self._needed_last = int(np.count_nonzero(needed))
        if 2 * self._needed_last > len(needed):
            return None
        moved = np.where(needed, np.cumsum(needed) - 1, -1).astype(np.int64)
        retention.reduce(PROGRESS, lambda table: table.slice(0, 0))
        retention.rewrite(names, lambda table: _renumbered(table, moved))
        return needed


def outdated(touched: Sequence[Ints], retention: Retention) -> Ints:
    """
    Return the distinct substreams among *touched*, and drop what is kept of how far they are.

    An older entry of a substream says nothing that the one to be added does not.
    """
    if not touched:
        return np.empty(0, dtype=np.int64)
    subs = np.unique(np.concatenate(touched))
    if len(subs):
        retention.reduce(PROGRESS, lambda table: table.filter(pa.array(~np.isin(table["sub"].to_numpy(), subs))))
    return subs


def _renumbered(table: pa.Table, moved: Ints) -> pa.Table:
    place = table.schema.get_field_index("sub")
    return table.set_column(place, "sub", pa.array(moved[table["sub"].to_numpy()]))
