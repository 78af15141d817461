"""
Lifetimes: from when until when rows live. A row lives from its System.Timestamp s on, for n at most: [s, s + n).

``ForLength``    all of n.
``UntilColumn``  until the end in a column of the row; n if it is NULL. A row whose end is not after s does not live.
``UntilEdge``    until an edge: a row in which a column is not NULL. An edge does not live. It ends the lives of the rows of its
                 group that began before it; if a second column is named, only of rows with its value there.

Law: the end of a row's life depends only on rows of its group in [s, s + n), so a look-back of n is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask
from ordering.columns.segments import first_above, group_order
from query.columns.same_values import canonicalize
from query.operators.rows.row_groups import RowGroups, group_numbers
from query.operators.rows.row_stage import RowStage
from query.plan.row_tables import BAD_SCHEMA, Ticks, ticks
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Cast, Slot
from tidegate.language.expressions.variant import Variant, from_columns

# Additional columns that determine the ends of lives.
Marks = dict[str, pa.Array]


class MarkedRows(NamedTuple):
    """The rows that count, columns to keep beside them, and the bad rows."""

    rows: pa.Table
    marks: Marks
    bad: pa.Table


class Alive(NamedTuple):
    """How many rows of a group are alive from an instant on; one entry for each change."""

    instants: Ticks
    group: Ticks
    alive: Ticks


class Lifetime(Protocol):
    """A rule for how long rows live."""

    @property
    def longest_us(self) -> int:
        """The longest that a row can live, microseconds."""

    def mark_rows(self, below: pa.Table) -> MarkedRows:
        """Return which rows count, and what is kept of them."""

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[Mask | None, Ticks]:
        """Return which of the marked rows live (None: all), and the end of every row, microseconds; *keys* are the grouping columns."""


@dataclass(frozen=True)
class ForLength:
    """Each row lives equally long."""

    longest_us: int

    def mark_rows(self, below: pa.Table) -> MarkedRows:
        return MarkedRows(below, {}, BAD_SCHEMA.empty_table())

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[Mask | None, Ticks]:
        return None, ticks(rows, "system_us") + self.longest_us


@dataclass(frozen=True)
class UntilColumn:
    """Each row lives until the time in *column*, called *title*; texts are converted as CAST does."""

    longest_us: int
    column: int
    title: str

    def mark_rows(self, below: pa.Table) -> MarkedRows:
        """Return the rows that live, with ``until_us``; a row whose end is no datetime is bad."""
        end = Cast(Slot(self.column, self.title, None), Kind.DATETIME)
        kept, (ends,), bad = RowStage((), (end,)).apply(below)
        starts = ticks(kept, "system_us")
        longest = pa.array(starts + self.longest_us)
        until = pc.min_element_wise(ends.of_kind(Kind.DATETIME).cast(pa.int64()), longest, skip_nulls=True)
        lives = until.to_numpy() > starts
        return MarkedRows(kept.filter(pa.array(lives)), {"until_us": until.filter(pa.array(lives))}, bad)

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[Mask | None, Ticks]:
        return None, ticks(rows, "until_us")


@dataclass(frozen=True)
class UntilEdge:
    """Each row lives until an edge, a row whose *edge* is not NULL; with *span* the edge must have the same value there."""

    longest_us: int
    edge: int
    span: int | None = None

    def mark_rows(self, below: pa.Table) -> MarkedRows:
        """Return the rows, with ``is_edge``, and the value of *span* (``g0_s``, ...)."""
        marks: Marks = {"is_edge": pa.array(from_columns(below, f"s{self.edge}").valid_mask())}
        if self.span is not None:
            marks |= canonicalize(from_columns(below, f"s{self.span}")).columns("g0")
        return MarkedRows(below, marks, BAD_SCHEMA.empty_table())

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[Mask | None, Ticks]:
        """Return the first edge after each row, or n after the row if there is none until then."""
        is_edge, system_us = rows["is_edge"].to_numpy(), ticks(rows, "system_us")
        spans = keys if self.span is None else [*keys, from_columns(rows, "g0")]
        groups = RowGroups.of(group_numbers(ticks(rows, "sub"), spans), system_us)
        edges = np.flatnonzero(is_edge[groups.order])
        until = system_us + self.longest_us
        if not len(edges):
            return ~is_edge, until
        edge_group, edge_us = groups.group[edges], groups.system_us[edges]
        starts = np.searchsorted(edge_group, np.arange(len(groups.starts)))
        next_edge = first_above(edge_us, edge_group, starts, groups.system_us, groups.group)
        exists = next_edge < starts[groups.group + 1]
        ended_rows = groups.order[exists]
        until[ended_rows] = np.minimum(until[ended_rows], edge_us[next_edge[exists]])
        return ~is_edge, until


def sort_ends(groups: RowGroups, ends_us: Ticks) -> Ticks:
    """Return the ends of lives, given place by place, sorted within each group."""
    is_falling = (ends_us[1:] < ends_us[:-1]) & (groups.group[1:] == groups.group[:-1])
    if not is_falling.any():
        return ends_us
    by_time = np.argsort(ends_us, kind="stable")
    sorted_us: Ticks = ends_us[by_time[group_order(groups.group[by_time])]]
    return sorted_us


def count_alive(groups: RowGroups, ends_us: Ticks) -> Alive:
    """
    Return the instants at which lives of rows begin or end, each once for its group, these groups, and how many rows are alive then.

    *ends_us* is the end of the life of the row at each place; it is after the row's own time.
    """
    ended_us = sort_ends(groups, ends_us)
    last_start = _last_places(groups.system_us, groups.group)
    last_end = _last_places(ended_us, groups.group)
    begins, group = groups.system_us[last_start], groups.group[last_start]
    ends, end_group = ended_us[last_end], groups.group[last_end]
    # Alive = the lives that have begun - the lives that have ended by then.
    alive = last_start + 1 - first_above(ended_us, groups.group, groups.starts, begins, group)
    begun = first_above(groups.system_us, groups.group, groups.starts, ends, end_group)
    # An end at which another row begins is an instant already.
    is_new = groups.system_us[begun - 1] != ends
    alive = np.concatenate([alive, (begun - (last_end + 1))[is_new]])
    return Alive(np.concatenate([begins, ends[is_new]]), np.concatenate([group, end_group[is_new]]), alive)


def _last_places(instants: Ticks, group: Ticks) -> Ticks:
    """Return the last place of each instant in its group."""
    is_last = np.ones(len(instants), dtype=np.bool_)
    is_last[:-1] = (instants[1:] != instants[:-1]) | (group[1:] != group[:-1])
    return np.flatnonzero(is_last)
