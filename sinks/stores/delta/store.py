"""
Writes results as rows of a Delta Lake table, each once.

Law: a batch and the progress of its partition are one commit. The commit has the position after the batch as the version of an application
transaction, and the log offset as the version of a second one. It is based on the version of the table in which the progress was read.
delta-rs gives it up if a commit since then has moved the same transactions or has changed the table's metadata, and the table's log takes
each version once. So of two writers one commits, and the other finds the batch done. The property ``tidegate.topic.NAME`` of the table
holds the id of the stream; it is set once, and empty after the rows were deleted (``tidegate reset --rows``). Since versions of application
transactions stay, their names then have another beginning: the property ``tidegate.cleared.NAME``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from sinks.stores.base import Batch, Progress, StoreContext, shared_rows_error
from sinks.stores.delta.reading import DeltaReader
from sinks.stores.delta.target import check_new, find_missing, schema_of, translate_errors
from sinks.stores.object_store_errors import repeat_lost
from sinks.stores.table_columns import fit_rows
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.kinds import reveal_properties
from tidegate.platform.settings.tables.stores.delta import DeltaSettings
from tidegate.records.result_columns import make_schema

# Without retries: a retry would make the table again over one that another writer has made meanwhile.
_ONCE = CommitProperties(max_commit_retries=0)
# The beginning of the table property that holds the id of a topic.
_ID_PROPERTY = "tidegate.topic."
# The beginning of the table property that is drawn anew whenever the rows of a topic are deleted.
_CLEARED_PROPERTY = "tidegate.cleared."


class DeltaStore:
    """The table of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: DeltaSettings) -> None:
        self._context, self._settings = context, settings
        self._options = reveal_properties(settings.storage_options)
        self._table: DeltaTable | None = None
        self._id_property = f"{_ID_PROPERTY}{context.stream.name}"
        self._cleared_property = f"{_CLEARED_PROPERTY}{context.stream.name}"

    @property
    def name(self) -> str:
        return f"delta {self._settings.path}"

    def check(self) -> None:
        """Compare the table's columns with the query's; nothing is changed."""
        with translate_errors(self.name):
            table = self._open()
            if table is None:
                check_new(self._settings, self._context.columns)
            else:
                find_missing(table, self._settings, self._context.columns)

    def prepare(self) -> None:
        """Make the table, or add what it lacks."""
        self._table = repeat_lost(self._prepare, CommitFailedError, self.name)

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress in the partitions' last transactions."""
        with translate_errors(self.name):
            return self._progress_of(self._newest(), partitions)

    def write(self, batch: Batch) -> Progress:
        """Commit the rows with the progress."""
        return repeat_lost(partial(self._write, batch), CommitFailedError, self.name)

    def reader(self) -> DeltaReader:
        """Return a reader of the newest version of the table."""
        with translate_errors(self.name):
            table = self._open()
            columns = self._context.columns
            if table is None:
                return DeltaReader(self.name, None, columns, {}, is_shared=False)
            find_missing(table, self._settings, columns)
            progress = self._progress_of(table, range(self._context.stream.partitions))
            topics = [name for name, id in table.metadata().configuration.items() if name.startswith(_ID_PROPERTY) and id]
        return DeltaReader(self.name, table, columns, progress, is_shared=len(topics) > 1)

    def count_clearable(self) -> int | None:
        """See :class:`sinks.stores.base.ClearableStore`."""
        with translate_errors(self.name):
            table = self._open()
            if table is None:
                return None
            topics = {name for name, id in table.metadata().configuration.items() if name.startswith(_ID_PROPERTY) and id}
            if others := topics - {self._id_property}:
                raise shared_rows_error(self.name, [name.removeprefix(_ID_PROPERTY) for name in others])
            rows = int(table.count())
            return rows if rows or topics else None

    def clear(self) -> None:
        """Delete the rows, then the progress: if it is cut off between, the progress tells that there is something left to do."""
        if self.count_clearable() is None:
            return
        with translate_errors(self.name):
            table = self._open()
            assert table is not None, "it was counted"
            table.delete()
            pause_at("rows cleared")
            table.update_incremental()
            properties = {self._id_property: "", self._cleared_property: secrets.token_hex(8)}
            table.alter.set_table_properties(properties, raise_if_not_exists=False)

    def close(self) -> None:
        """Forget the table; the next call opens it again."""
        self._table = None

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._settings.path, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _prepare(self) -> DeltaTable:
        with translate_errors(self.name):
            table = self._open() or self._create()
            missing = find_missing(table, self._settings, self._context.columns)
            if missing:
                table.alter.add_columns(missing)
                table.update_incremental()
            if not table.metadata().configuration.get(self._id_property):
                table.alter.set_table_properties({self._id_property: self._context.stream.id}, raise_if_not_exists=False)
                table.update_incremental()
            return table

    def _create(self) -> DeltaTable:
        check_new(self._settings, self._context.columns)
        try:
            return DeltaTable.create(
                self._settings.path,
                schema=make_schema(self._context.columns),
                partition_by=list(self._settings.partition_by),
                storage_options=self._options,
                commit_properties=_ONCE,
            )
        except (DeltaError, OSError):
            made_by_other = self._open()
            if made_by_other is None:
                raise
            return made_by_other

    def _newest(self) -> DeltaTable:
        """Return the table in its newest version."""
        if self._table is None:
            self.prepare()
        else:
            self._table.update_incremental()
        assert self._table is not None
        return self._table

    def _app_ids(self, table: DeltaTable, partition: int) -> tuple[str, str]:
        """Return the names of the application transactions that hold a partition's position and log offset."""
        cleared = table.metadata().configuration.get(self._cleared_property)
        name = f"tidegate {f'{cleared} ' if cleared else ''}{self._context.stream.name} {partition}"
        return name, f"{name} offset"

    def _progress_in(self, table: DeltaTable, partition: int) -> Progress:
        position, offset = (table.transaction_version(name) or 0 for name in self._app_ids(table, partition))
        return Progress(table.metadata().configuration.get(self._id_property) or self._context.stream.id, position, offset)

    def _progress_of(self, table: DeltaTable, partitions: Sequence[int]) -> dict[int, Progress]:
        progress = {partition: self._progress_in(table, partition) for partition in partitions}
        return {partition: reached for partition, reached in progress.items() if reached.position}

    def _write(self, batch: Batch) -> Progress:
        with translate_errors(self.name):
            table = self._newest()
            before = self._progress_in(table, batch.partition)
            if before[:2] != (batch.stream_id, batch.start):
                return before
            self._commit(table, batch)
        return batch.progress

    def _commit(self, table: DeltaTable, batch: Batch) -> None:
        typed = fit_rows(schema_of(table), batch.rows, make_typed_table(batch.rows, self._context.columns))
        pause_at("rows sent")
        moves = zip(self._app_ids(table, batch.partition), (batch.end, batch.offset), strict=True)
        progress = [Transaction(name, version) for name, version in moves]
        write_deltalake(table, typed, mode="append", commit_properties=CommitProperties(app_transactions=progress))
        pause_at("progress sent")
