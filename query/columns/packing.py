"""
Packing: tables that are kept for long, in less memory.

If the integers of a column lie close together, they become distances from the least of them, in as few bytes as these need; repeated texts
become numbers of a dictionary. Law: ``unpack_table(pack_table(table))`` is *table* with the same types, also if rows are filtered in
between.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# The metadata of a column of distances: the integer that they are added to.
_BASE = b"base"
_NARROW = (pa.uint8(), pa.uint16(), pa.uint32())
# Texts become numbers if each occurs this often, on average.
_REPETITIONS_MIN = 4
# The first 1/16 of the rows is a sample: if more than this share of its texts are distinct, packing does not pay.
_SAMPLE = 16
_DISTINCT_SHARE_MAX = 0.95


def pack_table(table: pa.Table) -> pa.Table:
    """Return the table with smaller columns."""
    columns = [_pack_column(field, column) for field, column in zip(table.schema, table.columns, strict=True)]
    return pa.table([column for _, column in columns], schema=pa.schema([field for field, _ in columns]))


def unpack_table(table: pa.Table) -> pa.Table:
    """Return a table as it was before it was packed, and any other table unchanged."""
    if not any(_is_packed(field) for field in table.schema):
        return table
    columns = [_unpack_column(field, column) for field, column in zip(table.schema, table.columns, strict=True)]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def read_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return one column of a table that may be packed."""
    return _unpack_column(table.field(name), table[name])


def _pack_column(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    if pa.types.is_int64(field.type):
        return _pack_integers(field, column)
    if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
        return _pack_texts(field, column)
    return field, column


def _pack_integers(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return field, column
    width = bounds["max"] - bounds["min"]
    for narrow in _NARROW:
        if width < 1 << narrow.bit_width:
            base = pa.scalar(bounds["min"], pa.int64())
            distances = pc.subtract(column, base).cast(narrow)
            return pa.field(field.name, narrow, metadata={_BASE: str(bounds["min"]).encode()}), distances
    return field, column


def _pack_texts(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    sample = column.slice(0, len(column) // _SAMPLE)
    # If each text occurred often enough, some would be twice in the sample.
    if len(sample) and pc.count_distinct(sample).as_py() > _DISTINCT_SHARE_MAX * len(sample):
        return field, column
    encoded = column.combine_chunks().dictionary_encode()
    count = len(encoded.dictionary)
    if _REPETITIONS_MIN * count > len(encoded):
        return field, column
    narrow = pa.int8() if count <= 1 << 7 else pa.int16() if count <= 1 << 15 else pa.int32()
    numbers = pa.DictionaryArray.from_arrays(encoded.indices.cast(narrow), encoded.dictionary)
    return pa.field(field.name, numbers.type), pa.chunked_array([numbers])


def _is_packed(field: pa.Field) -> bool:
    return pa.types.is_dictionary(field.type) or _BASE in (field.metadata or {})


def _unpack_column(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(field.type):
        return column.cast(field.type.value_type)
    if _BASE in (field.metadata or {}):
        return pc.add(column.cast(pa.int64()), pa.scalar(int(field.metadata[_BASE]), pa.int64()))
    return column
