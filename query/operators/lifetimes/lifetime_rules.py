"""
Lifetimes: from when until when rows live. A row begins to live at its System.Timestamp s, and lives for n at most: [s, s + n).

``ForLength``    all of n.
``UntilColumn``  until the end that a column of the row says; n where it is NULL. A row whose end is no later than s does not live.
``UntilEdge``    until an edge, which is a row of its own: where a column is not NULL the row does not live but ends the lives of its
                 group, or of those of its group with the same value in another column, that began before it.

Law: until when a row lives depends on rows of its group in [s, s + n) alone; so with n a past of n is enough, wherever it begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.segments import first_above, group_order
from query.columns.encode import canonicalize
from query.operators.rows.row_groups import Groups, group_numbers
from query.operators.rows.row_stage import RowStage
from query.plan.row_tables import BAD_SCHEMA, Ticks, ticks
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Cast, Slot
from tidegate.expressions.variant import Variant, from_columns

Marks = dict[str, pa.Array]
"""Columns that tell how long rows live, beside those of all rows."""


class Lifetime(Protocol):
    """How long rows live."""

    @property
    def longest_us(self) -> int:
        """How long a row lives at most, microseconds."""
        ...

    def mark_rows(self, below: pa.Table) -> tuple[pa.Table, Marks, pa.Table]:
        """Return the rows that count, what to keep beside them, and the bad rows."""
        ...

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[npt.NDArray[np.bool_] | None, Ticks]:
        """
        Tell when rows end to live.

        Args:
            rows: Rows that count, with what was kept beside them.
            keys: The columns by which they are grouped.

        Returns:
            Which rows live, None: all; and of all rows the end, microseconds.
        """
        ...


@dataclass(frozen=True)
class ForLength:
    """Each row lives equally long."""

    longest_us: int

    def mark_rows(self, below: pa.Table) -> tuple[pa.Table, Marks, pa.Table]:
        """Return the rows as they are."""
        return below, {}, BAD_SCHEMA.empty_table()

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[npt.NDArray[np.bool_] | None, Ticks]:
        """Return n after each row's time."""
        return None, ticks(rows, "system_us") + self.longest_us


@dataclass(frozen=True)
class UntilColumn:
    """Each row lives until the end that *column* says, which is called *title*; texts are converted as CAST does."""

    longest_us: int
    column: int
    title: str

    def mark_rows(self, below: pa.Table) -> tuple[pa.Table, Marks, pa.Table]:
        """Return the rows that live, with ``until_us``; one whose end is no datetime is bad."""
        end = Cast(Slot(self.column, self.title, None), Kind.DATETIME)
        kept, (said,), bad = RowStage((), (end,)).apply(below)
        begins = ticks(kept, "system_us")
        longest = pa.array(begins + self.longest_us)
        until = pc.min_element_wise(said.of_kind(Kind.DATETIME).cast(pa.int64()), longest, skip_nulls=True)
        lives = until.to_numpy() > begins
        return kept.filter(pa.array(lives)), {"until_us": until.filter(pa.array(lives))}, bad

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[npt.NDArray[np.bool_] | None, Ticks]:
        """Return what was kept."""
        return None, ticks(rows, "until_us")


@dataclass(frozen=True)
class UntilEdge:
    """Each row lives until an edge: a row whose *edge* is not NULL; with *span* one that has the same value there."""

    longest_us: int
    edge: int
    span: int | None = None

    def mark_rows(self, below: pa.Table) -> tuple[pa.Table, Marks, pa.Table]:
        """Return the rows, with ``is_edge``, and the value of *span* (``g0_s``, ...)."""
        marks: Marks = {"is_edge": pa.array(from_columns(below, f"s{self.edge}").valid_mask())}
        if self.span is not None:
            marks |= canonicalize(from_columns(below, f"s{self.span}")).columns("g0")
        return below, marks, BAD_SCHEMA.empty_table()

    def find_ends(self, rows: pa.Table, keys: list[Variant]) -> tuple[npt.NDArray[np.bool_] | None, Ticks]:
        """Return the first edge after each row, n after it where there is none until then."""
        is_edge, system_us = rows["is_edge"].to_numpy(), ticks(rows, "system_us")
        spans = keys if self.span is None else [*keys, from_columns(rows, "g0")]
        span = Groups.of(group_numbers(ticks(rows, "sub"), spans), system_us)
        edges = np.flatnonzero(is_edge[span.order])
        until = system_us + self.longest_us
        if not len(edges):
            return ~is_edge, until
        number, instants = span.group[edges], span.system_us[edges]
        starts = np.searchsorted(number, np.arange(len(span.starts)))
        found = first_above(instants, number, starts, span.system_us, span.group)
        exists = found < starts[span.group + 1]
        rows_ended = span.order[exists]
        until[rows_ended] = np.minimum(until[rows_ended], instants[found[exists]])
        return ~is_edge, until


def sort_ends(groups: Groups, ends_us: Ticks) -> Ticks:
    """Return the ends of lives, given place by place, sorted within each group."""
    turns = (ends_us[1:] < ends_us[:-1]) & (groups.group[1:] == groups.group[:-1])
    if not turns.any():
        return ends_us
    by_time = np.argsort(ends_us, kind="stable")
    found: Ticks = ends_us[by_time[group_order(groups.group[by_time])]]
    return found


def count_alive(groups: Groups, ends_us: Ticks) -> tuple[Ticks, Ticks, Ticks]:
    """
    Return the instants at which rows begin or end to live, each once for its group.

    Args:
        groups: The rows that live.
        ends_us: When the row at each place ends to, after its own time.

    Returns:
        The instants, the numbers of their groups, and how many rows are alive then.
    """
    ended_us = sort_ends(groups, ends_us)
    begun = _lasts(groups.system_us, groups.group)
    ended = _lasts(ended_us, groups.group)
    begins, group = groups.system_us[begun], groups.group[begun]
    ends, group_ended = ended_us[ended], groups.group[ended]
    alive = begun + 1 - first_above(ended_us, groups.group, groups.starts, begins, group)
    others = first_above(groups.system_us, groups.group, groups.starts, ends, group_ended)
    # An end at which another row begins is an instant already.
    only = groups.system_us[others - 1] != ends
    alive = np.concatenate([alive, (others - (ended + 1))[only]])
    return np.concatenate([begins, ends[only]]), np.concatenate([group, group_ended[only]]), alive


def _lasts(instants: Ticks, group: Ticks) -> Ticks:
    """Return the last place of each instant in its group."""
    is_last = np.ones(len(instants), dtype=np.bool_)
    is_last[:-1] = (instants[1:] != instants[:-1]) | (group[1:] != group[:-1])
    return np.flatnonzero(is_last)
