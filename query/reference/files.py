"""
Reads reference data from files (CSV with a header, JSON objects line by line, over several lines each or in one array, or Parquet) into the
versions of a table. A file that cannot be read, or holds a value that its declared type refuses, is refused as a whole, with its line,
before anything starts.
Types come from the settings if declared there, else from the file: from a Parquet column, from each value of JSON, from a CSV column as a
whole (:mod:`query.reference.csv_types`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordering.errors import RefusedError, TickRangeError
from ordering.ticks import NEVER, parse_tick
from query.columns.encode import encode_objects
from query.reference.csv_types import FoundColumn, find_type, type_warnings, write_text
from query.reference.objects import ReferenceFile, object_at, objects_of_pattern
from query.reference.tables import ReferenceTable, Version
from sinks.file_places import is_url
from tidegate.basics.bounded_files import TABLE_BYTES_MAX, FileTooLarge, check_regular
from tidegate.language.expressions.binding.input_schema import ANY, InputSchema
from tidegate.language.expressions.binding.names import InputNames
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import Source, suggest
from tidegate.language.expressions.tree import Expr, Field
from tidegate.language.expressions.variant import Variant, finite
from tidegate.platform.settings.tables.references import ReferenceSettings
from tidegate.records.files.json_arrays import JsonForm, detect_form
from tidegate.records.payloads.arrow_values import is_binary, record_of
from tidegate.records.payloads.formats import JSON, reader_of

_LINE_BREAKS = re.compile(r"[\r\n]+")
_BETWEEN_VALUES = re.compile(r"[, \t\r\n]*")
_DATE = r"(?P<year>\d{4})(?P<dash>[-/]?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d)(?:[-/:]?(?P<minute>\d\d)(?:[-/:]?(?P<second>\d\d))?)?"
_SAME_DATE = r"(?P=year)[-/]?(?P=month)[-/]?(?P=day)"
_SAME_TIME = r"(?P=hour)(?(minute)[-/:]?(?P=minute))(?(second)[-/:]?(?P=second))"
_ENDINGS = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".parquet": "parquet"}


@dataclass(frozen=True)
class _Read:
    """The records of one file."""

    # Each record as JSON.
    texts: pa.Array
    # Returns the file and the line, or the number, of a record.
    place: Callable[[int], str]
    # The type of each column by its name; None if records may have any members.
    fields: Mapping[str, str] | None
    # The columns whose type was found by looking at all values.
    found: Sequence[FoundColumn] = ()


def load_references(tables: Mapping[str, ReferenceSettings], names: Collection[str]) -> dict[str, ReferenceTable]:
    """Read the tables that a script names, in any case; raises as :func:`load_reference`."""
    wanted_names = {name.lower() for name in names}
    return {name: load_reference(table) for name, table in tables.items() if name.lower() in wanted_names}


def load_reference(settings: ReferenceSettings, files: Sequence[tuple[int, ReferenceFile]] | None = None) -> ReferenceTable:
    """Read a table's versions, from *files* (valid from, microseconds, rising; path) if given; RefusedError names a file it cannot read."""
    files = versions_of(settings) if files is None else files
    reads = [_read(settings, path) for _, path in files]
    known: dict[str, str] = {}
    for read in reads:
        known |= read.fields or {}
    closed = bool(reads) and all(read.fields is not None for read in reads)
    where = f"references.{settings.name}.fields"
    for name in settings.fields:
        if closed and name.split(".")[0].lower() not in {column.lower() for column in known}:
            fix = suggest(name, known, f"its columns are {', '.join(known)}")
            raise RefusedError(f"{settings.name} has no column {name}", code="TG-REFERENCE-FIELD", where=f"{where}.{name}", fix=fix)
    declared = {name.lower() for name in settings.fields}
    fields = {**settings.fields, **{name: kind for name, kind in known.items() if name.lower() not in declared}}
    schema = InputSchema(settings.name, fields=fields, is_closed=closed, is_reference=True)
    for read in reads:
        _check_types(schema, settings.fields, read)
    versions = [Version(begins, read.texts.cast(pa.binary())) for (begins, _), read in zip(files, reads, strict=True)]
    found = [(begins, read.found, read.place) for (begins, _), read in zip(files, reads, strict=True)]
    return ReferenceTable(schema, tuple(versions), tuple(type_warnings(settings.name, found)))


