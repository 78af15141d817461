"""
Reads tables in files whose format has a schema of its own.

Law: rows and progress are those of one version of the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sinks.stores.base import Rows
from sinks.stores.reading import Keeps, Standing
from sinks.stores.table_columns import fit_rows
from sinks.stores.typed_rows import make_typed_table
from tidegate.records.result_columns import Column, make_schema


@dataclass(frozen=True)
class LakeSnapshot:
    """One version of a table, as reference data reads it: found first, and read only if it is new."""

    name: str
    # What the table calls it.
    version: str
    # The size of its files.
    size_bytes: int
    read_rows: Callable[[], pa.Table]


class LakeReader(ABC):
    """The rows of a table with a *schema*, None if there is no table; *standing* was read from the same version."""

    key: tuple[str, ...] = ()
    keeps: Keeps = "all"

    def __init__(self, columns: Sequence[Column], schema: pa.Schema | None, standing: Standing) -> None:
        self._columns, self._schema, self._standing = columns, schema, standing

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """See :meth:`sinks.stores.reading.StoreReader.read`."""
        wanted = make_schema(self._columns)
        for batch in self._batches(wanted.names) if self._schema is not None else ():
            if len(batch):
                accept(pa.Table.from_batches([batch]).select(wanted.names).cast(wanted))
        return self._standing

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """See :meth:`sinks.stores.reading.StoreReader.keep`."""
        typed = make_typed_table(rows, self._columns)
        if self._schema is None:
            return typed
        return self._kept(fit_rows(self._schema, rows, typed).select(typed.column_names))

    @abstractmethod
    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the version, with these columns."""

    def _kept(self, rows: pa.Table) -> pa.Table:
        """Return rows as they are read back; a format that changes values overrides it."""
        return rows
