"""
Records of a file in blocks, whatever its format, and the faults a record may have.

Law: what a record is, and its line number, depends on the file alone, not on where its blocks are cut.
A line counts physical lines from 1 (a CSV's header is one of them, a record that spans several has the line it begins
in); Parquet has rows instead, an array elements. A record that cannot be read has a *fault*; the next one is read all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import orjson
import pyarrow as pa

from ordering.errors import TidegateError

# A longer record is a fault and not kept in memory. Without a bound one unclosed quote would take the whole file.
RECORD_BYTES_MAX = 64 * 2**20
# So much of a record that is too long is shown.
SHOWN_CHARACTERS = 1_000


class OrderFileError(TidegateError):
    """A file cannot be read in its format."""

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

    Attributes:
        line: Where each record begins.
        text: The record as JSON: of NDJSON the line's own bytes.
        fault: Why it cannot be read; None: it can.
        is_plain: Whether no record has a fault, and their lines follow each other.
    """

    line: list[int] = field(default_factory=list)
    text: list[bytes] = field(default_factory=list)
    fault: list[Fault | None] = field(default_factory=list)
    _fields: list[dict[str, Any] | None] | None = field(default_factory=list)
    _payloads: pa.Array | None = None
    is_plain: bool = False

    @classmethod
    def of_plain(cls, first_line: int, text: list[bytes], payloads: pa.Array) -> Block:
        """Return a block of JSON objects that every parser reads alike, so that their fields need be read only if asked for."""
        return cls(list(range(first_line, first_line + len(text))), text, [None] * len(text), None, payloads, is_plain=True)

    def __len__(self) -> int:
        return len(self.line)

    def add(self, line: int, text: bytes, fields: dict[str, Any] | None, fault: Fault | None = None) -> None:
        """Append one record."""
        self.line.append(line)
        self.text.append(text)
        self.fields.append(fields)
        self.fault.append(fault)

    @property
    def fields(self) -> list[dict[str, Any] | None]:
        """The fields of each record; None where it has a fault."""
        if self._fields is None:
            self._fields = list(map(orjson.loads, self.text))
        return self._fields

    def first_names(self) -> list[str] | None:
        """Return the names of the fields of the first record that can be read; None: there is none."""
        if self._fields is None:
            return list(orjson.loads(self.text[0]))
        return next((list(fields) for fields in self._fields if fields is not None), None)

    def payloads(self) -> pa.Array:
        """Return the JSON of each record as a binary column, null where it has a fault."""
        if self._payloads is None:
            texts = [None if fault else text for text, fault in zip(self.text, self.fault, strict=True)]
            self._payloads = pa.array(texts, type=pa.binary())
        return self._payloads


class Records(Protocol):
    """
    A file being read.

    Attributes:
        columns: Its field names; None where each record has its own.
        total: Its size in bytes or in rows, 0 if unknown.
        done: How much of that is read.
        open_quote: Known at the end.
    """

    columns: list[str] | None
    total: int
    done: int
    open_quote: OpenQuote | None

    def has_field(self, path: Sequence[str]) -> bool:
        """Return whether a record may have a field at *path*, as far as ``columns`` say."""

    def blocks(self) -> Iterator[Block]:
        """Yield the records, some at a time."""


def as_json_text(raw: bytes) -> bytes:
    """Return bytes that cannot be read as a JSON string, to be shown."""
    return orjson.dumps(raw.decode(errors="replace"))


def check_names(columns: list[str], where: str) -> None:
    """
    Check that column names are distinct.

    Raises:
        OrderFileError: Two columns have one name.
    """
    duplicates = sorted({name for name in columns if columns.count(name) > 1})
    if duplicates:
        what = f"two columns have the name {', '.join(duplicates)}"
        raise OrderFileError(what, code="TG-ORDER-HEADER", where=where, fix="give each column a name of its own")
