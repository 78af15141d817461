"""
Results as rows of a ClickHouse table, each once, without transactions.

Law: a row says which result it is, by topic id, partition and number. A batch is three inserts: its end is noted, in a table of progress
beside the other one; its rows; the progress behind it. Of several batches that begin at one place the server notes one, so every writer
writes the batch that is noted, or none. Rows are added only while it is, and only those that are not there; so whoever repeats it, after
any time, completes it. Two that insert it at the same moment have one token, and the server keeps one of the two in each partition of the
table. So its memory of tokens must last for the time of an insert only. How each statement does this: :mod:`.statements`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ordering.errors import UnreachableError
from sinks.stores.base import Batch, Progress, Refusal, Rows, RowsRefused, StoreContext, find_refusals
from sinks.stores.clickhouse.client import ClickHouseClient, ValuesRefused
from sinks.stores.clickhouse.reading import ClickHouseReader
from sinks.stores.clickhouse.statements import BatchStatements, read_progress
from sinks.stores.clickhouse.target import Target, find_target
from sinks.stores.typed_rows import make_typed_table
from tidegate.fault_points import pause_at
from tidegate.settings.tables.stores.clickhouse import ClickHouseSettings

# What DateTime64 can show, in microseconds since 1970: the years 1900 to 2299.
_TIME_MIN_US, _TIME_MAX_US = -2_208_988_800_000_000, 10_413_791_999_999_999


class ClickHouseStore:
    """The table of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: ClickHouseSettings) -> None:
        self._context, self._settings = context, settings
        self._client = ClickHouseClient(settings)
        self._target: Target | None = None
        # Where the next batch of a partition begins, if it follows one of ours: it is not noted yet.
        self._follows: dict[int, int] = {}

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
        """Return what the table of progress has."""
        return read_progress(self._client, self._ready, self._context.stream.name, partitions)

    def write(self, batch: Batch) -> Progress:
        """Note the batch, add its rows, and move the progress."""
        statements = BatchStatements(self._ready, self._context.stream.name, batch)
        table = typed_columns(batch.rows, self._context)
        is_new = self._follows.get(batch.partition) == batch.start or self._progress_of(batch).end is None
        self._client.insert(statements.note, statements.note_token)
        before = self._progress_of(batch)
        if before[:2] != (batch.stream_id, batch.start) or before.end not in (None, batch.end):
            return before
        if before.end is None:
            raise self._dropped("what notes the progress")
        if len(table):
            try:
                self._client.insert(statements.rows, statements.rows_token, table)
            except ValuesRefused as error:
                raise self._refusals(statements, table, str(error)) from None
            if not is_new and int(self._client.ask(statements.count_there)[0][0]) < len(table):
                raise self._dropped("rows of a batch that is repeated")
        pause_at("rows sent")
        self._client.insert(statements.done, statements.done_token)
        pause_at("progress sent")
        self._follows[batch.partition] = batch.end
        return batch.progress

    def reader(self) -> ClickHouseReader:
        """Return a reader of the table."""
        return ClickHouseReader(self._client, self._find_target(may_change=False), self._context)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
        self._target = None
        self._follows.clear()

    @property
    def _ready(self) -> Target:
        if self._target is None:
            self.prepare()
        assert self._target is not None
        return self._target

    def _find_target(self, *, may_change: bool) -> Target:
        return find_target(self._client, self._settings, self._context.output, self._context.columns, may_change=may_change)

    def _progress_of(self, batch: Batch) -> Progress:
        return self.progress([batch.partition]).get(batch.partition, Progress(batch.stream_id, 0, 0))

    def _dropped(self, what: str) -> UnreachableError:
        """The other insert that the server takes for the same may not be seen yet; or what it added was deleted."""
        fix = f"if somebody has deleted them: DROP TABLE {self._ready.progress}"
        return UnreachableError(
            f"the server drops {what} as repeated, and does not have them; {fix}", code="TG-STORE-UNREACHABLE", where=self.name
        )

    def _refusals(self, statements: BatchStatements, table: pa.Table, words: str) -> RowsRefused:
        """Return which rows the server refuses: it is asked with a table like the other one that keeps nothing."""
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
        found = find_refusals(rows, attempt)
        self._client.execute(f"DROP TABLE {name}", session)
        if not found:
            fix = "look at what depends on the table, such as its materialized views"
            raise self._client.error(f"refused together, but not one by one: {words}", fix)
        return RowsRefused(found)


def typed_columns(rows: Rows, context: StoreContext) -> pa.Table:
    """Return results as they are sent: their columns as c0, c1, ..., their numbers as seq. Raises RowsRefused."""
    typed = make_typed_table(rows, context.columns)
    for field in typed.schema:
        if pa.types.is_timestamp(field.type):
            _refuse_unshown(rows, field.name, typed.column(field.name).cast(pa.int64()))
    return typed.rename_columns([f"c{number}" for number in range(typed.num_columns)]).append_column("seq", pa.array(rows.position))


def _refuse_unshown(rows: Rows, name: str, us: pa.ChunkedArray) -> None:
    outside = pc.fill_null(pc.or_(pc.less(us, _TIME_MIN_US), pc.greater(us, _TIME_MAX_US)), False)
    if pc.any(outside).as_py():
        places = rows.position[outside.to_numpy()].tolist()
        raise RowsRefused([Refusal(place, f"column {name}: DateTime64 holds the years 1900 to 2299") for place in places])
