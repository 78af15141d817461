"""
The statements that write a batch: three inserts, each of which does nothing the second time.

Law: each statement itself decides whether it takes effect, so no time passes between check and effect. A batch is noted only if the
progress is at its beginning. Rows are added only while this batch is noted, and only rows that the table lacks. Of inserts with the same
token that run at the same time the server keeps the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinks.stores.base import Batch, Progress
from sinks.stores.clickhouse.client import ClickHouseClient
from sinks.stores.clickhouse.target import PARTITION, SEQ, TOPIC_ID, ClickHouseColumn, ClickHouseTarget, literal, quote

# A partition may have several rows in the progress table. The row with the highest version counts: 2 * position, plus 1 while a batch is
# noted there.
_PROGRESS_COLUMNS = "topic, `partition`, topic_id, position, log_offset, batch_end, version"


@dataclass(frozen=True, slots=True)
class BatchStatements:
    """The statements and tokens of *batch*, a batch of the topic called *topic*."""

    target: ClickHouseTarget
    topic: str
    batch: Batch

    @property
    def note(self) -> str:
        """Notes the end of the batch, if the progress is at its beginning and no batch is noted yet."""
        batch = self.batch
        values = (
            f"{self._place}, {literal(batch.stream_id)}, {batch.start}, argMax(log_offset, version), {batch.end}, {2 * batch.start + 1}"
        )
        at_start = f"max(version) = {2 * batch.start} AND countIf(topic_id != {literal(batch.stream_id)}) = 0"
        return f"INSERT INTO {self.target.progress} ({_PROGRESS_COLUMNS}) SELECT {values} FROM {self._progress_rows} HAVING {at_start}"

    @property
    def note_token(self) -> str:
        """The token does not contain the end, so that of several batches with this beginning only one is noted."""
        return self._token("note", self.batch.start)

    @property
    def rows(self) -> str:
        """Adds the rows that the table lacks, if this batch is noted."""
        batch = self.batch
        is_noted = f"(SELECT max(version) FROM {self._progress_rows}) = {2 * batch.start + 1}"
        written = f"SELECT {quote(SEQ)} FROM {self._written_rows}"
        return f"{self.into(self.target.table)} WHERE seq NOT IN ({written}) AND {is_noted} FORMAT ArrowStream"

    @property
    def rows_token(self) -> str:
        return self._token("rows", self.batch.start, self.batch.end)

    @property
    def count_written(self) -> str:
        """Returns how many rows of the batch the table has."""
        return f"SELECT count() FROM {self._written_rows}"

    @property
    def done(self) -> str:
        """Moves the progress to the end of the batch."""
        batch = self.batch
        values = f"{self._place}, {literal(batch.stream_id)}, {batch.end}, {batch.offset}, 0, {2 * batch.end}"
        return f"INSERT INTO {self.target.progress} ({_PROGRESS_COLUMNS}) SELECT {values}"

    @property
    def done_token(self) -> str:
        return self._token("done", self.batch.end)

    def into(self, table: str) -> str:
        """Return the beginning of an insert of :func:`sent_columns` into a table, without its FORMAT."""
        batch, columns = self.batch, self.target.columns
        names = ", ".join(map(quote, [*(column.name for column in columns), TOPIC_ID, PARTITION, SEQ]))
        values = [_as_kept(f"c{number}", column) for number, column in enumerate(columns)]
        values += [literal(batch.stream_id), str(batch.partition), "seq"]
        structure = ", ".join([*(f"c{number} {column.sent_as}" for number, column in enumerate(columns)), "seq Int64"])
        return f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} FROM input({literal(structure)})"

    @property
    def _place(self) -> str:
        return f"{literal(self.topic)}, {self.batch.partition}"

    @property
    def _progress_rows(self) -> str:
        return f"{self.target.progress} WHERE topic = {literal(self.topic)} AND `partition` = {self.batch.partition}"

    @property
    def _written_rows(self) -> str:
        batch = self.batch
        return (
            f"{self.target.table} WHERE {quote(TOPIC_ID)} = {literal(batch.stream_id)} "
            f"AND {quote(PARTITION)} = {batch.partition} AND {quote(SEQ)} >= {batch.start} AND {quote(SEQ)} < {batch.end}"
        )

    def _token(self, *parts: str | int) -> str:
        return "_".join(map(str, (self.target.epoch, self.batch.stream_id, self.batch.partition, *parts)))


def read_progress(
    client: ClickHouseClient, target: ClickHouseTarget, topic: str, partitions: Sequence[int] | None = None
) -> dict[int, Progress]:
    """Return the progress of partitions, None: of all."""
    chosen = "" if partitions is None else f" AND `partition` IN ({', '.join(map(str, partitions))})"
    newest = ", ".join(f"argMax({column}, version)" for column in ("topic_id", "position", "log_offset", "batch_end"))
    query = f"SELECT `partition`, {newest} FROM {target.progress} WHERE topic = {literal(topic)}{chosen} GROUP BY `partition`"
    progress = {}
    for partition, topic_id, *numbers in client.ask(query):
        position, offset, end = map(int, numbers)
        progress[int(partition)] = Progress(str(topic_id), position, offset, end or None)
    return progress


def _as_kept(sent: str, column: ClickHouseColumn) -> str:
    """Return an expression that converts a sent value to the type of the table's column, or fails."""
    return sent if column.type == column.sent_as else f"accurateCast({sent}, {literal(column.type)})"
