"""
Files of events, read record by record in bounded memory: newline-delimited JSON, one JSON array, CSV, Parquet.

Law: what a record is, and the line it is said to stand in, depends on the file alone, not on where its blocks are cut.
A line counts physical lines from 1 (a CSV's header is one of them, a record that spans several has the line it begins
in); Parquet has rows instead, an array elements. What cannot be read is a record with a *fault*, and the next one is read all the same.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson

from ordering.errors import TidegateError
from tidegate.order.json_arrays import ArrayElements, detect_array

RECORD_BYTES_MAX = 64 * 2**20
"""A record longer than this is told as a fault and not kept in memory."""
SHOWN_CHARACTERS = 1_000
"""How much of a record that is too long is told."""

_JSON_SPACE = b" \t\r"
_BOM = b"\xef\xbb\xbf"
_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_LINE_END = re.compile(r"\r\n|\r|\n")


class OrderFileError(TidegateError):
    """A file cannot be read as what it is said to be."""

    exit_code = 2
    default_code = "TG-ORDER-FILE"


class Format(StrEnum):
    """How a file holds its records."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


class Fault(StrEnum):
    """Why a record cannot be read at all."""

    JSON = "json"
    """It is no JSON."""
    OBJECT = "object"
    """It is JSON, but no object with fields."""
    COLUMNS = "columns"
    """It has more or fewer columns than the header."""
    ENCODING = "encoding"
    """It is not UTF-8."""
    VALUE = "value"
    """A value in it has no JSON form, such as a date after the year 9999."""
    TOO_LONG = "too_long"
    QUOTE = "quote"
    """A quote that it opens is still open where the file ends."""


@dataclass(frozen=True, slots=True)
class OpenQuote:
    """A quote in a CSV that is never closed: the line it stands in, and how many lines it takes with it to the end of the file."""

    line: int
    lines: int


@dataclass(slots=True)
class Block:
    """
    Some records in file order; all columns have one entry a record.

    ``text`` is the event as JSON: of NDJSON the line's own. ``fields`` is None where there is a ``fault``.
    """

    line: list[int] = field(default_factory=list)
    text: list[bytes] = field(default_factory=list)
    fields: list[dict[str, Any] | None] = field(default_factory=list)
    fault: list[Fault | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.line)

    def add(self, line: int, text: bytes, fields: dict[str, Any] | None, fault: Fault | None = None) -> None:
        """Append one record."""
        self.line.append(line)
        self.text.append(text)
        self.fields.append(fields)
        self.fault.append(fault)


class Records(Protocol):
    """
    A file being read.

    ``columns`` are its field names, None where each record has its own; ``total`` its size and ``done`` how much of that is
    read, both in bytes or in rows (``total`` is 0 where nobody knows). ``open_quote`` is known at the end.
    """

    columns: list[str] | None
    total: int
    done: int
    open_quote: OpenQuote | None

    def has_field(self, path: Sequence[str]) -> bool:
        """Tell whether a record may have a field at *path*, as far as ``columns`` say."""

    def blocks(self) -> Iterator[Block]:
        """Yield the records, some at a time."""


def open_records(path: str, format: Format, source: BinaryIO, delimiter: str, block_bytes: int) -> Records:
    """
    Start reading *source*, which is the file at *path* (``-``: standard input).

    Args:
        path: What errors call it.
        kind: What it holds.
        source: The bytes.
        delimiter: Of CSV: the character between columns.
        block_bytes: About how much to read at a time; results do not depend on it.

    Raises:
        OrderFileError: It is not what it is said to be.
    """
    total = Path(path).stat().st_size if path != "-" and Path(path).is_file() else 0
    if format is Format.NDJSON:
        is_json_array, peeked = detect_array(source)
        return (_JsonArray if is_json_array else _Ndjson)(source, total, block_bytes, peeked)
    if format is Format.CSV:
        return _Csv(path, source, total, delimiter, block_bytes)
    return _Parquet(path, source, block_bytes)


