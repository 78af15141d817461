"""
Reads the rows and the progress of a store, to compare them with results.

Law: rows and progress are those of one moment; a store that cannot show one moment gives the progress before and after reading. A result as
:meth:`StoreReader.keep` returns it and the row that the store has made of it have the same values in the same columns. So a row with other
values was not made by a sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from sinks.stores.base import Progress, Rows

# Which of several results with one key are rows: all, the first, or the last.
Keeps = Literal["all", "first", "last"]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    The progress of a store when its rows were read.

    Args:
        progress: By partition of the stream; partitions of which nothing has been written are missing.
        is_shared: Whether the store has results of other topics too, which look like those of the stream.
        certain: By partition, the position below which all results have been read; later results may have been written while the store was
            read. None: it equals the progress.
        expires: Whether rows disappear after a time, so that a missing row is no error.
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
        """Call *accept* with all rows, piece by piece; a value that no result can have may be text."""

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """Return results of a partition as the store keeps them. Raises RowsRefused: it does not take some of them."""


@runtime_checkable
class ReadableStore(Protocol):
    """A :class:`~sinks.stores.base.Store` whose rows can be read."""

    def reader(self) -> StoreReader:
        """Return a reader of the rows; it works until the store is closed."""
