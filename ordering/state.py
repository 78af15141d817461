"""
What one input partition's walk must remember between batches, and how it is saved.

The memory is: the arrival frontier, the timelines, the held events, the numbering of each channel, and the released
events that lie ahead of their channel's CTI. It is saved as a small *head* plus *chunks*. Each batch writes one chunk
of what it added and never touches older ones, because everything else follows from the head and the timelines:

- an event in a chunk is *held* as long as its system timestamp is not below its timeline's watermark, *ahead* as
  long as it is released but not below the CTI, and *dead* after that;
- a timeline occurs in several chunks; the largest value counts.

Law: ``State.restore(snapshot of s) `` continues exactly as ``s`` would. A chunk whose last row is dead is deleted;
eight chunks of one size class are merged into one of the next, so that writing costs a batch O(rows it touches *
log of the state's age) and the saved bytes stay within a small factor of what must be kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.errors import ProtocolError
from ordering.ticks import NEVER
from ordering.timeline import Timelines

Ints = NDArray[np.int64]
Objects = NDArray[np.object_]

STATE_VERSION = 1
_MERGE_FANOUT = 8


@dataclass(slots=True)
class Rows:
    """Kept events as columns. ``chunk`` is the snapshot chunk a row is saved in, -1 while it is in none."""

    system_us: Ints
    event_time_us: Ints
    arrival_us: Ints
    offset: Ints
    flags: NDArray[np.uint16]
    timeline: Ints
    chunk: Ints
    key: Objects
    value: Objects

    def __len__(self) -> int:
        return len(self.system_us)

    def take(self, rows: Any) -> Rows:
        """Return the chosen rows (a mask or row numbers)."""
        return Rows(*(getattr(self, name)[rows] for name in _ROW_FIELDS))

    @staticmethod
    def concat(parts: list[Rows]) -> Rows:
        """Return all rows of *parts*, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in _ROW_FIELDS))

    @staticmethod
    def empty() -> Rows:
        """Return no rows."""
        ints, objects = np.empty(0, dtype=np.int64), np.empty(0, dtype=object)
        return Rows(ints, ints, ints, ints, np.empty(0, dtype=np.uint16), ints, ints, objects, objects)


_ROW_FIELDS = tuple(Rows.__dataclass_fields__)


@dataclass(slots=True)
class Ahead:
    """Released events at or above their channel's CTI: only what counting them needs."""

    system_us: Ints
    timeline: Ints
    chunk: Ints

    def take(self, rows: Any) -> Ahead:
        """Return the chosen rows."""
        return Ahead(self.system_us[rows], self.timeline[rows], self.chunk[rows])

    @staticmethod
    def concat(parts: list[Ahead]) -> Ahead:
        """Return all rows of *parts*, one part after the other."""
        return Ahead(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("system_us", "timeline", "chunk")))


@dataclass(slots=True)
class Chunk:
    """A saved chunk: its number, size class, bytes, and the CTI from which on none of its rows is needed."""

    number: int
    level: int
    size: int
    needed_until_us: int


@dataclass(slots=True)
class Delta:
    """What saving a state has to write: the head always, some chunks, and which chunks to delete."""

    head: bytes
    put: dict[int, bytes]
    delete: list[int]


