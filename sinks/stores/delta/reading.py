"""
Reads the rows of a Delta table.

Law: rows and progress are those of one version of the table. In a column of ``partition_by`` an empty text is read as null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sinks.stores.base import Progress
from sinks.stores.delta.target import schema_of, translate_errors
from sinks.stores.lake_reader import LakeReader
from sinks.stores.reading import Standing
from tidegate.records.result_columns import Column

_PIECE_ROWS = 50_000


class DeltaReader(LakeReader):
    """The rows of *table*, if there is one; *progress* and *is_shared* were read from the same version."""

    def __init__(self, name: str, table: DeltaTable | None, columns: Sequence[Column], progress: Mapping[int, Progress], is_shared: bool):
        super().__init__(columns, None if table is None else schema_of(table), Standing(progress, is_shared))
        self._name, self._table = name, table

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self._table is not None, "only an existing table is read"
        with translate_errors(self._name):
            yield from (
                self._table.to_pyarrow_dataset()
                .scanner(columns=names, batch_size=_PIECE_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False)
                .to_batches()
            )

    def _kept(self, rows: pa.Table) -> pa.Table:
        for name in self._table.metadata().partition_columns if self._table is not None else ():
            if name in rows.column_names and rows.schema.field(name).type == pa.string():
                place, column = rows.column_names.index(name), rows.column(name)
                rows = rows.set_column(place, name, pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column))
        return rows
