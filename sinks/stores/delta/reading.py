"""
The rows of a Delta table.

Law: they are those of one version of the table, which has their progress too. An empty text in a column that parts the files reads as null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sinks.parquet_columns import Column, make_schema
from sinks.stores.base import Progress, Rows
from sinks.stores.delta.failures import translate_errors
from sinks.stores.delta.target import schema_of
from sinks.stores.reading import Keeps, Standing
from sinks.stores.table_columns import fit_rows
from sinks.stores.typed_rows import make_typed_table

_PIECE_ROWS = 50_000


class DeltaReader:
    """The rows of *table*, if there is one; *progress* and *is_shared* were read from the same version."""

    key: tuple[str, ...] = ()
    keeps: Keeps = "all"

    def __init__(self, name: str, table: DeltaTable | None, columns: Sequence[Column], progress: Mapping[int, Progress], is_shared: bool):
        self._name, self._table, self._columns = name, table, columns
        self._standing = Standing(progress, is_shared)

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """See :meth:`sinks.stores.reading.StoreReader.read`."""
        schema = make_schema(self._columns)
        if self._table is not None:
            with translate_errors(self._name):
                rows = self._table.to_pyarrow_dataset().scanner(
                    columns=schema.names, batch_size=_PIECE_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
                )
                for batch in rows.to_batches():
                    if len(batch):
                        accept(pa.Table.from_batches([batch]).cast(schema))
        return self._standing

    def keep(self, rows: Rows) -> pa.Table:
        """See :meth:`sinks.stores.reading.StoreReader.keep`."""
        typed = make_typed_table(rows, self._columns)
        if self._table is None:
            return typed
        kept = fit_rows(schema_of(self._table), rows, typed).select(typed.column_names)
        for name in self._table.metadata().partition_columns:
            if name in kept.column_names and kept.schema.field(name).type == pa.string():
                place, column = kept.column_names.index(name), kept.column(name)
                kept = kept.set_column(place, name, pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column))
        return kept
