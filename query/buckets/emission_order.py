"""
Emission order: for each result, the input record that made it final, and results in the order of those records.

Substreams have a bucket's dense numbers here. Law: results depend on the names of substreams, not on these numbers, which depend on which
substreams have been forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.columns.segments import first_above, running_max, stable_order
from ordering.ticks import INFINITY
from query.columns.large_tables import take_rows


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves of substreams: which, in which of its channels, to which instant (microseconds), at the place of which record."""

    sub: Ints
    # A number of the bucket's; 0 if a substream has one channel.
    member: Ints
    to_us: Ints
    place: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> Moves:
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)

    def __add__(self, other: Moves) -> Moves:
        return Moves(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("sub", "member", "to_us", "place")))

    def take(self, rows: Ints) -> Moves:
        return Moves(self.sub[rows], self.member[rows], self.to_us[rows], self.place[rows])

    def sort_by_place(self) -> Moves:
        return self.take(np.argsort(self.place, kind="stable"))


def first_move(moves: Moves, subs: int, ends: Ints, owner: Ints) -> Ints:
    """
    Return the place of the first move of each result's substream beyond the result's end, ``INFINITY`` if there is none.

    The places of *moves* rise; *subs* is the number of substreams, *ends* and *owner* are the end of each result and its substream.
    """
    places = np.full(len(ends), INFINITY, dtype=np.int64)
    if not len(moves.sub):
        return places
    order = stable_order(moves.sub, subs)
    sub, starts = moves.sub[order], np.concatenate([[0], np.cumsum(np.bincount(moves.sub, minlength=subs))])
    first = first_above(running_max(moves.to_us[order], sub), sub, starts, ends, owner)
    has_moved = first < starts[owner + 1]
    places[has_moved] = moves.place[order][first[has_moved]]
    return places


def first_rise(rises: Sequence[tuple[int, int]], ends: Ints) -> Ints:
    """Return the place of a channel's first rise (place, c; places rise) beyond the end of each result, ``INFINITY`` if there is none."""
    places = np.full(len(ends), INFINITY, dtype=np.int64)
    if rises:
        rise_places, c_us = np.array(rises, dtype=np.int64).T
        first = np.searchsorted(np.maximum.accumulate(c_us), ends, side="right")
        has_risen = first < len(rises)
        places[has_risen] = rise_places[first[has_risen]]
    return places


def sort_by_emission(
    results: pa.Table, final_by: Ints, key_of: Callable[[int], bytes], number_of: Callable[[Ints], Ints] | None = None
) -> pa.Table:
    """
    Return results under their substream's key, in the order (record, s, key bytes, input partition, fixed row order).

    *final_by* is the place of the record that made each final; *number_of* gives the input partitions of substreams, None if a key is one.
    """
    coded = results["sub"].combine_chunks().dictionary_encode()
    place, subs = coded.indices.to_numpy(), coded.dictionary.to_numpy()
    keys = [key_of(sub) for sub in subs.tolist()]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    rank = np.array([ranks[key] for key in keys], dtype=np.int64)[place]
    number = np.zeros(len(place), dtype=np.int64) if number_of is None else number_of(subs)[place]
    order = _sort_places(final_by, results["system_us"].to_numpy(), rank, number)
    column = results.schema.get_field_index("key")
    named = results.set_column(column, results.schema.field(column), pa.array(keys, pa.binary()).take(coded.indices))
    return take_rows(named, order)


def _sort_places(final_by: Ints, system_us: Ints, rank: Ints, number: Ints) -> Ints:
    # Order: (final_by, system_us, rank, number), equal rows as they come.
    # Most rows differ in the first two, which are almost in order; only ties are sorted by all four.
    order = np.lexsort((system_us, final_by))
    same = (np.diff(final_by[order]) == 0) & (np.diff(system_us[order]) == 0)
    tied = np.append(same, False) | np.insert(same, 0, False)
    rows = order[tied]
    order[tied] = rows[np.lexsort((number[rows], rank[rows], system_us[rows], final_by[rows]))]
    return order
