"""Records in CSV: the header names the fields, all values are text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import orjson

from tidegate.order import blocks
from tidegate.order.blocks import Block, Fault, OpenQuote, OrderFileError, check_names

_LINE_END = re.compile(r"\r\n|\r|\n")


class CsvRecords:
    """
    A CSV with a header, as Python's csv module reads it; ``total`` is its size in bytes, 0 if unknown.
    Raises OrderFileError if the header cannot be read.
    """

    def __init__(self, path: str, source: BinaryIO, total: int, delimiter: str, block_bytes: int) -> None:
        self.total, self.done = total, 0
        self.open_quote: OpenQuote | None = None
        self._rows = max(1, block_bytes // 256)
        self._has_ended = False
        csv.field_size_limit(blocks.RECORD_BYTES_MAX)
        # Bytes that are not UTF-8 become lone surrogates, which valid text never has: each such record gets a fault.
        self._text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self._reader = csv.reader(self._read_lines(), delimiter=delimiter)
        self.columns: list[str] | None = self._read_header(path)

    def has_field(self, path: Sequence[str]) -> bool:
        return len(path) == 1 and path[0] in (self.columns or [])

    def _read_lines(self) -> Iterator[str]:
        # The bound keeps a line without an end from filling memory.
        while line := self._text.readline(blocks.RECORD_BYTES_MAX):
            self.done += len(line)
            yield line
        self._has_ended = True

    def _read_header(self, path: str) -> list[str]:
        try:
            header: list[str] = next((row for row in self._reader if row), [])
        except csv.Error:
            header, self._has_ended = [""], True
        where = f"{path}:{self._reader.line_num or 1}"
        if not header:
            fix = "begin a CSV with the names of its columns"
            raise OrderFileError("the file is empty", code="TG-ORDER-HEADER", where=f"{path}:1", fix=fix)
        if self._has_ended:
            raise OrderFileError("a quote in the header is never closed", code="TG-ORDER-HEADER", where=f"{path}:1", fix="close it")
        try:
            "".join(header).encode()
        except UnicodeEncodeError:
            raise OrderFileError("the header is not UTF-8", code="TG-ORDER-HEADER", where=where, fix="write the file in UTF-8") from None
        check_names(header, where)
        return header

    def blocks(self) -> Iterator[Block]:
        while block := self._read_block():
            yield block

    def _read_block(self) -> Block:
        block = Block()
        while len(block) < self._rows:
            # The csv module counts lines after it has read them, so the next record begins one further.
            begins = self._reader.line_num + 1
            try:
                row = next(self._reader, None)
            except csv.Error:
                # A field is longer than field_size_limit.
                block.add(begins, b"null", None, Fault.TOO_LONG)
                continue
            if row is None:
                break
            if row:
                self._add(block, begins, row)
        return block

    def _add(self, block: Block, line: int, row: list[str]) -> None:
        columns = self.columns or []
        if self._has_ended:  # the reader asked for more while it had a record: inside of a quote, so in the last column
            lines = _count_lines(row[-1])
            self.open_quote = OpenQuote(self._reader.line_num - lines + 1, lines)
            block.add(line, orjson.dumps(_replace_invalid(row)), None, Fault.QUOTE)
            return
        try:
            if len(row) == len(columns):
                fields: dict[str, Any] = dict(zip(columns, row, strict=True))
                block.add(line, orjson.dumps(fields), fields)
            else:
                block.add(line, orjson.dumps(row), None, Fault.COLUMNS)
        except TypeError:
            block.add(line, orjson.dumps(_replace_invalid(row)), None, Fault.ENCODING)


def _replace_invalid(row: list[str]) -> list[str]:
    return [value.encode(errors="surrogateescape").decode(errors="replace") for value in row]


def _count_lines(text: str) -> int:
    """Return how many lines a text has; a line end at its end begins no further line."""
    return len(_LINE_END.findall(text)) + (not text.endswith(("\n", "\r")))
