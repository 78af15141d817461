"""
Reads the rows of a ClickHouse table.

Law: the rows are those of one moment, and the progress is read before and after it: results of a batch that was under way may stand or not.
Columns hold exactly the values that were sent, so rows are compared by values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from sinks.stores.base import Progress, Rows, StoreContext
from sinks.stores.clickhouse.client import ClickHouseClient
from sinks.stores.clickhouse.statements import read_progress
from sinks.stores.clickhouse.target import MADE_AS, TOPIC_ID, ClickHouseColumn, ClickHouseTarget, literal, quote
from sinks.stores.reading import Keeps, Standing
from sinks.stores.typed_rows import make_typed_table
from tidegate.records.result_columns import make_schema


class ClickHouseReader:
    """Reads the rows of *target*, without those of other topics."""

    key: tuple[str, ...] = ()
    keeps: Keeps = "all"

    def __init__(self, client: ClickHouseClient, target: ClickHouseTarget, context: StoreContext) -> None:
        self._client, self._target, self._context = client, target, context

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """See :meth:`sinks.stores.reading.StoreReader.read`."""
        if not self._target.is_there or not self._target.epoch:
            return Standing({})
        certain = {partition: progress.position for partition, progress in self._progress().items()}
        wanted = make_schema(self._context.columns)
        chosen = ", ".join(f"{_as_sent(column)} AS c{number}" for number, column in enumerate(self._target.columns))
        others = f"SELECT topic_id FROM {self._target.progress} WHERE topic != {literal(self._context.stream.name)}"
        query = f"SELECT {chosen} FROM {self._target.table} WHERE {quote(TOPIC_ID)} NOT IN ({others})"
        for batch in self._client.read(query):
            accept(pa.Table.from_batches([batch]).rename_columns(wanted.names).cast(wanted))
        after = {partition: each._replace(position=each.end or each.position) for partition, each in self._progress().items()}
        return Standing(after, certain=certain)

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """See :meth:`sinks.stores.reading.StoreReader.keep`."""
        return make_typed_table(rows, self._context.columns)

    def _progress(self) -> Mapping[int, Progress]:
        return read_progress(self._client, self._target, self._context.stream.name)


def _as_sent(column: ClickHouseColumn) -> str:
    """Return an expression for a column in the type of the values that were sent; other values are NULL."""
    name = quote(column.name)
    if column.type == column.sent_as:
        return name
    if column.kind in MADE_AS:
        return f"accurateCastOrNull({name}, {literal(MADE_AS[column.kind])})"
    return f"CAST({name} AS Nullable(String))"