def versions_of(settings: ReferenceSettings) -> list[tuple[int, ReferenceFile]]:
    """
    Return (valid from, microseconds, rising; path) of each file; RefusedError if there is none, or two begin together; also raises as
    :func:`query.reference.objects.objects_of_pattern`.
    """
    versions = [(parse_tick(text), _file_at(path)) for text, path in settings.effective.items()]
    if settings.path is not None:
        versions = files_of_pattern(settings.path) if settings.has_pattern else [(NEVER, _file_at(settings.path))]
    if not versions:
        reason, fix = f"no file is called {settings.path}", "put one there, or correct the pattern: {date} is YYYY-MM-DD, {time} HH-mm"
        raise RefusedError(reason, code="TG-REFERENCE-FILE", where=f"references.{settings.name}.path", fix=fix)
    versions.sort(key=lambda version: (version[0], str(version[1])))
    for (first_us, first), (second_us, second) in pairwise(versions):
        if first_us == second_us:
            reason = f"{first} and {second} are valid from the same instant on"
            raise RefusedError(reason, code="TG-REFERENCE-FILE", where=f"references.{settings.name}", fix="remove one of them")
    return versions


def files_of_pattern(pattern: str) -> list[tuple[int, ReferenceFile]]:
    """Return (valid from, microseconds, rising; path) of each file of a path with ``{date}``; RefusedError: a name is no instant."""
    pattern, options = pattern.split("?", 1) if is_url(pattern) and "?" in pattern else (pattern, "")
    names = re.escape(pattern)
    for word, first, again in ((r"\{date\}", _DATE, _SAME_DATE), (r"\{time\}", _TIME, _SAME_TIME)):
        # Where a path has a word again, as in {date}/r-{date}.csv, it stands for the same instant.
        names = names.replace(word, first, 1).replace(word, again)
    versions: list[tuple[int, ReferenceFile]] = []
    for path in _files_below(re.split(r"\{date\}|\{time\}", pattern, maxsplit=1)[0], options):
        name = re.fullmatch(names, path.as_posix() if isinstance(path, Path) else path.url)
        if name is None or (isinstance(path, Path) and not path.is_file()):
            continue
        parts_of_time = {key: text or "00" for key, text in {"hour": "", "minute": "", "second": "", **name.groupdict()}.items()}
        text = "{year}-{month}-{day}T{hour}:{minute}:{second}Z".format(**parts_of_time)
        try:
            versions.append((parse_tick(text), path))
        except TickRangeError as error:
            fix = "rename it: the name says from when on it is valid"
            raise RefusedError(error.what, code="TG-REFERENCE-FILE", where=str(path), fix=fix) from None
    return sorted(versions, key=lambda version: (version[0], str(version[1])))


def _files_below(start: str, options: str) -> Iterable[ReferenceFile]:
    """Return all that lies below the folder in which names with this beginning are."""
    if is_url(start):
        return objects_of_pattern(start.rpartition("/")[0], options)
    return (Path(start) if start.endswith("/") else Path(start).parent).rglob("*")


def _file_at(place: str) -> ReferenceFile:
    return object_at(place) if is_url(place) else Path(place)


def _read(settings: ReferenceSettings, path: ReferenceFile) -> _Read:
    kind = _ENDINGS.get(path.suffix.lower(), "") if settings.format == "auto" else settings.format
    try:
        if kind == "parquet":
            return _read_parquet(path)
        if kind == "ndjson":
            return _read_json(path)
        if kind == "csv":
            return _read_csv(path, settings)
    except (OSError, UnicodeDecodeError, RecursionError, pa.ArrowException) as error:
        reason, fix = f"the reference data cannot be read: {error}", "give the path of a file that is there and whole"
        raise RefusedError(reason, code="TG-REFERENCE-FILE", where=str(path), fix=fix) from None
    reason, fix = f"the ending of {path.name} stands for no format", f"set references.{settings.name}.format"
    raise RefusedError(reason, code="TG-REFERENCE-FILE", where=str(path), fix=fix, example='format = "csv"')


def _bad_record(reason: str, where: str) -> RefusedError:
    return RefusedError(reason, code="TG-REFERENCE-RECORD", where=where, fix="correct the record, or the settings")


