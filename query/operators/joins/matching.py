"""
Matching: which rows of two sides have equal keys, and lie near each other in time.

Two keys are equal when ``=`` says so: values of different kinds meet as the higher of the two, a value that cannot be
converted equals none, NULL equals nothing. Rows of different substreams never match. The cost is that of the rows and of
the pairs found: of rows with the same key only those within the range of time are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.segments import stable_order
from tidegate.expressions.evaluation.evaluate import evaluate
from tidegate.expressions.functions.conversions import TypedSql, unify
from tidegate.expressions.kinds import Kind, KindMismatch
from tidegate.expressions.tree import Cast, Slot
from tidegate.expressions.variant import Variant, valid_mask

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Pairs = tuple[Ints, Ints]
"""Row numbers, one of each side."""

PAIRS_MAX = 1_000_000
"""Most pairs given out at once, unless one row has more."""
_CODE_MAX = 2**31


@dataclass(frozen=True)
class KeyedRows:
    """
    Rows of one side.

    Args:
        rows: Their numbers, by which they are given back.
        sub: The substream of each.
        time_us: The instant of each.
        keys: Their keys, column by column.
    """

    rows: Ints
    sub: Ints
    time_us: Ints
    keys: Sequence[Variant]

    def select(self, places: Ints) -> KeyedRows:
        """Return some of them."""
        if len(places) == len(self.rows):
            return self
        return KeyedRows(self.rows[places], self.sub[places], self.time_us[places], [key.take_rows(places) for key in self.keys])


@dataclass(frozen=True)
class Matches:
    """
    For each row that was asked for, its run among the candidates.

    Args:
        asking: The rows that were asked for.
        candidates: The rows of the other side, by key and time.
        start: Where each run begins.
        count: How long it is.
    """

    asking: Ints
    candidates: Ints
    start: Ints
    count: Ints

    def pairs(self, pairs_max: int = PAIRS_MAX) -> Iterator[Pairs]:
        """Yield all pairs, in portions."""
        ends = np.cumsum(self.count)
        first = 0
        while first < len(ends):
            done = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + pairs_max, side="right")))
            count = self.count[first:last]
            within = np.arange(int(ends[last - 1]) - done) - np.repeat(ends[first:last] - count - done, count)
            if len(within):
                yield np.repeat(self.asking[first:last], count), self.candidates[np.repeat(self.start[first:last], count) + within]
            first = last


def find_matches(asking: KeyedRows, first_us: Ints, until_us: Ints, others: KeyedRows, eligible: Mask) -> Iterator[Matches]:
    """
    Find for each row of *asking* the rows of *others* with equal substream and keys and ``first_us <= time < until_us``.

    Args:
        asking: The rows to find partners for; the fewer of the two, as a rule.
        first_us: From when on, for each of them.
        until_us: Until when, for each of them.
        others: Where to look.
        eligible: Which of them count.

    Yields:
        What was found, once for each way in which kinds of keys meet: no pair twice.
    """
    others = others.select(_near(asking, first_us, until_us, others, eligible))
    for mine, theirs in product(_signatures(asking), _signatures(others)):
        kinds = [_common(*pair) for pair in zip(mine.kinds, theirs.kinds, strict=True)]
        if None in kinds:
            continue
        wanted = [kind for kind in kinds if kind is not None]
        mine_keys, mine_rows = _converted(asking.keys, mine, wanted)
        theirs_keys, theirs_rows = _converted(others.keys, theirs, wanted)
        groups = _Groups.of([pa.array(asking.sub[mine_rows]), *mine_keys], [pa.array(others.sub[theirs_rows]), *theirs_keys])
        chosen = mine_rows[groups.order]
        yield _within(groups, asking.rows[chosen], first_us[chosen], until_us[chosen], others, theirs_rows)


def _near(asking: KeyedRows, first_us: Ints, until_us: Ints, others: KeyedRows, eligible: Mask) -> Ints:
    """Return which of *others* may match at all: of a substream that asks, at a time that is asked for."""
    if not len(asking.rows) or not len(others.rows):
        return np.empty(0, dtype=np.int64)
    asked = np.zeros(max(int(asking.sub.max()), int(others.sub.max())) + 1, dtype=np.bool_)
    asked[asking.sub] = True
    return np.flatnonzero(eligible & asked[others.sub] & (others.time_us >= first_us.min()) & (others.time_us < until_us.max()))


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
    known = np.ones(len(side.rows), dtype=np.bool_)
    for code in codes:
        # Numbered anew with each key, combinations are never more than there are rows.
        combined = np.unique(combined * len(Kind) + code, return_inverse=True)[1].astype(np.int64)
        known &= code > 0
    found = []
    for number, first in zip(*np.unique(combined, return_index=True), strict=True):
        if known[first]:
            found.append(_Signature(np.flatnonzero(combined == number), tuple(tuple(Kind)[code[first]] for code in codes)))
    return found


def _common(mine: Kind, theirs: Kind) -> Kind | None:
    """Return as what kind two values are compared, None where they cannot be."""
    try:
        _, kind = unify((TypedSql("l", mine), TypedSql("r", theirs)))
    except KindMismatch:
        return None
    return None if kind in (Kind.RECORD, Kind.ARRAY) else kind


def _converted(keys: Sequence[Variant], signature: _Signature, kinds: Sequence[Kind]) -> tuple[list[pa.Array], Ints]:
    """Return the keys of a signature's rows as these kinds, and the rows: those in which every key could be converted."""
    columns = []
    fine = np.ones(len(signature.rows), dtype=np.bool_)
    for key, had, wanted in zip(keys, signature.kinds, kinds, strict=True):
        taken = key if len(signature.rows) == key.length else key.take_rows(signature.rows)
        if had is not wanted:
            leaf = Slot(0, "key", had)
            (taken,), _ = evaluate([Cast(leaf, wanted, lenient=True)], {leaf: taken}, taken.length)
        column = taken.of_kind(wanted)
        # The two zeros are equal.
        columns.append(pc.add(column, 0.0) if wanted is Kind.FLOAT else column)
        fine &= valid_mask(column)
    if fine.all():
        return columns, signature.rows
    return [column.filter(pa.array(fine)) for column in columns], signature.rows[fine]


