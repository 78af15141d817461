"""
What is said to the server about a batch: three inserts, each of which does nothing the second time.

Law: the server decides within each statement, not the client before it. A batch is noted only where the progress stands at its beginning;
rows are added only while just this batch is noted, and only those that are not there; of inserts that run at the same time with one token
the server keeps the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinks.stores.base import Batch, Progress
from sinks.stores.clickhouse.client import ClickHouseClient
from sinks.stores.clickhouse.target import PARTITION, SEQ, TOPIC_ID, TableColumn, Target, literal, quote

# Which row of the progress table counts: the one with the highest version. A batch under way comes after its beginning.
_PROGRESS_COLUMNS = "topic, `partition`, topic_id, position, log_offset, batch_end, version"


@dataclass(frozen=True, slots=True)
class BatchStatements:
    """The statements and tokens of *batch*, a batch of the topic called *topic*."""

    target: Target
    topic: str
    batch: Batch

    @property
    def note(self) -> str:
        """Notes where the batch ends, if the progress is where it begins and no other batch is noted."""
        batch = self.batch
        values = (
            f"{self._place}, {literal(batch.stream_id)}, {batch.start}, argMax(log_offset, version), {batch.end}, {2 * batch.start + 1}"
        )
        at_start = f"max(version) = {2 * batch.start} AND countIf(topic_id != {literal(batch.stream_id)}) = 0"
        return f"INSERT INTO {self.target.progress} ({_PROGRESS_COLUMNS}) SELECT {values} FROM {self._progress_rows} HAVING {at_start}"

    @property
    def note_token(self) -> str:
        """It has no end: of several batches that begin here one is noted."""
        return self._token("note", self.batch.start)

    @property
    def rows(self) -> str:
        """Adds the rows, if just this batch is noted."""
        batch = self.batch
        noted = f"(SELECT max(version) FROM {self._progress_rows}) = {2 * batch.start + 1}"
        there = f"SELECT {quote(SEQ)} FROM {self._rows_there}"
        return f"{self.into(self.target.table)} WHERE seq NOT IN ({there}) AND {noted} FORMAT ArrowStream"

    @property
    def rows_token(self) -> str:
        return self._token("rows", self.batch.start, self.batch.end)

    @property
    def count_there(self) -> str:
        """Asks how many rows of the batch stand."""
        return f"SELECT count() FROM {self._rows_there}"

    @property
    def done(self) -> str:
        """Moves the progress behind the batch."""
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
    def _rows_there(self) -> str:
        batch = self.batch
        return (
            f"{self.target.table} WHERE {quote(TOPIC_ID)} = {literal(batch.stream_id)} "
            f"AND {quote(PARTITION)} = {batch.partition} AND {quote(SEQ)} >= {batch.start} AND {quote(SEQ)} < {batch.end}"
        )

    def _token(self, *parts: str | int) -> str:
        return "_".join(map(str, (self.target.epoch, self.batch.stream_id, self.batch.partition, *parts)))


def read_progress(client: ClickHouseClient, target: Target, topic: str, partitions: Sequence[int] | None = None) -> dict[int, Progress]:
    """Return how far partitions are, None: all."""
    progress = {}
    for partition, topic_id, *numbers in client.ask(_ask_progress(target, topic, partitions)):
        position, offset, end = map(int, numbers)
        progress[int(partition)] = Progress(str(topic_id), position, offset, end or None)
    return progress


def _ask_progress(target: Target, topic: str, partitions: Sequence[int] | None = None) -> str:
    some = "" if partitions is None else f" AND `partition` IN ({', '.join(map(str, partitions))})"
    last = ", ".join(f"argMax({column}, version)" for column in ("topic_id", "position", "log_offset", "batch_end"))
    return f"SELECT `partition`, {last} FROM {target.progress} WHERE topic = {literal(topic)}{some} GROUP BY `partition`"


def _as_kept(sent: str, column: TableColumn) -> str:
    return sent if column.type == column.sent_as else f"accurateCast({sent}, {literal(column.type)})"