@dataclass(slots=True)
class State:
    """The memory of one input partition. Made by ``Model.new_state`` or :meth:`restore`; changed by ``Model.step`` only."""

    timelines: Timelines
    seq: Ints
    largest_us: Ints
    arrival_us: int = NEVER
    next_offset: int = 0
    c: int = NEVER
    finished: bool = False
    held: Rows = field(default_factory=Rows.empty)
    ahead: Ahead = field(default_factory=lambda: Ahead(*(np.empty(0, dtype=np.int64) for _ in range(3))))
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    next_chunk: int = 0
    touched: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def save(self) -> Delta:
        """Return what must be written to make the last saved state this one. Call once after each batch."""
        delete = [number for number, chunk in self.chunks.items() if chunk.needed_until_us < self.c]
        for number in delete:
            del self.chunks[number]
        put: dict[int, bytes] = {}
        self._put(put, level=0, sources=[-1])
        level = 0
        while len(full := [number for number, chunk in self.chunks.items() if chunk.level == level]) >= _MERGE_FANOUT:
            for number in full:
                del self.chunks[number]
                if put.pop(number, None) is None:
                    delete.append(number)
            self._put(put, level=level + 1, sources=full)
            level += 1
        self.touched = np.empty(0, dtype=np.int64)
        return Delta(self._head(), put, delete)

    def _put(self, put: dict[int, bytes], level: int, sources: list[int]) -> None:
        held = np.flatnonzero(np.isin(self.held.chunk, sources))
        ahead = np.flatnonzero(np.isin(self.ahead.chunk, sources))
        chunk_of = self.timelines.chunk
        timelines = np.unique(self.touched) if sources == [-1] else np.flatnonzero(np.isin(chunk_of, sources))
        if not (len(held) or len(ahead) or len(timelines)):
            return
        number, self.next_chunk = self.next_chunk, self.next_chunk + 1
        self.held.chunk[held], self.ahead.chunk[ahead], chunk_of[timelines] = number, number, number
        octets = _encode_chunk(self.held.take(held), self.ahead.take(ahead), timelines, self.timelines)
        # A timeline is needed as long as its own watermark is above the floor: never longer than its largest value.
        newest = [self.held.system_us[held], self.ahead.system_us[ahead], self.timelines.largest_us[timelines] + 1]
        self.chunks[number] = Chunk(number, level, len(octets), max(int(part.max()) for part in newest if len(part)))
        put[number] = octets

    def _head(self) -> bytes:
        fields = {
            "version": STATE_VERSION,
            "seq": self.seq.tolist(),
            "largest_us": self.largest_us.tolist(),
            "arrival_us": self.arrival_us,
            "next_offset": self.next_offset,
            "c": self.c,
            "finished": self.finished,
            "written": [[partition, c, n] for partition, (c, n) in sorted(self.written.items())],
            "totals": self.totals,
            "chunks": [[chunk.number, chunk.level, chunk.size, chunk.needed_until_us] for chunk in self.chunks.values()],
            "next_chunk": self.next_chunk,
        }
        return json.dumps(fields, sort_keys=True).encode()

    @staticmethod
    def restore(head: bytes, chunks: Mapping[int, bytes] | Iterable[tuple[int, bytes]], timelines: Timelines, reorder_us: int) -> State:
        """
        Return the state whose deltas left *head* and *chunks* behind.

        Args:
            head: The newest head.
            chunks: Every chunk put and not deleted since.
            timelines: An empty table, to be filled.
            reorder_us: The reorder tolerance of the policies the state was made under; it tells held from released.

        Raises:
            ProtocolError: The state was saved by a newer version.
        """
        fields = json.loads(head)
        if fields["version"] != STATE_VERSION:
            raise ProtocolError(
                f"saved state has version {fields['version']}, this program reads {STATE_VERSION}", fix="run the version that saved it"
            )
        state = State(
            timelines=timelines,
            seq=np.array(fields["seq"], dtype=np.int64),
            largest_us=np.array(fields["largest_us"], dtype=np.int64),
            arrival_us=fields["arrival_us"],
            next_offset=fields["next_offset"],
            c=fields["c"],
            finished=fields["finished"],
            written={partition: (c, n) for partition, c, n in fields["written"]},
            totals=fields["totals"],
            chunks={row[0]: Chunk(*row) for row in fields["chunks"]},
            next_chunk=fields["next_chunk"],
        )
        saved = dict(chunks)
        state._load([(number, saved[number]) for number in sorted(state.chunks)], reorder_us)
        return state

    def _load(self, chunks: list[tuple[int, bytes]], reorder_us: int) -> None:
        decoded = [_decode_chunk(octets, number, self.timelines) for number, octets in chunks]
        if not decoded:
            return
        rows = Rows.concat([part for part, _ in decoded])
        released = Ahead.concat([part for _, part in decoded])
        # With several chunks the order of rows is that of chunks, not of offsets; the release order breaks ties by offset.
        rows = rows.take(np.argsort(rows.offset, kind="stable"))
        watermark = np.maximum(self.timelines.largest_us - reorder_us, self.c)
        held = rows.system_us >= watermark[rows.timeline]
        since = rows.take(~held)
        ahead = Ahead.concat([released, Ahead(since.system_us, since.timeline, since.chunk)])
        self.held, self.ahead = rows.take(held), ahead.take(ahead.system_us >= self.c)


