"""
Fields of JSON payloads, a whole column in one walk over each payload, by ``json_fields.c``.

Law: C reads the same values of a payload as DuckDB's parser does. Where that is not certain it reads nothing and reports the row as OTHER.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints
from tidegate.basics import native_parts

# The status of a payload is OTHER (C has not read it), MISSING (null), or READ. READ may have further bits: NESTED (an object or array is
# inside), REPEATED (a wanted member occurs twice, both under its exact name or both in other letters), UNASKED (an object with wanted
# members has another member).
OTHER, READ, MISSING, NESTED, REPEATED, UNASKED = 0, 1, 2, 4, 8, 16
# Kinds of values; 0 is a missing or null value.
BIGINT, FLOAT, FALSE, TRUE, NUMERAL, TEXT, RECORD, ARRAY = range(1, 9)
_KINDS, _KIND_BITS = 16, 15
_BYTES_MAX = 2**31 - 1
_LENGTH_BITS = 64
_TAIL_BYTES, _SMALL_LETTERS = 8, 0x2020202020202020
# The walk follows a path by calling itself.
_PATH_NAMES_MAX = 32
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class MemberPath:
    """
    A member by its path. Unless *is_exact*, a member whose names differ in case only is taken if none has exactly these names. If
    *is_raw*, its value is its JSON text, byte for byte, as a ``TEXT`` of whatever kind it is.
    """

    path: tuple[str, ...]
    is_exact: bool = False
    is_raw: bool = False


class _Node(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("tail", ctypes.c_uint64),
        ("lengths", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("length", "is_exact", "is_foreign", "has_twin", "is_raw")),
        *((name, ctypes.c_int32) for name in ("first", "last", "slot", "first_slot", "last_slot")),
    )


class _Column(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("bytes", "ends", "valid")),
        *((name, ctypes.c_int64) for name in ("first", "rows")),
        ("wide", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class FieldTree:
    """Wanted members as C takes them: paths with the same beginning share its nodes. ``slots`` has the slot of each member's value."""

    nodes: ctypes.Array[_Node]
    slots: tuple[int, ...]
    slot_count: int


@dataclass(frozen=True, slots=True)
class JsonFields:
    """
    The fields of a column of payloads. *status* has the status of each payload, see ``READ``; *other_rows* are those that are OTHER.
    *columns* has, for each field and each kind that occurs, an array of all rows; true and false are both under ``TRUE``. No float is a
    negative zero.
    """

    status: Bytes
    other_rows: Ints
    columns: list[dict[int, pa.Array]]


