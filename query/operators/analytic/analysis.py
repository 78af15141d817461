"""
Analytic functions: each input row with the values of functions over itself and the earlier rows of its group.

A group is a substream and the values of PARTITION BY; NULL is a value of its own. Rows of one instant have a fixed order, so a later one
sees an earlier one. A row exactly as old as LIMIT DURATION still counts. A row that does not meet WHEN is not seen, and its argument is not
computed. LAG and LAST return the value of the row they see, also if it is NULL; if they see no row, they return the default, else NULL.
Aggregates are those of windows (:mod:`query.operators.windows.windowed_aggregate`); over no rows COUNT is 0, an array is empty and the
others are NULL. ISFIRST is 0 in rows that do not meet WHEN.

Rows that have had their results are kept as long as later rows can see them: for LAG and LAST the last few of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from query.columns.large_tables import in_parts, take_rows
from query.operators.analytic.function_columns import ROW_COUNT, AnalyticColumns, state_name
from query.operators.rows.row_groups import Candidates, RowGroups, group_numbers, interval_ends, take_or_null
from query.operators.windows import compacting
from query.operators.windows.holistic import compute_aggregate, is_holistic
from query.operators.windows.running_totals import aggregate_runs, choose_states, row_states, sum_groups
from query.plan.gathered import Gathered, tables_of
from query.plan.nodes import Analyze
from query.plan.operator import Operator
from query.plan.row_tables import Retained, append_values, by_substream, concat_rows, only_side, ticks, with_reasons
from tidegate.language.expressions.functions.catalog import ANOMALIES
from tidegate.language.expressions.functions.column_functions import FailedRows
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate, Analytic, Expr
from tidegate.language.expressions.variant import Variant, gather, valid_mask

# Partition and condition: functions that agree in both see the same candidates.
_Shared = tuple[tuple[Expr, ...], Expr | None]


@dataclass(frozen=True)
class Analysis(Operator):
    """The operator of a :class:`query.plan.nodes.Analyze`."""

    node: Analyze

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        return self._columns.prepare(below)

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us and a column for each function, in the order of rows."""
        return concat_rows([*self._slices(only_side(retained), closing)])

    def slices(self, gathered: Sequence[Gathered | None], closing: pa.Table) -> Iterator[pa.Table]:
        yield from self._slices(only_side(tables_of(gathered)), closing)

    def _slices(self, seen: pa.Table, closing: pa.Table) -> Iterator[pa.Table]:
        subs, system_us = ticks(seen, "sub"), ticks(seen, "system_us")
        due = system_us < by_substream(subs, closing, "to_us")
        if not due.all():
            seen, subs, system_us = seen.filter(pa.array(due)), subs[due], system_us[due]
        fresh = np.flatnonzero(system_us >= by_substream(subs, closing, "from_us"))
        candidates_of = dict(self._shared_candidates(seen)) if len(fresh) else {}
        # Many rows may see one long text.
        yield from in_parts(fresh, lambda rows: self._results(seen, candidates_of, rows))

    def _results(self, seen: pa.Table, candidates_of: Mapping[_Shared, Candidates], fresh: Ints) -> pa.Table:
        """Return the rows *fresh* with the values of all functions."""
        results = take_rows(seen.select(self._columns.input_columns(seen)), fresh)
        if not len(fresh):
            return results
        width = len(self.node.child.columns)
        failures: list[FailedRows] = []
        for number, analytic in enumerate(self.node.analytics, start=width):
            candidates = candidates_of[analytic.partition, analytic.when]
            column, failed = self._column(analytic, seen, candidates, candidates.groups.place[fresh], fresh)
            failures += failed
            results = append_values(results, f"s{number}", column)
        return with_reasons(results, failures)

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        instant = np.array([instant_us])
        return instant_us, max(instant_us, *(int(_until(analytic, instant)[0]) for analytic in self.node.analytics))

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        system_us = ticks(retained, "system_us")
        to_us = by_substream(ticks(retained, "sub"), horizon, "to_us")
        needed = system_us >= to_us
        for analytic in self.node.analytics:
            is_met = self._columns.condition_mask(retained, analytic.when)
            needed |= (_until(analytic, system_us) >= to_us) & (True if is_met is None else is_met)
        return retained if needed.all() else retained.filter(pa.array(needed))

    @property
    def computes_keys(self) -> bool:
        return self._columns.are_computed

    @property
    def can_outgrow(self) -> bool:
        # Without WHEN each row is seen by one other.
        return any(analytic.aggregate is not None or analytic.when is not None for analytic in self.node.analytics)

    @property
    def can_condense(self) -> bool:
        """Whether some rows hide others. If rows are summarized, all of them are needed."""
        return not self.can_summarize

    def condense(self, pieces: Sequence[pa.Table], horizon: pa.Table, side: int = 0) -> list[Mask]:
        """Return which rows of all pieces are needed: for LAG and LAST the last of each group, for ISFIRST the first."""
        rows = concat_rows(list(pieces))
        system_us = ticks(rows, "system_us")
        to_us = by_substream(ticks(rows, "sub"), horizon, "to_us")
        past = system_us < to_us
        needed = ~past
        for (partition, when), candidates in self._shared_candidates(rows, past):
            for analytic in self.node.analytics:
                if (analytic.partition, analytic.when) == (partition, when):
                    is_young = _until(analytic, system_us) >= to_us
                    needed |= is_young & _visible_later(analytic, candidates)[candidates.groups.place]
        return np.split(needed, np.cumsum([piece.num_rows for piece in pieces])[:-1])

    @cached_property
    def _columns(self) -> AnalyticColumns:
        return AnalyticColumns(self.node)

    def _shared_candidates(self, rows: pa.Table, among: Mask | None = None) -> Iterator[tuple[_Shared, Candidates]]:
        """Yield the candidates of each partition and condition, restricted to the rows *among*."""
        subs, system_us = ticks(rows, "sub"), ticks(rows, "system_us")
        groups: dict[tuple[Expr, ...], RowGroups] = {}
        for partition, when in dict.fromkeys((analytic.partition, analytic.when) for analytic in self.node.analytics):
            if partition not in groups:
                keys = [self._columns.value(rows, key) for key in partition]
                groups[partition] = RowGroups.of(group_numbers(subs, keys), system_us)
            chosen = self._columns.condition_mask(rows, when)
            if among is not None:
                chosen = among if chosen is None else chosen & among
            yield (partition, when), groups[partition].candidates(chosen)

    # Functions

    def _column(
        self, analytic: Analytic, rows: pa.Table, candidates: Candidates, asked: Ints, fresh: Ints
    ) -> tuple[Variant, Sequence[FailedRows]]:
        """Return the values of one function in the rows *fresh*, at the places *asked* of their groups, and its failures."""
        if analytic.aggregate is not None:
            return self._aggregate(analytic, analytic.aggregate, rows, candidates, asked)
        if analytic.function == "isfirst":
            first = candidates.first_of_interval_mask(asked, analytic.limit_us)
            return Variant.of(len(asked), {Kind.BIGINT: pa.array(first.astype(np.int64))}), []
        return self._lag_or_last(analytic, rows, candidates, asked, fresh), []

    def _lag_or_last(self, analytic: Analytic, rows: pa.Table, candidates: Candidates, asked: Ints, fresh: Ints) -> Variant:
        numbers, exists = candidates.look_back(asked, analytic.rows_back, analytic.limit_us)
        assert analytic.arg is not None
        source = np.zeros(len(asked), dtype=np.int64)
        source[exists] = candidates.rows[numbers[exists]]
        column = take_or_null(self._columns.value(rows, analytic.arg, analytic.when), source, exists)
        if analytic.default is None or exists.all():
            return column
        without = np.flatnonzero(~exists)
        default = self._columns.value(rows, analytic.default).take_rows(fresh[without])
        having = np.flatnonzero(exists)
        return gather(len(asked), [(having, column.take_rows(having)), (without, default)])

    def _aggregate(
        self, analytic: Analytic, total: Aggregate, rows: pa.Table, candidates: Candidates, asked: Ints
    ) -> tuple[Variant, Sequence[FailedRows]]:
        first, last = candidates.range_within(asked, analytic.limit_us)
        if total.function in ANOMALIES:
            # A row that does not meet WHEN is not judged: the score would be that of an earlier row.
            last = np.where(candidates.is_candidate[asked], last, first - 1)
        values = [self._columns.value(rows, part, analytic.when).take_rows(candidates.rows) for part in total.parts]
        if is_holistic(total):
            return compute_aggregate(total, values, first, last)
        cells = row_states(total, values, len(candidates.rows))
        if ROW_COUNT in rows.column_names:
            prefix = state_name(self.node.analytics.index(analytic), "")
            states = [name for name in rows.column_names if name.startswith(prefix)]
            summaries = rows.select([ROW_COUNT, *states]).take(pa.array(candidates.rows)).combine_chunks()
            summed = {name.removeprefix(prefix): summaries[name].combine_chunks() for name in states}
            cells = choose_states(valid_mask(summaries[ROW_COUNT].combine_chunks()), summed, cells)
        return aggregate_runs(total, cells, first, last), []

    # Rows that all rows of a slice of time see alike

    @property
    def can_summarize(self) -> bool:
        """Whether every function is an aggregate made of states."""
        return all(analytic.aggregate is not None and not is_holistic(analytic.aggregate) for analytic in self.node.analytics)

    def results_depend_alike(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        low_us, high_us = ends_us
        limits_us = {analytic.limit_us for analytic in self.node.analytics}
        return high_us < from_us and all(low_us + limit_us >= to_us - 1 or high_us + limit_us < from_us for limit_us in limits_us)

    def summarize(self, retained: pa.Table) -> pa.Table:
        """Return a row of states for each set of rows with equal keys and conditions; the rows themselves if that saves little."""
        subs, system_us = ticks(retained, "sub"), ticks(retained, "system_us")
        keys = dict.fromkeys(key for analytic in self.node.analytics for key in analytic.partition)
        conditions = dict.fromkeys(analytic.when for analytic in self.node.analytics if analytic.when is not None)
        equal = [self._columns.value(retained, key) for key in keys]
        equal += [Variant.of(len(subs), {Kind.BIT: pa.array(self._columns.condition_mask(retained, when))}) for when in conditions]
        groups = RowGroups.of(group_numbers(subs, equal), system_us)
        starts = groups.starts[:-1]
        if compacting.SAVING * len(starts) > len(subs):
            return retained
        owners = retained.take(pa.array(groups.order[starts]))
        place = owners.schema.get_field_index("system_us")
        # All of these rows are seen, or none is, so the time of the latest can stand for all.
        table = owners.set_column(place, "system_us", pa.array(np.maximum.reduceat(groups.system_us, starts)))
        table = table.append_column(ROW_COUNT, pa.array(np.diff(groups.starts)))
        for number, analytic in enumerate(self.node.analytics):
            assert analytic.aggregate is not None, "only aggregates are summed up"
            values = [self._columns.value(retained, part, analytic.when) for part in analytic.aggregate.parts]
            states_of_rows = row_states(analytic.aggregate, values, len(subs))
            for name, states in sum_groups(analytic.aggregate, states_of_rows, groups.order, starts).items():
                table = table.append_column(state_name(number, name), states)
        return table


def _until(analytic: Analytic, system_us: Ints) -> Ints:
    """Return the last instant at which each row can be seen."""
    return interval_ends(system_us, analytic.limit_us) if analytic.function == "isfirst" else system_us + analytic.limit_us


def _visible_later(analytic: Analytic, candidates: Candidates) -> Mask:
    """Return for each place whether later rows can see it."""
    if analytic.function in ("lag", "last"):
        return candidates.newest_mask(max(analytic.rows_back, 1))
    if analytic.function == "isfirst":
        return candidates.first_of_interval_mask(np.arange(len(candidates.is_candidate)), analytic.limit_us)
    return candidates.is_candidate
