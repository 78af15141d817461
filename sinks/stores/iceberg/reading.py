"""Reads the rows of an Iceberg table: those of one snapshot, which also has their progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from sinks.stores.base import StoreContext
from sinks.stores.iceberg.failures import translate_errors
from sinks.stores.iceberg.progress import other_topics, read_progress
from sinks.stores.lake_reader import LakeReader
from sinks.stores.reading import Standing


class IcebergReader(LakeReader):
    """The rows of *table*, if there is one, in its current snapshot."""

    def __init__(self, name: str, table: Table | None, context: StoreContext) -> None:
        self._name, self._table = name, table
        if table is None:
            super().__init__(context.columns, None, Standing({}))
            return
        table_progress = read_progress(table, context.stream)
        progress = {partition: table_progress.of(partition) for partition in table_progress.partitions}
        super().__init__(context.columns, table.schema().as_arrow(), Standing(progress, bool(other_topics(table, context.stream))))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self._table is not None, "only an existing table is read"
        with translate_errors(self._name):
            scan = self._table.scan(selected_fields=tuple(names))
            reading = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
            # One file at a time: for all files together the client would read ahead without a limit.
            for file in scan.plan_files():
                yield from reading.to_record_batches([file])