@cache
def library() -> ctypes.CDLL | None:
    """Return ``json_fields.c``, or None if it is not compiled or cannot be loaded."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    pointers = ctypes.POINTER(pointer)
    signatures: native_parts.Signatures = {
        "tg_json_fields": (number, [ctypes.POINTER(_Column), ctypes.POINTER(_Node), pointers, pointers, pointer, pointer, pointer]),
        "tg_json_elements": (number, [ctypes.POINTER(_Column), pointer, pointer]),
        "tg_json_kinds": (number, [pointer, pointer, number, pointer]),
        "tg_json_texts": (None, [pointer, pointer, pointer, number, pointer, pointer]),
    }
    return native_parts.open_part(Path(__file__).parent, "_json_fields", signatures)


@lru_cache(maxsize=256)
def field_tree(wanted: tuple[MemberPath, ...]) -> FieldTree | None:
    """Return members as :func:`read_members` takes them; None if it cannot read one of them."""
    if not all(_is_readable(name) for one in wanted for name in one.path) or any(len(one.path) > _PATH_NAMES_MAX for one in wanted):
        return None
    root = _Branch()
    for one in wanted:
        branch = root
        for key in _keys(one):
            branch = branch.inside.setdefault(key, _Branch())
        branch.wanted = True
    slot_count = root.number_slots(0)
    # Breadth first, so that the inner nodes of a node lie together.
    order: list[tuple[_Branch, _NodeKey, bool]] = [(root, ("", True, False), False)]
    nodes = []
    for branch, (name, is_exact, is_raw), has_twin in order:
        first = len(order)
        folded = [key[0].lower() for key in branch.inside]
        order += [(inner, key, folded.count(key[0].lower()) > 1) for key, inner in branch.inside.items()]
        encoded = name.encode()
        tail = int.from_bytes(encoded[-_TAIL_BYTES:].ljust(_TAIL_BYTES, b"\0"), sys.byteorder) | _SMALL_LETTERS
        slots = branch.slot if branch.wanted else -1, branch.slot, branch.slots_end
        lengths = sum({1 << len(inner.encode()) % _LENGTH_BITS for inner, *_ in branch.inside})
        traits = is_exact, not name.isascii(), has_twin, is_raw
        nodes.append(_Node(encoded, tail, lengths, len(encoded), *traits, first, len(order), *slots))
    return FieldTree((_Node * len(nodes))(*nodes), tuple(root.slot_at(one) for one in wanted), slot_count)


# A node among those inside one object: its name, and whether it is exact and raw.
_NodeKey = tuple[str, bool, bool]


def _keys(wanted: MemberPath) -> list[_NodeKey]:
    """Return the nodes from the payload to a member; only the last is raw."""
    ends = [False] * (len(wanted.path) - 1) + [wanted.is_raw]
    return [(name, wanted.is_exact, is_raw) for name, is_raw in zip(wanted.path, ends, strict=False)]


class _Branch:
    def __init__(self) -> None:
        self.inside: dict[_NodeKey, _Branch] = {}
        self.wanted, self.slot, self.slots_end = False, 0, 0

    def number_slots(self, first: int) -> int:
        """Number the slots from *first* on, so that the slots inside a branch lie together; return the next number."""
        self.slot, self.slots_end = first, first + self.wanted
        for branch in self.inside.values():
            self.slots_end = branch.number_slots(self.slots_end)
        return self.slots_end

    def slot_at(self, wanted: MemberPath) -> int:
        branch = self
        for key in _keys(wanted):
            branch = branch.inside[key]
        return branch.slot


def _is_readable(name: str) -> bool:
    # DuckDB's JSON paths cannot express an empty name or a star; a name that is ASCII only in small letters may be that of any member.
    odd = '"\\*'
    return name.isprintable() and name != "" and not any(sign in name for sign in odd) and (name.isascii() or not name.lower().isascii())


def read_members(payloads: pa.Array, wanted: tuple[MemberPath, ...]) -> JsonFields | None:
    """Read members of a binary or large_binary column; return None if C is not to be used, or cannot read these members."""
    part = library() if native_parts.is_enabled() else None
    tree = field_tree(wanted) if part is not None else None
    return None if part is None or tree is None else _read(part, payloads, tree)


def read_elements(payloads: pa.Array) -> tuple[Ints, Ints] | None:
    """
    Return how many elements each payload of a binary or large_binary column has, -1 if it is no array in strict JSON, and the bytes of each
    element as (start, end) from the start of the first payload; None if C is not to be used.
    """
    part = library() if native_parts.is_enabled() else None
    column = None if part is None else _column_for_c(payloads)
    if part is None or column is None:
        return None
    counts = np.empty(len(payloads), dtype=np.int64)
    spans = np.empty((part.tg_json_elements(column, counts.ctypes.data, None), 2), dtype=np.int64)
    part.tg_json_elements(column, counts.ctypes.data, spans.ctypes.data)
    return counts, spans


def _column_for_c(payloads: pa.Array) -> _Column | None:
    """Return a column as C takes it; None if it is empty or too long."""
    rows, wide = len(payloads), pa.types.is_large_binary(payloads.type)
    valid, ends, encoded = payloads.buffers()
    if not rows or encoded is None:
        return None
    edges = np.frombuffer(ends, dtype=np.int64 if wide else np.int32)[[payloads.offset, payloads.offset + rows]]
    if edges[1] - edges[0] > _BYTES_MAX:
        return None
    column = _Column(encoded.address, ends.address, valid.address if valid is not None and payloads.null_count else None)
    column.first, column.rows, column.wide = payloads.offset, rows, wide
    return column


def _read(part: ctypes.CDLL, payloads: pa.Array, tree: FieldTree) -> JsonFields | None:
    column = _column_for_c(payloads)
    if column is None:
        return None
    rows, (_, ends, encoded) = len(payloads), payloads.buffers()
    first = int(np.frombuffer(ends, dtype=np.int64 if column.wide else np.int32)[payloads.offset])
    kinds = [np.zeros(rows, dtype=np.uint8) for _ in range(tree.slot_count)]
    values = [np.zeros(rows, dtype=np.int64) for _ in range(tree.slot_count)]
    # Room in which C keeps an entry for each node.
    found, following = np.zeros(len(tree.nodes), dtype=np.uint8), np.array([node.first for node in tree.nodes], dtype=np.int32)
    status = np.empty(rows, dtype=np.uint8)
    others = part.tg_json_fields(
        column, tree.nodes, _addresses(kinds), _addresses(values), found.ctypes.data, following.ctypes.data, status.ctypes.data
    )
    start = encoded.address + first
    columns = [_column(part, start, *slot) for slot in zip(kinds, values, strict=True)]
    other_rows = np.flatnonzero(status == OTHER) if others else np.empty(0, dtype=np.int64)
    return JsonFields(status, other_rows, [columns[slot] for slot in tree.slots])


def _column(part: ctypes.CDLL, start: int, kinds: Bytes, values: Ints) -> dict[int, pa.Array]:
    rows, counts = len(kinds), np.zeros(_KINDS, dtype=np.int64)
    size = part.tg_json_kinds(kinds.ctypes.data, values.ctypes.data, rows, counts.ctypes.data)
    parts: dict[int, pa.Array] = {}
    if counts[NUMERAL:].any():
        texts, ends = np.empty(max(size, 1), dtype=np.uint8), np.empty(rows + 1, dtype=np.int32)
        part.tg_json_texts(start, kinds.ctypes.data, values.ctypes.data, rows, texts.ctypes.data, ends.ctypes.data)
        kinds &= _KIND_BITS
        buffers = pa.py_buffer(ends), pa.py_buffer(texts[: int(ends[-1])])
        parts = {
            kind: pa.Array.from_buffers(pa.string(), rows, [_valid_bits(kinds, kind, counts), *buffers])
            for kind in (NUMERAL, TEXT, RECORD, ARRAY)
            if counts[kind]
        }
        if NUMERAL in parts:
            _read_numerals(parts.pop(NUMERAL), kinds, values)
            counts[FLOAT] += counts[NUMERAL]
    for kind, arrow in ((BIGINT, pa.int64()), (FLOAT, pa.float64())):
        if counts[kind]:
            parts[kind] = pa.Array.from_buffers(arrow, rows, [_valid_bits(kinds, kind, counts), pa.py_buffer(values)])
    if counts[FALSE] + counts[TRUE]:
        parts[TRUE] = pa.array(kinds == TRUE, mask=(kinds != FALSE) & (kinds != TRUE))
    return parts


def _read_numerals(texts: pa.Array, kinds: Bytes, values: Ints) -> None:
    """Turn the numbers that C has left as *texts* into floats."""
    rows = np.flatnonzero(kinds == NUMERAL)
    floats = texts.drop_null().cast(pa.float64()).to_numpy() + 0.0
    kinds[rows], values[rows] = FLOAT, floats.view(np.int64)


def _valid_bits(kinds: Bytes, kind: int, counts: Ints) -> pa.Buffer | None:
    return None if counts[kind] == len(kinds) else pa.py_buffer(np.packbits(kinds == kind, bitorder="little"))


def _addresses(arrays: Sequence[NDArray[Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
