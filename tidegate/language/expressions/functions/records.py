"""
Records and arrays: their members and elements.

A record is the text of a JSON object, an array that of a JSON array. Law: a member of a record is read like a field of a payload
(:mod:`tidegate.language.expressions.json_members`): by its exact name, else ignoring case, with the kind of its own text. A missing member
or element, and a member of a value that is no record, is NULL. Elements are counted from 0.

>>> from tidegate.testing import run_query
>>> script = "SELECT GetArrayElement(r.list, 1) AS second, GetArrayLength(r.list) AS n INTO out FROM a"
>>> run_query(script, {"a": [{"r": {"list": [5, 7]}}]}).rows
[{'second': 7, 'n': 2}]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.functions.column_functions import REGISTERED, ColumnFunction, FailedRows, RowNumbers
from tidegate.language.expressions.functions.conversions import TypedSql, convert
from tidegate.language.expressions.functions.definition import Function, kind_rule
from tidegate.language.expressions.json_members import extract, parse_values
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.language.expressions.variant import Variant, gather, valid_mask


def member(column: Variant, path: tuple[str, ...]) -> Variant:
    """Return the member with this path of each record; NULL if there is none, or the value is no record."""
    records = column.of_kind(Kind.RECORD)
    rows = np.flatnonzero(valid_mask(records)).astype(np.int64)
    if not len(rows) or not all(map(_is_readable_name, path)):
        return Variant.of(column.length, {})
    chosen = records if len(rows) == column.length else records.take(pa.array(rows))
    field = Field(path)
    return gather(column.length, [(rows, extract(chosen.cast(pa.binary()), [field]).columns[field])])


def _is_readable_name(name: str) -> bool:
    # DuckDB's JSON paths cannot express these names.
    return name not in ("", "*") and "\0" not in name


class ArrayElements(NamedTuple):
    """Elements of arrays, in order, as three columns; *places* are those in the array."""

    rows: RowNumbers
    places: RowNumbers
    values: Variant


class Members(NamedTuple):
    """Members of records, in order, as three columns."""

    rows: RowNumbers
    names: Variant
    values: Variant


def elements(column: Variant) -> ArrayElements:
    """Return all elements of the arrays in *column*."""
    return _flatten(run("SELECT json_extract(v, '$[*]') AS m FROM input", input=pa.table({"v": column.of_kind(Kind.ARRAY)}))["m"])


def properties(column: Variant) -> Members:
    """Return all members of the records in *column*."""
    texts = pa.table({"v": column.of_kind(Kind.RECORD)})
    lists = run("SELECT json_keys(v) AS k, json_extract(v, '$.*') AS m FROM input", input=texts)
    rows, _, values = _flatten(lists["m"])
    names = lists["k"].combine_chunks().flatten().cast(pa.string())
    return Members(rows, Variant.of(len(rows), {Kind.NVARCHAR: names}), values)


def _flatten(lists: pa.ChunkedArray) -> ArrayElements:
    column = lists.combine_chunks()
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.repeat(np.arange(len(column), dtype=np.int64), counts)
    index = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    texts = column.flatten()
    return ArrayElements(rows, index, parse_values(texts.cast(pa.string())) if len(texts) else Variant.of(0, {}))


def _element(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
    array, index = args
    table = pa.table({"v": array.of_kind(Kind.ARRAY), "i": index.of_kind(Kind.BIGINT)})
    texts = run("SELECT json_extract(v, CASE WHEN i >= 0 THEN i END) AS m FROM input", input=table)["m"]
    return parse_values(texts.combine_chunks().cast(pa.string())), []


def _property_value(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
    """Read members whose names differ from row to row: one call for each distinct name."""
    record, name = args
    names = name.of_kind(Kind.NVARCHAR).dictionary_encode()
    numbers = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    bounds = np.searchsorted(numbers[order], np.arange(len(names.dictionary) + 1))
    pieces = []
    for number, text in enumerate(names.dictionary.to_pylist()):
        rows = order[bounds[number] : bounds[number + 1]]
        pieces.append((rows, member(record.take_rows(rows), (text,))))
    return gather(length, pieces) if pieces else Variant.of(length, {}), []


REGISTERED["getarrayelement"] = ColumnFunction(2, 2, _element, argument_kinds=(Kind.ARRAY, Kind.BIGINT))
REGISTERED["getrecordpropertyvalue"] = ColumnFunction(2, 2, _property_value, argument_kinds=(Kind.RECORD, Kind.NVARCHAR))


def _parse_record(args: Sequence[TypedSql]) -> TypedSql:
    text = args[0] if args[0].kind is Kind.NVARCHAR else TypedSql("NULL", Kind.NULL)
    return TypedSql(convert(text, Kind.RECORD, lenient=True), Kind.RECORD)


# The functions of records and arrays whose results have one kind, by name in lower case.
RECORD_FUNCTIONS: dict[str, Function] = {
    "getarraylength": Function(
        1, 1, kind_rule(Kind.ARRAY, "CAST(json_array_length(CAST({} AS VARCHAR)) AS BIGINT)", Kind.BIGINT), Kind.BIGINT
    ),
    "json_parse": Function(1, 1, _parse_record, Kind.RECORD),
    "getrecordproperties": Function(1, 1, kind_rule(Kind.RECORD, "record_properties(CAST({} AS VARCHAR))", Kind.ARRAY), Kind.ARRAY),
}
