"""
Sizes of values: no text that an expression computes has more than ``VALUE_BYTES_MAX`` bytes, however many functions make it longer.

A row that needs a longer text fails. Before a column is computed, the sizes of its leaves bound the texts of each row. If the bound is
small enough, the row is computed as it is. For other rows each function that can lengthen a text is computed by itself, innermost first,
once the sizes of its arguments are known.

Law: whether a row fails depends on the row alone, not on the rows beside it or the memory of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tidegate.language.expressions.functions import catalog, operators
from tidegate.language.expressions.functions.texts import REPEATED_CHARACTERS_MAX
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Cast, Expr, Leaf, Literal, OnlyKind, Required
from tidegate.language.expressions.variant import Variant

# Longest text that an expression may compute, in bytes of UTF-8. Texts of an event may be longer.
VALUE_BYTES_MAX = 2**22
# Most bytes that one expression returns for rows that are computed together, and a row with all elements of its array.
RETURNED_BYTES_MAX = 2**29

# The functions that can lengthen a text. Any other function returns at most the bytes of its longest argument, or a few bytes; upper case
# may take half as many more.
GROWING = frozenset({"+", "concat", "concat_ws", "replace", "stuff", "translate", "replicate", "space"})
_TEXT_KINDS = (Kind.NVARCHAR, Kind.RECORD, Kind.ARRAY)
# Numbers, dates and names have at most this many bytes as text.
_SHORT_BYTES = 64
_CHARACTER_BYTES_MAX = 4

# Bytes: one number for a row, or an array with the number of each row.
Sizes = float | npt.NDArray[np.float64]


@lru_cache(maxsize=4096)
def can_grow(expr: Expr, signature: tuple[Kind, ...]) -> bool:
    """Return whether values of *expr* can be longer than its leaves, which are of these kinds."""
    growing = {node.name for node in expr.walk() if isinstance(node, Call) and is_growing_call(node)}
    # "+" of numbers, or of texts that the script itself contains, gives short values.
    return bool(growing - {"+"}) or (bool(growing) and any(kind in _TEXT_KINDS for kind in signature))


def is_growing_call(expr: Expr) -> bool:
    """Return whether the outermost operation of *expr* can lengthen a text."""
    return isinstance(expr, Call) and expr.name in GROWING


class SizeBounds(NamedTuple):
    """Bounds for the bytes of an expression's value, of the longest text on the way to it, and of all these texts together."""

    value: Sizes
    longest: Sizes
    together: Sizes


def bound_sizes(expr: Expr, leaves: Mapping[Expr, Sizes], count_of: Callable[[Expr], Sizes]) -> SizeBounds:
    """Return the bounds. *leaves* has the bytes of each leaf; *count_of* returns how often REPLICATE and SPACE repeat a text."""
    if isinstance(expr, Literal):
        return SizeBounds(_literal_bytes(expr), 0.0, 0.0)
    if expr in leaves or isinstance(expr, Leaf) or not expr.parts:
        return SizeBounds(leaves.get(expr, float(_SHORT_BYTES)), 0.0, 0.0)
    parts = [bound_sizes(part, leaves, count_of) for part in expr.parts]
    sizes = [part.value for part in parts]
    largest = _largest([part.longest for part in parts])
    together: Sizes = sum((part.together for part in parts), 0.0)
    if not isinstance(expr, Call) or expr.name not in GROWING:
        size = float(_SHORT_BYTES) if _is_short(expr) else _largest([float(_SHORT_BYTES), *sizes])
        return SizeBounds(size, largest, together)
    size = _bound_growth(expr, sizes, count_of)
    return SizeBounds(size, np.maximum(largest, size), together + size)


def _is_short(expr: Expr) -> bool:
    """Return whether values of *expr* are never texts."""
    kind = expr.kind if isinstance(expr, (Cast, OnlyKind)) else None
    if isinstance(expr, Required):
        kind = operators.REQUIREMENTS[expr.requirement].result_kind
    if isinstance(expr, Call) and (function := catalog.FUNCTIONS.get(expr.name)):
        kind = function.result_kind
    return kind is not None and kind not in _TEXT_KINDS


