"""
Finds the format of an event file, and opens it.

Law: a wrong name, format or delimiter is reported before anything is written.
"""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from ordering.errors import SettingError
from tidegate.records.files.blocks import FileFormat, FileRecords, OrderFileError
from tidegate.records.files.csv_records import CsvRecords
from tidegate.records.files.json_arrays import JsonForm, detect_form
from tidegate.records.files.json_records import ExplodedLines, JsonArrayRecords, JsonObjectRecords, NdjsonRecords

# About how much of a file is read at a time. Results do not depend on it.
BLOCK_BYTES = 8 * 2**20
STANDARD_INPUT = "-"
FORMAT_BY_SUFFIX = {
    **dict.fromkeys((".ndjson", ".jsonl", ".json"), FileFormat.NDJSON),
    **dict.fromkeys((".csv", ".tsv"), FileFormat.CSV),
    **dict.fromkeys((".parquet", ".pq"), FileFormat.PARQUET),
}
_GZIP = b"\x1f\x8b"


def open_records(
    path: str, format: FileFormat, source: BinaryIO, delimiter: str, block_bytes: int, *, explodes: bool = False
) -> FileRecords:
    """
    Start reading *source*, which errors call *path* (``-``: standard input). If it *explodes*, arrays among objects are as many records as
    they have elements. OrderFileError: it cannot be read in that format.
    """
    total = Path(path).stat().st_size if path != STANDARD_INPUT and Path(path).is_file() else 0
    if format is FileFormat.NDJSON:
        form, peeked = detect_form(source)
        kinds = {JsonForm.LINES: NdjsonRecords, JsonForm.ARRAY: JsonArrayRecords, JsonForm.OBJECTS: JsonObjectRecords}
        if explodes:
            kinds = {form: ExplodedLines if form is JsonForm.LINES else JsonArrayRecords for form in JsonForm}
        return kinds[form](source, total, block_bytes, peeked)
    if format is FileFormat.CSV:
        return CsvRecords(path, source, total, delimiter, block_bytes)
    from tidegate.records.files.parquet_records import ParquetRecords  # slow to import, and few files need it

    return ParquetRecords(path, source, block_bytes)


def detect_format(path: str, source: BinaryIO, named_format: str | None) -> FileFormat:
    """
    Return the format of the file at *path*: *named_format* (a format, or an ending without its dot), else by the ending; ``-`` is NDJSON.
    Raises OrderFileError: the ending names no format, or the first bytes of *source* show that the file is compressed.
    """
    _check_compression(path, source, named_format)
    if named_format is None and path == STANDARD_INPUT:
        return FileFormat.NDJSON
    format = FORMAT_BY_SUFFIX.get(f".{named_format}" if named_format is not None else Path(path).suffix.lower())
    if format is None:
        fix = f"say which with --input-format ({', '.join(FileFormat)}); endings known: {', '.join(FORMAT_BY_SUFFIX)}"
        example = f"tidegate order {path} --input-format ndjson --timestamp-by at"
        raise OrderFileError(f"the ending of {path} names no format", code="TG-ORDER-FORMAT", where=path, fix=fix, example=example)
    return format


def _check_compression(path: str, source: BinaryIO, named_format: str | None) -> None:
    peek = getattr(source, "peek", None)
    if peek is None or not peek(len(_GZIP)).startswith(_GZIP):
        return
    inner = named_format or Path(path).with_suffix("").suffix.lower().removeprefix(".")
    named = f" --input-format {inner}" if f".{inner}" in FORMAT_BY_SUFFIX and inner != FileFormat.NDJSON else ""
    unpack = "zcat" if path == STANDARD_INPUT else f"zcat {shlex.quote(path)}"
    piped = f"{unpack} | tidegate order -{named} --timestamp-by at"
    example = f"{unpack} > log.parquet" if FORMAT_BY_SUFFIX.get(f".{inner}") is FileFormat.PARQUET else piped
    raise OrderFileError("the file is compressed with gzip", code="TG-ORDER-FORMAT", where=path, fix="unpack it", example=example)


def choose_delimiter(path: str, delimiter: str | None, input_format: str | None) -> str:
    """Return the character between the columns of a CSV; raise SettingError if it is not one character."""
    character = delimiter if delimiter is not None else "\t" if input_format == "tsv" or path.lower().endswith(".tsv") else ","
    character = "\t" if character == "\\t" else character
    if len(character) != 1 or character in '"\r\n':
        what = f"{character!r} cannot stand between columns"
        raise SettingError(what, code="TG-SETTING-VALUE", where="--delimiter", fix="give one character", example="--delimiter ';'")
    return character


@contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """Open the file at *path*, or standard input; raise OrderFileError if it cannot be opened or read."""
    try:
        if path == STANDARD_INPUT:
            standard: TextIO | None = sys.stdin
            if standard is None:
                raise OSError(errno.EBADF, "standard input is closed")
            yield standard.buffer
        else:
            with Path(path).open("rb") as source:
                yield source
    except OSError as error:
        fix = "correct the path, or its permissions"
        raise OrderFileError(f"the file cannot be read: {error.strerror or error}", where=path, fix=fix) from error
