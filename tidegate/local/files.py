"""
The files that ``tidegate local`` reads: which file is which input, and how each is opened.

Law: a wrong name or format is reported before anything is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ordering.errors import SettingError
from tidegate.order.blocks import Format, OrderFileError, Records
from tidegate.order.files import FORMAT_BY_SUFFIX, STANDARD_INPUT, open_records, open_source

_NAME = re.compile(r"[^\s=/]+")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """The file of one input: the input's name in the script, and the path (``-``: standard input)."""

    name: str
    path: str
    format: Format

    @property
    def can_be_read_twice(self) -> bool:
        return self.path != STANDARD_INPUT and Path(self.path).is_file()


def parse_file_flags(flag_values: Sequence[str], flag: str = "--input") -> list[LocalFile]:
    """
    Return the files of flags written ``NAME=FILE``. Raises SettingError: a flag is not of this form, or names an input twice;
    OrderFileError: the ending of a file names no format.
    """
    files: list[LocalFile] = []
    for text in flag_values:
        name, equals, path = text.partition("=")
        if not equals or not path or not _NAME.fullmatch(name):
            raise SettingError(
                f"{text!r} names no input and file", code="TG-SETTING-FLAG", where=flag, fix="write NAME=FILE", example=f"{flag} a=a.ndjson"
            )
        # Names are compared ignoring case, as the script does.
        if name.lower() in {other.name.lower() for other in files}:
            fix = "put its records into one file"
            raise SettingError(f"input {name} has two files", code="TG-SETTING-CONFLICT", where=flag, fix=fix)
        files.append(LocalFile(name, path, _format_by_suffix(path)))
    return files


def _format_by_suffix(path: str) -> Format:
    # The options of a URL come after its path.
    place = path.partition("?")[0] if "://" in path else path
    kind = Format.NDJSON if path == STANDARD_INPUT else FORMAT_BY_SUFFIX.get(Path(place).suffix.lower())
    if kind is None:
        fix = f"endings known: {', '.join(FORMAT_BY_SUFFIX)}; unpack what is packed, standard input (-) is NDJSON"
        raise OrderFileError(f"the ending of {path} names no format", code="TG-ORDER-FORMAT", where=path, fix=fix)
    return kind


@contextmanager
def open_file_records(file: LocalFile, block_bytes: int) -> Iterator[Records]:
    """Open a file's records; raise OrderFileError if it does not have the format of its ending."""
    with open_source(file.path) as source:
        yield open_records(file.path, file.format, source, "\t" if file.path.lower().endswith(".tsv") else ",", block_bytes)
