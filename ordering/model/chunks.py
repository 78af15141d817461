"""
Chunks: the part of an input partition's state that was added between two saves, in memory and as bytes.

A chunk has the added events that are held, the released events ahead of the CTI, and the timelines whose maximum rose. Law: a chunk's bytes
never change. The newest head, and each timeline's largest value in any chunk, decide which of its entries are still needed
(:mod:`ordering.model.state`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.key_table import Keys
from ordering.columns.payload_columns import Payload, concat_columns, empty_column, take_rows, to_arrow
from ordering.errors import ProtocolError
from ordering.model.ahead import Ahead
from ordering.model.timelines import Timelines

_MAGIC = b"TGC1"


@dataclass(slots=True)
class EventRows:
    """Held events as columns, offsets rising. Times in microseconds; ``timeline`` is a row of the table of timelines."""

    system_us: Ints
    event_time_us: Ints
    arrival_us: Ints
    offset: Ints
    flags: NDArray[np.uint16]
    timeline: NDArray[np.int32]
    key: Payload
    value: Payload
    # Whether keys and values are in files (:meth:`spill_payloads`).
    is_spilled: bool = False

    def __len__(self) -> int:
        return len(self.system_us)

    @property
    def payload_bytes(self) -> int:
        """Memory used by keys and values; columns of Python bytes cannot be measured and count as 0."""
        return 0 if self.is_spilled else sum(column.nbytes for column in (self.key, self.value) if not isinstance(column, np.ndarray))

    def spill_payloads(self, spill: Callable[[Payload, Payload], tuple[Payload, Payload]]) -> None:
        """Replace keys and values by the equal columns that *spill* returns, backed by files. Rows taken from here are in memory."""
        self.key, self.value = spill(self.key, self.value)
        self.is_spilled = True

    def take_rows(self, rows: Ints) -> EventRows:
        return EventRows(*[*(getattr(self, name)[rows] for name in _FIXED), take_rows(self.key, rows), take_rows(self.value, rows)])

    def by_offset(self) -> EventRows:
        if (self.offset[1:] > self.offset[:-1]).all():
            return self
        return self.take_rows(np.argsort(self.offset))

    @staticmethod
    def concat(parts: list[EventRows]) -> EventRows:
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else EventRows.empty()
        fixed = [np.concatenate([getattr(part, name) for part in filled]) for name in _FIXED]
        return EventRows(*[*fixed, concat_columns([part.key for part in filled]), concat_columns([part.value for part in filled])])

    @staticmethod
    def empty() -> EventRows:
        ints = np.empty(0, dtype=np.int64)
        return EventRows(ints, ints, ints, ints, np.empty(0, dtype=np.uint16), np.empty(0, dtype=np.int32), empty_column(), empty_column())


_FIXED = tuple(name for name in EventRows.__dataclass_fields__ if name not in ("key", "value", "is_spilled"))


@dataclass(slots=True)
class HeldEvents:
    """Held events. Released ones stay in their rows, marked, until they are more than half."""

    rows: EventRows = field(default_factory=EventRows.empty)
    is_waiting: Mask = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    count: int = 0

    @staticmethod
    def of(rows: EventRows) -> HeldEvents:
        return HeldEvents(rows, np.ones(len(rows), dtype=np.bool_), len(rows))

    def waiting_rows(self) -> EventRows:
        return self.rows if self.count == len(self.rows) else self.rows.take_rows(np.flatnonzero(self.is_waiting))

    def pop_rows(self, due: Ints) -> EventRows:
        """Remove and return the events at *due*."""
        popped = self.rows.take_rows(due)
        self.is_waiting[due] = False
        self.count -= len(due)
        # Marking is cheap, copying is not: the waiting events are copied only once they are the smaller half.
        if 2 * self.count < len(self.rows):
            self.rows = self.waiting_rows()
            self.is_waiting = np.ones(len(self.rows), dtype=np.bool_)
        return popped


@dataclass(slots=True)
class Chunk:
    """
    The part of the state that was added between two saves: events that are ``held``, released events that no CTI has passed (``ahead``),
    and the table rows of ``timelines`` whose maximum rose; a later chunk may have newer values. ``level`` is the size class of the saved
    bytes. The chunk is not needed any longer once the CTI exceeds ``needed_until_us``.
    """

    held: HeldEvents = field(default_factory=HeldEvents)
    ahead: Ahead = field(default_factory=Ahead.empty)
    timelines: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    level: int = 0
    size_bytes: int = 0
    needed_until_us: int = 0

    def is_empty(self) -> bool:
        return not (self.held.count or len(self.ahead) or len(self.timelines))

    @staticmethod
    def merge(chunks: list[Chunk]) -> Chunk:
        """Return one chunk with all needed entries of *chunks*."""
        return Chunk(
            held=HeldEvents.of(EventRows.concat([chunk.held.waiting_rows() for chunk in chunks]).by_offset()),
            ahead=Ahead.merge(chunk.ahead for chunk in chunks),
            timelines=np.concatenate([chunk.timelines for chunk in chunks]) if chunks else np.empty(0, dtype=np.int32),
        )


_HELD_TYPES = (*[pa.int64()] * 4, pa.uint16(), pa.int32(), pa.large_binary(), pa.large_binary())
_HELD_SCHEMA = pa.schema(zip((*_FIXED, "key", "value"), _HELD_TYPES, strict=True))
_AHEAD_SCHEMA = pa.schema([("system_us", pa.int64()), ("partition", pa.int32())])
_TIMELINE_SCHEMA = pa.schema([("key", pa.binary()), ("largest_us", pa.int64()), ("moved", pa.bool_())])


def encode(chunk: Chunk, table: Timelines) -> bytes:
    """Return a chunk's bytes: three Arrow streams (timelines, held, ahead), each after its length as little-endian u64."""
    held, moved = chunk.held.waiting_rows(), chunk.timelines
    # Timelines of held events are written for their keys; if they did not move, their value is read from another chunk.
    named = np.unique(np.concatenate([moved, held.timeline]))
    place = table.places_among(named, held.timeline) if len(held) else np.empty(0, dtype=np.int64)
    columns = [place.astype(np.int32) if name == "timeline" else getattr(held, name) for name in _FIXED]
    data = io.BytesIO()
    data.write(_MAGIC)
    # One stream after the other: the columns of one are gone when the next is made.
    _write_stream(data, _TIMELINE_SCHEMA, [table.keys(named), table.largest_us[named], np.isin(named, moved)])
    _write_stream(data, _HELD_SCHEMA, [*columns, to_arrow(held.key), to_arrow(held.value)])
    ahead = [chunk.ahead.system_us[chunk.ahead.passed_count :], chunk.ahead.partition[chunk.ahead.passed_count :]]
    _write_stream(data, _AHEAD_SCHEMA, ahead)
    return data.getvalue()


