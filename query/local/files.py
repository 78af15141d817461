"""
The files that ``tidegate local`` reads: which file is which input, and how each is opened.

Law: a wrong name or format is reported before anything is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ordering.errors import SettingError
from tidegate.language.expressions.kinds import DECLARABLE
from tidegate.records.files.blocks import FileFormat, FileRecords, OrderFileError
from tidegate.records.files.files import FORMAT_BY_SUFFIX, STANDARD_INPUT, choose_delimiter, open_records, open_source

_NAME = re.compile(r"[^\s=/]+")
# NAME=FILE, then :column=type,column=type. Neither the host of a URL nor its options look so.
_TYPED = re.compile(r"([^=]+=.+):([^:/=&?,]+=[^:/=&?,]+(?:,[^:/=&?,]+=[^:/=&?,]+)*)")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """
    The file of one input: the input's name in the script, and the path (``-``: standard input). ``delimiter`` stands between the columns
    of a CSV, ``columns`` are names of which its header must have one; None and none: not said. ``types`` are those of fields of reference
    data. If it ``explodes``, arrays among its objects are as many records as they have elements.
    """

    name: str
    path: str
    format: FileFormat
    delimiter: str | None = None
    columns: tuple[str, ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    explodes: bool = False

    @property
    def can_be_read_twice(self) -> bool:
        return self.path != STANDARD_INPUT and Path(self.path).is_file()


def parse_reference_flags(flag_values: Sequence[str], flag: str = "--reference") -> list[LocalFile]:
    """
    Return the files of flags written ``NAME=FILE`` or ``NAME=FILE:column=type,column=type``; raises as :func:`parse_file_flags`, and
    SettingError if something else stands for a type.
    """
    plain, types = [], []
    for text in flag_values:
        typed = _TYPED.fullmatch(text)
        plain.append(typed[1] if typed else text)
        pairs = [pair.partition("=") for pair in typed[2].split(",")] if typed else []
        types.append(tuple((column, _parse_type(kind, flag, text)) for column, _, kind in pairs))
    return [replace(file, types=own) for file, own in zip(parse_file_flags(plain, flag), types, strict=True)]


def _parse_type(kind: str, flag: str, text: str) -> str:
    known = DECLARABLE.get(kind.strip().lower())
    if known is None:
        fix = f"types: {', '.join(kind for kind in DECLARABLE if kind != 'nvarchar')}"
        what, example = f"{kind!r} in {text!r} is no type", f"{flag} zips=zips.csv:code=nvarchar(max)"
        raise SettingError(what, code="TG-SETTING-FLAG", where=flag, fix=fix, example=example)
    return known.asa_name


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


def set_delimiters(
    files: Sequence[LocalFile], tables: Sequence[LocalFile], flag_values: Sequence[str]
) -> tuple[list[LocalFile], list[LocalFile]]:
    """
    Return the files with the delimiters of flags: ``;`` for all .csv files, ``NAME=;`` for that of one input or table. Raises SettingError:
    what stands there is not one character, or no file of that name is a CSV.
    """
    delimiters: dict[str | None, str] = {}
    for text in flag_values:
        name, equals, character = text.partition("=")
        named = bool(equals and name)
        delimiters[name.lower() if named else None] = choose_delimiter("", character if named else text, None)
    csv_names = {file.name.lower() for file in [*files, *tables] if file.format is FileFormat.CSV}
    if unknown := [name for name in delimiters if name is not None and name not in csv_names]:
        fix = f"name one of: {', '.join(sorted(csv_names))}" if csv_names else "only CSV files have one"
        raise SettingError(f"no CSV file is given for {unknown[0]}", code="TG-SETTING-FLAG", where="--delimiter", fix=fix)

    def with_delimiter(file: LocalFile) -> LocalFile:
        every = None if file.path.lower().endswith(".tsv") else delimiters.get(None)
        chosen = delimiters.get(file.name.lower(), every)
        return file if chosen is None or file.format is not FileFormat.CSV else replace(file, delimiter=chosen)

    return [with_delimiter(file) for file in files], [with_delimiter(file) for file in tables]


def _format_by_suffix(path: str) -> FileFormat:
    # The options of a URL come after its path.
    place = path.partition("?")[0] if "://" in path else path
    kind = FileFormat.NDJSON if path == STANDARD_INPUT else FORMAT_BY_SUFFIX.get(Path(place).suffix.lower())
    if kind is None:
        fix = f"endings known: {', '.join(FORMAT_BY_SUFFIX)}; unpack what is packed, standard input (-) is NDJSON"
        raise OrderFileError(f"the ending of {path} names no format", code="TG-ORDER-FORMAT", where=path, fix=fix)
    return kind


@contextmanager
def open_file_records(file: LocalFile, block_bytes: int) -> Iterator[FileRecords]:
    """Open a file's records; raise OrderFileError if it does not have the format of its ending."""
    with open_source(file.path) as source:
        records = open_records(
            file.path, file.format, source, file.delimiter or _usual_delimiter(file.path), block_bytes, explodes=file.explodes
        )
        if file.format is FileFormat.CSV and file.columns:
            _check_header(file, records.columns or [])
        yield records


def _usual_delimiter(path: str) -> str:
    return "\t" if path.lower().endswith(".tsv") else ","


def _check_header(file: LocalFile, header: Sequence[str]) -> None:
    """Raise OrderFileError if the header has none of the configured columns: it is the first record, or the delimiter is another."""
    names = {name.lower() for name in header}
    if not any(column.lower() in names for column in file.columns):
        what = f"the first line has none of the columns of {file.name}, {', '.join(file.columns)}: a file begins with their names"
        fix = "put the names in front of the records of a topic, or see --delimiter"
        example = (file.delimiter or _usual_delimiter(file.path)).join(file.columns)
        raise OrderFileError(what, code="TG-ORDER-HEADER", where=f"{file.path}:1", fix=fix, example=example)
