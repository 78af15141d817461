"""
Analytic functions: the rows below, each with what it sees of itself and of the rows of its group before it.

A group is a substream and the values of PARTITION BY; NULL is a value of its own. Rows of one instant stand in the fixed
order, so a later one sees an earlier one. A row exactly as old as LIMIT DURATION says still counts; one that does not meet
WHEN is not seen, and its argument is not even computed. LAG and LAST give NULL where the row they find has it, and the
default, else NULL, only where they find none. Aggregates are those of windows in all respects
(:mod:`query.operators.windows.windowed_aggregate`); over nothing COUNT is 0, an array is empty and the others are NULL. ISFIRST is 0 in
rows that do not meet WHEN.

What is kept of rows that have had their results is their part in later ones: for LAG and LAST the last few of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.operators.analytic.function_columns import ROW_COUNT, AnalyticColumns, state_name
from query.operators.rows.row_groups import Candidates, Groups, Ints, Mask, group_numbers, interval_ends, take_or_null
from query.operators.windows import compacting
from query.operators.windows.holistic import compute_aggregate, is_holistic
from query.operators.windows.running_totals import aggregate_runs, choose_states, row_states, sum_groups
from query.plan.nodes import Analyze
from query.plan.operator import Operator
from query.plan.row_tables import Retained, by_substream, concat_rows, only_side, ticks, with_reasons
from tidegate.expressions.functions.column_functions import Failure
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Aggregate, Analytic, Expr
from tidegate.expressions.variant import Variant, gather, valid_mask

_Shared = tuple[tuple[Expr, ...], Expr | None]
"""Partition and condition: functions that agree in them see the same candidates."""


@dataclass(frozen=True)
class Analysis(Operator):
    """The operator of a :class:`query.plan.nodes.Analyze`."""

    node: Analyze

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return the rows with what the functions need of them, and the bad rows, which no other row sees."""
        return self._columns.prepare(below)

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us and a column for each function, in the order of rows."""
        every = only_side(retained)
        subs, system_us = ticks(every, "sub"), ticks(every, "system_us")
        due = system_us < by_substream(subs, closing, "to_us", 0)
        if not due.all():
            every, subs, system_us = every.filter(pa.array(due)), subs[due], system_us[due]
        fresh = np.flatnonzero(system_us >= by_substream(subs, closing, "from_us", 0))
        found = every.select(self._columns.input_columns(every)).take(pa.array(fresh))
        if not len(fresh):
            return found
        looks = dict(self._looks(every, self.node.analytics))
        width = len(self.node.child.columns)
        failures: list[Failure] = []
        for at, analytic in enumerate(self.node.analytics):
            look = looks[analytic.partition, analytic.when]
            column, failed = self._column(analytic, every, look, look.groups.place[fresh], fresh)
            failures += failed
            for name, part in column.columns(f"s{width + at}").items():
                found = found.append_column(name, part)
        return with_reasons(found, failures)

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        """Return when a row comes, and the last instant at which another one is young enough to see it."""
        instant = np.array([instant_us])
        return instant_us, max(instant_us, *(int(_until(analytic, instant)[0]) for analytic in self.node.analytics))

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows with system_us >= to_us, and those that a row from to_us on is young enough to see."""
        system_us = ticks(retained, "system_us")
        to_us = by_substream(ticks(retained, "sub"), horizon, "to_us", 0)
        needed = system_us >= to_us
        for analytic in self.node.analytics:
            meets = self._columns.condition_mask(retained, analytic.when)
            needed |= (_until(analytic, system_us) >= to_us) & (True if meets is None else meets)
        return retained if needed.all() else retained.filter(pa.array(needed))

    @property
    def can_condense(self) -> bool:
        """Whether some rows hide others: of those that are summed up all are needed."""
        return not self.can_summarize

    def condense(self, pieces: Sequence[pa.Table], horizon: pa.Table, side: int = 0) -> list[Mask]:
        """Tell which rows of all pieces together are needed: of LAG and LAST the last of each group, of ISFIRST the first."""
        every = concat_rows(list(pieces))
        system_us = ticks(every, "system_us")
        to_us = by_substream(ticks(every, "sub"), horizon, "to_us", 0)
        past = system_us < to_us
        needed = ~past
        for (partition, when), look in self._looks(every, self.node.analytics, past):
            for analytic in self.node.analytics:
                if (analytic.partition, analytic.when) == (partition, when):
                    young = _until(analytic, system_us) >= to_us
                    needed |= young & _keeping(analytic, look)[look.groups.place]
        return np.split(needed, np.cumsum([piece.num_rows for piece in pieces])[:-1])

    @property
    def _columns(self) -> AnalyticColumns:
        return AnalyticColumns(self.node)

    def _looks(self, rows: pa.Table, analytics: Sequence[Analytic], among: Mask | None = None) -> Iterator[tuple[_Shared, Candidates]]:
        """Yield the candidates of each partition and condition; only those *among* count."""
        subs, system_us = ticks(rows, "sub"), ticks(rows, "system_us")
        groups: dict[tuple[Expr, ...], Groups] = {}
        for partition, when in dict.fromkeys((analytic.partition, analytic.when) for analytic in analytics):
            if partition not in groups:
                keys = [self._columns.value(rows, key) for key in partition]
                groups[partition] = Groups.of(group_numbers(subs, keys), system_us)
            meets = self._columns.condition_mask(rows, when)
            both = meets if among is None else among if meets is None else meets & among
            yield (partition, when), groups[partition].candidates(both)

    # Functions

    def _column(self, analytic: Analytic, rows: pa.Table, look: Candidates, asked: Ints, fresh: Ints) -> tuple[Variant, Sequence[Failure]]:
        """Return the values of one function in the rows *fresh*, which stand at the places *asked*, and in which of them it failed."""
        if analytic.aggregate is not None:
            return self._total(analytic, analytic.aggregate, rows, look, asked)
        if analytic.function == "isfirst":
            first = look.first_of_interval_mask(asked, analytic.limit_us)
            return Variant.of(len(asked), {Kind.BIGINT: pa.array(first.astype(np.int64))}), []
        return self._seen(analytic, rows, look, asked, fresh), []

    def _seen(self, analytic: Analytic, rows: pa.Table, look: Candidates, asked: Ints, fresh: Ints) -> Variant:
        """Return the values of LAG or LAST."""
        found, exists = look.look_back(asked, analytic.rows_back, analytic.limit_us)
        assert analytic.arg is not None
        source = np.zeros(len(asked), dtype=np.int64)
        source[exists] = look.rows[found[exists]]
        column = take_or_null(self._columns.value(rows, analytic.arg, analytic.when), source, exists)
        if analytic.default is None or exists.all():
            return column
        without = np.flatnonzero(~exists)
        default = self._columns.value(rows, analytic.default).take_rows(fresh[without])
        having = np.flatnonzero(exists)
        return gather(len(asked), [(having, column.take_rows(having)), (without, default)])

    def _total(
        self, analytic: Analytic, total: Aggregate, rows: pa.Table, look: Candidates, asked: Ints
    ) -> tuple[Variant, Sequence[Failure]]:
        """Return the aggregate over the candidates that each place sees."""
        first, last = look.range_within(asked, analytic.limit_us)
        values = [self._columns.value(rows, part, analytic.when).take_rows(look.rows) for part in total.parts]
        if is_holistic(total):
            return compute_aggregate(total, values, first, last)
        cells = row_states(total, values, len(look.rows))
        if ROW_COUNT in rows.column_names:
            prefix = state_name(self.node.analytics.index(analytic), "")
            states = [name for name in rows.column_names if name.startswith(prefix)]
            summaries = rows.select([ROW_COUNT, *states]).take(pa.array(look.rows)).combine_chunks()
            given = {name.removeprefix(prefix): summaries[name].combine_chunks() for name in states}
            cells = choose_states(valid_mask(summaries[ROW_COUNT].combine_chunks()), given, cells)
        return aggregate_runs(total, cells, first, last), []

    # Sums of what all rows see

    @property
    def can_summarize(self) -> bool:
        """Whether states make all that is asked of the rows seen."""
        return all(analytic.aggregate is not None and not is_holistic(analytic.aggregate) for analytic in self.node.analytics)

    def is_seen_alike(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        """Tell whether of the rows between two instants, both included, each function sees all or none, whichever row asks."""
        low_us, high_us = ends_us
        limits_us = {analytic.limit_us for analytic in self.node.analytics}
        return high_us < from_us and all(low_us + limit_us >= to_us - 1 or high_us + limit_us < from_us for limit_us in limits_us)

    def summarize(self, retained: pa.Table) -> pa.Table:
        """Return a row of states for each group whose rows are seen alike; the rows themselves if that saves little."""
        subs, system_us = ticks(retained, "sub"), ticks(retained, "system_us")
        keys = dict.fromkeys(key for each in self.node.analytics for key in each.partition)
        conditions = dict.fromkeys(each.when for each in self.node.analytics if each.when is not None)
        alike = [self._columns.value(retained, key) for key in keys]
        alike += [Variant.of(len(subs), {Kind.BIT: pa.array(self._columns.condition_mask(retained, when))}) for when in conditions]
        groups = Groups.of(group_numbers(subs, alike), system_us)
        starts = groups.starts[:-1]
        if compacting.SAVING * len(starts) > len(subs):
            return retained
        owners = retained.take(pa.array(groups.order[starts]))
        at = owners.schema.get_field_index("system_us")
        table = owners.set_column(at, "system_us", pa.array(np.maximum.reduceat(groups.system_us, starts)))
        table = table.append_column(ROW_COUNT, pa.array(np.diff(groups.starts)))
        for number, analytic in enumerate(self.node.analytics):
            assert analytic.aggregate is not None, "only aggregates are sum_groups up"
            values = [self._columns.value(retained, part, analytic.when) for part in analytic.aggregate.parts]
            for name, states in sum_groups(
                analytic.aggregate, row_states(analytic.aggregate, values, len(subs)), groups.order, starts
            ).items():
                table = table.append_column(state_name(number, name), states)
        return table


def _until(analytic: Analytic, system_us: Ints) -> Ints:
    """Return until when rows can be seen."""
    return interval_ends(system_us, analytic.limit_us) if analytic.function == "isfirst" else system_us + analytic.limit_us


def _keeping(analytic: Analytic, look: Candidates) -> Mask:
    """Tell of each place whether rows to come can see it."""
    if analytic.function in ("lag", "last"):
        return look.newest_mask(max(analytic.rows_back, 1))
    if analytic.function == "isfirst":
        return look.first_of_interval_mask(np.arange(len(look.meets)), analytic.limit_us)
    return look.meets
