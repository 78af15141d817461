"""
Writes results as rows of an Iceberg table, each once.

Law: a batch and the progress of its partition are one commit, based on the snapshot in which the progress was read. The catalog refuses the
commit if the table has another current snapshot by then. So of two writers one commits; the other reads the progress again and finds the
batch done. A commit whose answer is lost is not sent again before its progress was looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table, TableProperties

from sinks.stores.base import Batch, Progress, StoreContext, shared_rows_error
from sinks.stores.iceberg.catalog import find_table, look_up, open_catalog
from sinks.stores.iceberg.failures import translate_errors
from sinks.stores.iceberg.progress import TableProgress, no_progress, other_topics, read_progress
from sinks.stores.iceberg.reading import IcebergReader
from sinks.stores.iceberg.target import check_new, find_missing, make_layout
from sinks.stores.object_store_errors import repeat_lost
from sinks.stores.table_columns import fit_rows
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.iceberg import IcebergSettings

# How long a commit that lost to another one waits at most before its first repetition, seconds.
_PAUSE_S = 0.05


class IcebergStore:
    """The table of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: IcebergSettings) -> None:
        self._context, self._settings = context, settings
        self._catalog: Catalog | None = None
        self._is_ready = False

    @property
    def name(self) -> str:
        return f"iceberg {self._settings.table}"

    def check(self) -> None:
        """Compare the table's columns with the query's; nothing is changed."""
        if self._find_without_making() is None:
            check_new(self._settings, self._context.columns)

    def prepare(self) -> None:
        """Make the table, or add what it lacks."""
        repeat_lost(self._prepare, CommitFailedException, self.name)
        self._is_ready = True

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress in the current snapshot."""
        with translate_errors(self.name):
            progress = read_progress(self._newest(), self._context.stream)
        return {partition: progress.of(partition) for partition in partitions if partition in progress.partitions}

    def write(self, batch: Batch) -> Progress:
        """Commit the rows with the progress."""
        return repeat_lost(partial(self._write, batch), CommitFailedException, self.name, _PAUSE_S)

    def count_clearable(self) -> int | None:
        """See :class:`sinks.stores.base.ClearableStore`."""
        table = look_up(self._settings, self.name)
        if table is None:
            return None
        with translate_errors(self.name):
            if others := other_topics(table, self._context.stream):
                raise shared_rows_error(self.name, others)
            rows = int(table.scan().count())
            return rows if rows or read_progress(table, self._context.stream).partitions else None

    def clear(self) -> None:
        """Delete the rows and the progress, in one commit."""
        if self.count_clearable() is None:
            return
        with translate_errors(self.name):
            table = self._connect().load_table(self._settings.table)
            entry = no_progress(self._context.stream)
            with table.transaction() as commit:
                commit.delete(AlwaysTrue())
                pause_at("rows cleared")
                # Without a row to delete there is no snapshot; this one bears the progress.
                commit.append(table.schema().as_arrow().empty_table(), snapshot_properties=entry)
                commit.set_properties(entry)

    def reader(self) -> IcebergReader:
        """Return a reader of the current snapshot."""
        return IcebergReader(self.name, self._find_without_making(), self._context)

    def close(self) -> None:
        """Disconnect from the catalog; the next call connects anew."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog, self._is_ready = None, False

    def _connect(self) -> Catalog:
        if self._catalog is None:
            self._catalog = open_catalog(self._settings)
        return self._catalog

    def _find_without_making(self) -> Table | None:
        """Return the table, None if there is none, without making anything. Raises StoreError: the table does not fit the query."""
        table = look_up(self._settings, self.name)
        if table is not None:
            find_missing(table, self._settings, self._context.columns)
        return table

    def _prepare(self) -> None:
        with translate_errors(self.name):
            catalog = self._connect()
            table = find_table(catalog, self._settings) or self._create(catalog)
            missing = find_missing(table, self._settings, self._context.columns)
            if missing:
                with table.update_schema() as update:
                    for name, kind in missing.items():
                        update.add_column(name, kind)

    def _create(self, catalog: Catalog) -> Table:
        check_new(self._settings, self._context.columns)
        schema, parts = make_layout(self._settings, self._context.columns)
        namespace = Catalog.namespace_from(self._settings.table)
        if not catalog.namespace_exists(namespace):
            catalog.create_namespace_if_not_exists(namespace)
        try:
            return catalog.create_table(self._settings.table, schema, partition_spec=parts)
        except TableAlreadyExistsError:
            return catalog.load_table(self._settings.table)

    def _newest(self) -> Table:
        """Return the table with its current snapshot."""
        if not self._is_ready:
            self.prepare()
        return self._connect().load_table(self._settings.table)

    def _write(self, batch: Batch) -> Progress:
        with translate_errors(self.name):
            table = self._newest()
            progress = read_progress(table, self._context.stream)
            before = progress.of(batch.partition)
            if before[:2] != (batch.stream_id, batch.start):
                return before
            self._commit(table, batch, progress.after(batch))
        return batch.progress

    def _commit(self, table: Table, batch: Batch, progress: TableProgress) -> None:
        schema = table.schema().as_arrow()
        rows = fit_rows(schema, batch.rows, make_typed_table(batch.rows, self._context.columns)).cast(schema)
        entry = progress.as_property(self._context.stream)
        # The client would repeat a commit that lost to another one on the new snapshot, and so double the rows. It takes the number of
        # retries from its copy of the metadata, which is changed here; the table keeps its properties.
        without_retries = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": without_retries})
        with table.transaction() as commit:
            commit.append(rows, snapshot_properties=entry)
            commit.set_properties(entry)
            pause_at("rows sent")
        pause_at("progress sent")