def _bytes_of(path: ReferenceFile) -> bytes:
    if isinstance(path, Path):
        check_regular(path, TABLE_BYTES_MAX)
    elif path.read_stamp()[0] > TABLE_BYTES_MAX:
        raise FileTooLarge(str(path), TABLE_BYTES_MAX)
    return path.read_bytes()


# CSV


def _read_csv(path: ReferenceFile, settings: ReferenceSettings) -> _Read:
    rows: list[list[str]] = []
    lines: list[int] = []
    declared = {name.lower() for name in settings.fields}
    with io.TextIOWrapper(io.BytesIO(_bytes_of(path)), encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=settings.csv_delimiter, strict=True)
        try:
            columns = next(reader, [])
            if not columns or "" in columns or len({column.lower() for column in columns}) < len(columns):
                raise _bad_record("the first line must name every column, each name once", f"{path}:1")
            for values in reader:
                if not values:
                    continue
                if len(values) != len(columns):
                    raise _bad_record(f"{len(values)} values for {len(columns)} columns", f"{path}:{reader.line_num}")
                rows.append(values)
                lines.append(reader.line_num)
        except csv.Error as error:
            raise _bad_record(f"this is no CSV: {error}", f"{path}:{reader.line_num}") from None
    # A declared column stays text, which its type reads later.
    found = [find_type(name, [values[place] for values in rows]) for place, name in enumerate(columns) if name.lower() not in declared]
    writers = {column.name: column.write for column in found}
    members = [(json.dumps(name) + ":", writers.get(name, write_text)) for name in columns]
    texts = ["{" + ",".join([name + write(text) for (name, write), text in zip(members, values, strict=True)]) + "}" for values in rows]
    return _Read(pa.array(texts, pa.string()), lambda row: f"{path}:{lines[row]}", dict.fromkeys(columns, ANY), found)


# JSON