def _bound_growth(call: Call, sizes: Sequence[Sizes], count_of: Callable[[Expr], Sizes]) -> Sizes:
    if call.name == "replace":
        text, _, by = sizes
        least = max(_literal_bytes(call.args[1]), 1.0) if isinstance(call.args[1], Literal) else 1.0
        return np.maximum(text, text * by / least)
    if call.name == "stuff":
        return sizes[0] + sizes[3]
    if call.name == "translate":
        return sizes[0] * _CHARACTER_BYTES_MAX
    if call.name == "space":
        return np.minimum(count_of(call.args[0]), REPEATED_CHARACTERS_MAX)
    if call.name == "replicate":
        return np.minimum(sizes[0] * count_of(call.args[1]), REPEATED_CHARACTERS_MAX * _CHARACTER_BYTES_MAX)
    # The sizes already include one separator.
    more_separators = sizes[0] * (len(sizes) - 3) if call.name == "concat_ws" else 0.0
    return sum(sizes, more_separators)


def _largest(sizes: Sequence[Sizes]) -> Sizes:
    largest: Sizes = 0.0
    for size in sizes:
        largest = np.maximum(largest, size)
    return largest


def _literal_bytes(literal: Literal) -> float:
    return float(len(str(literal.value).encode())) if literal.kind is Kind.NVARCHAR else float(_SHORT_BYTES)


def largest_size(column: Variant) -> float:
    """Return the largest of :func:`text_sizes`."""
    texts = [pc.max(pc.binary_length(part)).as_py() or 0 for kind, part in column.parts.items() if kind in _TEXT_KINDS]
    return float(max(texts, default=0 if not column.parts else _SHORT_BYTES))


def text_sizes(column: Variant) -> npt.NDArray[np.float64]:
    """Return for each row the bytes of its value as text, or a bound if it is no text."""
    sizes = np.zeros(column.length)
    for kind, part in column.parts.items():
        if kind in _TEXT_KINDS:
            sizes += pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False)
        else:
            sizes += _SHORT_BYTES
    return sizes


def counts(column: Variant) -> npt.NDArray[np.float64]:
    """Return how often REPLICATE repeats a text in each row, given its second argument; beyond the limit its value is NULL, so 0."""
    count = pc.fill_null(column.of_kind(Kind.BIGINT), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    is_repeated = (count >= 0) & (count <= REPEATED_CHARACTERS_MAX)
    return np.where(is_repeated, count, 0.0) + (Kind.BIT in column.parts)


def sizes_of_call(call: Call, args: Sequence[Variant]) -> npt.NDArray[np.float64]:
    """Return for each row the bytes of a growing call's value, given its arguments: exactly, or nearly."""
    sizes = [text_sizes(arg) for arg in args]
    if call.name == "replace":
        return sizes[0] + _growth_by_replacing(args, sizes)
    if call.name == "translate":
        is_wide = sizes[2] > pc.fill_null(pc.utf8_length(args[2].of_kind(Kind.NVARCHAR)), 0).to_numpy(zero_copy_only=False)
        return sizes[0] * np.where(is_wide, _CHARACTER_BYTES_MAX, 1)
    repeats = {"replicate": 1, "space": 0}.get(call.name)
    count_of = counts(args[repeats]) if repeats is not None else 0.0
    return np.broadcast_to(_bound_growth(call, sizes, lambda _: count_of), len(sizes[0])).astype(np.float64)


def _growth_by_replacing(args: Sequence[Variant], sizes: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return for each row how many bytes REPLACE adds; for an argument that is no text an upper bound, as if it were found everywhere."""
    rows = zip(_texts(args[0]), _texts(args[1]), *(size.tolist() for size in sizes), strict=True)
    return np.array(
        [
            size * size_by if text is None or sought is None else text.count(sought) * (size_by - size_sought) if sought else 0
            for text, sought, size, size_sought, size_by in rows
        ],
        dtype=np.float64,
    )


def _texts(column: Variant) -> list[str | None]:
    """Return the values that are texts, None for any other."""
    parts = [column.parts[kind] for kind in _TEXT_KINDS if kind in column.parts]
    texts: list[str | None] = pc.coalesce(*parts).to_pylist() if parts else [None] * column.length
    return texts
