"""
MATCH_RECOGNIZE: a result for each row that begins a match, at the instant from which the match is certain.

Law: results depend on the rows of each partition and their order. A result comes at the row that decides its match, or where no row does,
at the last instant at which a row could have belonged to it: its first row's time plus LIMIT DURATION. Results of one instant are in the
order of the first rows of their matches.

First it is found which attempts have results in the slice; then their rows are followed once more, a bounded number at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from query.columns.large_tables import in_parts
from query.operators.patterns.matcher import NO_ROW, OPEN, Attempts, Condition, Memory, PartitionRows, Rules, find_matches
from query.operators.rows.ranks import ranks
from query.operators.rows.row_groups import RowGroups, group_numbers, take_or_null
from query.operators.windows.holistic import compute_aggregate, is_holistic
from query.operators.windows.running_totals import aggregate_runs, row_states
from query.plan.gathered import Gathered, tables_of
from query.plan.nodes import Recognize
from query.plan.operator import Operator
from query.plan.row_patterns import ANY, Automaton, make_automaton
from query.plan.row_tables import BAD_SCHEMA, Retained, by_substream, concat_rows, no_rows, only_side, rows_table, ticks, with_reasons
from tidegate.basics.budget import BUDGET, cut
from tidegate.basics.dead_letter_reasons import ReasonText, with_place
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.functions.column_functions import FailedRows
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate, Expr, MatchValue, Slot, Total
from tidegate.language.expressions.variant import Variant, from_columns


@dataclass(frozen=True)
class Recognition(Operator):
    """The operator of a :class:`query.plan.nodes.Recognize`."""

    node: Recognize

    @property
    def reach_us(self) -> int:
        return self.node.limit_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        return below, BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        tables = [*self._slices(only_side(retained), closing)]
        return concat_rows(tables) if tables else no_rows()

    def slices(self, gathered: Sequence[Gathered | None], closing: pa.Table) -> Iterator[pa.Table]:
        yield from self._slices(only_side(tables_of(gathered)), closing)

    def _slices(self, rows: pa.Table, closing: pa.Table) -> Iterator[pa.Table]:
        sorted_rows = _SortedRows.of(self.node, rows, closing)
        if sorted_rows is None:
            return
        rules = self._rules(sorted_rows)
        from_us = by_substream(sorted_rows.subs, closing, "from_us")
        start = np.flatnonzero(sorted_rows.system_us + self.node.limit_us >= from_us)
        attempts = find_matches(rules, sorted_rows.rows, start)
        is_due = (attempts.decided_us != OPEN) & (attempts.decided_us >= from_us[start])
        is_due &= attempts.length > 0
        is_due[list(attempts.reasons)] |= attempts.decided_us[list(attempts.reasons)] >= from_us[start[list(attempts.reasons)]]
        due = np.flatnonzero(is_due)
        due = due[np.lexsort((sorted_rows.order[start[due]], attempts.decided_us[due]))]
        parts = [due[part] for part in cut(attempts.steps[due], BUDGET.numbered_rows)] or [due]
        for part in parts:
            yield from in_parts(part, lambda numbers: self._results(rules, sorted_rows, attempts, numbers))

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        return instant_us, instant_us + self.node.limit_us

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        to_us = by_substream(ticks(retained, "sub"), horizon, "to_us")
        return retained.filter(pa.array(ticks(retained, "system_us") + self.node.limit_us >= to_us))

    @property
    def can_condense(self) -> bool:
        return True

    def condense(self, pieces: Sequence[pa.Table], horizon: pa.Table, side: int = 0) -> list[Mask]:
        """Return which rows of all pieces are needed: those from the first row of an open attempt on."""
        whole = concat_rows([*pieces])
        needed = ticks(whole, "system_us") >= by_substream(ticks(whole, "sub"), horizon, "to_us")
        sorted_rows = _SortedRows.of(self.node, whole, horizon)
        if sorted_rows is not None:
            count = len(sorted_rows.system_us)
            attempts = find_matches(self._rules(sorted_rows), sorted_rows.rows, np.arange(count))
            is_open = attempts.decided_us == OPEN
            # The number of open attempts of its partition up to each row.
            opened = np.cumsum(is_open)
            begins = sorted_rows.group_start
            before = np.where(begins > 0, opened[begins - 1], 0)
            needed[sorted_rows.order] |= opened > before
        return np.split(needed, np.cumsum([piece.num_rows for piece in pieces])[:-1])

    # Conditions

    def _rules(self, sorted_rows: _SortedRows) -> Rules:
        memories = tuple(_memory(value, sorted_rows) for value in self._memories)
        conditions = {name: self._condition(expr, sorted_rows) for name, expr in self.node.definitions if name != ANY}
        return Rules(self._automaton, memories, conditions, self.node.limit_us)

    @cached_property
    def _automaton(self) -> Automaton:
        return make_automaton(self.node.pattern)

    @cached_property
    def _memories(self) -> list[MatchValue]:
        return list(self.node.inputs)

    def _condition(self, expr: Expr, sorted_rows: _SortedRows) -> Condition:
        if isinstance(expr, Slot):
            met = pc.fill_null(sorted_rows.value(expr).of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False)
            return lambda row, _: (met[row], {})
        return lambda row, memory: self._test(expr, sorted_rows, row, memory)

    def _test(self, expr: Expr, sorted_rows: _SortedRows, row: Ints, memory: Ints) -> tuple[Mask, Mapping[int, ReasonText]]:
        leaves: dict[Expr, Variant] = {}
        for leaf in expr.leaves():
            if isinstance(leaf, Total):
                source = memory[:, leaf.index]
                arg = self._memories[leaf.index].arg
                assert isinstance(arg, Slot)
                leaves[leaf] = take_or_null(sorted_rows.value(arg), np.maximum(source, 0), source != NO_ROW)
            else:
                assert isinstance(leaf, Slot)
                leaves[leaf] = sorted_rows.value(leaf).take_rows(row)
        (verdict,), failures = evaluate([expr], leaves, len(row))
        fits = pc.fill_null(verdict.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False)
        return fits, {number: failure.reason for failure in failures for number in failure.rows.tolist()}

    # Results

    def _results(self, rules: Rules, sorted_rows: _SortedRows, attempts: Attempts, numbers: Ints) -> pa.Table:
        start = attempts.start[numbers]
        matches = find_matches(rules, sorted_rows.rows, start, trace=True)
        values = _MatchRows(self._automaton.names, matches, sorted_rows)
        totals: dict[Expr, Variant] = {}
        failures: list[FailedRows] = []
        for index, measure in enumerate(self.node.measures):
            column, failed = values.measure(measure)
            totals[Total(index, "", None)] = column
            failures += failed
        exprs = [column.expr for column in self.node.columns]
        columns, failed = evaluate(exprs, totals, len(numbers), can_split=True)
        failures += failed
        of_attempts = [FailedRows(np.array([number]), with_place(reason, self.node.pattern)) for number, reason in matches.reasons.items()]
        rows = sorted_rows.order[start]
        head = sorted_rows.table.select(["sub", "key"]).take(pa.array(rows)).combine_chunks()
        sub, key = (head[name].combine_chunks() for name in ("sub", "key"))
        table = rows_table(sub, pa.array(attempts.decided_us[numbers]), key, columns)
        return with_reasons(table, [*of_attempts, *failures])


def _memory(value: MatchValue, sorted_rows: _SortedRows) -> Memory:
    assert isinstance(value.arg, Slot)
    is_ranked = value.function in ("min", "max")
    return Memory(value.function, value.variable, ranks(sorted_rows.value(value.arg)) if is_ranked else None)


@dataclass(frozen=True)
class _SortedRows:
    """The rows that are known of finished instants, partition after partition."""

    table: pa.Table
    # The number of the row at each place, the time, the substream, and the place at which its partition begins.
    order: Ints
    system_us: Ints
    subs: Ints
    group_start: Ints
    rows: PartitionRows

    @classmethod
    def of(cls, node: Recognize, table: pa.Table, closing: pa.Table) -> _SortedRows | None:
        """Sort the rows below ``to_us`` of their substreams; None if there are none."""
        subs, system_us = ticks(table, "sub"), ticks(table, "system_us")
        to_us = by_substream(subs, closing, "to_us")
        known = np.flatnonzero(system_us < to_us)
        if not len(known):
            return None
        keys = [from_columns(table, f"s{key.index}").take_rows(known) for key in node.partition]
        groups = RowGroups.of(group_numbers(subs[known], keys), system_us[known])
        order = known[groups.order]
        rows = PartitionRows(groups.system_us, groups.starts[groups.group + 1], to_us[order])
        return cls(table, order, groups.system_us, subs[order], groups.starts[groups.group], rows)

    def value(self, column: Slot) -> Variant:
        """Return the values of a column in the order of places."""
        if column.index not in self._values:
            self._values[column.index] = from_columns(self.table, f"s{column.index}").take_rows(self.order)
        return self._values[column.index]

    @cached_property
    def _values(self) -> dict[int, Variant]:
        return {}


class _MatchRows:
    """The rows of some matches, and the values that are computed from them."""

    def __init__(self, names: Sequence[str], matches: Attempts, sorted_rows: _SortedRows) -> None:
        self._names, self._matches, self._sorted = names, matches, sorted_rows
        length = matches.length
        self._match = np.repeat(np.arange(len(length)), length)
        within = np.arange(len(self._match)) - np.repeat(np.cumsum(length) - length, length)
        self._row = matches.start[self._match] + within

    def measure(self, value: MatchValue) -> tuple[Variant, Sequence[FailedRows]]:
        if value.function == "classifier":
            return self._classifier(), []
        chosen = self._rows_of(value.variable)
        row, counts = self._row[chosen], np.bincount(self._match[chosen], minlength=len(self._matches.length))
        end = np.cumsum(counts)
        first, last = end - counts, end - 1
        if value.aggregate is not None:
            return self._aggregate(value.aggregate, row, first, last)
        assert isinstance(value.arg, Slot)
        place = first if value.function == "first" else last
        exists = counts > 0
        source = np.zeros(len(counts), dtype=np.int64)
        source[exists] = row[place[exists]]
        return take_or_null(self._sorted.value(value.arg), source, exists), []

    def _rows_of(self, variable: str | None) -> Mask:
        if variable is None:
            return np.ones(len(self._row), dtype=np.bool_)
        mask: Mask = np.array([name.lower() == variable for name in self._names])[self._matches.places]
        return mask

    def _aggregate(self, total: Aggregate, row: Ints, first: Ints, last: Ints) -> tuple[Variant, Sequence[FailedRows]]:
        values = []
        for part in total.parts:
            assert isinstance(part, Slot)
            values.append(self._sorted.value(part).take_rows(row))
        if is_holistic(total):
            return compute_aggregate(total, values, first, last)
        return aggregate_runs(total, row_states(total, values, len(row)), first, last), []

    def _classifier(self) -> Variant:
        """Return the names of the rows of each match, as an array."""
        names = pa.array([json.dumps(name, ensure_ascii=False) for name in self._names], pa.string())
        offsets = np.concatenate([[0], np.cumsum(self._matches.length)]).astype(np.int32)
        listed = pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(self._matches.places)))
        texts = pc.binary_join_element_wise("[", pc.binary_join(listed, ","), "]", "")
        return Variant.of(len(texts), {Kind.ARRAY: texts})