def _read_json(path: ReferenceFile) -> _Read:
    encoded = _bytes_of(path)
    form, _ = detect_form(io.BytesIO(encoded))
    text = encoded.decode("utf-8-sig")
    if text.lstrip().startswith("["):
        kind, records = "element", _elements(text, path)
    elif form is JsonForm.OBJECTS:
        kind, records = "value", _values(text, path)
    else:
        kind, records = "line", enumerate(map(_without_comma, io.StringIO(text, newline=None)), start=1)
    texts, lines = [], []
    for number, record in records:
        if not record.strip():
            continue
        try:
            is_object = isinstance(json.loads(record), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise _bad_record(f"this {kind} is no JSON object", f"{path}:{number}")
        # A line break between the words of a record would break the lines of results that hold it.
        texts.append(_LINE_BREAKS.sub(" ", record.strip()))
        lines.append(number)
    return _Read(pa.array(texts, pa.string()), lambda row: f"{path}:{lines[row]}", None)


def _without_comma(line: str) -> str:
    """Return a line without the comma that whoever cut it out of an array has left at its end, as files of events are read."""
    return line.rstrip().removesuffix(",")


def _elements(text: str, path: ReferenceFile) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each element of the JSON array *text*. Raises RefusedError: it is none."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad_record(f"this is no JSON array: {error.msg}", f"{path}:{error.lineno}") from None
    start = text.index("[") + 1
    yield from _values(text[: text.rindex("]")], path, start)


def _values(text: str, path: ReferenceFile, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield line and text of each JSON value of *text* from *start* on; commas may stand between them. Raises RefusedError: one is none."""
    place, last, line = start, 0, 1
    while (found := _BETWEEN_VALUES.match(text, place)) is not None and found.end() < len(text):
        line, last = line + text.count("\n", last, found.end()), found.end()
        try:
            _, place = json.JSONDecoder().raw_decode(text, last)
        except json.JSONDecodeError as error:
            raise _bad_record(f"this is no JSON object: {error.msg}", f"{path}:{error.lineno}") from None
        yield line, text[last:place]


# Parquet


def _read_parquet(path: ReferenceFile) -> _Read:
    import pyarrow.parquet as pq

    if isinstance(path, Path):
        check_regular(path, TABLE_BYTES_MAX)
    table = pq.read_table(path if isinstance(path, Path) else pa.BufferReader(_bytes_of(path)))
    texts, kinds = write_records(table, str(path))
    return _Read(texts, lambda row: f"{path}: record {row + 1}", kinds)


def write_records(table: pa.Table, where: str) -> tuple[pa.Array, dict[str, str]]:
    """Return each row as JSON, and the type of each column. Raises RefusedError (TG-REFERENCE-RECORD): values have no meaning here."""
    columns = [_from_arrow(table[name].combine_chunks(), f"{where}: column {name}") for name in table.column_names]
    texts = encode_objects(table.column_names, [column for _, column in columns], table.num_rows).cast(pa.string())
    return texts, {name: kind.asa_name if kind else ANY for name, (kind, _) in zip(table.column_names, columns, strict=True)}


_PLAIN: Sequence[tuple[Callable[[pa.DataType], bool], Kind]] = (
    (pa.types.is_boolean, Kind.BIT),
    (pa.types.is_integer, Kind.BIGINT),
    (pa.types.is_floating, Kind.FLOAT),
    (pa.types.is_decimal, Kind.FLOAT),
    (pa.types.is_string, Kind.NVARCHAR),
    (pa.types.is_large_string, Kind.NVARCHAR),
    (pa.types.is_struct, Kind.RECORD),
    (pa.types.is_map, Kind.RECORD),
    (pa.types.is_list, Kind.ARRAY),
    (pa.types.is_large_list, Kind.ARRAY),
    (pa.types.is_timestamp, Kind.DATETIME),
    (pa.types.is_date, Kind.DATETIME),
)


def _from_arrow(column: pa.Array, where: str) -> tuple[Kind | None, Variant]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = next((kind for is_type, kind in _PLAIN if is_type(column.type)), None)
    if is_binary(column.type):
        kind, column = Kind.NVARCHAR, pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if kind is None and not pa.types.is_null(column.type):
        raise _bad_record(f"values of type {column.type} have no meaning here", where)
    if kind in (Kind.RECORD, Kind.ARRAY):
        column = pa.array([None if value is None else _to_json(value, column.type) for value in column.to_pylist()], pa.string())
    elif kind is Kind.DATETIME:
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    elif kind is Kind.FLOAT:
        column = finite(column.cast(pa.float64()))
    return kind, Variant.of(len(column), {kind: column.cast(kind.arrow)} if kind else {})


def _to_json(value: Any, kind: pa.DataType) -> str:
    return json.dumps(_json_value(value, kind), ensure_ascii=False, separators=(",", ":"), default=str)


def _json_value(value: Any, kind: pa.DataType) -> Any:
    """Return *value* with NULL for every NaN and infinity, which JSON has not, a record for every map, text for bytes."""
    if value is None or (pa.types.is_floating(kind) and not math.isfinite(value)):
        return None
    if pa.types.is_struct(kind):
        return {field.name: _json_value(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return record_of(value, lambda item: _json_value(item, kind.item_type))
    if isinstance(value, bytes):
        return value.hex()
    return [_json_value(item, kind.value_type) for item in value] if isinstance(value, list) else value


# Declared types


def _check_types(schema: InputSchema, declared: Iterable[str], read: _Read) -> None:
    names = InputNames(Source("", f"references.{schema.name}.fields"), schema)
    exprs: list[Expr] = [names.field(tuple(name.split("."))) for name in declared]
    leaves = list(dict.fromkeys(leaf for expr in exprs for leaf in expr.leaves() if isinstance(leaf, Field)))
    # Without a declared type any field is read: a record that is not JSON is bad whichever field is asked for.
    extracted = reader_of(JSON).extract(read.texts.cast(pa.binary()), leaves or [Field(("any",))])
    columns: dict[Expr, Variant] = {leaf: extracted.columns[leaf] for leaf in leaves}
    _, failures = evaluate(exprs, columns, len(read.texts))
    failures_found = [(int(failure.rows.min()), failure.reason) for failure in failures if len(failure.rows)]
    failures_found += [(int(row), reason) for row, reason in zip(extracted.bad_rows, extracted.reasons, strict=True)]
    if failures_found:
        row, reason = min(failures_found)
        raise _bad_record(reason, read.place(row))
