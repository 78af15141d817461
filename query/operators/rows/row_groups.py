"""
Groups of rows, and which earlier rows of its group a row sees.

Rows are sorted by group, those of a group are in their fixed order; those that meet a condition are *candidates*. To find the nth candidate
before a row, those of the last hour or the first of an interval, count the candidates before the row and search for the first one that is
young enough.

Law: which rows a row sees depends only on the rows of its group up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.columns.segments import first_above, group_order
from query.columns.large_tables import check_repeated
from query.columns.same_values import canonicalize
from tidegate.language.expressions.variant import Variant, valid_mask

# Group numbers above this are renumbered densely, so that their product with the next key's codes fits 64 bits.
_NUMBERS_MAX = 2**40


def group_numbers(subs: Ints, keys: Sequence[Variant]) -> Ints:
    """Return a number for each row, equal for rows of one substream whose keys are the same values."""
    numbers = subs
    for key in keys:
        # 0 is NULL; the values of each kind have codes of their own, so 1 and '1' differ.
        codes = np.zeros(len(subs), dtype=np.int64)
        next_code = 1
        for part in canonicalize(key).parts.values():
            distinct = part.dictionary_encode()
            valid = valid_mask(part)
            codes[valid] = distinct.indices.to_numpy(zero_copy_only=False)[valid].astype(np.int64) + next_code
            next_code += len(distinct.dictionary)
        if next_code * (int(numbers.max(initial=0)) + 1) >= _NUMBERS_MAX:
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64, copy=False)
        numbers = numbers * next_code + codes
    return numbers


@dataclass(frozen=True)
class RowGroups:
    """Rows sorted by group."""

    # The number of the row at each place.
    order: Ints
    # The place of each row.
    place: Ints
    # The number of the group at each place: 0, 0, 1, 1, 1, 2, ...
    group: Ints
    # The place at which each group begins, and the end of the last one.
    starts: Ints
    # The time at each place.
    system_us: Ints

    @classmethod
    def of(cls, numbers: Ints, system_us: Ints) -> RowGroups:
        """Sort rows, given in their fixed order, by the numbers of their groups."""
        count = len(numbers)
        order = group_order(numbers)
        place = np.empty(count, dtype=np.int64)
        place[order] = np.arange(count)
        by_group = numbers[order]
        begins = np.ones(count, dtype=np.bool_)
        begins[1:] = by_group[1:] != by_group[:-1]
        starts = np.append(np.flatnonzero(begins), count)
        return cls(order, place, np.cumsum(begins) - 1, starts, system_us[order])

    def candidates(self, chosen: Mask | None) -> Candidates:
        """Return the *chosen* rows as candidates; None: all rows."""
        is_candidate = np.ones(len(self.order), dtype=np.bool_) if chosen is None else chosen[self.order]
        counts_before = np.concatenate([[0], np.cumsum(is_candidate)])
        return Candidates(self, is_candidate, np.flatnonzero(is_candidate), counts_before)


@dataclass(frozen=True)
class Candidates:
    """The rows that other rows may see."""

    groups: RowGroups
    # Whether the row at each place is a candidate.
    is_candidate: Mask
    # The place of each candidate.
    places: Ints
    # How many candidates are before each place, and how many there are.
    counts_before: Ints

    @property
    def rows(self) -> Ints:
        return self.groups.order[self.places]

    def look_back(self, asked: Ints, offset: int, limit_us: int) -> tuple[Ints, Mask]:
        """
        Look *offset* candidates back from each of the places *asked*; offset 0 is the last candidate up to the row, itself included.

        Return the candidates' numbers, and whether there is one at most *limit_us* older; if not, its number is meaningless.
        """
        ends = self.counts_before[asked + 1] if offset == 0 else self.counts_before[asked] - (offset - 1)
        numbers = ends - 1
        exists = numbers >= self.counts_before[self.groups.starts[self.groups.group[asked]]]
        numbers = np.where(exists, numbers, 0)
        if len(self.places):
            exists &= self.groups.system_us[asked] - self.groups.system_us[self.places[numbers]] <= limit_us
        return numbers, exists

    def first_of_interval_mask(self, asked: Ints, interval_us: int) -> Mask:
        """Return for each place whether it is the first candidate of its group in its interval ``(start, end]``, aligned to 1970."""
        before, exists = self.look_back(asked, 1, interval_us)
        interval = interval_ends(self.groups.system_us, interval_us)
        is_first = self.is_candidate[asked]
        is_first[exists] &= interval[self.places[before[exists]]] != interval[asked[exists]]
        return is_first

    def range_within(self, asked: Ints, limit_us: int) -> tuple[Ints, Ints]:
        """Return for each place the first and the last of the candidates up to it that are at most *limit_us* older."""
        group = self.groups.group[self.places]
        starts = self.counts_before[self.groups.starts]
        times = self.groups.system_us[self.places]
        oldest = self.groups.system_us[asked] - (limit_us + 1)
        first = first_above(times, group, starts, oldest, self.groups.group[asked]) if len(times) else np.zeros(len(asked), dtype=np.int64)
        return first, self.counts_before[asked + 1] - 1

    def newest_mask(self, count: int) -> Mask:
        """Return for each place whether it is one of the last *count* candidates of its group."""
        from_here_on = self.counts_before[self.groups.starts[self.groups.group + 1]] - self.counts_before[:-1]
        return self.is_candidate & (from_here_on <= count)


def interval_ends(system_us: Ints, interval_us: int) -> Ints:
    """Return the end of the interval ``(start, end]`` of each instant; intervals are aligned to 1970."""
    ends: Ints = -(-system_us // interval_us) * interval_us
    return ends


def take_or_null(column: Variant, rows: Ints, exists: Mask) -> Variant:
    """Return the values in some rows, NULL if *exists* is false. Raises TooMuchAtOnce: the texts are too large together."""
    for part in column.parts.values():
        check_repeated(part, rows[exists])
    indices = pa.array(rows, mask=~exists)
    return Variant.of(len(rows), {kind: part.take(indices) for kind, part in column.parts.items()})
