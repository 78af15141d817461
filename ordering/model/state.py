"""
What one input partition's walk must remember between batches, and how it is saved.

The memory is: the arrival frontier, the CTIs met, the timelines, the held events, the numbering of each channel, and the
released events that lie ahead of their channel's CTI. It is saved as a small *head* plus *chunks*. Each save writes one
chunk of what was added since the last and never touches older ones, because everything else follows from the head and
the timelines:

- an event in a chunk is *held* as long as its system timestamp is not below its timeline's watermark, and *dead* after
  that; the chunk of the stretch that released it counts it among those *ahead* as long as it is not below the CTI;
- a timeline occurs in several chunks; the largest value counts.

Law: ``State.restore(snapshot of s)`` continues exactly as ``s`` would. A chunk whose last row is dead is deleted;
eight chunks of one size class are merged into one of the next, so that writing costs a batch O(rows it touches *
log of the state's age) and the saved bytes stay within a small factor of what must be kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.errors import ProtocolError
from ordering.model import chunks as chunk_bytes
from ordering.model.ahead import Ahead
from ordering.model.chunks import Chunk, EventRows, HeldEvents, SavedChunk
from ordering.model.timelines import Timelines
from ordering.protocol.facts import Fact
from ordering.ticks import NEVER

Ints = NDArray[np.int64]

STATE_VERSION = 2
_MERGE_FANOUT = 8
_LEVELS = 5
"""Size classes that are merged. A chunk of the last, some hundred megabytes, is left alone: stores take no value above 2 GiB."""


@dataclass(slots=True)
class Delta:
    """What saving a state has to write: the head always, some chunks, and which chunks to delete."""

    head: bytes
    put: dict[int, bytes]
    delete: list[int]


@dataclass(slots=True)
class OutputStart:
    """
    Where a walk that did not begin at the beginning starts to speak (spec section 6), for each output partition.

    Args:
        start_us: Events below are left out: somebody has written them, or nobody asked for them.
        skip: So many of the other events are numbered already: they are walked, not written.
    """

    start_us: Ints
    skip_counts: Ints


@dataclass(slots=True)
class State:
    """The memory of one input partition. Made by ``Model.new_state`` or :meth:`restore`; changed by ``Model.step`` only."""

    timelines: Timelines
    seq: Ints
    largest_us: Ints
    arrival_us: int = NEVER
    is_estimated: bool = False
    """Whether that is an estimate."""
    promise_us: int = NEVER
    """Largest CTI of the source, or imported."""
    is_imported: bool = False
    """Whether that one was imported."""
    floor_us: int = NEVER
    next_offset: int = 0
    c: int = NEVER
    is_finished: bool = False
    model_fingerprint: str = ""
    """The model this is a state of, in words; empty where an older version did not say."""
    accepted_count: int = 0
    last_point_us: int = NEVER
    """The watermark at the last point at which CTIs were due (``Generation``)."""
    promises: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Last promise of each output partition: c, n, roster version."""
    last_promise: tuple[int, int, int, int] | None = None
    """c, n, ahead and largest system timestamp of the first output partition's last CTI, if this state saw one written."""
    pending_facts: tuple[Fact, ...] = ()
    """Facts of the journal that no CTI has carried yet."""
    output_start: OutputStart | None = None
    totals: dict[str, int] = field(default_factory=dict)
    """Counts that whoever runs the model wants saved with it."""
    chunks: dict[int, Chunk] = field(default_factory=dict)
    """Saved ones, by number."""
    unsaved_chunks: list[Chunk] = field(default_factory=list)
    """Not saved yet, in the order of the walk."""
    ahead_counts: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """How many events are ahead in each output partition."""
    next_chunk: int = 0
    obsolete: list[int] = field(default_factory=list)
    """Saved chunks that the next save replaces: those of version 1."""
    unlisted_rows: list[Ints] = field(default_factory=list)
    """Timelines that moved since CTIs last listed them."""
    rows_since_prune: int = 0
    """Rows walked since the table was last looked through for timelines to forget."""

    def all_chunks(self) -> Iterator[Chunk]:
        """Return all chunks."""
        yield from self.chunks.values()
        yield from self.unsaved_chunks

    @property
    def held_count(self) -> int:
        """How many events wait for their watermark."""
        return sum(chunk.held.count for chunk in self.all_chunks())

    @property
    def held(self) -> EventRows:
        """The events that wait for their watermark, offsets rising."""
        return EventRows.concat([chunk.held.waiting_rows() for chunk in self.all_chunks()]).by_offset()

    @property
    def ahead_count(self) -> int:
        """How many released events lie ahead of their channel's CTI."""
        return sum(len(chunk.ahead) for chunk in self.all_chunks())

    def add(self, chunk: Chunk) -> None:
        """Remember what a step added."""
        if chunk.is_empty():
            return
        self.unsaved_chunks.append(chunk)
        # Each joined with the one before once that is not twice as long: every row is joined a few times at most.
        while len(self.unsaved_chunks) > 1 and _weight(self.unsaved_chunks[-2]) < 2 * _weight(self.unsaved_chunks[-1]):
            last = [self.unsaved_chunks.pop(), self.unsaved_chunks.pop()]
            self.unsaved_chunks.append(Chunk.merge(last[::-1]))
            self.unsaved_chunks[-1].timelines = self.timelines.drop_repeats(self.unsaved_chunks[-1].timelines)

    def renumber(self, moved: Ints) -> None:
        """Follow timelines to their new table rows (-1: forgotten)."""
        for chunk in self.all_chunks():
            chunk.held.rows.timeline = moved[chunk.held.rows.timeline].astype(np.int32)
            chunk.timelines = moved[chunk.timelines].astype(np.int32)
            chunk.timelines = chunk.timelines[chunk.timelines >= 0]
        listed = [moved[rows] for rows in self.unlisted_rows]
        self.unlisted_rows = [rows[rows >= 0] for rows in listed]

    def save(self) -> Delta:
        """Return what must be written to make the last saved state this one. Call once after each batch."""
        outlived = [number for number, chunk in self.chunks.items() if chunk.needed_until_us < self.c]
        delete, self.obsolete = self.obsolete + outlived, []
        for number in outlived:
            # No event of it waits and its timelines are at or below the floor, where they tell nothing.
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
        put[number] = octets = chunk_bytes.encode(chunk, self.timelines)
        self.timelines.newest_chunk[chunk.timelines] = number
        # A timeline is needed as long as its own watermark is above the floor: never longer than its largest value.
        newest = [chunk.held.waiting_rows().system_us, chunk.ahead.system_us, self.timelines.largest_us[chunk.timelines] + 1]
        chunk.level, chunk.size_bytes = max(level, _size_class(len(octets))), len(octets)
        chunk.needed_until_us = max(int(part.max()) for part in newest if len(part))
        self.chunks[number] = chunk

    def _head(self) -> bytes:
        since = self.output_start
        fields = {
            "version": STATE_VERSION,
            "seq": self.seq.tolist(),
            "largest_us": self.largest_us.tolist(),
            "arrival_us": self.arrival_us,
            "estimated": self.is_estimated,
            "promise_us": self.promise_us,
            "imported": self.is_imported,
            "floor_us": self.floor_us,
            "next_offset": self.next_offset,
            "c": self.c,
            "finished": self.is_finished,
            "model_fingerprint": self.model_fingerprint,
            "accepted": self.accepted_count,
            "last_point_us": self.last_point_us,
            "written": [[partition, *promise] for partition, promise in sorted(self.promises.items())],
            "told": self.last_promise,
            "untold": self.pending_facts,
            "since": None if since is None else [since.start_us.tolist(), since.skip_counts.tolist()],
            "totals": self.totals,
            "chunks": [[number, chunk.level, chunk.size_bytes, chunk.needed_until_us] for number, chunk in self.chunks.items()],
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
            ProtocolError: The state was saved by a newer version, a chunk is missing, or is none.
        """
        told = json.loads(head)
        fields = _current(told)
        since = fields["since"]
        state = State(
            timelines=timelines,
            seq=np.array(fields["seq"], dtype=np.int64),
            largest_us=np.array(fields["largest_us"], dtype=np.int64),
            arrival_us=fields["arrival_us"],
            is_estimated=fields["estimated"],
            promise_us=fields["promise_us"],
            is_imported=fields["imported"],
            floor_us=fields["floor_us"],
            next_offset=fields["next_offset"],
            c=fields["c"],
            is_finished=fields["finished"],
            model_fingerprint=fields.get("model_fingerprint", ""),
            accepted_count=fields["accepted"],
            last_point_us=fields["last_point_us"],
            promises={partition: (c, n, version) for partition, c, n, version in fields["written"]},
            last_promise=tuple(fields["told"]) if fields.get("told") else None,
            pending_facts=tuple(Fact(*fact) for fact in fields.get("untold", ())),
            output_start=None if since is None else OutputStart(*(np.array(column, dtype=np.int64) for column in since)),
            totals=fields["totals"],
            ahead_counts=np.zeros(len(fields["seq"]), dtype=np.int64),
            next_chunk=fields["next_chunk"],
        )
        saved = dict(chunks)
        if missing := [row[0] for row in fields["chunks"] if row[0] not in saved]:
            raise ProtocolError(f"the saved state lacks its chunks {missing}", fix="give every chunk put and not deleted since")
        decoded = {row[0]: chunk_bytes.decode(saved[row[0]], timelines) for row in fields["chunks"]}
        for number, read in decoded.items():
            # A merged chunk may be older in content than its number: the largest value counts.
            newer = read.largest_us >= timelines.largest_us[read.timelines]
            timelines.largest_us[read.timelines[newer]] = read.largest_us[newer]
            timelines.newest_chunk[read.timelines[newer]] = number
        for number, level, size, needed_until_us in fields["chunks"]:
            chunk = state._restore_chunk(decoded[number], reorder_us)
            chunk.level, chunk.size_bytes, chunk.needed_until_us = level, size, needed_until_us
            state.chunks[number] = chunk
        if told["version"] == 1:
            state.obsolete = list(state.chunks)
            state.unsaved_chunks, state.chunks = [Chunk.merge(list(state.chunks.values()))], {}
        for chunk in state.all_chunks():
            state.ahead_counts += np.bincount(chunk.ahead.partition[chunk.ahead.passed_count :], minlength=len(state.ahead_counts))
        if len(timelines):
            state.unlisted_rows = [np.arange(len(timelines))]
        return state

    def _restore_chunk(self, saved: SavedChunk, reorder_us: int) -> Chunk:
        """Return what still counts of a chunk that was read."""
        rows, table = saved.rows.by_offset(), self.timelines
        watermark = np.maximum(table.largest_us - reorder_us, self.floor_us)
        waits = rows.system_us >= watermark[rows.timeline]
        ahead = saved.ahead
        if saved.version == 1:
            # Version 1 wrote nothing of what it released out of an older chunk.
            left = rows.take_rows(np.flatnonzero(~waits))
            ahead = Ahead.merge([ahead, Ahead.of(left.system_us, table.partition[left.timeline])])
        ahead.pop_below(self.c)
        return Chunk(HeldEvents.of(rows.take_rows(np.flatnonzero(waits))), ahead, saved.timelines.astype(np.int32))


def _current(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a head of any version as one of the current version."""
    version = fields["version"]
    if version not in (1, STATE_VERSION):
        raise ProtocolError(
            f"saved state has version {version}, this program reads 1 to {STATE_VERSION}", fix="run the version that saved it"
        )
    if version == 1:
        # There were no CTIs but its own, and no delay: what c said was the floor or, of a whole partition, the watermark.
        written = [[partition, c, n, 1] for partition, c, n in fields["written"]]
        newer = {
            "estimated": False,
            "promise_us": NEVER,
            "imported": False,
            "floor_us": fields["c"],
            "accepted": 0,
            "last_point_us": NEVER,
            "since": None,
        }
        fields = {**fields, **newer, "written": written}
    return fields


def _size_class(octets: int) -> int:
    """Return the level of a chunk that is as large as others are after so many merges: a big one is not rewritten with small ones."""
    return ((octets >> 16).bit_length() + 2) // 3


def _weight(chunk: Chunk) -> int:
    return chunk.held.count + len(chunk.ahead) + len(chunk.timelines)
