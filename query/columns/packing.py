"""
Packing: tables that are kept for long, in less memory.

Integers that lie close together are kept as their distances from the least of them, in as few bytes as these need; texts that
come again and again as numbers of a dictionary. Law: ``unpacked(packed(table))`` is *table*, its columns with the types that
they had, and both carry over whatever is filtered between them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_LEAST = b"least"
"""Metadata of a column of distances: what they are added to."""
_NARROW = (pa.uint8(), pa.uint16(), pa.uint32())
_AGAIN = 4
"""Texts are numbered where each comes so often, on average."""
_SAMPLE = 16
"""One row of so many tells whether the rest is worth a try."""
_NEARLY_ALL = 0.95


def packed(table: pa.Table) -> pa.Table:
    """Return the table with smaller columns."""
    columns = [_packed(table.field(at), column) for at, column in enumerate(table.columns)]
    return pa.table([column for _, column in columns], schema=pa.schema([field for field, _ in columns]))


def unpacked(table: pa.Table) -> pa.Table:
    """Return a table as it was before it was packed; any other as it is."""
    if not any(_is_packed(field) for field in table.schema):
        return table
    columns = [_unpacked(table.field(at), column) for at, column in enumerate(table.columns)]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return one column of a table that may be packed."""
    return _unpacked(table.field(name), table[name])


def _packed(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    if pa.types.is_int64(field.type):
        return _distances(field, column)
    if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
        return _numbered(field, column)
    return field, column


def _distances(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    ends = pc.min_max(column).as_py()
    if ends["min"] is None:
        return field, column
    width = ends["max"] - ends["min"]
    for narrow in _NARROW:
        if width < 1 << narrow.bit_width:
            least = pa.scalar(ends["min"], pa.int64())
            kept = pc.subtract(column, least).cast(narrow)
            return pa.field(field.name, narrow, metadata={_LEAST: str(ends["min"]).encode()}), kept
    return field, column


def _numbered(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    some = column.slice(0, len(column) // _SAMPLE)
    # Were each text there often enough, some of the sample's would be there twice.
    if len(some) and pc.count_distinct(some).as_py() > _NEARLY_ALL * len(some):
        return field, column
    found = column.combine_chunks().dictionary_encode()
    count = len(found.dictionary)
    if _AGAIN * count > len(found):
        return field, column
    narrow = pa.int8() if count <= 1 << 7 else pa.int16() if count <= 1 << 15 else pa.int32()
    kept = pa.DictionaryArray.from_arrays(found.indices.cast(narrow), found.dictionary)
    return pa.field(field.name, kept.type), pa.chunked_array([kept])


def _is_packed(field: pa.Field) -> bool:
    return pa.types.is_dictionary(field.type) or _LEAST in (field.metadata or {})


def _unpacked(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(field.type):
        return column.cast(field.type.value_type)
    if _LEAST in (field.metadata or {}):
        return pc.add(column.cast(pa.int64()), pa.scalar(int(field.metadata[_LEAST]), pa.int64()))
    return column
