"""
JSON objects -> columns of some of their members.

Law: the value of a field depends on the payload and the path alone. The member with the exact spelling counts, else the first whose name
matches ignoring case. A missing member and a JSON null are NULL. A number without point and exponent that fits 64 bits is a bigint, any
other a float (NULL if not finite); true and false are bit; objects and arrays are kept as compact JSON text, with null for NaN and
infinities. A payload that is missing, not UTF-8, not JSON (:mod:`tidegate.language.expressions.json_texts`) or not an object is bad and is
reported with a reason.

If it was compiled, :mod:`tidegate.language.json_columns.json_fields` reads all members in one walk. DuckDB parses the other payloads in one
call; only members spelled in another case are looked up in a second step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.protocol.keys import replace_non_numbers
from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText
from tidegate.language.expressions.duckdb_pool import quote, run
from tidegate.language.expressions.field_columns import NO_PAYLOAD, FieldColumns, decode_texts
from tidegate.language.expressions.json_texts import too_deep
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.language.expressions.variant import Variant, finite, gather
from tidegate.language.json_columns import json_fields
from tidegate.language.json_columns.json_fields import MemberPath

NOT_JSON = QueryReason.NOT_JSON.text()
NOT_OBJECT = QueryReason.NOT_OBJECT.text()

_KINDS = {
    json_fields.BIGINT: Kind.BIGINT,
    json_fields.FLOAT: Kind.FLOAT,
    json_fields.TRUE: Kind.BIT,
    json_fields.TEXT: Kind.NVARCHAR,
    json_fields.RECORD: Kind.RECORD,
    json_fields.ARRAY: Kind.ARRAY,
}
_INT64_DIGITS = 18  # every number of this many characters fits 64 bits
_INT64_CHARACTERS = 20  # no number of more characters does: 19 digits and a sign
_ROWS_ONE_BY_ONE_MAX = 64  # up to this many rows are checked one by one instead of by a regular expression
_LITERAL_KINDS = {ord('"'): Kind.NVARCHAR, ord("{"): Kind.RECORD, ord("["): Kind.ARRAY, ord("t"): Kind.BIT, ord("f"): Kind.BIT}
# Finds each NaN and infinity in compact JSON, and sometimes a part of a string that looks like one.
_NON_NUMBER = r"(?i)[:,\[]-?(?:nan|inf)"


def extract(payloads: pa.Array | pa.ChunkedArray, fields: Sequence[Field]) -> FieldColumns:
    """Extract *fields* from *payloads* (binary). Without a field nothing is parsed, and no payload is bad."""
    length = len(payloads)
    if not fields or not length:
        return FieldColumns({field: Variant.of(length, {}) for field in fields}, np.zeros(0, dtype=np.int64), [])
    walked = walk_members(payloads, tuple(MemberPath(field.path) for field in fields))
    if walked is None:
        return extract_parsed(payloads, fields)
    columns = dict(zip(fields, walked.columns, strict=True))
    reasons = dict.fromkeys(np.flatnonzero(walked.missing).tolist(), NO_PAYLOAD)
    if len(walked.other_rows):
        rest = extract_parsed(payloads.take(pa.array(walked.other_rows)), fields)
        columns = {field: walked.merge(column, rest.columns[field]) for field, column in columns.items()}
        reasons |= dict(zip(walked.other_rows[rest.bad_rows].tolist(), rest.reasons, strict=True))
    return FieldColumns.of(columns, reasons)


@dataclass(frozen=True, slots=True)
class WalkedMembers:
    """The members of the payloads that C has read. They are NULL in the other rows: *missing* payloads, and those in *other_rows*."""

    columns: list[Variant]
    missing: Mask
    other_rows: Ints

    def merge(self, column: Variant, others: Variant) -> Variant:
        """Return *column* with the values of the other rows."""
        read_rows = np.delete(np.arange(column.length), self.other_rows)
        return gather(column.length, [(read_rows, column.take_rows(read_rows)), (self.other_rows, others)])


def walk_members(payloads: pa.Array | pa.ChunkedArray, wanted: tuple[MemberPath, ...]) -> WalkedMembers | None:
    """Read members in one walk over each payload; None if the native part is not usable, or cannot read these members."""
    read = json_fields.read_members(payloads.combine_chunks() if isinstance(payloads, pa.ChunkedArray) else payloads, wanted)
    if read is None:
        return None
    columns = [Variant.of(len(payloads), {_KINDS[kind]: part for kind, part in parts.items()}) for parts in read.columns]
    return WalkedMembers(columns, read.status == json_fields.MISSING, read.other_rows)


def extract_parsed(payloads: pa.Array | pa.ChunkedArray, fields: Sequence[Field]) -> FieldColumns:
    """Extract *fields* with DuckDB's parser."""
    texts, reasons = decode_texts(payloads)
    deep = too_deep(texts)
    if deep.any():
        reasons |= dict.fromkeys(np.flatnonzero(deep).tolist(), NOT_JSON)
        texts = pc.if_else(pa.array(deep), None, texts)
    texts, values = _exact_members(texts, fields, reasons)
    columns = {}
    for field, members in zip(fields, values, strict=True):
        columns[field] = parse_values(_fill_other_spellings(texts, field, members))
    return FieldColumns.of(columns, reasons)