class _Ndjson:
    columns: list[str] | None = None
    open_quote: OpenQuote | None = None

    def has_field(self, path: Sequence[str]) -> bool:
        return True

    def __init__(self, source: BinaryIO, total: int, block_bytes: int, peeked: bytes) -> None:
        self.total, self.done = total, 0
        self._source, self._block_bytes, self._peeked = source, block_bytes, peeked
        self._line = 0

    def _read_pieces(self) -> Iterator[bytes]:
        """Yield the file in pieces; what was seen of it already is cut as the rest would be."""
        # What is there is taken, so that a pipe is followed as it fills.
        read = getattr(self._source, "read1", self._source.read)
        seen = self._peeked.removeprefix(_BOM)
        for at in range(0, len(seen), self._block_bytes):
            yield seen[at : at + self._block_bytes]
        while piece := read(self._block_bytes):
            yield piece

    def blocks(self) -> Iterator[Block]:
        partial: list[bytes] = []
        size = 0
        for piece in self._read_pieces():
            self.done += len(piece)
            head, newline, rest = piece.rpartition(b"\n")
            if newline:
                yield self._parse_block(b"".join([*partial, head]), size)
                partial, size = [], 0
            partial.append(rest)
            size += len(rest)
            if size > RECORD_BYTES_MAX:  # only its beginning is kept, its length goes on counting
                partial = [b"".join(partial)[:RECORD_BYTES_MAX]]
        if size:
            yield self._parse_block(b"".join(partial), size)

    def _parse_block(self, text: bytes, first_size: int) -> Block:
        """Read whole lines; *first_size* is how long the first one's beginning was, also where not all of it was kept."""
        lines = [raw.strip(_JSON_SPACE) for raw in text.split(b"\n")]
        first, self._line = self._line + 1, self._line + len(lines)
        if first_size + len(text) <= RECORD_BYTES_MAX and all(lines):
            try:
                values = list(map(orjson.loads, lines))
            except orjson.JSONDecodeError:
                values = []
            if values and set(map(type, values)) == {dict}:
                return Block(list(range(first, self._line + 1)), lines, values, [None] * len(lines))
        block = Block()
        for number, line in enumerate(lines, start=first):
            if len(line) > RECORD_BYTES_MAX or (number == first and first_size > RECORD_BYTES_MAX):
                block.add(number, _as_json_text(line[:SHOWN_CHARACTERS]), None, Fault.TOO_LONG)
            elif line:
                _add_json(block, number, line)
        return block


class _JsonArray(_Ndjson):
    def blocks(self) -> Iterator[Block]:
        elements = ArrayElements(RECORD_BYTES_MAX)
        for piece in self._read_pieces():
            self.done += len(piece)
            yield self._number_elements(elements.feed(piece))
        yield self._number_elements(elements.flush())

    def _number_elements(self, elements: Iterator[bytes]) -> Block:
        block = Block()
        for element in elements:
            self._line += 1
            if len(element) > RECORD_BYTES_MAX:
                block.add(self._line, _as_json_text(element[:SHOWN_CHARACTERS]), None, Fault.TOO_LONG)
            else:
                _add_json(block, self._line, element)
                # What was read as JSON has no line end in a text, so all of them are spaces: a record is one line from here on.
                block.text[-1] = block.text[-1].translate(_ON_ONE_LINE)
        return block


def _add_json(block: Block, number: int, line: bytes) -> None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            value = _loads_lenient(line)
        except UnicodeDecodeError:
            block.add(number, _as_json_text(line), None, Fault.ENCODING)
            return
        except (ValueError, RecursionError):
            block.add(number, _as_json_text(line), None, Fault.JSON)
            return
    if isinstance(value, dict):
        block.add(number, line, value)
    else:
        block.add(number, line, None, Fault.OBJECT)


def _loads_lenient(line: bytes) -> Any:
    """Read what orjson refuses and JSON allows: numbers beyond a float, single surrogates."""
    return json.loads(line.decode(), parse_constant=_reject_constant)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _as_json_text(raw: bytes) -> bytes:
    return orjson.dumps(raw.decode(errors="replace"))


