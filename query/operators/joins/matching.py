"""
Matching: which rows of two sides have equal keys and lie near each other in time.

Keys are compared by ``=``: numbers by their values, other values of different kinds as the higher of the two kinds. A value that cannot be
converted equals none, NULL equals nothing. Rows of different substreams never match. The cost grows with the rows and the pairs found:
among rows with the same key only those within the range of time are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.columns.segments import stable_order
from query.columns.same_values import whole_numbers
from tidegate.basics.budget import BUDGET, cut
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.functions.conversions import TypedSql, unify
from tidegate.language.expressions.kinds import Kind, KindMismatch
from tidegate.language.expressions.tree import Cast, Slot
from tidegate.language.expressions.variant import Variant, valid_mask

# Row numbers, one of each side.
Pairs = tuple[Ints, Ints]

# Above this many possible keys their numbers are made dense again.
_CODE_MAX = 2**31


@dataclass(frozen=True)
class KeyedRows:
    """Rows of one side: their numbers, by which pairs name them, and of each the substream, the instant and the keys, column by column."""

    rows: Ints
    sub: Ints
    time_us: Ints
    keys: Sequence[Variant]

    def select(self, places: Ints) -> KeyedRows:
        if len(places) == len(self.rows):
            return self
        return KeyedRows(self.rows[places], self.sub[places], self.time_us[places], [key.take_rows(places) for key in self.keys])


@dataclass(frozen=True)
class Matches:
    """For each asking row its matches: a run of the candidates."""

    asking: Ints
    # The rows of the other side, by key and time.
    candidates: Ints
    # The place at which each run begins.
    start: Ints
    # The length of each run.
    count: Ints
    # Whether pairs name the candidate first, not the asking row.
    is_swapped: bool = False

    @property
    def total(self) -> int:
        return int(self.count.sum())

    def select(self, chosen: Mask) -> Matches:
        """Return the matches of some of the asking rows."""
        return replace(self, asking=self.asking[chosen], start=self.start[chosen], count=self.count[chosen])

    def holds(self, asking: Ints, candidate: Ints, rows: int, others: int) -> Mask:
        """Return which pairs of an asking row and a candidate are among the matches, given how many rows of each side there are."""
        place, start, end = np.full(others, -1), np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        place[self.candidates] = np.arange(len(self.candidates))
        start[self.asking], end[self.asking] = self.start, self.start + self.count
        mask: Mask = (place[candidate] >= start[asking]) & (place[candidate] < end[asking])
        return mask

    def pairs(self) -> Iterator[Pairs]:
        """Yield all pairs, in portions that are made at once."""
        for part in cut(self.count, BUDGET.pairs):
            count = self.count[part]
            ends = np.cumsum(count)
            within = np.arange(int(ends[-1])) - np.repeat(ends - count, count)
            if len(within):
                asking = np.repeat(self.asking[part], count)
                found = self.candidates[np.repeat(self.start[part], count) + within]
                yield (found, asking) if self.is_swapped else (asking, found)


def find_matches(asking: KeyedRows, first_us: Ints, until_us: Ints, others: KeyedRows, eligible: Mask) -> Iterator[Matches]:
    """
    Find for each row of *asking* the rows of *others* with equal substream and keys and ``first_us <= time < until_us``.

    *asking* should be the smaller side; *eligible* masks the others that count.

    Yields:
        The matches of each combination of kinds of keys; no pair comes twice.
    """
    others = others.select(_eligible_places(asking, first_us, until_us, others, eligible))
    for left, right in product(_signatures(asking), _signatures(others)):
        kinds = [_common_kind(*pair) for pair in zip(left.kinds, right.kinds, strict=True)]
        if None in kinds:
            continue
        common_kinds = [kind for kind in kinds if kind is not None]
        left_keys, left_rows = _convert_keys(asking.keys, left, common_kinds)
        right_keys, right_rows = _convert_keys(others.keys, right, common_kinds)
        groups = _Groups.of([pa.array(asking.sub[left_rows]), *left_keys], [pa.array(others.sub[right_rows]), *right_keys])
        chosen = left_rows[groups.order]
        yield _match_within(groups, asking.rows[chosen], first_us[chosen], until_us[chosen], others, right_rows)


def _eligible_places(asking: KeyedRows, first_us: Ints, until_us: Ints, others: KeyedRows, eligible: Mask) -> Ints:
    """Return the places of *others* that can match at all: of a substream that asks, at a time that is asked for."""
    if not len(asking.rows) or not len(others.rows):
        return np.empty(0, dtype=np.int64)
    asks = np.zeros(max(int(asking.sub.max()), int(others.sub.max())) + 1, dtype=np.bool_)
    asks[asking.sub] = True
    return np.flatnonzero(eligible & asks[others.sub] & (others.time_us >= first_us.min()) & (others.time_us < until_us.max()))


@dataclass(frozen=True)
class _Signature:
    """Rows whose keys have the same kinds, none of them NULL."""

    rows: Ints
    kinds: tuple[Kind, ...]


def _signatures(side: KeyedRows) -> list[_Signature]:
    """Return the rows of each combination of kinds, in a fixed order."""
    if not len(side.rows):
        return []
    codes = [key.codes() for key in side.keys]
    combined = np.zeros(len(side.rows), dtype=np.int64)
    has_all_keys = np.ones(len(side.rows), dtype=np.bool_)
    for code in codes:
        # Renumbering after each key keeps the number of combinations at or below the number of rows.
        combined = np.unique(combined * len(Kind) + code, return_inverse=True)[1].astype(np.int64)
        has_all_keys &= code > 0
    signatures = []
    for number, first in zip(*np.unique(combined, return_index=True), strict=True):
        if has_all_keys[first]:
            signatures.append(_Signature(np.flatnonzero(combined == number), tuple(tuple(Kind)[code[first]] for code in codes)))
    return signatures


def _common_kind(left: Kind, right: Kind) -> Kind | None:
    """Return the kind as which two values are compared, None if they cannot be."""
    if {left, right} == {Kind.BIGINT, Kind.FLOAT}:
        # As floats, bigints beyond 53 bits would equal their neighbours.
        return Kind.BIGINT
    try:
        _, kind = unify((TypedSql("l", left), TypedSql("r", right)))
    except KindMismatch:
        return None
    return None if kind in (Kind.RECORD, Kind.ARRAY) else kind


def _convert_keys(keys: Sequence[Variant], signature: _Signature, kinds: Sequence[Kind]) -> tuple[list[pa.Array], Ints]:
    """Return the keys of a signature's rows as these kinds, and the rows in which every key could be converted."""
    columns = []
    is_converted = np.ones(len(signature.rows), dtype=np.bool_)
    for key, kind, common_kind in zip(keys, signature.kinds, kinds, strict=True):
        key_column = key if len(signature.rows) == key.length else key.take_rows(signature.rows)
        if (kind, common_kind) == (Kind.FLOAT, Kind.BIGINT):
            key_column = Variant.of(key_column.length, {Kind.BIGINT: whole_numbers(key_column.of_kind(Kind.FLOAT))})
        elif kind is not common_kind:
            leaf = Slot(0, "key", kind)
            (key_column,), _ = evaluate([Cast(leaf, common_kind, lenient=True)], {leaf: key_column}, key_column.length)
        column = key_column.of_kind(common_kind)
        # -0.0 and 0.0 are equal, but not as dictionary values: adding 0.0 makes them one.
        columns.append(pc.add(column, 0.0) if common_kind is Kind.FLOAT else column)
        is_converted &= valid_mask(column)
    if is_converted.all():
        return columns, signature.rows
    return [column.filter(pa.array(is_converted)) for column in columns], signature.rows[is_converted]


