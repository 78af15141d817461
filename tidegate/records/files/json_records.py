"""
Records in JSON: one object a line (NDJSON), one array of objects, or objects over several lines each. A comma at the end of a line, left by
whoever cut lines out of an array, is no part of the record.

Blocks of plain objects are found by a scanner in C. A block with any other record is read record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.payload_columns import BYTES_MAX
from tidegate.language.expressions.json_texts import is_too_deep
from tidegate.language.json_columns import json_fields
from tidegate.records.files import blocks
from tidegate.records.files.blocks import SHOWN_CHARACTERS, Block, Fault, as_json_text
from tidegate.records.files.json_arrays import ArrayElements, MixedElements, ObjectElements

_JSON_SPACE = b" \t\r"
_IS_SPACE, _IS_STRIPPED = (np.isin(np.arange(256), list(data)) for data in (_JSON_SPACE, _JSON_SPACE + b","))
_LINE_FEED = ord("\n")
BOM = b"\xef\xbb\xbf"
_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


class NdjsonRecords:
    """A JSON object a line. ``total`` is the file's size in bytes, 0 if unknown; ``peeked`` are its first bytes, already read."""

    columns: list[str] | None = None

    def __init__(self, source: BinaryIO, total: int, block_bytes: int, peeked: bytes) -> None:
        self.total, self.done = total, 0
        self._source, self._block_bytes, self._peeked = source, block_bytes, peeked
        self._line = 0

    def has_field(self, path: Sequence[str]) -> bool:
        return True

    def blocks(self) -> Iterator[Block]:
        partial: list[bytes] = []
        partial_bytes = 0
        for piece in self._read_pieces():
            self.done += len(piece)
            head, newline, rest = piece.rpartition(b"\n")
            if newline:
                yield self._parse_block(b"".join([*partial, head]), partial_bytes)
                partial, partial_bytes = [], 0
            partial.append(rest)
            partial_bytes += len(rest)
            # Of a record that is too long only the beginning is kept; its full length goes on being counted.
            if partial_bytes > blocks.RECORD_BYTES_MAX:
                partial = [b"".join(partial)[: blocks.RECORD_BYTES_MAX]]
        if partial_bytes:
            yield self._parse_block(b"".join(partial), partial_bytes)

    def _read_pieces(self) -> Iterator[bytes]:
        """Yield the file in pieces; the peeked bytes are cut like the rest."""
        # read1 returns the bytes that a pipe has ready, so that a pipe is followed as it fills.
        read = getattr(self._source, "read1", self._source.read)
        peeked = self._peeked.removeprefix(BOM)
        for start in range(0, len(peeked), self._block_bytes):
            yield peeked[start : start + self._block_bytes]
        while piece := read(self._block_bytes):
            yield piece

    def _parse_block(self, text: bytes, first_bytes: int) -> Block:
        """Read whole lines. The first line began in earlier pieces with *first_bytes* bytes; *text* may lack some of them."""
        payloads = _split_lines(text)
        first, self._line = self._line + 1, self._line + len(payloads)
        if first_bytes + len(text) <= blocks.RECORD_BYTES_MAX and _are_plain(payloads):
            return Block.of_plain(first, payloads)
        lines = payloads.to_pylist()
        block, records = Block(), list[tuple[int, bytes]]()
        for number, line in enumerate(lines, start=first):
            if len(line) > blocks.RECORD_BYTES_MAX or (number == first and first_bytes > blocks.RECORD_BYTES_MAX):
                _add_records(block, records)
                records = []
                block.add(number, as_json_text(line[:SHOWN_CHARACTERS]), None, Fault.TOO_LONG)
            elif line:
                records.append((number, line))
        _add_records(block, records)
        return block


class JsonArrayRecords(NdjsonRecords):
    """The elements of one JSON array, or of several, and the objects between them, over as many lines as they like."""

    elements_of: type[ArrayElements] = MixedElements

    def blocks(self) -> Iterator[Block]:
        elements = self.elements_of(blocks.RECORD_BYTES_MAX)
        for piece in self._read_pieces():
            self.done += len(piece)
            yield self._number_elements(elements.feed(piece))
        yield self._number_elements(elements.flush())

    def _number_elements(self, elements: Iterator[bytes]) -> Block:
        block, records = Block(), list[tuple[int, bytes]]()
        for element in elements:
            self._line += 1
            if len(element) > blocks.RECORD_BYTES_MAX:
                _add_records(block, records)
                records = []
                block.add(self._line, as_json_text(element[:SHOWN_CHARACTERS]), None, Fault.TOO_LONG)
            else:
                # JSON strings have no line ends, so all line ends are spaces here: the record becomes one line.
                records.append((self._line, element.translate(_ON_ONE_LINE)))
        _add_records(block, records)
        return block


