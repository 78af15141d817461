"""
The progress of an Iceberg table. Each snapshot of a sink has it in its summary: the topic, its id, and the progress of all partitions.

Law: of the current snapshot and its ancestors the newest one that names the topic has the progress. So a rollback takes rows and progress
back together, and snapshots of other programs do not matter. The same commit writes the progress into a property of the table, which counts
if all snapshots that name the topic have expired.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyiceberg.table import Table

from sinks.stores.base import Batch, Progress, Stream

_KEY = "tidegate.topic."


class TableProgress(NamedTuple):
    """The id of the stream, and for each partition the position and the log offset after its results."""

    stream_id: str
    partitions: Mapping[int, tuple[int, int]]

    def of(self, partition: int) -> Progress:
        return Progress(self.stream_id, *self.partitions.get(partition, (0, 0)))

    def after(self, batch: Batch) -> TableProgress:
        """Return the progress after *batch*."""
        return TableProgress(self.stream_id, {**self.partitions, batch.partition: (batch.end, batch.offset)})

    def as_property(self, stream: Stream) -> dict[str, str]:
        """Return the entry for a snapshot's summary and the table's properties."""
        return {f"{_KEY}{stream.name}": json.dumps({"id": self.stream_id, "partitions": self.partitions})}


def read_progress(table: Table, stream: Stream) -> TableProgress:
    """Return the progress of *stream* in the current snapshot."""
    key = f"{_KEY}{stream.name}"
    texts = {snapshot.snapshot_id: snapshot.summary.additional_properties.get(key) for snapshot in table.snapshots() if snapshot.summary}
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.snapshots()}
    current = table.current_snapshot()
    snapshot_id = None if current is None else current.snapshot_id
    while snapshot_id is not None:
        if text := texts.get(snapshot_id):
            return _parse(text, stream)
        snapshot_id = parents.get(snapshot_id)
    # If other snapshots still name the topic, the table was replaced by an empty one, so it has no results.
    if not any(texts.values()) and (text := table.properties.get(key)):
        return _parse(text, stream)
    return TableProgress(stream.id, {})


def no_progress(stream: Stream) -> dict[str, str]:
    """Return the entry, as :meth:`TableProgress.as_property` does, of a topic whose rows were deleted: one of its name begins anew."""
    return TableProgress("", {}).as_property(stream)


def other_topics(table: Table, stream: Stream) -> set[str]:
    """Return the other topics whose results the table has, by its properties and snapshots."""
    summaries = [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary]
    names = {name for entries in (table.properties, *summaries) for name in entries if name.startswith(_KEY)}
    return {name.removeprefix(_KEY) for name in names - {f"{_KEY}{stream.name}"}}


def _parse(text: str, stream: Stream) -> TableProgress:
    stored = json.loads(text)
    partitions = {int(partition): (position, offset) for partition, (position, offset) in stored["partitions"].items()}
    return TableProgress(stored["id"] or stream.id, partitions)
