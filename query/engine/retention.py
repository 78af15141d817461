"""
Retention: the rows that a bucket keeps, in chunks, saved so that a batch writes only the rows that it added.

Law: a restored retention has the same rows in the same order. It also has the rows that were dropped after their chunk was written; its
owner drops them again, by the bucket's progress. A chunk without rows is deleted. Eight chunks of one size class are merged into one of the
next class, without the dropped rows. Large chunks are not merged again, so no save writes more than a bounded number of old rows.

A *piece* is the rows of one name in one chunk. It knows its least and greatest instant, so pieces of other times are not read, and the work
of a batch does not grow with retained rows that it does not need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from ordering.errors import ProtocolError
from query.columns.key_hashes import KeyHashes
from query.columns.large_tables import split_by_bytes
from query.columns.packing import pack_table, read_column, unpack_table
from tidegate.basics.budget import BUDGET

# This many chunks of one size class are merged into one of the next.
FANOUT = 8
# The size class of chunks that are not merged again.
_FINAL_LEVEL = 1_000
# Merged pieces of this many rows are packed, since they stay for long.
PACKED_FROM = 4_096
# A chunk begins with the name of its format. Tables follow: length of name and body, name, body.
_MAGIC = b"TGR1"
_FRAME = struct.Struct("<II")

Tables = dict[str, pa.Table]
Span = tuple[int, int]
# Instant of a row -> the first and the last instant of results that it can count for; neither falls as instants rise.
SpanOf = Callable[[int], Span]
# Name, rows -> fewer rows that stand for them.
Compact = Callable[[str, pa.Table], pa.Table]


class RetainedKind(StrEnum):
    """The kinds of rows that a bucket retains. Each kind has a name for each of its owners."""

    ROWS = "rows"  # of an operator's side
    PENDING = "pending"  # events of a source that time has not passed
    WAITING = "waiting"  # events of a source that their substream has not passed
    RESULTS = "results"  # of an output, for its files
    AHEAD = "ahead"  # times of an output's results that are not below its last CTI
    PROGRESS = "progress"  # of substreams
    ARRIVALS = "arrivals"  # of a source's CTIs above the frontier

    def of(self, *numbers: int) -> str:
        """Name the rows of one owner: an operator and its side, a source, an output."""
        return self.value + ".".join(map(str, numbers))


class Piece:
    """Rows kept together, *stored* perhaps packed, with their least and greatest instant."""

    __slots__ = ("_blocks", "_index", "_next_look_us", "_patience_us", "_spans", "_summary", "ends_us", "high_us", "low_us", "stored")

    def __init__(self, stored: pa.Table) -> None:
        self.stored = stored
        self.ends_us = self.low_us, self.high_us = _time_bounds(stored)
        self._spans: tuple[Span, Span] | None = None
        self._index: KeyHashes | None = None
        self._summary: Piece | None = None
        self._blocks: list[Piece] = []
        # How long to wait between two looks for expired rows, and when the next one is due; 0 before the first.
        self._patience_us = self._next_look_us = 0

    @property
    def num_rows(self) -> int:
        return int(self.stored.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.stored.nbytes)

    def rows(self) -> pa.Table:
        return unpack_table(self.stored)

    def filter_rows(self, mask: pa.Array) -> pa.Table:
        return unpack_table(self.stored.filter(mask))

    def take_rows(self, rows: pa.Array) -> pa.Table:
        return unpack_table(self.stored.take(rows))

    def index(self, make: Callable[[pa.Table], KeyHashes]) -> KeyHashes:
        """Return the hashes of the rows' keys, computed once."""
        if self._index is None:
            self._index = make(self.rows())
        return self._index

    def summary(self, make: Callable[[pa.Table], pa.Table]) -> Piece:
        """Return fewer rows that stand for these if all of them count alike, computed once."""
        if self._summary is None:
            made = make(self.rows())
            self._summary = self if made.num_rows == self.num_rows else Piece(made)
        return self._summary

    def blocks(self, rows_max: int) -> list[Piece]:
        """Return the rows in their order as pieces of at most *rows_max*, made once."""
        if not self._blocks:
            self._blocks = [Piece(self.stored.slice(first, rows_max)) for first in range(0, self.num_rows, rows_max)]
        return self._blocks

    def may_count_between(self, span: SpanOf, from_us: int, to_us: int) -> bool:
        """Return whether a row can count for results with ``from_us <= System.Timestamp < to_us``."""
        (first_us, _), (_, last_us) = self._end_spans(span)
        return first_us < to_us and last_us >= from_us

    def has_passed(self, span: SpanOf, to_us: int) -> bool:
        """Return whether no row can count for results from *to_us* on."""
        return self._end_spans(span)[1][1] < to_us

    def can_shrink(self, span: SpanOf, to_us: int) -> bool:
        """Return whether some row cannot count for results from *to_us* on."""
        return self._end_spans(span)[0][1] < to_us

    def last_results_us(self, span: SpanOf) -> Span:
        """Return the first and the last instant at which a row has its last result."""
        (_, early_us), (_, last_us) = self._end_spans(span)
        return early_us, last_us

    def is_worth_expiring(self, span: SpanOf, to_us: int) -> bool:
        """
        Return whether to look through the rows now for those that cannot count for results from *to_us* on.

        The first look is due after half of the rows' time. Each later one waits as long again, or twice as long if the last look dropped
        less than half of the rows. So a row is read a few times, however many batches there are.
        """
        early_us, last_us = self.last_results_us(span)
        if not self._patience_us:
            self._patience_us = (last_us - early_us) // 2 + 1
            self._next_look_us = early_us + self._patience_us
        return to_us >= self._next_look_us

    def postpone_look(self, before: Piece, to_us: int) -> None:
        """Set when the next look is due. This piece has the rows that the look at *to_us* has kept of the piece *before*."""
        was_in_vain = 2 * self.num_rows > before.num_rows
        self._patience_us = before._patience_us * (2 if was_in_vain else 1)
        self._next_look_us = to_us + self._patience_us

    def _end_spans(self, span: SpanOf) -> tuple[Span, Span]:
        if self._spans is None:
            self._spans = span(self.low_us), span(self.high_us)
        return self._spans