def _exact_members(texts: pa.Array, fields: Sequence[Field], reasons: dict[int, ReasonText]) -> tuple[pa.Array, list[pa.Array]]:
    """Return the usable payloads and the JSON text of each field's exactly spelled member; add bad payloads to *reasons*."""
    # Most payloads begin with a brace; the slower regular expression runs only if some do not.
    objects = pc.fill_null(pc.starts_with(texts, "{"), False)
    if not pc.all(objects).as_py():
        objects = pc.fill_null(pc.match_substring_regex(texts, r"^[ \t\r\n]*\{"), False)
    paths = ", ".join(quote(json_path(field.path)) for field in fields)
    sql = f"SELECT {', '.join(f'm[{index + 1}]' for index in range(len(fields)))} FROM (SELECT json_extract(v, [{paths}]) AS m FROM input)"
    import duckdb

    try:
        members = run(sql, input=pa.table({"v": texts}))
    except duckdb.Error:
        valid = run("SELECT json_valid(v) AS ok FROM input", input=pa.table({"v": texts}))["ok"].combine_chunks()
        valid = pc.fill_null(valid, False)
        reasons |= {row: NOT_JSON for row in _rows(pc.invert(valid)) if row not in reasons}
        texts = pc.if_else(valid, texts, None)
        members = run(sql, input=pa.table({"v": texts}))
    if not pc.all(objects).as_py():
        reasons |= {row: NOT_OBJECT for row in _rows(pc.invert(objects)) if row not in reasons}
        texts = pc.if_else(objects, texts, None)
    return texts, [column.combine_chunks() for column in members.columns]