@dataclass(frozen=True)
class _Groups:
    """Rows with equal keys have equal group numbers."""

    # The asking rows by group.
    order: Ints
    # The group of each of them, in that order.
    group: Ints
    # The other rows that have a key of an asking row.
    other_rows: Ints
    # The group of each of these.
    other_group: Ints
    # An upper bound of the number of groups.
    count: int

    @classmethod
    def of(cls, keys: Sequence[pa.Array], other_keys: Sequence[pa.Array]) -> _Groups:
        """Number the distinct keys of the asking rows, and find the keys of the other rows among them."""
        group, count = np.zeros(len(keys[0]), dtype=np.int64), 1
        other_rows, other_group = np.arange(len(other_keys[0])), np.zeros(len(other_keys[0]), dtype=np.int64)
        for key, other_key in zip(keys, other_keys, strict=True):
            distinct = key.unique()
            places = pc.index_in(other_key, value_set=distinct)
            is_known = valid_mask(places)
            place = pc.fill_null(places, 0).to_numpy().astype(np.int64)
            group = group * len(distinct) + pc.index_in(key, value_set=distinct).to_numpy().astype(np.int64)
            other_group = other_group * len(distinct) + place[other_rows]
            other_rows, other_group = other_rows[is_known[other_rows]], other_group[is_known[other_rows]]
            count *= len(distinct)
            if count > _CODE_MAX:
                # Renumber densely: far fewer than all combinations occur.
                occurring = np.unique(group)
                group, place = np.searchsorted(occurring, group), np.searchsorted(occurring, other_group)
                is_known = occurring[np.minimum(place, len(occurring) - 1)] == other_group
                other_rows, other_group, count = other_rows[is_known], place[is_known], len(occurring)
        order = stable_order(group, count)
        return cls(order, group[order], other_rows, other_group, count)


def _match_within(groups: _Groups, asking: Ints, first_us: Ints, until_us: Ints, others: KeyedRows, other_rows: Ints) -> Matches:
    candidates = other_rows[groups.other_rows]
    # Group and time as one number, so that one search finds both ends of each run.
    instants, rank = _rank_times(others.time_us[candidates])
    width = len(instants) + 1
    place = groups.other_group * width + rank
    # Rows usually come in the order of time: then sorting by group alone sorts them.
    order = stable_order(groups.other_group, groups.count)
    if not _is_rising(place[order]):
        order = np.argsort(place)
    place = place[order]
    start = np.searchsorted(place, groups.group * width + np.searchsorted(instants, first_us))
    end = np.searchsorted(place, groups.group * width + np.searchsorted(instants, until_us))
    return Matches(asking, others.rows[candidates[order]], start, np.maximum(end - start, 0))


def _rank_times(times: Ints) -> tuple[Ints, Ints]:
    """Return the distinct times, rising, and the place of each time among them."""
    if not _is_rising(times):
        return np.unique(times, return_inverse=True)
    first = np.append(True, times[1:] > times[:-1])[: len(times)]
    return times[first], np.cumsum(first) - 1


def _is_rising(values: Ints) -> bool:
    return bool((values[1:] >= values[:-1]).all())