@dataclass(frozen=True)
class _Groups:
    """
    Which rows have equal keys, as numbers.

    Args:
        order: The asking rows by group.
        mine: The group of each of them, in that order.
        kept: Which other rows belong to a group of theirs.
        theirs: The group of each of these.
        count: How many groups there may be.
    """

    order: Ints
    mine: Ints
    kept: Ints
    theirs: Ints
    count: int

    @classmethod
    def of(cls, keys: Sequence[pa.Array], other_keys: Sequence[pa.Array]) -> _Groups:
        """Number the distinct keys of the asking rows, and look the other rows' up among them."""
        mine, count = np.zeros(len(keys[0]), dtype=np.int64), 1
        kept, theirs = np.arange(len(other_keys[0])), np.zeros(len(other_keys[0]), dtype=np.int64)
        for key, other in zip(keys, other_keys, strict=True):
            distinct = key.unique()
            found = pc.index_in(other, value_set=distinct)
            known = valid_mask(found)
            place = pc.fill_null(found, 0).to_numpy().astype(np.int64)
            mine = mine * len(distinct) + pc.index_in(key, value_set=distinct).to_numpy().astype(np.int64)
            theirs = theirs * len(distinct) + place[kept]
            kept, theirs = kept[known[kept]], theirs[known[kept]]
            count *= len(distinct)
            if count > _CODE_MAX:
                # Far fewer than all combinations occur.
                occurring = np.unique(mine)
                mine, place = np.searchsorted(occurring, mine), np.searchsorted(occurring, theirs)
                known = occurring[np.minimum(place, len(occurring) - 1)] == theirs
                kept, theirs, count = kept[known], place[known], len(occurring)
        order = stable_order(mine, count)
        return cls(order, mine[order], kept, theirs, count)


def _within(groups: _Groups, asking: Ints, first_us: Ints, until_us: Ints, others: KeyedRows, theirs: Ints) -> Matches:
    """Find the partners of rows that stand in the order of their groups: by group, then by time."""
    candidates = theirs[groups.kept]
    instants, rank = _ranked(others.time_us[candidates])
    width = len(instants) + 1
    place = groups.theirs * width + rank
    # Rows come in the order of time, as a rule: then the order of their groups is all there is to find.
    order = stable_order(groups.theirs, groups.count)
    if not _is_rising(place[order]):
        order = np.argsort(place)
    place = place[order]
    start = np.searchsorted(place, groups.mine * width + np.searchsorted(instants, first_us))
    end = np.searchsorted(place, groups.mine * width + np.searchsorted(instants, until_us))
    return Matches(asking, others.rows[candidates[order]], start, np.maximum(end - start, 0))


def _ranked(times: Ints) -> tuple[Ints, Ints]:
    """Return the distinct times, rising, and the place of each time among them."""
    if not _is_rising(times):
        return np.unique(times, return_inverse=True)
    first = np.append(True, times[1:] > times[:-1])[: len(times)]
    return times[first], np.cumsum(first) - 1


def _is_rising(values: Ints) -> bool:
    return bool((values[1:] >= values[:-1]).all())