class JsonObjectRecords(JsonArrayRecords):
    """Objects that take several lines each."""

    elements_of = ObjectElements


class ExplodedLines(NdjsonRecords):
    """An object, or an array of objects, a line. Records are numbered by objects, as in one array."""

    def _parse_block(self, text: bytes, first_bytes: int) -> Block:
        # Slow to import, and few files need it.
        from tidegate.records.payloads.json_elements import split_elements

        lines = _split_lines(text)
        is_too_long = pc.greater(pc.binary_length(lines), blocks.RECORD_BYTES_MAX).to_numpy(zero_copy_only=False).copy()
        is_too_long[0] |= first_bytes > blocks.RECORD_BYTES_MAX
        elements = split_elements(pc.if_else(pa.array(is_too_long), pc.binary_slice(lines, 0, SHOWN_CHARACTERS), lines))
        block, records = Block(), list[tuple[int, bytes]]()
        for row, element in zip(elements.row.tolist(), elements.value.to_pylist(), strict=True):
            if not element:
                continue
            self._line += 1
            if is_too_long[row]:
                _add_records(block, records)
                records = []
                block.add(self._line, as_json_text(element), None, Fault.TOO_LONG)
            else:
                records.append((self._line, element))
        _add_records(block, records)
        return block


def _split_lines(text: bytes) -> pa.Array:
    """Return the lines of a text (binary, or large_binary) without the spaces around them and a comma at the end."""
    data = np.frombuffer(text, dtype=np.uint8)
    ends = np.append(np.flatnonzero(data == _LINE_FEED), len(data))
    starts = np.append(0, ends[:-1] + 1)
    filled = starts < ends
    # Few files have these, and looking at the first and last bytes is faster than stripping every line.
    if _IS_SPACE[data[starts[filled]]].any() or _IS_STRIPPED[data[ends[filled] - 1]].any():
        lines = [line.strip(_JSON_SPACE) for line in text.split(b"\n")]
        return pa.array([line[:-1].rstrip(_JSON_SPACE) if line.endswith(b",") else line for line in lines], pa.binary())
    # Each line is a slice of the text up to and with its line feed; the text needs one more for the last line.
    edges = pa.py_buffer(np.append(starts, len(data) + 1).astype(np.int64))
    with_ends = pa.Array.from_buffers(pa.large_binary(), len(starts), [None, edges, pa.py_buffer(text + b"\n")])
    lines = pc.binary_slice(with_ends, 0, -1)
    return lines.cast(pa.binary()) if len(text) <= BYTES_MAX else lines


def _are_plain(payloads: pa.Array) -> bool:
    """Return whether all records are JSON objects that every parser reads alike."""
    read = json_fields.read_members(payloads, ())
    return read is not None and not len(read.other_rows)


def _add_records(block: Block, records: Sequence[tuple[int, bytes]]) -> None:
    """Add records, given with their line numbers; records that orjson does not read are judged as ingest judges them."""
    read: list[tuple[bytes, Any] | Fault | None] = [_load(line) for _, line in records]
    odd = [index for index, record in enumerate(read) if record is None]
    if odd:
        # Slow to import, and few files need it.
        from tidegate.records.files.json_values import read_records

        for index, judged in zip(odd, read_records([records[index][1] for index in odd]), strict=True):
            read[index] = judged
    for (number, line), record in zip(records, read, strict=True):
        if isinstance(record, tuple):
            text, value = record
            block.add(number, text, *((value, None) if isinstance(value, dict) else (None, Fault.OBJECT)))
        else:
            block.add(number, as_json_text(line), None, record)


def _load(line: bytes) -> tuple[bytes, Any] | None:
    if is_too_deep(line):
        return None
    try:
        return line, orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
