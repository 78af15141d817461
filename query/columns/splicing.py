"""
Splicing: results in which the members of a record replace a column named ``*``.

Law: a result has the members of its columns, and of its stars' records, in the order of SELECT. Each name occurs once, ignoring case: a
column overrides the stars, an earlier star overrides a later one, and the overridden member is left out. A star without record adds
nothing. (If one payload has a name twice, the result has it twice.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant, valid_mask

# The name of a column that holds a record, whose members replace it in results.
STAR = "*"

Segments = list[pa.Array]
Write = Callable[[Sequence[str], Sequence[Variant], int], pa.Array]


def splice_objects(
    names: Sequence[str], columns: Sequence[Variant], length: int, write: Write, quote: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Encode rows with ``*`` among their columns as JSON objects (binary); *write* encodes them without stars, *quote* JSON strings."""
    stars = _resolve_names([columns[index] for index, name in enumerate(names) if name == STAR], [n for n in names if n != STAR], quote)
    segments: Segments = []
    start = 0
    for index in [*(index for index, name in enumerate(names) if name == STAR), len(names)]:
        if index > start:
            segments.append(_members_of(write(names[start:index], columns[start:index], length).cast(pa.string())))
        if index < len(names):
            segments.append(stars.pop(0))
        start = index + 1
    inside = pc.binary_join_element_wise(*segments, pa.scalar(","), null_handling="skip")
    return pc.binary_join_element_wise(pa.scalar("{"), inside, pa.scalar("}"), pa.scalar("")).cast(pa.binary())


def _members_of(objects: pa.Array) -> pa.Array:
    """Return the text between the braces of each object, null if it is empty."""
    inside = pc.binary_slice(objects.cast(pa.binary()), 1, -1).cast(pa.string())
    return pc.if_else(pc.equal(inside, ""), None, inside)


def _resolve_names(stars: Sequence[Variant], names: Sequence[str], quote: Callable[[pa.Array], pa.Array]) -> Segments:
    """Return the members that each star adds, as text, without the overridden ones."""
    texts = [star.of_kind(Kind.RECORD) for star in stars]
    conflicting_rows = [_may_conflict(text, names, alone=len(stars) == 1) for text in texts]
    if not any(rows.any() for rows in conflicting_rows):
        return [_members_of(text) for text in texts]
    members = [_Members(text, rows, quote) for text, rows in zip(texts, conflicting_rows, strict=True)]
    column_names = pc.utf8_lower(pa.array(names, pa.string()))
    segments: Segments = []
    for index, (text, of_star) in enumerate(zip(texts, members, strict=True)):
        is_overridden = pc.is_in(of_star.folded, value_set=column_names).to_numpy(zero_copy_only=False)
        for earlier in members[:index]:
            is_overridden |= of_star.is_named_in(earlier)
        segments.append(of_star.replace_in(_members_of(text), is_overridden))
    return segments


def _may_conflict(texts: pa.Array, names: Sequence[str], *, alone: bool) -> Mask:
    """Return the rows in which a member may be overridden."""
    if not alone or any(map(_hides_from_pattern, names)):
        return valid_mask(texts)
    # A search is cheaper than parsing. An escape could hide a name from it, so rows with an escape are included.
    pattern = "(?i)" + "|".join([*(re.escape(f'"{name}"') for name in names), r"\\"])
    has_match: Mask = pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False)
    return has_match


def _hides_from_pattern(name: str) -> bool:
    return not name.isascii() or not name.isprintable() or '"' in name or "\\" in name


class _Members:
    """The members of the records in some rows, concatenated."""

    def __init__(self, texts: pa.Array, is_member_row: Mask, quote: Callable[[pa.Array], pa.Array]) -> None:
        self._rows = np.flatnonzero(is_member_row).astype(np.int64)
        table = pa.table({"v": texts.take(pa.array(self._rows))})
        json_parts = run("SELECT json_keys(v) AS k, json_extract(v, '$.*') AS m FROM input", input=table)
        names, values = (json_parts[name].combine_chunks() for name in ("k", "m"))
        counts = pc.fill_null(pc.list_value_length(names), 0).to_numpy(zero_copy_only=False)
        self._owner = np.repeat(np.arange(len(self._rows), dtype=np.int64), counts)
        keys = names.flatten().cast(pa.string()).dictionary_encode()
        self.folded = pc.utf8_lower(keys.dictionary).take(keys.indices)
        written = pc.binary_join_element_wise(quote(keys.dictionary), pa.scalar(":"), pa.scalar("")).take(keys.indices)
        self._written = pc.binary_join_element_wise(written, values.flatten().cast(pa.string()), pa.scalar(""))

    def is_named_in(self, other: _Members) -> Mask:
        """Return for each member whether *other* has one of that name in the same row."""
        names = pa.concat_arrays([self.folded, other.folded]).dictionary_encode()
        codes = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        rows = np.concatenate([self._rows[self._owner], other._rows[other._owner]])
        pairs = rows * max(len(names.dictionary), 1) + codes
        return np.isin(pairs[: len(self.folded)], pairs[len(self.folded) :])

    def replace_in(self, inside: pa.Array, is_overridden: Mask) -> pa.Array:
        """Return *inside* without the overridden members in these rows."""
        kept = self._written.filter(pa.array(~is_overridden))
        counts = np.bincount(self._owner[~is_overridden], minlength=len(self._rows))
        lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()), kept)
        joined = pc.binary_join(lists, ",")
        where = np.zeros(len(inside), dtype=np.bool_)
        where[self._rows] = True
        return pc.replace_with_mask(inside, pa.array(where), pc.if_else(pc.equal(joined, ""), None, joined))
