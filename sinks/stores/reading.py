"""
What stands in a store, for whoever compares it with results: the rows as the store keeps them, and how far they go.

Law: rows and progress are those of one moment; a store that shows no such moment says between which two it was read. A result, as
:meth:`StoreReader.keep` gives it, and the row that the store has made of it have the same values in the same columns. So a row with other
values was not made by a sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from sinks.stores.base import Progress, Rows

# Of several results with one key: all are rows, the first is, or the last.
Keeps = Literal["all", "first", "last"]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How far a store stands.

    Args:
        progress: By partition of the stream; without those of which nothing has been written.
        is_shared: Whether results of other topics stand there too, which nothing tells from those of the stream.
        certain: By partition, below which position all results have been read; those up to the progress may have been written meanwhile.
            None: that is the progress.
        expires: Whether rows disappear after a time, so that one which is missing says nothing.
    """

    progress: Mapping[int, Progress]
    is_shared: bool = False
    certain: Mapping[int, int] | None = None
    expires: bool = False


class StoreReader(Protocol):
    """Reads a store: *key* are the columns that identify a row, none if ``keeps`` is all."""

    key: tuple[str, ...]
    keeps: Keeps

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """Hand all rows to *accept*, piece by piece, with their columns; a value that no result can have may be text."""

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """Return results of a partition as the store would keep them. Raises RowsRefused: it does not take some of them."""


@runtime_checkable
class ReadableStore(Protocol):
    """A :class:`~sinks.stores.base.Store` whose rows can be read."""

    def reader(self) -> StoreReader:
        """Return a reader of what stands; it is of use until the store is closed."""
