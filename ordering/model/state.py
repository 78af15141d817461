"""
The state of one input partition between batches, and its saved form.

The state has the arrival frontier, the CTIs met, the timelines, the held events, the numbering of each channel, and the released events
ahead of their channel's CTI. It is saved as a small *head* plus *chunks*. Each save writes the head and one chunk with the additions since
the last save. Older chunks need no change, because the head and the timelines determine the rest:

- an event in a chunk is *held* while its system timestamp is not below its timeline's watermark, and *dead* afterwards; the chunk of the
  batches that released it counts it as *ahead* while it is not below the CTI;
- if a timeline is in several chunks, its largest value counts.

Law: ``State.restore(snapshot of s)`` continues exactly as ``s`` would. A chunk is deleted when its last row is dead; eight chunks of one
size class are merged into one of the next. So a batch writes O(rows it touches * log of the state's age), and the saved bytes are at most a
small factor above the needed ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ordering.arrays import Ints
from ordering.errors import ProtocolError, check_saved_version
from ordering.model import chunks as chunk_bytes
from ordering.model.chunks import Chunk, EventRows, HeldEvents, SavedChunk
from ordering.model.timelines import Timelines
from ordering.model.watermark import watermark_of
from ordering.protocol.facts import Fact
from ordering.ticks import NEVER

STATE_VERSION = 1
_MERGE_FANOUT = 8
# Size classes that are merged. A chunk of the last, some hundred megabytes, is left alone: stores take no value above 2 GiB.
_LEVELS = 5
# The table is searched for timelines to forget once this fraction of its size was walked; a batch counts 256 rows at least.
_FORGET_FRACTION = 4
_FORGET_BATCH_ROWS_MIN = 256

_TIME_FIELDS = ("arrival_us", "is_estimated", "promise_us", "is_imported", "floor_us", "c", "last_point_us")
_PLAIN_FIELDS = (*_TIME_FIELDS, "next_offset", "is_finished", "model_fingerprint", "accepted_count", "totals", "next_chunk")


@dataclass(slots=True)
class Delta:
    """The writes that save a state: the head, the chunks to put, and the numbers of the chunks to delete."""

    head: bytes
    put: dict[int, bytes]
    delete: list[int]


@dataclass(slots=True)
class OutputStart:
    """Where the output begins, for each output partition, if not at the first record."""

    # Events below are left out: they are already written, or are before the output start time.
    start_us: Ints
    # How many of the other events are already numbered and written; they are walked but not written.
    skip_counts: Ints


class ChannelPromise(NamedTuple):
    """What a channel's last CTI promises: no later event lies below *c*, and *n* events were numbered before it."""

    c: int
    n: int
    roster_version: int


class LastPromise(NamedTuple):
    """What a CTI says, to repeat it: of the *n* events *ahead* do not lie below *c*; the largest is at *largest_us*."""

    c: int
    n: int
    ahead: int
    largest_us: int


