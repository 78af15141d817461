"""
How far an Iceberg table is: each snapshot that a sink makes names, in its summary, the topic, its id, and the progress of all partitions.

Law: the progress is that of the newest snapshot, among the current one and those before it, that names the topic. So a rollback takes rows
and progress back together, and snapshots of other programs do not matter. A property of the table, set by the same commit, holds it too:
it counts if no snapshot of ours is left, because they have expired.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyiceberg.table import Table

from sinks.stores.base import Batch, Progress, Stream

_KEY = "tidegate.topic."


class TableProgress(NamedTuple):
    """The id of the stream whose results stand, and for each partition the position and the log offset behind them."""

    stream_id: str
    partitions: Mapping[int, tuple[int, int]]

    def of(self, partition: int) -> Progress:
        return Progress(self.stream_id, *self.partitions.get(partition, (0, 0)))

    def after(self, batch: Batch) -> TableProgress:
        """Return the progress once *batch* stands."""
        return TableProgress(self.stream_id, {**self.partitions, batch.partition: (batch.end, batch.offset)})

    def as_property(self, stream: Stream) -> dict[str, str]:
        """Return it as a snapshot's summary and the table's properties have it."""
        return {f"{_KEY}{stream.name}": json.dumps({"id": self.stream_id, "partitions": self.partitions})}


def read_progress(table: Table, stream: Stream) -> TableProgress:
    """Return the progress of *stream* in the current snapshot."""
    key = f"{_KEY}{stream.name}"
    texts = {snapshot.snapshot_id: snapshot.summary.additional_properties.get(key) for snapshot in table.snapshots() if snapshot.summary}
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.snapshots()}
    current = table.current_snapshot()
    number = None if current is None else current.snapshot_id
    while number is not None:
        if text := texts.get(number):
            return _parse(text)
        number = parents.get(number)
    # Without any of ours left they have expired. Else the table was emptied, by a replacement that keeps older snapshots.
    if not any(texts.values()) and (text := table.properties.get(key)):
        return _parse(text)
    return TableProgress(stream.id, {})


def is_shared(table: Table, stream: Stream) -> bool:
    """Return whether results of another topic stand in the table too, by its properties and snapshots."""
    summaries = (snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary)
    names = [*table.properties, *(name for summary in summaries for name in summary)]
    return any(name.startswith(_KEY) and name != f"{_KEY}{stream.name}" for name in names)


def _parse(text: str) -> TableProgress:
    stored = json.loads(text)
    partitions = {int(partition): (position, offset) for partition, (position, offset) in stored["partitions"].items()}
    return TableProgress(stored["id"], partitions)