_CHUNK_SCHEMA = pa.schema(
    [
        ("kind", pa.int8()),
        ("system_us", pa.int64()),
        ("event_time_us", pa.int64()),
        ("arrival_us", pa.int64()),
        ("offset", pa.int64()),
        ("flags", pa.uint16()),
        ("substream", pa.dictionary(pa.int32(), pa.binary())),
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
    ]
)
_HELD, _AHEAD, _TIMELINE = 0, 1, 2


def _encode_chunk(held: Rows, ahead: Ahead, timelines: Ints, table: Timelines) -> bytes:
    used, index = np.unique(np.concatenate([held.timeline, ahead.timeline, timelines]), return_inverse=True)
    names = table.keys()
    dictionary = pa.array([names[row] for row in used], type=pa.binary())
    counts = len(held), len(ahead.system_us), len(timelines)
    others = counts[1] + counts[2]

    def padded(column: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([column, np.zeros(others, dtype=column.dtype)])

    def payload(column: Objects) -> pa.Array:
        return pa.array(column.tolist() + [None] * others, type=pa.large_binary())

    columns = [
        np.repeat(np.array([_HELD, _AHEAD, _TIMELINE], dtype=np.int8), counts),
        np.concatenate([held.system_us, ahead.system_us, table.largest_us[timelines]]),
        padded(held.event_time_us),
        padded(held.arrival_us),
        padded(held.offset),
        padded(held.flags),
        pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), dictionary),
        payload(held.key),
        payload(held.value),
    ]
    batch = pa.record_batch([pa.array(column) if isinstance(column, np.ndarray) else column for column in columns], schema=_CHUNK_SCHEMA)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, _CHUNK_SCHEMA) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decode_chunk(octets: bytes, number: int, table: Timelines) -> tuple[Rows, Ahead]:
    batch = pa.ipc.open_stream(octets).read_next_batch()
    kind = batch["kind"].to_numpy()
    substream = batch["substream"]
    row_of = table.find(substream.dictionary) if len(substream.dictionary) else np.empty(0, dtype=np.int64)
    timeline = row_of[substream.indices.to_numpy()]
    chunk = np.full(len(kind), number, dtype=np.int64)
    system_us = batch["system_us"].to_numpy()
    seen = kind == _TIMELINE
    # Chunks are read oldest first, but a merged chunk may be older in content than its number: the largest counts.
    newer = system_us[seen] >= table.largest_us[timeline[seen]]
    table.largest_us[timeline[seen][newer]] = system_us[seen][newer]
    table.chunk[timeline[seen][newer]] = number
    held, ahead = kind == _HELD, kind == _AHEAD
    rows = Rows(
        system_us=system_us[held],
        event_time_us=batch["event_time_us"].to_numpy()[held],
        arrival_us=batch["arrival_us"].to_numpy()[held],
        offset=batch["offset"].to_numpy()[held],
        flags=batch["flags"].to_numpy()[held],
        timeline=timeline[held],
        chunk=chunk[held],
        key=_objects(batch["key"], held),
        value=_objects(batch["value"], held),
    )
    return rows, Ahead(system_us[ahead], timeline[ahead], chunk[ahead])


def _objects(column: pa.Array, rows: NDArray[np.bool_]) -> Objects:
    chosen = column.filter(pa.array(rows))
    objects = np.empty(len(chosen), dtype=object)
    objects[:] = chosen.to_pylist()
    return objects