def _write_stream(data: io.BytesIO, schema: pa.Schema, columns: list[Any]) -> None:
    arrays = [
        pa.array(column, type=kind) if isinstance(column, np.ndarray) else column
        for column, kind in zip(columns, schema.types, strict=True)
    ]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    data.write(struct.pack("<Q", sink.tell()))
    data.write(sink.getbuffer())


@dataclass(slots=True)
class SavedChunk:
    """The decoded bytes of a chunk; ``timelines`` are the table rows whose maximum rose, ``largest_us`` their values at the save."""

    rows: EventRows
    ahead: Ahead
    timelines: Ints
    largest_us: Ints


def decode(data: bytes, table: Timelines) -> SavedChunk:
    """Decode a chunk and add its timelines to *table*; ProtocolError if the bytes are no chunk."""
    if data[:4] != _MAGIC:
        raise ProtocolError("a saved chunk of state is of no version that this program reads", fix="run the version that saved it")
    timelines, held, ahead = _read_streams(data, len(_MAGIC))
    rows = table.find_or_add_distinct(Keys.of(timelines["key"]))
    moved = timelines["moved"].to_numpy(zero_copy_only=False)
    fixed = [held[name].to_numpy() for name in _FIXED if name != "timeline"]
    timeline = rows[held["timeline"].to_numpy()].astype(np.int32)
    return SavedChunk(
        EventRows(*[*fixed, timeline, held["key"], held["value"]]),
        # Copies: a view would keep the bytes of the whole chunk in memory.
        Ahead.of(ahead["system_us"].to_numpy().copy(), ahead["partition"].to_numpy().copy()),
        rows[moved],
        timelines["largest_us"].to_numpy()[moved],
    )


def _read_streams(data: bytes, position: int) -> list[pa.RecordBatch]:
    batches = []
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        batches.append(pa.ipc.open_stream(pa.py_buffer(data)[position + 8 : position + 8 + length]).read_next_batch())
        position += 8 + length
    return batches