@dataclass(slots=True)
class State:
    """
    The state of one input partition. Made by ``Model.new_state`` or :meth:`restore`; changed only by ``Model.step``.

    Args:
        seq: The next seq of each output partition.
        largest_us: Largest system timestamp released into each output partition.
        arrival_us: The arrival frontier; *is_estimated* if an estimate set it.
        promise_us: The largest source CTI or imported CTI; *is_imported* if it was imported.
        next_offset: The first offset not yet judged.
        c: The last computed ``c`` of this input partition; a channel gets it when its next CTI is due.
        model_fingerprint: The settings of the model, as readable text.
        accepted_count: Events accepted so far, without end edges.
        last_point_us: The watermark at the last point at which CTIs were due (``Generation``).
        promises: The last promise written to each output partition.
        last_promise: The promise of the first output partition's last CTI, if this state wrote one.
        pending_facts: Journaled facts that no CTI has carried yet.
        output_start: Where the output begins; None: at the first event, or all channels have passed it.
        totals: Counts saved for the caller that runs the model.
        ahead_counts: How many events are ahead of the CTI in each output partition.
        unlisted_rows: Timelines that advanced since CTIs last listed them.
        rows_since_forget: Rows walked since the table was last searched for timelines to forget.
    """

    timelines: Timelines
    seq: Ints
    largest_us: Ints
    arrival_us: int = NEVER
    is_estimated: bool = False
    promise_us: int = NEVER
    is_imported: bool = False
    floor_us: int = NEVER
    next_offset: int = 0
    c: int = NEVER
    is_finished: bool = False
    model_fingerprint: str = ""
    accepted_count: int = 0
    last_point_us: int = NEVER
    promises: dict[int, ChannelPromise] = field(default_factory=dict)
    last_promise: LastPromise | None = None
    pending_facts: tuple[Fact, ...] = ()
    output_start: OutputStart | None = None
    totals: dict[str, int] = field(default_factory=dict)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    unsaved_chunks: list[Chunk] = field(default_factory=list)
    ahead_counts: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    next_chunk: int = 0
    unlisted_rows: list[Ints] = field(default_factory=list)
    rows_since_forget: int = 0

    def all_chunks(self) -> Iterator[Chunk]:
        yield from self.chunks.values()
        yield from self.unsaved_chunks

    @property
    def held_count(self) -> int:
        return sum(chunk.held.count for chunk in self.all_chunks())

    @property
    def held(self) -> EventRows:
        return EventRows.concat([chunk.held.waiting_rows() for chunk in self.all_chunks()]).by_offset()

    def add(self, chunk: Chunk) -> None:
        if chunk.is_empty():
            return
        self.unsaved_chunks.append(chunk)
        # The newest chunk is merged with the one before it unless that is at least twice as long, so every row is merged a few times at
        # most.
        while len(self.unsaved_chunks) > 1 and _weight(self.unsaved_chunks[-2]) < 2 * _weight(self.unsaved_chunks[-1]):
            last, before = self.unsaved_chunks.pop(), self.unsaved_chunks.pop()
            merged = Chunk.merge([before, last])
            merged.timelines = self.timelines.drop_repeats(merged.timelines)
            self.unsaved_chunks.append(merged)

    def drop_output_start(self) -> None:
        """Clear ``output_start`` if every channel has passed it."""
        start = self.output_start
        if start is not None and self.c >= start.start_us.max() and not start.skip_counts.any():
            self.output_start = None

    def forget_timelines(self, walked: int, reorder_us: int, size_min: int) -> None:
        """Remove timelines that cannot influence later events, if they are at least half of the table; searched once in many batches."""
        table = self.timelines
        self.rows_since_forget += max(walked, _FORGET_BATCH_ROWS_MIN)
        # Without OVER there is one timeline, and it is never forgotten.
        if not table.has_substreams or len(table) < size_min or _FORGET_FRACTION * self.rows_since_forget < len(table):
            return
        self.rows_since_forget = 0
        needed = watermark_of(table.largest_us, reorder_us, self.floor_us) > self.floor_us
        if 2 * np.count_nonzero(needed) > len(table):
            return
        for chunk in self.all_chunks():
            needed[chunk.held.rows.timeline[chunk.held.is_waiting]] = True
        self._renumber(table.forget(needed))

    def _renumber(self, new_rows: Ints) -> None:
        for chunk in self.all_chunks():
            chunk.held.rows.timeline = new_rows[chunk.held.rows.timeline].astype(np.int32)
            chunk.timelines = new_rows[chunk.timelines].astype(np.int32)
            chunk.timelines = chunk.timelines[chunk.timelines >= 0]
        unlisted = [new_rows[rows] for rows in self.unlisted_rows]
        self.unlisted_rows = [rows[rows >= 0] for rows in unlisted]

    @property
    def unsaved_bytes(self) -> int:
        """Memory used by payloads that were added since the last save."""
        return sum(chunk.held.rows.payload_bytes for chunk in self.unsaved_chunks)

    def save(self) -> Delta:
        """Return the writes that turn the last saved state into this one. Call it after each batch, or more often in a large one."""
        delete = [number for number, chunk in self.chunks.items() if chunk.needed_until_us < self.c]
        for number in delete:
            # No event of it waits, and its timelines are at or below the floor, where they decide nothing.
            del self.chunks[number]
        put: dict[int, bytes] = {}
        added, self.unsaved_chunks = Chunk.merge(self.unsaved_chunks), []
        added.timelines = self.timelines.drop_repeats(added.timelines)
        self._put_chunk(put, added, level=0)
        for level in range(_LEVELS):
            full = [number for number, chunk in self.chunks.items() if chunk.level == level]
            if len(full) < _MERGE_FANOUT:
                continue
            merged = Chunk.merge([self.chunks[number] for number in full])
            newest = np.isin(self.timelines.newest_chunk[merged.timelines], np.array(full, dtype=np.int32))
            merged.timelines = self.timelines.drop_repeats(merged.timelines[newest])
            for number in full:
                del self.chunks[number]
                if put.pop(number, None) is None:
                    delete.append(number)
            self._put_chunk(put, merged, level + 1)
        return Delta(self._head(), put, delete)

    def _put_chunk(self, put: dict[int, bytes], chunk: Chunk, level: int) -> None:
        if chunk.is_empty():
            return
        number, self.next_chunk = self.next_chunk, self.next_chunk + 1
        put[number] = data = chunk_bytes.encode(chunk, self.timelines)
        self.timelines.newest_chunk[chunk.timelines] = number
        # A timeline is needed as long as its own watermark is above the floor: never longer than its largest value.
        times_us = [chunk.held.waiting_rows().system_us, chunk.ahead.system_us, self.timelines.largest_us[chunk.timelines] + 1]
        chunk.level, chunk.size_bytes = max(level, _size_class(len(data))), len(data)
        chunk.needed_until_us = max(int(part.max()) for part in times_us if len(part))
        self.chunks[number] = chunk

    def _head(self) -> bytes:
        start = self.output_start
        fields = {
            "version": STATE_VERSION,
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "seq": self.seq.tolist(),
            "largest_us": self.largest_us.tolist(),
            "promises": [[partition, *promise] for partition, promise in sorted(self.promises.items())],
            "last_promise": self.last_promise,
            "pending_facts": self.pending_facts,
            "output_start": None if start is None else [start.start_us.tolist(), start.skip_counts.tolist()],
            "chunks": [[number, chunk.level, chunk.size_bytes, chunk.needed_until_us] for number, chunk in self.chunks.items()],
        }
        return json.dumps(fields, sort_keys=True).encode()

    @staticmethod
    def restore(head: bytes, chunks: Mapping[int, bytes] | Iterable[tuple[int, bytes]], timelines: Timelines, reorder_us: int) -> State:
        """
        Return the state that was saved as *head*, the newest one, and *chunks*, all put and not deleted since; *timelines* is an empty
        table, to be filled, and *reorder_us* the reorder tolerance of the saved state's policies: it separates held from released events.
        ProtocolError: the state was saved by another version, or a chunk is missing or malformed.
        """
        fields = json.loads(head)
        check_saved_version("saved state", fields["version"], STATE_VERSION)
        start, last_promise = fields["output_start"], fields["last_promise"]
        state = State(
            timelines=timelines,
            seq=np.array(fields["seq"], dtype=np.int64),
            largest_us=np.array(fields["largest_us"], dtype=np.int64),
            promises={partition: ChannelPromise(*promise) for partition, *promise in fields["promises"]},
            last_promise=None if last_promise is None else LastPromise(*last_promise),
            pending_facts=tuple(Fact(*fact) for fact in fields["pending_facts"]),
            output_start=None if start is None else OutputStart(*(np.array(column, dtype=np.int64) for column in start)),
            ahead_counts=np.zeros(len(fields["seq"]), dtype=np.int64),
            **{name: fields[name] for name in _PLAIN_FIELDS},
        )
        state._restore_chunks(fields["chunks"], dict(chunks), reorder_us)
        if len(timelines):
            # Not saved: which timelines CTIs have listed. Listing one twice does no harm.
            state.unlisted_rows = [np.arange(len(timelines))]
        return state

    def _restore_chunks(self, rows: list[list[int]], saved: dict[int, bytes], reorder_us: int) -> None:
        timelines = self.timelines
        if missing := [number for number, *_ in rows if number not in saved]:
            raise ProtocolError(f"the saved state lacks its chunks {missing}", fix="give every chunk put and not deleted since")
        decoded = {number: chunk_bytes.decode(saved[number], timelines) for number, *_ in rows}
        # All maxima before any chunk: which events are still held follows from the newest watermark of their timeline.
        for number, part in decoded.items():
            # A merged chunk may be older in content than its number: the largest value counts.
            newer = part.largest_us >= timelines.largest_us[part.timelines]
            timelines.largest_us[part.timelines[newer]] = part.largest_us[newer]
            timelines.newest_chunk[part.timelines[newer]] = number
        for number, level, size_bytes, needed_until_us in rows:
            chunk = self._restore_chunk(decoded[number], reorder_us)
            chunk.level, chunk.size_bytes, chunk.needed_until_us = level, size_bytes, needed_until_us
            self.chunks[number] = chunk
            self.ahead_counts += np.bincount(chunk.ahead.partition[chunk.ahead.passed_count :], minlength=len(self.ahead_counts))

    def _restore_chunk(self, saved: SavedChunk, reorder_us: int) -> Chunk:
        rows = saved.rows.by_offset()
        watermark_us = watermark_of(self.timelines.largest_us, reorder_us, self.floor_us)
        is_waiting = rows.system_us >= watermark_us[rows.timeline]
        saved.ahead.pop_below(self.c)
        return Chunk(HeldEvents.of(rows.take_rows(np.flatnonzero(is_waiting))), saved.ahead, saved.timelines.astype(np.int32))


def _size_class(size_bytes: int) -> int:
    """Return the level that merging small chunks reaches at a size, so that a large chunk is not merged with small ones."""
    return ((size_bytes >> 16).bit_length() + 2) // 3


def _weight(chunk: Chunk) -> int:
    return chunk.held.count + len(chunk.ahead) + len(chunk.timelines)
