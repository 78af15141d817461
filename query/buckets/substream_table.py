"""
The substreams of a bucket: their dense numbers, how far each has come, and forgetting those that are no longer needed.

Law: numbers follow only from the order in which names first occurred; no result depends on them. If keys are always new, a bucket does not
keep them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.ticks import NEVER
from query.engine.retention import RetainedKind, Retention

# Fewer substreams are not pruned: forgetting costs a pass over all retained rows.
SUBS_MIN = 1024

Name = TypeVar("Name")


class SubstreamTable(Generic[Name]):
    """Substreams by name."""

    def __init__(self) -> None:
        # The name of each substream, by its number.
        self.names: list[Name] = []
        # The instant that each has reached, microseconds; NEVER before its first event.
        self.progress_us: Ints = np.empty(0, dtype=np.int64)
        self._numbers: dict[Name, int] = {}
        self._touched: list[Ints] = []
        self._needed_last = 0

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: Name) -> int:
        """Return the number of a substream, -1 if it has none."""
        return self._numbers.get(name, -1)

    def number(self, names: Sequence[Name]) -> tuple[Ints, list[Name]]:
        """Return the number of each name, and the names that were added, in the order of their numbers."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._numbers]
        if fresh:
            self._numbers.update(zip(fresh, range(len(self.names), len(self.names) + len(fresh)), strict=True))
            self.names += fresh
            self.progress_us = np.concatenate([self.progress_us, np.full(len(fresh), NEVER, dtype=np.int64)])
        return np.array([self._numbers[name] for name in names], dtype=np.int64), fresh

    def touch(self, subs: Ints) -> None:
        """Mark substreams as changed: the next :meth:`save` saves them."""
        self._touched.append(subs)

    def slices_since(self, before: Ints, first_us: Ints, until: Ints | None = None) -> pa.Table | None:
        """
        Return the slices of time that have become final since *before* (``sub``, ``from_us``, ``to_us``); None if no substream has moved.

        They reach to the progress *until*, by default the present one. *first_us* is the instant of the first event of each substream that
        had none before.
        """
        reached = self.progress_us if until is None else until
        moved = np.flatnonzero(reached > before)
        if not len(moved):
            return None
        # A substream has no result before its first event: an older slice would make a batch read all that is retained.
        from_us = np.where(before == NEVER, first_us, before)[moved]
        return pa.table({"sub": moved, "from_us": from_us, "to_us": reached[moved]})

    def horizon(self) -> pa.Table:
        """Return the instant up to which each substream is finished (``sub``, ``to_us``)."""
        return pa.table({"sub": np.arange(len(self.names)), "to_us": self.progress_us})

    # State

    def save(self, retention: Retention, columns_of: Callable[[Ints], dict[str, Any]]) -> None:
        """Retain an entry for each touched substream, with the columns that *columns_of* adds, from which :meth:`restore` reads names."""
        subs = np.unique(np.concatenate(self._touched)) if self._touched else np.empty(0, dtype=np.int64)
        self._touched = []
        if len(subs):
            # The new entry of a substream replaces its older one.
            retention.reduce(RetainedKind.PROGRESS, lambda table: table.filter(pa.array(~np.isin(table["sub"].to_numpy(), subs))))
            retention.add(RetainedKind.PROGRESS, pa.table({"sub": subs, "progress_us": self.progress_us[subs], **columns_of(subs)}))

    def restore(self, retention: Retention, count: int, names_of: Callable[[pa.Table], Sequence[Name]]) -> list[tuple[Ints, pa.Table]]:
        """Become the saved table of *count* substreams; return all retained entries, older ones first. *names_of* reads their names."""
        self.progress_us = np.full(count, NEVER, dtype=np.int64)
        names: dict[int, Name] = {}
        tables = [(table["sub"].to_numpy(), table) for table in retention.tables(RetainedKind.PROGRESS)]
        for subs, table in tables:
            np.maximum.at(self.progress_us, subs, table["progress_us"].to_numpy())
            names |= dict(zip(subs.tolist(), names_of(table), strict=True))
        self.names = [names[sub] for sub in sorted(names)]
        self._numbers = {name: sub for sub, name in enumerate(self.names)}
        assert len(self._numbers) == count, "every substream has a saved entry"
        return tables

    # Forgetting

    @property
    def may_prune(self) -> bool:
        """Whether there are so many more substreams than were needed last time that pruning pays."""
        # Twice as many as last time: then the passes over all rows cost a constant share of the work that added them.
        return len(self.names) >= max(2 * self._needed_last, SUBS_MIN)

    def prune(self, needed: Mask, retention: Retention, retained_names: Sequence[str]) -> Mask | None:
        """
        Forget the substreams that are not needed, if they are at least half of all; return which stay, None if all do.

        *needed* marks the substreams that are needed even without rows; those with rows are marked in it here. *retained_names* are the
        names of the retained rows with a column ``sub``, which gets the new numbers. The order of substreams stays.
        """
        for name in retained_names:
            for table in retention.tables(name):
                needed[table["sub"].to_numpy()] = True
        self._needed_last = int(np.count_nonzero(needed))
        if 2 * self._needed_last > len(needed):
            return None
        new_number = np.where(needed, np.cumsum(needed) - 1, -1).astype(np.int64)
        retention.reduce(RetainedKind.PROGRESS, lambda table: table.slice(0, 0))
        retention.rewrite(retained_names, lambda table: _renumber(table, new_number))
        self.names = [self.names[sub] for sub in np.flatnonzero(needed).tolist()]
        self._numbers = {name: sub for sub, name in enumerate(self.names)}
        self.progress_us = self.progress_us[needed]
        self._touched = [np.arange(len(self.names))]
        return needed


def _renumber(table: pa.Table, new_number: Ints) -> pa.Table:
    column = table.schema.get_field_index("sub")
    return table.set_column(column, "sub", pa.array(new_number[table["sub"].to_numpy()]))