@dataclass(slots=True)
class _Chunk:
    # The number under which it is saved; -1 if its rows were rewritten since, so that it must be saved anew.
    number: int
    # Its size class.
    level: int
    pieces: dict[str, Piece]

    @property
    def num_rows(self) -> int:
        return sum(piece.num_rows for piece in self.pieces.values())

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces.values())

    def pack(self) -> None:
        """Store large pieces in less memory, since they stay for long. What is written of the chunk does not change."""
        for piece in self.pieces.values():
            if piece.num_rows >= PACKED_FROM and unpack_table(piece.stored) is piece.stored:
                piece.stored = pack_table(piece.stored)

    @property
    def tables(self) -> Tables:
        return {name: piece.stored for name, piece in self.pieces.items()}


@dataclass(slots=True)
class Changes:
    """Chunks to put and chunks to delete, by number, when a retention is saved."""

    put: dict[int, bytes] = field(default_factory=dict)
    delete: list[int] = field(default_factory=list)


class Retention:
    """Named tables, each in the pieces in which its rows were added, oldest first."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._open: dict[str, Piece] = {}
        self._next = 0
        # Numbers of saved chunks that were rewritten since.
        self._stale: list[int] = []
        self._encode: Callable[[Tables], bytes] = _encode_tables

    def add(self, name: str, rows: pa.Table) -> None:
        if rows.num_rows:
            self._open[name] = Piece(_concat([self._open[name].stored, rows]) if name in self._open else rows)

    def pieces(self, name: str) -> Iterator[Piece]:
        for piece_map in self._piece_maps():
            if name in piece_map:
                yield piece_map[name]

    def tables(self, name: str) -> Iterator[pa.Table]:
        return (piece.rows() for piece in self.pieces(name))

    def rows(self, name: str) -> pa.Table | None:
        """Return all rows of *name*, oldest first; None if there are none."""
        parts = list(self.tables(name))
        return _concat(parts) if parts else None

    def reduce(self, name: str, keep: Callable[[pa.Table], pa.Table]) -> None:
        """Replace each piece of *name* by the rows of it that *keep* returns."""
        for piece_map in self._piece_maps():
            if name in piece_map:
                _replace(piece_map, name, keep)

    def expire(self, name: str, keep: Callable[[pa.Table], pa.Table], span: SpanOf, to_us: int, *, is_one_timeline: bool) -> None:
        """
        Drop rows of *name* that no result from *to_us* on can need: whole pieces by their bounds, single rows if a look pays.

        *keep* returns the rows of a piece that later results can need. *to_us* is the latest instant up to which any substream is finished;
        it holds for all rows if there is one substream (*is_one_timeline*).
        """
        for piece_map in self._piece_maps():
            piece = piece_map.get(name)
            if piece is None or not piece.can_shrink(span, to_us):
                continue
            if is_one_timeline and piece.has_passed(span, to_us):
                del piece_map[name]
            # Rows that are not saved yet are always checked: they are few, and each that remains must be written.
            elif piece_map is self._open or piece.is_worth_expiring(span, to_us):
                _replace(piece_map, name, keep)
                if name in piece_map:
                    piece_map[name].postpone_look(piece, to_us)

    def save(self, compact: Compact = lambda _, rows: rows, *, is_written: bool = True) -> Changes:
        """
        Return what must be written to turn the last saved retention into this one. Call once after each batch.

        *compact* returns fewer rows that stand for those of a new chunk, if their operator allows it. If nothing *is_written*, this only
        merges chunks, and no chunk has bytes.
        """
        self._encode = _encode_tables if is_written else _encode_nothing
        changes = Changes(delete=self._stale + [chunk.number for chunk in self._chunks if not chunk.pieces and chunk.number >= 0])
        self._stale = []
        # A rewritten chunk gets a new number: the bytes under a number never change.
        chunks, self._chunks = [chunk for chunk in self._chunks if chunk.pieces], []
        for chunk in chunks:
            if chunk.number < 0:
                chunk.number = self._number()
                changes.put[chunk.number] = self._encode(chunk.tables)
            self._chunks.append(chunk)
        if self._open:
            self._put(changes, 0, {name: compact(name, piece.rows()) for name, piece in self._open.items()})
            self._open = {}
        while self._merge(changes, compact):
            pass
        return changes

    def rewrite(self, names: Sequence[str], changed: Callable[[pa.Table], pa.Table]) -> None:
        """Replace every piece of *names* by the result of *changed*; the next :meth:`save` writes all chunks."""
        for piece_map in self._piece_maps():
            for name in piece_map.keys() & set(names):
                piece_map[name] = Piece(_pack_like(piece_map[name].stored, changed(piece_map[name].rows())))
        self._stale += [chunk.number for chunk in self._chunks if chunk.number >= 0]
        for chunk in self._chunks:
            chunk.number = -1

    def _piece_maps(self) -> Iterator[dict[str, Piece]]:
        for chunk in self._chunks:
            yield chunk.pieces
        yield self._open

    def _put(self, changes: Changes, level: int, tables: Tables) -> None:
        combined = {name: table.combine_chunks() for name, table in tables.items()}
        packed = {name: pack_table(table) if level and table.num_rows >= PACKED_FROM else table for name, table in combined.items()}
        for tables in _split_large(packed):
            chunk = _Chunk(self._number(), level, {name: Piece(table) for name, table in tables.items()})
            self._chunks.append(chunk)
            changes.put[chunk.number] = self._encode(chunk.tables)

    def _merge(self, changes: Changes, compact: Compact) -> bool:
        """Merge the newest chunks, if there are enough of one size class; return whether there may be more to merge."""
        level = self._chunks[-1].level if self._chunks else _FINAL_LEVEL
        newest = self._chunks[-FANOUT:]
        if level == _FINAL_LEVEL or len(newest) < FANOUT or any(chunk.level != level for chunk in newest):
            return False
        # A merge must fit in memory beside the batch.
        if sum(chunk.num_rows for chunk in newest) > BUDGET.merged_rows or sum(chunk.nbytes for chunk in newest) > BUDGET.merged_bytes:
            for chunk in newest:
                chunk.level = _FINAL_LEVEL
                chunk.pack()
            return False
        # A dictionary, not a set: the order of names must not depend on hashes.
        names = {name: None for chunk in newest for name in chunk.pieces}
        tables = {name: _concat([chunk.pieces[name].rows() for chunk in newest if name in chunk.pieces]) for name in names}
        del self._chunks[-FANOUT:]
        for chunk in newest:
            # A chunk of this very save was never in the store.
            if changes.put.pop(chunk.number, None) is None:
                changes.delete.append(chunk.number)
        self._put(changes, level + 1, {name: compact(name, rows) for name, rows in tables.items()})
        return True

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def head(self) -> list[list[int]]:
        """Return the part that :meth:`restore` needs beside the chunks: [number, level] of each, in order."""
        return [[chunk.number, chunk.level] for chunk in self._chunks]

    @classmethod
    def restore(cls, head: list[list[int]], chunks: Mapping[int, bytes]) -> Retention:
        """Return the retention that was saved. Raises ProtocolError: a chunk was saved by a newer version."""
        retention = cls()
        for number, level in head:
            pieces = {name: Piece(table) for name, table in _decode_tables(chunks[number]).items()}
            retention._chunks.append(_Chunk(number, level, pieces))
        retention._next = max((number for number, _ in head), default=-1) + 1
        return retention


def _split_large(tables: Tables) -> Iterator[Tables]:
    """Yield tables chunk by chunk: all in one, or if they have many bytes, each separately and in parts."""
    if sum(table.nbytes for table in tables.values()) <= BUDGET.merged_bytes:
        yield tables
    else:
        yield from ({name: part} for name, table in tables.items() for part in split_by_bytes(table, BUDGET.merged_bytes))


def _replace(piece_map: dict[str, Piece], name: str, keep: Callable[[pa.Table], pa.Table]) -> None:
    piece = piece_map[name]
    remaining = keep(piece.rows())
    if not remaining.num_rows:
        del piece_map[name]
    elif remaining.num_rows < piece.num_rows:
        piece_map[name] = Piece(_pack_like(piece.stored, remaining))


def _pack_like(before: pa.Table, rows: pa.Table) -> pa.Table:
    # combine_chunks copies: a slice would keep the memory of all rows alive.
    return rows.combine_chunks() if unpack_table(before) is before else pack_table(rows.combine_chunks())


def _time_bounds(table: pa.Table) -> Span:
    """Return the least and the greatest instant; both are 0 for rows without time."""
    if "system_us" not in table.column_names:
        return 0, 0
    ends = pc.min_max(read_column(table, "system_us")).as_py()
    return ends["min"], ends["max"]


def _concat(parts: list[pa.Table]) -> pa.Table:
    # A column for a kind of value that no row of a piece has is missing in that piece.
    return pa.concat_tables(parts, promote_options="default")


def encode_table(table: pa.Table) -> bytes:
    """Encode a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _encode_tables(tables: Tables) -> bytes:
    parts = [_MAGIC]
    for name, table in sorted(tables.items()):
        body = encode_table(table)
        parts += [_FRAME.pack(len(name), len(body)), name.encode(), body]
    return b"".join(parts)


def _encode_nothing(tables: Tables) -> bytes:
    return b""


def _decode_tables(data: bytes) -> Tables:
    if data[: len(_MAGIC)] != _MAGIC:
        raise ProtocolError("a saved chunk of retained rows begins with bytes of no known version", fix="run the version that saved it")
    tables: Tables = {}
    offset = len(_MAGIC)
    while offset < len(data):
        name_bytes, body_bytes = _FRAME.unpack_from(data, offset)
        offset += _FRAME.size
        name = data[offset : offset + name_bytes].decode()
        body = pa.py_buffer(data)[offset + name_bytes : offset + name_bytes + body_bytes]
        tables[name] = pa.ipc.open_stream(body).read_all()
        offset += name_bytes + body_bytes
    return tables
