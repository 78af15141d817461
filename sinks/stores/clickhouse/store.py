"""
Writes results as rows of a ClickHouse table, each once, without transactions.

Law: a row says which result it is, by topic id, partition and number. A batch is written by three inserts (:mod:`.statements`): a note of
its end in the table of progress, its rows, and the progress after it. Of several batches with one beginning the server notes one, so every
writer writes the noted batch, or none. Rows are added only while their batch is noted, and only rows that the table lacks, so any later
repetition completes the batch. Two inserts of one batch at the same moment have the same token, and the server keeps one of them in each
partition of the table. So the server must remember tokens only for the time of an insert.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ordering.errors import UnreachableError
from sinks.stores.base import Batch, Progress, Refusal, Rows, RowsRefused, StoreContext, find_refusals
from sinks.stores.clickhouse.clearing import clear, count_clearable
from sinks.stores.clickhouse.client import ClickHouseClient, ValuesRefused
from sinks.stores.clickhouse.reading import ClickHouseReader
from sinks.stores.clickhouse.statements import BatchStatements, read_progress
from sinks.stores.clickhouse.target import ClickHouseTarget, find_target
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.clickhouse import ClickHouseSettings

# The range of DateTime64, microseconds since 1970: the years 1900 to 2299.
_TIME_MIN_US, _TIME_MAX_US = -2_208_988_800_000_000, 10_413_791_999_999_999


class ClickHouseStore:
    """The table of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: ClickHouseSettings) -> None:
        self._context, self._settings = context, settings
        self._client = ClickHouseClient(settings)
        self._target: ClickHouseTarget | None = None
        # By partition, the end of the last batch that was written over this connection. A batch that begins there is not noted yet.
        self._written_to: dict[int, int] = {}

    @property
    def name(self) -> str:
        return f"{self._client.name}/{self._settings.database}.{self._settings.table or self._context.output}"

    def check(self) -> None:
        """Compare the table's columns with the query's; nothing is changed."""
        self._find_target(may_change=False)

    def prepare(self) -> None:
        """Make the tables that are missing, and check them."""
        self._target = self._find_target(may_change=True)

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress in the table of progress."""
        return read_progress(self._client, self._ready, self._context.stream.name, partitions)

    def write(self, batch: Batch) -> Progress:
        """Note the batch, add its rows, and move the progress."""
        statements = BatchStatements(self._ready, self._context.stream.name, batch)
        table = typed_columns(batch.rows, self._context)
        is_new = self._written_to.get(batch.partition) == batch.start or self._progress_of(batch).end is None
        self._client.insert(statements.note, statements.note_token)
        before = self._progress_of(batch)
        if before[:2] != (batch.stream_id, batch.start) or before.end not in (None, batch.end):
            return before
        if before.end is None:
            raise self._dropped_error("what notes the progress")
        if len(table):
            try:
                self._client.insert(statements.rows, statements.rows_token, table)
            except ValuesRefused as error:
                raise self._refusals(statements, table, str(error)) from None
            if not is_new and int(self._client.ask(statements.count_written)[0][0]) < len(table):
                raise self._dropped_error("rows of a batch that is repeated")
        pause_at("rows sent")
        self._client.insert(statements.done, statements.done_token)
        pause_at("progress sent")
        self._written_to[batch.partition] = batch.end
        return batch.progress

    def count_clearable(self) -> int | None:
        """See :class:`sinks.stores.base.ClearableStore`."""
        return count_clearable(self._client, self._settings, self._context.output, self._context.stream.name, self.name)

    def clear(self) -> None:
        """Delete the rows of the table, then its progress."""
        clear(self._client, self._settings, self._context.output, self._context.stream.name, self.name)
        self._target = None

    def reader(self) -> ClickHouseReader:
        """Return a reader of the table."""
        return ClickHouseReader(self._client, self._find_target(may_change=False), self._context)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
        self._target = None
        self._written_to.clear()

    @property
    def _ready(self) -> ClickHouseTarget:
        if self._target is None:
            self.prepare()
        assert self._target is not None
        return self._target

    def _find_target(self, *, may_change: bool) -> ClickHouseTarget:
        return find_target(self._client, self._settings, self._context.output, self._context.columns, may_change=may_change)

    def _progress_of(self, batch: Batch) -> Progress:
        return self.progress([batch.partition]).get(batch.partition, Progress(batch.stream_id, 0, 0))

    def _dropped_error(self, what: str) -> UnreachableError:
        """Return the error for a dropped insert without effect: an insert with its token is not visible yet, or its rows were deleted."""
        fix = f"if somebody has deleted them: DROP TABLE {self._ready.progress}"
        return UnreachableError(
            f"the server drops {what} as repeated, and does not have them; {fix}", code="TG-STORE-UNREACHABLE", where=self.name
        )

    def _refusals(self, statements: BatchStatements, table: pa.Table, message: str) -> RowsRefused:
        """Find the rows that the server refuses, by inserting into a temporary table with the same columns that keeps nothing."""
        session = name = f"tidegate_check_{secrets.token_hex(8)}"
        rows = statements.batch.rows

        def attempt(part: Rows) -> str | None:
            start = int(part.position[0])
            first = int((rows.position < start).sum())
            try:
                self._client.insert(f"{statements.into(name)} FORMAT ArrowStream", rows=table.slice(first, len(part)), session=session)
            except ValuesRefused as error:
                return str(error)
            return None

        self._client.execute(f"CREATE TEMPORARY TABLE {name} AS {statements.target.table} ENGINE = Null", session)
        refusals = find_refusals(rows, attempt)
        self._client.execute(f"DROP TABLE {name}", session)
        if not refusals:
            fix = "look at what depends on the table, such as its materialized views"
            raise self._client.error(f"refused together, but not one by one: {message}", fix)
        return RowsRefused(refusals)


def typed_columns(rows: Rows, context: StoreContext) -> pa.Table:
    """Return results as they are sent: their columns as c0, c1, ..., their positions as seq. Raises RowsRefused."""
    typed = make_typed_table(rows, context.columns)
    for field in typed.schema:
        if pa.types.is_timestamp(field.type):
            _refuse_out_of_range(rows, field.name, typed.column(field.name).cast(pa.int64()))
    return typed.rename_columns([f"c{number}" for number in range(typed.num_columns)]).append_column("seq", pa.array(rows.position))


def _refuse_out_of_range(rows: Rows, name: str, us: pa.ChunkedArray) -> None:
    is_outside = pc.fill_null(pc.or_(pc.less(us, _TIME_MIN_US), pc.greater(us, _TIME_MAX_US)), False)
    if pc.any(is_outside).as_py():
        positions = rows.position[is_outside.to_numpy()].tolist()
        raise RowsRefused([Refusal(position, f"column {name}: DateTime64 holds the years 1900 to 2299") for position in positions])