class _Csv:
    def __init__(self, path: str, source: BinaryIO, total: int, delimiter: str, block_bytes: int) -> None:
        self.total, self.done = total, 0
        self.open_quote: OpenQuote | None = None
        self._rows = max(1, block_bytes // 256)
        self._has_ended = False
        csv.field_size_limit(RECORD_BYTES_MAX)
        # Bytes that are no UTF-8 become single surrogates, which no text has: each such record is a fault of its own.
        self._text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self._reader = csv.reader(self._read_lines(), delimiter=delimiter)
        self.columns: list[str] | None = self._read_header(path)

    def has_field(self, path: Sequence[str]) -> bool:
        return len(path) == 1 and path[0] in (self.columns or [])

    def _read_lines(self) -> Iterator[str]:
        while line := self._text.readline(RECORD_BYTES_MAX):
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
        _check_names(header, where)
        return header

    def blocks(self) -> Iterator[Block]:
        while block := self._read_block():
            yield block

    def _read_block(self) -> Block:
        block = Block()
        while len(block) < self._rows:
            begins = self._reader.line_num + 1
            try:
                row = next(self._reader, None)
            except csv.Error:
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
    """Return over how many lines a text reaches; a line end that nothing follows begins no further one."""
    return len(_LINE_END.findall(text)) + (not text.endswith(("\n", "\r")))


def _check_names(columns: list[str], where: str) -> None:
    duplicates = sorted({name for name in columns if columns.count(name) > 1})
    if duplicates:
        what = f"two columns have the name {', '.join(duplicates)}"
        raise OrderFileError(what, code="TG-ORDER-HEADER", where=where, fix="give each column a name of its own")


class _Parquet:
    open_quote: OpenQuote | None = None

    def __init__(self, path: str, source: BinaryIO, block_bytes: int) -> None:
        self._path, self._rows, self.done = path, max(1, block_bytes // 256), 0
        with self._parquet_errors():
            import pyarrow.parquet as pq

            self._file = pq.ParquetFile(source)
        self.columns: list[str] | None = list(self._file.schema_arrow.names)
        _check_names(self.columns, path)
        self.total: int = self._file.metadata.num_rows

    def has_field(self, path: Sequence[str]) -> bool:
        import pyarrow as pa

        fields = {one.name: one.type for one in self._file.schema_arrow}
        for name in path:
            if name not in fields:
                return False
            kind = _plain_type(fields[name])
            fields = {one.name: one.type for one in kind} if pa.types.is_struct(kind) else {}
        return True

    @contextmanager
    def _parquet_errors(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:  # pyarrow's errors are kinds of these
            raise OrderFileError(
                f"the file cannot be read as Parquet: {error}",
                code="TG-ORDER-FORMAT",
                where=self._path,
                fix="is it whole, and Parquet at all? Standard input cannot be; --input-format names the format",
            ) from error

    def blocks(self) -> Iterator[Block]:
        batches = self._file.iter_batches(batch_size=self._rows)
        while True:
            with self._parquet_errors():
                batch = next(batches, None)
            if batch is None:
                return
            block = Block()
            for row, fields in enumerate(_batch_rows(batch), start=self.done + 1):
                _add_row(block, row, fields)
            self.done += batch.num_rows
            yield block


def _batch_rows(batch: Any) -> Iterable[dict[str, Any] | None]:
    """Return the rows of a record batch as Python has them, times as UTC without a zone; None where a value is none of Python's."""
    import pyarrow as pa

    schema = pa.schema([pa.field(one.name, _plain_type(one.type)) for one in batch.schema])
    table = pa.Table.from_batches([batch]).cast(schema, safe=False)
    try:
        return table.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return [_single_row(table.slice(at, 1)) for at in range(table.num_rows)]


def _single_row(table: Any) -> dict[str, Any] | None:
    try:
        return dict(table.to_pylist()[0])
    except (ValueError, OverflowError):
        return None


def _plain_type(kind: Any) -> Any:
    """Return the type without time zones and nanoseconds, inside of lists and structs too."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain_type(one.type)) for one in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return kind


def _add_row(block: Block, row: int, fields: dict[str, Any] | None) -> None:
    if fields is None:
        block.add(row, b"null", None, Fault.VALUE)
        return
    try:
        text = orjson.dumps(fields, default=_json_form, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)
    except TypeError:
        block.add(row, b"null", None, Fault.VALUE)
        return
    block.add(row, text, fields)


def _json_form(value: object) -> object:
    """Return what stands in JSON for a value that JSON lacks: of octets their text, else base64; of decimals their digits."""
    from base64 import b64encode
    from decimal import Decimal

    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value)) if value.is_finite() else None
    return str(value)