def json_path(path: Sequence[str]) -> str:
    """Return the JSON path, as DuckDB reads it, of the member at a path of names."""
    return "$" + "".join('."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in path)


def _rows(mask: pa.Array) -> list[int]:
    rows: list[int] = np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
    return rows


def _fill_other_spellings(texts: pa.Array, field: Field, members: pa.Array) -> pa.Array:
    """Fill in members whose name differs from the field's only in case."""
    if members.null_count == 0:
        return members
    absent = np.flatnonzero(pc.and_(members.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False))
    if not len(absent):
        return members
    # A payload can only match if it contains the name in some case, or an escape (\\u0041) that hides it from this quick test.
    pattern = "(?i)" + re.escape(f'"{field.path[-1]}"') + r"|\\u"
    candidates = absent[pc.match_substring_regex(texts.take(pa.array(absent)), pattern).to_numpy(zero_copy_only=False)]
    if not len(candidates):
        return members
    chosen = texts.take(pa.array(candidates))
    where = np.zeros(len(texts), dtype=np.bool_)
    where[candidates] = True
    return pc.replace_with_mask(members, pa.array(where), _read_by_spelling(chosen, field).cast(members.type))


def _read_by_spelling(texts: pa.Array, field: Field) -> pa.Array:
    """Return the member of each payload, read by the spelling that the payload itself uses."""
    members = pa.nulls(len(texts), pa.string())
    groups: dict[tuple[str, ...], Ints] = {(): np.arange(len(texts))}
    for name in field.path:
        groups = _split_by_spelling(texts, groups, name)
    for spelling, rows in groups.items():
        sql = f"SELECT json_extract(v, {quote(json_path(spelling))}) AS m FROM input"
        values = run(sql, input=pa.table({"v": texts.take(pa.array(rows))}))["m"].combine_chunks()
        mask = np.zeros(len(texts), dtype=np.bool_)
        mask[rows] = True
        members = pc.replace_with_mask(members, pa.array(mask), values.cast(pa.string()))
    return members


def _split_by_spelling(texts: pa.Array, groups: dict[tuple[str, ...], Ints], name: str) -> dict[tuple[str, ...], Ints]:
    """Split rows, grouped by the path so far, by their spelling of the next *name*; rows without it are left out."""
    rows_by_path: dict[tuple[str, ...], list[Ints]] = {}
    for path, rows in groups.items():
        sql = f"SELECT CAST(to_json(json_keys(v, {quote(json_path(path))})) AS VARCHAR) AS k FROM input"
        keys = run(sql, input=pa.table({"v": texts.take(pa.array(rows))}))["k"].combine_chunks().dictionary_encode()
        numbers = pc.fill_null(keys.indices, -1).to_numpy(zero_copy_only=False)
        for number, members in enumerate(keys.dictionary.to_pylist()):
            names = json.loads(members) or []
            spelled = name if name in names else next((other for other in names if other.lower() == name.lower()), None)
            if spelled is not None:
                rows_by_path.setdefault((*path, spelled), []).append(rows[numbers == number])
    return {path: np.sort(np.concatenate(pieces)) for path, pieces in rows_by_path.items()}


def parse_values(members: pa.Array) -> Variant:
    """Turn the JSON texts of values into a column of values; null is NULL."""
    length = len(members)
    if not length:
        return Variant.of(0, {})
    first = _first_bytes(members)
    parts: dict[Kind, pa.Array] = {}
    numbers = (first == ord("-")) | ((first >= ord("0")) & (first <= ord("9")))
    # The parser accepts NaN and Infinity, which are not JSON; like every float that is not finite they become NULL.
    if numbers.any():
        parts |= _numbers(members, numbers)
    for kind, read in _READERS.items():
        mask = np.isin(first, [byte for byte, named in _LITERAL_KINDS.items() if named is kind])
        if mask.any():
            chosen = _keep_masked(members, mask)
            parts[kind] = read(chosen)
    return Variant.of(length, parts)


def _null_non_numbers(texts: pa.Array) -> pa.Array:
    """Return objects and arrays with null in place of NaN and infinities, as in the keys of ingest."""
    hits = pc.fill_null(pc.match_substring_regex(texts, _NON_NUMBER), False)
    if not pc.any(hits).as_py():
        return texts
    replaced = [replace_non_numbers(text) for text in texts.filter(hits).to_pylist()]
    return pc.replace_with_mask(texts, hits, pa.array(replaced, texts.type))


def _first_bytes(members: pa.Array) -> npt.NDArray[np.uint8]:
    offset_type = np.int64 if pa.types.is_large_string(members.type) else np.int32
    all_offsets = np.frombuffer(members.buffers()[1], dtype=offset_type).astype(np.int64, copy=False)
    offsets = all_offsets[members.offset : members.offset + len(members) + 1]
    data = members.buffers()[2]
    first = np.zeros(len(members), dtype=np.uint8)
    if data is None or data.size == 0:
        return first
    filled = offsets[1:] > offsets[:-1]
    filled &= members.is_valid().to_numpy(zero_copy_only=False)
    first[filled] = np.frombuffer(data, dtype=np.uint8)[offsets[:-1][filled]]
    return first


def _keep_masked(values: pa.Array, mask: Mask) -> pa.Array:
    return values if mask.all() else pc.if_else(pa.array(mask), values, None)


def _numbers(members: pa.Array, mask: Mask) -> dict[Kind, pa.Array]:
    chosen = _keep_masked(members, mask)
    pointed = pc.match_substring(chosen, ".")
    # A failing cast is slow, so it is tried only where it should succeed.
    if not pc.any(pointed).as_py() and (bigints := _as_bigints(chosen)) is not None:
        return {Kind.BIGINT: bigints}
    is_integer = mask & ~pc.fill_null(pointed, True).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(is_integer).tolist() if is_integer.sum() < _ROWS_ONE_BY_ONE_MAX else _rows_to_check(chosen, is_integer):
        text = chosen[row].as_py()
        # Python refuses to parse integers of thousands of digits, so the length is checked first.
        is_integer[row] = len(text) <= _INT64_CHARACTERS and text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63
    floats = _keep_masked(members, mask & ~is_integer)
    bigints = {Kind.BIGINT: _keep_masked(members, is_integer).cast(pa.int64())} if is_integer.any() else {}
    return {**bigints, Kind.FLOAT: finite(floats.cast(pa.float64()))}


def _rows_to_check(numbers: pa.Array, rows: Mask) -> list[int]:
    """Return which *rows* hold a number without a point that may still be no bigint: it has an exponent or many digits."""
    simple = pc.and_(pc.match_substring_regex(numbers, "^-?[0-9]+$"), pc.less_equal(pc.binary_length(numbers), _INT64_DIGITS))
    suspicious: list[int] = np.flatnonzero(rows & ~pc.fill_null(simple, True).to_numpy(zero_copy_only=False)).tolist()
    return suspicious


def _as_bigints(numbers: pa.Array) -> pa.Array | None:
    try:
        return numbers.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _unquote(quotations: pa.Array) -> pa.Array:
    escaped = pc.fill_null(pc.match_substring(quotations, "\\"), False)
    bare = pc.binary_slice(quotations.cast(pa.binary()), 1, -1).cast(pa.string())
    if not pc.any(escaped).as_py():
        return bare
    resolved = [json.loads(text) for text in quotations.filter(escaped).to_pylist()]
    return pc.replace_with_mask(bare, escaped, pa.array(resolved, pa.string()))


_READERS: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    Kind.NVARCHAR: _unquote,
    Kind.RECORD: _null_non_numbers,
    Kind.ARRAY: _null_non_numbers,
    Kind.BIT: lambda texts: pc.equal(texts, "true"),
}
