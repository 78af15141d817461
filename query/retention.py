"""
Retention: the rows a bucket must keep, in chunks, saved so that a batch writes only what it added.

Law: ``restore`` of what was saved gives the same rows in the same order, except that rows dropped since the chunk that
holds them was written come back: dropping must be decided again from the bucket's progress. A chunk none of whose rows
is needed is deleted; eight chunks of one size class are merged into one of the next, which leaves dropped rows behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

_FANOUT = 8
_FRAME = struct.Struct("<II")

Tables = dict[str, pa.Table]


@dataclass(slots=True)
class _Chunk:
    number: int
    level: int
    tables: Tables


@dataclass(slots=True)
class Changes:
    """What saving has to write: chunks to put and chunks to delete, by number."""

    put: dict[int, bytes] = field(default_factory=dict)
    delete: list[int] = field(default_factory=list)


class Retention:
    """Named tables, each in the chunks in which its rows were added, oldest first."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._open: Tables = {}
        self._next = 0
        self._stale: list[int] = []

    def add(self, name: str, rows: pa.Table) -> None:
        """Keep *rows* under *name*, after those there are."""
        if rows.num_rows:
            self._open[name] = _concat([self._open[name], rows]) if name in self._open else rows

    def parts(self, name: str) -> Iterator[pa.Table]:
        """Return the kept rows of *name*, piece by piece, oldest first."""
        for chunk in self._chunks:
            if name in chunk.tables:
                yield chunk.tables[name]
        if name in self._open:
            yield self._open[name]

    def rows(self, name: str) -> pa.Table | None:
        """Return all kept rows of *name*, oldest first; None where there are none."""
        parts = list(self.parts(name))
        return _concat(parts) if parts else None

    def reduce(self, name: str, kept: Callable[[pa.Table], pa.Table]) -> None:
        """Replace each piece of *name* by what *kept* leaves of it."""
        for tables in [*(chunk.tables for chunk in self._chunks), self._open]:
            if name in tables:
                left = kept(tables[name])
                if left.num_rows:
                    tables[name] = left
                else:
                    del tables[name]

    def save(self) -> Changes:
        """Return what must be written to make the last saved retention this one. Call once after each batch."""
        changes = Changes(delete=self._stale + [chunk.number for chunk in self._chunks if not chunk.tables])
        self._stale = []
        self._chunks = [chunk for chunk in self._chunks if chunk.tables]
        if self._open:
            self._put(changes, _Chunk(self._number(), 0, self._open))
            self._open = {}
        while merged := self._merge(changes):
            self._put(changes, merged)
        return changes

    def rewrite(self, names: Sequence[str], changed: Callable[[pa.Table], pa.Table]) -> None:
        """Replace every piece of *names* by what *changed* makes of it, and save all chunks anew at the next :meth:`save`."""
        for name in names:
            self.reduce(name, changed)
        tables = {table: self.rows(table) for table in {table for chunk in self._chunks for table in chunk.tables} | set(self._open)}
        self._stale += [chunk.number for chunk in self._chunks]
        self._chunks, self._open = [], {table: rows for table, rows in tables.items() if rows is not None}

    def _put(self, changes: Changes, chunk: _Chunk) -> None:
        chunk.tables = {name: table.combine_chunks() for name, table in chunk.tables.items()}
        self._chunks.append(chunk)
        changes.put[chunk.number] = _pack(chunk.tables)

    def _merge(self, changes: Changes) -> _Chunk | None:
        # Levels fall from the oldest chunk to the newest, so chunks of the last level are the newest and stand together.
        level = self._chunks[-1].level if self._chunks else 0
        full = [chunk for chunk in self._chunks if chunk.level == level]
        if len(full) < _FANOUT:
            return None
        names = {name: None for chunk in full for name in chunk.tables}
        tables = {name: _concat([chunk.tables[name] for chunk in full if name in chunk.tables]) for name in names}
        for chunk in full:
            self._chunks.remove(chunk)
            if changes.put.pop(chunk.number, None) is None:
                changes.delete.append(chunk.number)
        return _Chunk(self._number(), level + 1, tables)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def head(self) -> list[list[int]]:
        """Return what :meth:`restore` needs beside the chunks: [number, level] of each, in order."""
        return [[chunk.number, chunk.level] for chunk in self._chunks]

    @classmethod
    def restore(cls, head: list[list[int]], chunks: Mapping[int, bytes]) -> Retention:
        """Return the retention that was saved."""
        retention = cls()
        retention._chunks = [_Chunk(number, level, _unpack(chunks[number])) for number, level in head]
        retention._next = max((number for number, _ in head), default=-1) + 1
        return retention


def _concat(parts: list[pa.Table]) -> pa.Table:
    # A column for a kind of value that no row of a piece has is missing in that piece.
    return pa.concat_tables(parts, promote_options="default")


def octets_of(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write_table(table)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def _pack(tables: Tables) -> bytes:
    parts = []
    for name, table in sorted(tables.items()):
        body = octets_of(table)
        parts += [_FRAME.pack(len(name), len(body)), name.encode(), body]
    return b"".join(parts)


def _unpack(octets: bytes) -> Tables:
    tables: Tables = {}
    at = 0
    while at < len(octets):
        name_bytes, body_bytes = _FRAME.unpack_from(octets, at)
        at += _FRAME.size
        name = octets[at : at + name_bytes].decode()
        body = pa.py_buffer(octets)[at + name_bytes : at + name_bytes + body_bytes]
        tables[name] = pa.ipc.open_stream(body).read_all()
        at += name_bytes + body_bytes
    return tables


def largest(table: pa.Table, column: str) -> int:
    """Return the largest value of a column of a table with rows."""
    return int(pc.max(table[column]).as_py())
