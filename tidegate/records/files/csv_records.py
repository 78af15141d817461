"""
Records in CSV: the header names the fields; all values are text, and one that is empty without quotes is NULL, as to ingest.

Law: a record over several lines has as many values as the header. If an open quote runs over more lines than a record may have, to the end
of the file, or into a record with another number of values, only the line in which it opens is unreadable: the next record begins in the
next line. So an open quote costs one line.

Payloads have a reader of their own (:mod:`tidegate.records.payloads.csv_records`). The two agree on every record that RFC 4180 allows. They
are not one: a payload is one record by itself, so what its producer wrote wrongly, such as ``a"b`` or ``"a"b``, is a dead letter. In a file
the same spellings are values, since spreadsheets write them, and the end of a record is not known before its quotes have been read. Either
rule for both would change what the other accepts.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import orjson

from tidegate.records.files import blocks
from tidegate.records.files.blocks import Block, Fault, OrderFileError, check_names, spelled_in

# The most lines that one record may have.
RECORD_LINES_MAX = 100
_LINE_ENDS = ("\n", "\r")


# Returned instead of a line that is longer than a record may be.
_LONG_LINE = "\0 too long"


class _OpenQuote(Exception):
    """An open quote runs too far."""


class _LongLine(Exception):
    """The next line is longer than a record may be."""


class _Lines:
    """
    The lines of a file for the csv module, which asks for more than one only inside of a quote.

    Attributes:
        record: The lines of the current record.
        before: How many lines are before it.
        done: How many characters have been read.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self._to_reread = text, deque[str]()
        self.record: list[str] = []
        self.before = self.done = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line. Raises _LongLine, or _OpenQuote: the record has too many lines, or no end."""
        line = self._to_reread.popleft() if self._to_reread else self._read()
        if self.record and (not line or line is _LONG_LINE or len(self.record) == RECORD_LINES_MAX):
            self._to_reread.appendleft(line)
            raise _OpenQuote
        if not line:
            raise StopIteration
        self.record.append(line)
        if line is _LONG_LINE:
            raise _LongLine
        return line

    def _read(self) -> str:
        # The bound keeps a line without an end from filling memory.
        line = part = self._text.readline(blocks.RECORD_BYTES_MAX)
        self.done += len(line)
        while len(part) == blocks.RECORD_BYTES_MAX and not part.endswith(_LINE_ENDS):
            line, part = _LONG_LINE, self._text.readline(blocks.RECORD_BYTES_MAX)
            self.done += len(part)
        return line

    def begin_record(self) -> int:
        """Begin a record; return the number of its first line."""
        self.before += len(self.record)
        self.record = []
        return self.before + 1

    def keep_first(self) -> str:
        """End the record after its first line and return that line; the other lines are read again."""
        first, *others = self.record
        self._to_reread.extendleft(reversed(others))
        self.record = [first]
        return first


class CsvRecords:
    """A CSV with a header, as Python's csv module reads it; ``total``: its bytes, 0 if unknown. OrderFileError: no readable header."""

    def __init__(self, path: str, source: BinaryIO, total: int, delimiter: str, block_bytes: int) -> None:
        self.total, self.done, self._delimiter = total, 0, delimiter
        self._rows = max(1, block_bytes // 256)
        csv.field_size_limit(blocks.RECORD_BYTES_MAX)
        # Bytes that are not UTF-8 become lone surrogates, which valid text never has: each such record gets a fault.
        self._lines = _Lines(io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline=""))
        self._reader = csv.reader(self._lines, delimiter=delimiter)
        self.columns: list[str] | None = self._read_header(path)

    def has_field(self, path: Sequence[str]) -> bool:
        return len(path) == 1 and spelled_in(self.columns or [], path[0]) is not None

    def _read_header(self, path: str) -> list[str]:
        header: list[str] = []
        try:
            while not header:
                line = self._lines.begin_record()
                header = next(self._reader)
        except StopIteration:
            fix = "begin a CSV with the names of its columns"
            raise OrderFileError("the file is empty", code="TG-ORDER-HEADER", where=f"{path}:1", fix=fix) from None
        except (csv.Error, _OpenQuote, _LongLine):
            fix = "close it"
            raise OrderFileError("a quote in the header is never closed", code="TG-ORDER-HEADER", where=f"{path}:1", fix=fix) from None
        where = f"{path}:{line}"
        try:
            "".join(header).encode()
        except UnicodeEncodeError:
            raise OrderFileError("the header is not UTF-8", code="TG-ORDER-HEADER", where=where, fix="write the file in UTF-8") from None
        check_names(header, where)
        return header

    def blocks(self) -> Iterator[Block]:
        while block := self._read_block():
            self.done = self._lines.done
            yield block

    def _read_block(self) -> Block:
        block = Block()
        while len(block) < self._rows:
            line = self._lines.begin_record()
            try:
                row = next(self._reader, None)
            except (_OpenQuote, csv.Error):
                # csv.Error: a field over several lines is longer than field_size_limit.
                self._add_first_line(block, line)
                continue
            except _LongLine:
                block.add(line, b"null", None, Fault.TOO_LONG)
                continue
            if row is None:
                break
            if row:
                self._add(block, line, row)
        return block

    def _add_first_line(self, block: Block, line: int) -> None:
        row = next(csv.reader([self._lines.keep_first()], delimiter=self._delimiter))
        block.add(line, orjson.dumps(_replace_invalid(row)), None, Fault.QUOTE)

    def _add(self, block: Block, line: int, row: list[str]) -> None:
        columns = self.columns or []
        if len(row) != len(columns) and len(self._lines.record) > 1:
            self._add_first_line(block, line)
            return
        try:
            if len(row) == len(columns):
                fields: dict[str, Any] = dict(zip(columns, self._with_nulls(row) if "" in row else row, strict=True))
                block.add(line, orjson.dumps(fields), fields)
            else:
                block.add(line, orjson.dumps(row), None, Fault.COLUMNS)
        except TypeError:
            block.add(line, orjson.dumps(_replace_invalid(row)), None, Fault.ENCODING)

    def _with_nulls(self, row: list[str]) -> list[str | None]:
        """Return a row with None for each value that is empty and has no quotes, which the csv module does not tell from ``""``."""
        text = "".join(self._lines.record)
        has_quotes = [value.startswith('"') for value in _split(text, self._delimiter)] if '"' in text else [False] * len(row)
        if len(has_quotes) != len(row):
            return list[str | None](row)
        return [value if value or is_quoted else None for value, is_quoted in zip(row, has_quotes, strict=True)]


def _split(text: str, delimiter: str) -> list[str]:
    """Return the values of a record as they are written, with their quotes."""
    values, start, is_quoted = list[str](), 0, False
    for place, sign in enumerate(text):
        if sign == '"' and text[start] == '"':
            # A quote that is written twice closes and opens again.
            is_quoted = not is_quoted
        elif sign == delimiter and not is_quoted:
            values.append(text[start:place])
            start = place + 1
    return [*values, text[start:]]


def _replace_invalid(row: list[str]) -> list[str]:
    return [value.encode(errors="surrogateescape").decode(errors="replace") for value in row]
