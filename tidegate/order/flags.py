"""
What the flags of ``tidegate order`` mean: policies, shapes, and the input with its format.

Law: a wrong flag is told before anything is read or written, by its name, with a correct one.
"""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from ordering.errors import SettingError, TidegateError
from ordering.policies import Action, Policies, Shape
from ordering.ticks import parse_duration
from tidegate.order.files import Format, OrderFileError

OFF = "off"
NONE = "none"
STANDARD_INPUT = "-"

_GZIP = b"\x1f\x8b"
FORMAT_BY_SUFFIX = {
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".json": Format.NDJSON,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}


def parse_policies(early: str, late: str, late_action: Action, reorder: str, out_of_order_action: Action) -> Policies:
    """
    Return the policies that the flags mean.

    Raises:
        SettingError: A duration cannot be read or is out of range.
    """
    return Policies(
        early_us=_parse_duration(early, "--early"),
        late_us=_parse_duration(late, "--late"),
        late_action=late_action,
        reorder_us=-1 if reorder == "-1us" else _parse_tolerance(reorder),
        out_of_order_action=out_of_order_action,
    )


def _parse_tolerance(text: str) -> int:
    duration_us = _parse_duration(text, "--reorder")
    if duration_us is None:
        raise SettingError(
            "reorder cannot be off", code="TG-SETTING-VALUE", where="--reorder", fix="give a duration", example="--reorder 0s"
        )
    return duration_us


def _parse_duration(text: str, flag: str) -> int | None:
    if text == OFF:
        return None
    try:
        return parse_duration(text)
    except TidegateError as error:
        fix = error.fix if flag == "--reorder" else f"{error.fix}; or off"
        raise SettingError(error.what, code=error.code, where=flag, fix=fix, example=f"{flag} 5s") from None


def check_shape(shape: Shape, end: str | None, key: str | None) -> None:
    """
    Check that the flags of spans go together.

    Raises:
        SettingError: One stands without the other.
    """
    if (shape is not Shape.POINT) != (end is not None):
        raise _conflict("--shape and --end go together", "--shape", "give both", "--shape interval --end until")
    if key is not None and shape is not Shape.EDGE:
        fix = "leave it out, or say that events are edges"
        raise _conflict("--key is for edges only", "--key", fix, f"--shape edge --end until --key {key}")


def _conflict(what: str, where: str, fix: str, example: str) -> SettingError:
    return SettingError(what, code="TG-SETTING-CONFLICT", where=where, fix=fix, example=example)


def detect_format(path: str, source: BinaryIO, named_format: str | None) -> Format:
    """
    Return what the file at *path* holds: as given, else by its ending; ``-`` is NDJSON.

    Args:
        path: What errors call it.
        source: The file, opened: its first octets tell if it is compressed.
        given: A format, or an ending without its dot.

    Raises:
        OrderFileError: The ending says nothing, or the file is compressed.
    """
    _check_compression(path, source, named_format)
    if named_format is None and path == STANDARD_INPUT:
        return Format.NDJSON
    format = FORMAT_BY_SUFFIX.get(f".{named_format}" if named_format is not None else Path(path).suffix.lower())
    if format is None:
        raise OrderFileError(
            f"the ending of {path} names no format",
            code="TG-ORDER-FORMAT",
            where=path,
            fix=f"say which with --input-format ({', '.join(Format)}); endings known: {', '.join(FORMAT_BY_SUFFIX)}",
            example=f"tidegate order {path} --input-format ndjson --timestamp-by at",
        )
    return format


def _check_compression(path: str, source: BinaryIO, named_format: str | None) -> None:
    peek = getattr(source, "peek", None)
    if peek is None or not peek(len(_GZIP)).startswith(_GZIP):
        return
    inner = named_format or Path(path).with_suffix("").suffix.lower().removeprefix(".")
    named = f" --input-format {inner}" if f".{inner}" in FORMAT_BY_SUFFIX and inner != Format.NDJSON else ""
    unpack = "zcat" if path == STANDARD_INPUT else f"zcat {shlex.quote(path)}"
    piped = f"{unpack} | tidegate order -{named} --timestamp-by at"
    raise OrderFileError(
        "the file is compressed with gzip",
        code="TG-ORDER-FORMAT",
        where=path,
        fix="unpack it",
        example=f"{unpack} > log.parquet" if FORMAT_BY_SUFFIX.get(f".{inner}") is Format.PARQUET else piped,
    )


def choose_delimiter(path: str, delimiter: str | None, input_format: str | None = None) -> str:
    """
    Return the character between the columns of a CSV.

    Raises:
        SettingError: What is given is not one character.
    """
    found = delimiter if delimiter is not None else "\t" if input_format == "tsv" or path.lower().endswith(".tsv") else ","
    found = "\t" if found == "\\t" else found
    if len(found) != 1 or found in '"\r\n':
        raise SettingError(
            f"{found!r} cannot stand between columns",
            code="TG-SETTING-VALUE",
            where="--delimiter",
            fix="give one character",
            example="--delimiter ';'",
        )
    return found


@contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """
    Open the file at *path*, or standard input.

    Raises:
        OrderFileError: It cannot be opened, or not be read on.
    """
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
        raise OrderFileError(
            f"the file cannot be read: {error.strerror or error}", where=path, fix="correct the path, or its permissions"
        ) from error
