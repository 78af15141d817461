"""
The recording of an input: the newest records of its raw topics, or those of a span of time.

Law: which records are events, their times and keys are those that ingest reads under the same settings. Records count as arrived at their
Kafka timestamps. Nothing is written, no consumer group is joined and no journal is needed: estimates made in silence are no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ingest.stage.exploding import explode
from ingest.tuning.contents import ContentNumbers, RecordedContents
from ordering.arrays import Ints, Mask
from ordering.errors import RefusedError
from ordering.policies import Shape
from ordering.ticks import MILLISECOND_US, NEVER
from ordering.tuning.recording import Recording
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import CHUNK_EVENTS, RangeReader
from tidegate.platform.kafka.records import Records
from tidegate.platform.settings.input_topics import match_topics, own_topics
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.records.fields import FieldReader
from tidegate.records.payloads.formats import PayloadFormat

# The newest records that are read unless a span is named.
RECORDS_MAX = 3_000_000

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Which records are read: the newest *limit* in all, or only those that arrived in [since_us, until_us); None: no bound."""

    since_us: int | None = None
    until_us: int | None = None
    limit: int = RECORDS_MAX


def read_topic(settings: Settings, name: str, admin: Admin, span: Span, on_records: Callable[[int], None] = lambda _: None) -> Recording:
    """
    Return the recording of the input *name*; *on_records* is called with the number of records of each piece. RefusedError: its topics have
    no records in the span, its events are edges, or it has no event time.
    """
    return _read(settings, name, admin, span, on_records, None).recording


def read_topic_with_contents(
    settings: Settings, name: str, admin: Admin, span: Span, on_records: Callable[[int], None] = lambda _: None
) -> RecordedContents:
    """Return the recording with contents and keys; errors as those of :func:`read_topic`."""
    return _read(settings, name, admin, span, on_records, ContentNumbers())


class _Fields(NamedTuple):
    """What policies depend on: the event time of each record, whether it is an event at all, and with OVER the number of its key."""

    event_us: Ints
    readable: Mask
    key: Ints | None


class _Piece(NamedTuple):
    """The records of a piece: their arrivals, their fields, the number of each content if contents are compared."""

    arrival_us: Ints
    fields: _Fields
    content: Ints | None


def _read(
    settings: Settings, name: str, admin: Admin, span: Span, on_records: Callable[[int], None], contents: ContentNumbers | None
) -> RecordedContents:
    table = settings.input(name)
    if table.event_shape is Shape.EDGE or table.timestamp_by is None:
        what = f"{name} has no timestamp_by: its events are in order as they arrive" if table.timestamp_by is None else f"{name} has edges"
        fix = "nothing is early, late or out of order" if table.timestamp_by is None else "tune points and intervals"
        raise RefusedError(what, code="TG-TUNE-INPUT", where=f"inputs.{name}", fix=fix)
    topics = [admin.require(topic) for topic in match_topics(table, admin.partition_counts(), own_topics(settings))]
    places = [place for topic in topics for place in topic.all_partitions]
    kafka = settings.kafka.client_properties()
    reader = FieldReader.of(table, PayloadFormat.of(table, settings.schema_registry))
    numbers: dict[bytes, int] = {}
    pieces: list[_Piece] = []
    partitions: list[Ints] = []
    total_bytes = 0
    for number, (place, (start, end)) in enumerate(_ranges(admin, places, span).items()):
        with RangeReader(kafka, *place, table.source_ctis, framed=table.headers) as raw:
            for records in raw.read(start, end, CHUNK_EVENTS):
                total_bytes += records.value.nbytes
                read = _read_piece(records, table, reader, numbers, contents)
                pieces += read
                partitions += [np.full(len(piece.arrival_us), number, dtype=np.int64) for piece in read]
                on_records(len(records))
    if not pieces:
        fix = "produce some first, or name another span with --from and --until"
        raise RefusedError("there are no records to look at", code="TG-TUNE-EMPTY", where=f"inputs.{name}", fix=fix)
    arrival_us = np.concatenate([piece.arrival_us for piece in pieces])
    event_us = np.concatenate([piece.fields.event_us for piece in pieces])
    readable = np.concatenate([piece.fields.readable for piece in pieces])
    keys = [piece.fields.key for piece in pieces if piece.fields.key is not None]
    substream = np.concatenate(keys) if table.over is not None else None
    payload_bytes = total_bytes / max(len(arrival_us), 1)
    recording = Recording.of(np.concatenate(partitions), arrival_us, event_us, readable, substream, payload_bytes)
    content = None if contents is None else np.concatenate([piece.content for piece in pieces if piece.content is not None])
    return RecordedContents.of(recording, content, tuple(key.decode(errors="replace") for key in numbers))


def _ranges(admin: Admin, places: list[Place], span: Span) -> Mapping[Place, tuple[int, int]]:
    starts, ends = admin.starts(places), admin.ends(places)
    if span.since_us is not None:
        first = admin.offsets_from(places, span.since_us)
        starts = {place: max(starts[place], first[place]) for place in places}
    if span.until_us is not None:
        last = admin.offsets_from(places, span.until_us)
        ends = {place: min(ends[place], last[place]) for place in places}
    share = max(span.limit // max(len(places), 1), 1)
    return {place: (max(starts[place], ends[place] - share), max(ends[place], starts[place])) for place in places}


def _read_piece(
    records: Records, table: InputSettings, reader: FieldReader, numbers: dict[bytes, int], contents: ContentNumbers | None
) -> list[_Piece]:
    records = records.without_frames().select(records.timestamp_ms > 0)
    arrival_us = records.timestamp_ms.astype(np.int64) * MILLISECOND_US
    if table.explode is None:
        return [_Piece(arrival_us, _read_fields(records.value, reader, numbers), _read_contents(records.value, contents))]
    parts = explode(records, np.ones(len(records), dtype=np.bool_))
    values = [(arrival_us[part.row], part.records.value) for part in parts]
    return [_Piece(times_us, _read_fields(value, reader, numbers), _read_contents(value, contents)) for times_us, value in values]


def _read_contents(payloads: pa.Array, contents: ContentNumbers | None) -> Ints | None:
    return None if contents is None else contents.of_payloads(payloads.to_pylist())


def _read_fields(payloads: pa.Array, reader: FieldReader, numbers: dict[bytes, int]) -> _Fields:
    fields = reader.read(payloads)
    event_us = np.where(fields.readable, fields.event_time_us, NEVER)
    if fields.substream is None:
        return _Fields(event_us, fields.readable, None)
    names = [numbers.setdefault(key or b"", len(numbers)) for key in fields.substream.dictionary.to_pylist()]
    key = np.array(names, dtype=np.int64)[fields.substream.indices.to_numpy(zero_copy_only=False)]
    return _Fields(event_us, fields.readable, key)
