"""
Records of a file in blocks, whatever its format, and the faults a record may have.

Law: where a record begins and ends, and its line number, depend on the file alone, not on where its blocks are cut. Line numbers are
physical lines from 1: a CSV's header counts, and a record of several lines has the number of the first one. In Parquet they are rows, in a
JSON array elements. A record that cannot be read has a *fault*; reading goes on with the next record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import orjson
import pyarrow as pa

from ordering.errors import TidegateError

# A longer record is a fault and is not kept in memory.
RECORD_BYTES_MAX = 64 * 2**20
SHOWN_CHARACTERS = 1_000  # how much of a record that is too long is shown


class OrderFileError(TidegateError):
    """A file cannot be read in its format."""

    exit_code = 2
    default_code = "TG-ORDER-FILE"


class FileFormat(StrEnum):
    """How a file holds its records."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


class Fault(StrEnum):
    """Why a record cannot be read at all."""

    JSON = "json"  # not JSON
    OBJECT = "object"  # JSON, but not an object
    COLUMNS = "columns"  # more or fewer columns than the header
    ENCODING = "encoding"  # not UTF-8
    VALUE = "value"  # a value that JSON cannot express, such as a date after the year 9999
    TOO_LONG = "too_long"
    QUOTE = "quote"  # a quote that is not closed soon enough, or leads to another number of columns


@dataclass(slots=True)
class Block:
    """Some records in file order; all columns have one entry for each record."""

    # The line at which each record begins.
    line: list[int] | range = field(default_factory=list[int])
    # Why the record cannot be read; None if it can.
    fault: list[Fault | None] = field(default_factory=list)
    _text: list[bytes] | None = field(default_factory=list)
    _fields: list[dict[str, Any] | None] | None = field(default_factory=list)
    _payloads: pa.Array | None = None
    # Whether no record has a fault and the lines are consecutive.
    is_plain: bool = False

    @classmethod
    def of_plain(cls, first_line: int, payloads: pa.Array) -> Block:
        """Return a block of JSON objects that every parser reads alike; no Python object is made of a record unless it is asked for."""
        lines = range(first_line, first_line + len(payloads))
        return cls(lines, [None] * len(payloads), None, None, payloads, is_plain=True)

    def __len__(self) -> int:
        return len(self.line)

    def add(self, line: int, text: bytes, fields: dict[str, Any] | None, fault: Fault | None = None) -> None:
        assert isinstance(self.line, list), "a plain block is complete"
        self.line.append(line)
        self.text.append(text)
        self.fields.append(fields)
        self.fault.append(fault)

    @property
    def text(self) -> list[bytes]:
        """The record as JSON; for NDJSON the bytes of the line itself."""
        if self._text is None:
            self._text = self.payloads().to_pylist()
        return self._text

    @property
    def fields(self) -> list[dict[str, Any] | None]:
        """The fields of each record; None for a record with a fault."""
        if self._fields is None:
            self._fields = list(map(orjson.loads, self.text))
        return self._fields

    def first_names(self) -> list[str] | None:
        """Return the field names of the first readable record, or None if there is none."""
        if self._fields is None:
            return list(orjson.loads(self.payloads()[0].as_py()))
        return next((list(fields) for fields in self._fields if fields is not None), None)

    def payloads(self) -> pa.Array:
        """Return the JSON of each record as a binary column, null for a record with a fault."""
        if self._payloads is None:
            texts = [None if fault else text for text, fault in zip(self.text, self.fault, strict=True)]
            self._payloads = pa.array(texts, type=pa.binary())
        return self._payloads


class FileRecords(Protocol):
    """
    A file being read.

    Attributes:
        columns: Its field names; None if each record has its own.
        total: Its size in bytes or in rows, 0 if unknown.
        done: How much of ``total`` has been read.
    """

    columns: list[str] | None
    total: int
    done: int

    def has_field(self, path: Sequence[str]) -> bool:
        """Return whether a record may have a field at *path*, judging by ``columns``."""

    def blocks(self) -> Iterator[Block]:
        """Yield the records, block by block."""


def as_json_text(raw: bytes) -> bytes:
    """Return bytes that cannot be parsed as a JSON string, for error messages."""
    return orjson.dumps(raw.decode(errors="replace"))


def spelled_in(names: Collection[str], name: str) -> str | None:
    """Return how *names* spell a field: exactly so if one does, else the first that differs in case only; None if none does."""
    if name in names:
        return name
    folded = name.lower()
    return next((other for other in names if other.lower() == folded), None)


def check_names(columns: list[str], where: str) -> None:
    """Raise OrderFileError if two columns have the same name."""
    duplicates = sorted({name for name in columns if columns.count(name) > 1})
    if duplicates:
        what = f"two columns have the name {', '.join(duplicates)}"
        raise OrderFileError(what, code="TG-ORDER-HEADER", where=where, fix="give each column a name of its own")
