"""
The program of a query: the operators of all its plans in order, and the computation of a finished slice of time.

The caller owns time and memory. It passes events in order to ``prepare``, keeps the returned rows in its retention, and calls ``finish``
when instants have become final; ``finish`` drops the rows that no later result needs. Law: the results of all calls of ``finish`` together
depend on the events, not on how time was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.ticks import INFINITY, NEVER
from query.columns.encode import encode_objects
from query.columns.large_tables import halve_table, split_by_bytes
from query.engine.ahead import ahead_of, shift_slices
from query.engine.compile import make_operator
from query.engine.gathering import (
    compute_if_small,
    compute_rows,
    expire_too_many,
    expiring_rows,
    find_step_end,
    select_pieces,
)
from query.engine.retention import Piece, RetainedKind, Retention
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX
from query.operators.rows.event_fields import EventFields
from query.operators.rows.instant_rows import InstantRows
from query.operators.rows.project import EncodedProjection
from query.plan.columns_read import columns_present, fields_extracted, needed_columns, rows_below
from query.plan.gathered import Gathered, GatheredTable, number_rows, tables_of
from query.plan.nodes import Custom, Node, Plan, ReferenceJoin, Rows, scan_of
from query.plan.operator import Operator
from query.plan.operator_extensions import check_rows_in_slice
from query.plan.record_members import members_as_columns
from query.plan.row_tables import RESULT_SCHEMA, encode_rows, first_reasons, split_failed
from query.reference.tables import ReferenceTable
from tidegate.basics.budget import BUDGET, compute_in_halves
from tidegate.language.expressions.variant import from_columns
from tidegate.records.payloads.formats import JSON, PayloadFormat

# Names, and the rows to retain under them.
Prepared = list[tuple[str, pa.Table]]
# Cuts a slice of time into parts; its argument says whether a part must be cut further.
Divide = Callable[[Callable[[pa.Table], bool]], Iterator[pa.Table]]


# How plans are rewritten before they run, in this order. Each pass keeps results and dead letters as those of the script.
PASSES: tuple[Callable[[Sequence[Plan]], tuple[Plan, ...]], ...] = (members_as_columns,)


def rewrite(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """
    Return the plans after all passes.

    Here TopOne() picks a whole row, of which only ``car`` is read. So only ``car`` is picked, and no record is made.

    >>> from query.sql.bind import bind_outputs
    >>> from tidegate.language.expressions.binding.input_schema import InputSchema
    >>> from tidegate.language.expressions.syntax.parse import parse_script
    >>> text = (
    ...     "WITH rides AS (SELECT TRY_CAST(car AS nvarchar(max)) AS car, TRY_CAST(at AS bigint) AS at FROM a), "
    ...     "newest AS (SELECT TopOne() OVER (ORDER BY at DESC) AS row FROM rides GROUP BY TumblingWindow(minute, 1)) "
    ...     "SELECT newest.row.car AS car INTO out FROM newest"
    ... )
    >>> plans = bind_outputs(parse_script(text, "out"), [InputSchema("a")])
    >>> for line in rewrite(plans)[0].explain().splitlines()[:3]:
    ...     print(line)
    Output out
      Project row.car AS car
        WindowedAggregate tumbling 1m by all: car AS row.car
    """
    rewritten = tuple(plans)
    for rewrite_all in PASSES:
        rewritten = rewrite_all(rewritten)
    return rewritten


@dataclass(frozen=True)
class ProgramStep:
    """One operator of a program."""

    node: Rows
    operator: Operator
    # The numbers of the steps whose rows it takes; none if it takes events.
    below: tuple[int, ...]
    input: str | None
    # For each side the name under which its retained rows are kept.
    names: tuple[str, ...]
    # How far ahead of its inputs it knows its rows, microseconds.
    ahead_us: int


@dataclass
class Program:
    """A query ready to run."""

    # A plan for each output.
    plans: tuple[Plan, ...]
    # How the payloads of each input are written; JSON for others.
    payloads: Mapping[str, PayloadFormat] = field(default_factory=dict)
    # The output start: results below this instant are left out; ``NEVER``: none is.
    start_us: int = NEVER
    # The output end: results at or above this instant are left out; ``INFINITY``: none is.
    until_us: int = INFINITY
    # The tables of reference data that are looked up, by name.
    references: Mapping[str, ReferenceTable] = field(default_factory=dict)
    # Most pairs of one key that a join makes at one instant.
    join_pairs_max: int = JOIN_PAIRS_MAX

    def __post_init__(self) -> None:
        self._steps: list[ProgramStep] = []
        self._number: dict[tuple[Node, bool], int] = {}
        plans = rewrite(self.plans)
        self._fields = {input: EventFields(self.payloads.get(input, JSON), fields) for input, fields in fields_extracted(plans).items()}
        self._needed = needed_columns(plans)
        self.outputs = tuple(self._add_step(plan.root, is_last=True) for plan in plans)
        self._rows_left: dict[str, int] = {}
        self._is_one_timeline = all(plan.over is None for plan in self.plans)
        # System timestamp, JSON and reason of operators' rows on which an expression failed; the caller clears it.
        self.bad: list[tuple[int, bytes, str]] = []
        # The rows of a step in a part of a slice, if they were computed to know their size, until they are passed on.
        self._measured: tuple[int, pa.Table, list[pa.Table]] | None = None

    def ahead_us(self, output: int) -> int:
        """Return how far beyond the finished instants an output's results reach, microseconds."""
        return self._steps[self.outputs[output]].ahead_us

    @property
    def looked_up_ahead_us(self) -> int:
        """How far beyond the finished instants rows have been looked up in reference data, at most, microseconds."""
        return max((step.ahead_us for step in self._steps if isinstance(step.node, ReferenceJoin)), default=0)

    @property
    def retained_names(self) -> tuple[str, ...]:
        return tuple(name for step in self._steps for name in step.names)

    @property
    def is_streamed(self) -> bool:
        """Whether no result depends on several events."""
        return all(_is_streamed(step) or (step.input is not None and isinstance(step.operator, InstantRows)) for step in self._steps)

    def _add_step(self, node: Rows, *, is_last: bool = False) -> int:
        """Return the number of the step that computes *node*; add the step if it is new."""
        scan = scan_of(node)
        # A last operator over events encodes its results at once, so it differs from the operator whose rows other steps read.
        kind = node, is_last and scan is not None
        if kind not in self._number:
            below = tuple(self._add_step(child) for child in rows_below(node))
            fields = self._fields[scan.input] if scan else None
            operator = make_operator(
                node, fields, self._needed[node], is_last=kind[1], references=self.references, join_pairs_max=self.join_pairs_max
            )
            number = len(self._steps)
            names = tuple(RetainedKind.ROWS.of(number, side) for side in range(operator.sides))
            self._steps.append(ProgramStep(node, operator, below, scan.input if scan else None, names, ahead_of(node)))
            self._number[kind] = number
        return self._number[kind]

    def replace_references(self, references: Mapping[str, ReferenceTable]) -> None:
        """Look up rows that are not finished yet in *references*; retained rows do not change."""
        self.references = references
        for number, step in enumerate(self._steps):
            if isinstance(step.node, ReferenceJoin):
                self._steps[number] = replace(
                    step, operator=make_operator(step.node, references=references, join_pairs_max=self.join_pairs_max)
                )

    def prepare(self, input: str, events: pa.Table) -> tuple[Prepared, pa.Table]:
        """Evaluate events (``EVENTS_SCHEMA``) of an input in order; return rows to retain, and each failed row once (``BAD_SCHEMA``)."""
        prepared: Prepared = []
        failed = []
        for number, step in enumerate(self._steps):
            if step.input == input:
                kept, bad = step.operator.prepare(events)
                prepared.append((step.names[0], _drop_positions(kept)))
                failed += [bad, *self._failures_above(number, kept)]
        if input in self._fields:
            self._fields[input].forget_events()
        return prepared, first_reasons(failed)

    def _failures_above(self, number: int, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows of a step over events that fail in the steps above it (``BAD_SCHEMA``): only here is each row's event known."""
        for taker, side in self._takers(number) if rows.num_rows else ():
            if self._fails_early(number, taker):
                yield self._steps[taker].operator.prepare(rows, side)[1]

    def _fails_early(self, number: int, taker: int) -> bool:
        """Return whether rows of step *number* on which step *taker* fails were reported when their events came, so not again later."""
        return self._steps[number].input is not None and self._steps[taker].operator.computes_keys

    def finish(self, retention: Retention, closing: pa.Table, divide: Divide | None = None) -> Iterator[list[pa.Table]]:
        """
        Compute the results of a finished slice of time; yield them for each output (``RESULT_SCHEMA``) in tables that follow one another.

        In *closing* (``sub``, ``from_us``, ``to_us``; without OVER one row, sub 0) from_us <= System.Timestamp < to_us has become final.
        The rows that operators keep of each other's results are added to *retention*; the caller must not use it before the last table
        is taken.

        *divide* cuts *closing* where too many rows have their last results, or too many results, or too much text of them, would be in
        memory together. Within a part of several substreams results have no order.
        """
        if not closing.num_rows:
            return
        for number, step in enumerate(self._steps):
            if _is_streamed(step):
                continue
            for part in [closing] if divide is None else divide(partial(self._is_too_much, number, retention)):
                tables = self._finish_step(number, retention, part)
                yield from tables if part.num_rows == 1 else [self._gather(tables)]
        self.forget(retention, closing.select(["sub", "to_us"]))

    def _gather(self, parts: Iterable[list[pa.Table]]) -> list[pa.Table]:
        return [pa.concat_tables(tables) for tables in zip(self._results_of(), *parts, strict=True)]

    def _is_too_much(self, number: int, retention: Retention, closing: pa.Table) -> bool:
        """Return whether to divide a part of a slice of time; never if it is one substream at one instant."""
        step = self._steps[number]
        if expire_too_many(step.operator, retention, step.names, step.ahead_us, closing):
            return True
        # The results of one substream come in tables of limited size.
        if closing.num_rows == 1 or not step.operator.can_outgrow:
            return False
        pieces, step_closing = self._pieces_for(number, retention, closing)
        if not any(pieces):
            return False
        # The way to know how much it is, is to compute it: what fits is kept for the step, so it is computed once.
        tables = compute_if_small(step.operator, pieces, self._slice_to_compute(number, step_closing))
        self._measured = None if tables is None else (number, closing, tables)
        return tables is None

    def _pieces_for(self, number: int, retention: Retention, closing: pa.Table) -> tuple[list[list[Piece]], pa.Table]:
        """Return the retained pieces that a step needs for its results in *closing*, and the slice in which it has results."""
        step = self._steps[number]
        slices = shift_slices(closing, step.ahead_us, self.until_us)
        from_us, to_us = int(pc.min(slices["from_us"]).as_py()), int(pc.max(slices["to_us"]).as_py())
        pieces_by_side = select_pieces(step.operator, retention, step.names, from_us, to_us)
        if not any(pieces_by_side):
            return pieces_by_side, slices
        # No result lies beyond the reach of the last row. So an end at infinity becomes a finite one, up to which windows can be counted.
        latest_us = max(piece.high_us for pieces in pieces_by_side for piece in pieces)
        last_us = pa.scalar(latest_us + step.operator.reach_us + 1, pa.int64())
        return pieces_by_side, slices.set_column(2, "to_us", pc.min_element_wise(slices["to_us"], last_us))

    def find_step_end(self, retention: Retention, from_us: int, to_us: int) -> int:
        """
        Return the end of the next step of time if all rows are of one substream: *to_us*, or sooner.

        If time jumps, after silence or at the end of the input, more results can become final than there is memory for.
        """
        rows = (part for step in self._steps for part in expiring_rows(step.operator, retention, step.names, step.ahead_us))
        return find_step_end(rows, from_us, to_us)

    def _record_failures(self, number: int, failed: pa.Table, reasons: pa.ChunkedArray) -> None:
        """Record rows of a step on which an expression failed, with the columns that are computed."""
        if not failed.num_rows:
            return
        node = self._steps[number].node
        present = columns_present(node, self._needed[node])
        names = [node.columns[place].name for place in present]
        values = encode_objects(names, [from_columns(failed, f"s{place}") for place in present], failed.num_rows)
        self.bad += zip(failed["system_us"].to_pylist(), values.to_pylist(), reasons.to_pylist(), strict=True)

    def _finish_step(self, number: int, retention: Retention, closing: pa.Table) -> Iterator[list[pa.Table]]:
        """Compute a step from its retained rows; yield its results and those of the steps that its rows stream through."""
        step = self._steps[number]
        pieces_by_side, step_closing = self._pieces_for(number, retention, closing)
        if not any(pieces_by_side):
            return
        if isinstance(step.operator, EncodedProjection):
            encoded = step.operator.encoded(tables_of([Gathered(pieces) for pieces in pieces_by_side]), self._from_start(step_closing))
            yield self._results_of(number, encoded)
            return
        to_compute = self._slice_to_compute(number, step_closing)
        yield from self._pass_on(number, self._compute(number, closing, pieces_by_side, to_compute), to_compute, retention, closing)

    def _compute(self, number: int, closing: pa.Table, pieces: list[list[Piece]], to_compute: pa.Table) -> Iterable[pa.Table]:
        """Return the rows of a step: those that :meth:`_is_too_much` has computed to measure them, else newly computed ones."""
        measured, self._measured = self._measured, None
        if measured is not None and measured[0] == number and measured[1] is closing:
            return measured[2]
        return compute_rows(self._steps[number].operator, pieces, to_compute)

    def _pass_on(
        self, number: int, tables: Iterable[pa.Table], to_compute: pa.Table, retention: Retention, closing: pa.Table
    ) -> Iterator[list[pa.Table]]:
        """Give a step's rows to the steps that take them; yield the results that follow."""
        step, takers = self._steps[number], self._takers(number)
        # Columns computed from rows, such as members of their records, take several times the memory of the rows.
        for table in (part for whole in tables for part in split_by_bytes(whole, BUDGET.evaluated_bytes)):
            rows, failed = split_failed(table)
            if isinstance(step.node, Custom):
                check_rows_in_slice(step.node.name, rows, to_compute)
            results, failed = (self._drop_before_start(each) if takers else each for each in (rows, failed))
            if failed.num_rows:
                self._record_failures(number, failed, failed["reason"])
            if number in self.outputs:
                yield self._results_of(number, encode_rows(results, [column.name for column in step.node.columns]))
            for taker, side in takers if rows.num_rows else ():
                for kept in self._prepare_rows(number, rows, taker, side):
                    if _is_streamed(self._steps[taker]):
                        of_taker = self._slice_to_compute(taker, shift_slices(closing, self._steps[taker].ahead_us, self.until_us))
                        finished = self._steps[taker].operator.slices([GatheredTable(number_rows([kept]))], of_taker)
                        yield from self._pass_on(taker, finished, of_taker, retention, closing)
                    else:
                        retention.add(self._steps[taker].names[side], kept)

    def _prepare_rows(self, number: int, rows: pa.Table, taker: int, side: int) -> Iterator[pa.Table]:
        """Yield the rows of a step as another one retains them, in parts if they might be too large for memory."""

        def prepare(part: pa.Table) -> pa.Table:
            numbered = part.append_column("position", pa.array(np.arange(part.num_rows)))
            kept, bad = self._steps[taker].operator.prepare(numbered, side)
            if not self._fails_early(number, taker):
                self._record_failures(number, part.take(bad["position"]), bad["reason"])
            return _drop_positions(kept)

        yield from compute_in_halves(rows, prepare, halve_table)

    def _takers(self, number: int) -> list[tuple[int, int]]:
        """Return the steps that take a step's rows, each with the side that does."""
        return [(taker, side) for taker, step in enumerate(self._steps) for side, below in enumerate(step.below) if below == number]

    def _slice_to_compute(self, number: int, closing: pa.Table) -> pa.Table:
        """Return the slice of time for which to compute a step: if other steps take its rows, also the time before the output start."""
        return closing if self._takers(number) else self._from_start(closing)

    def _from_start(self, closing: pa.Table) -> pa.Table:
        return closing.set_column(1, "from_us", pc.max_element_wise(closing["from_us"], pa.scalar(self.start_us, pa.int64())))

    def _results_of(self, number: int = -1, encoded: pa.Table | None = None) -> list[pa.Table]:
        """Return for each output its results: *encoded* for the outputs that step *number* computes, none for the others."""
        return [encoded if output == number and encoded is not None else RESULT_SCHEMA.empty_table() for output in self.outputs]

    def _drop_before_start(self, rows: pa.Table) -> pa.Table:
        return rows if self.start_us == NEVER else rows.filter(pc.greater_equal(rows["system_us"], self.start_us))

    def forget(self, retention: Retention, horizon: pa.Table) -> None:
        """Drop retained rows that no later result can need: in *horizon*, each ``sub`` is finished below ``to_us``. Others keep theirs."""
        if not horizon.num_rows:
            return
        for step in self._steps:
            # An operator that is ahead has finished later instants, up to which its rows can be dropped.
            finished = shift_slices(horizon, step.ahead_us, self.until_us)
            to_us = int(pc.max(finished["to_us"]).as_py())
            for side, name in enumerate(step.names):
                expire, span = partial(step.operator.expire, horizon=finished, side=side), partial(step.operator.span_us, side=side)
                retention.expire(name, expire, span, to_us, is_one_timeline=self._is_one_timeline)
                if step.operator.can_condense:
                    self._condense(step.operator, retention, name, finished, side)

    def _condense(self, operator: Operator, retention: Retention, name: str, horizon: pa.Table, side: int) -> None:
        """Let an operator drop needless rows once there are twice as many as were left last time, so not in every batch."""
        pieces = list(retention.pieces(name))
        if sum(piece.num_rows for piece in pieces) < 2 * self._rows_left.get(name, 0) or not pieces:
            return
        needed = iter(operator.condense([piece.rows() for piece in pieces], horizon, side))
        retention.reduce(name, lambda rows: rows.filter(pa.array(next(needed))))
        self._rows_left[name] = sum(piece.num_rows for piece in retention.pieces(name))

    def compact_rows(self, name: str, rows: pa.Table) -> pa.Table:
        """Return fewer rows that stand for those retained as *name*, if their operator can merge them."""
        step = next((step for step in self._steps if name in step.names), None)
        return rows if step is None else step.operator.compact(rows, step.names.index(name))


def _is_streamed(step: ProgramStep) -> bool:
    """Return whether a step passes the rows of another one on at once: each counts at its own instant alone, and none waits for others."""
    return bool(step.below) and len(step.names) == 1 and isinstance(step.operator, InstantRows) and not isinstance(step.node, Custom)


def _drop_positions(rows: pa.Table) -> pa.Table:
    # Rows get new positions each time they are used in a computation.
    return rows.drop_columns(["position"]) if "position" in rows.column_names else rows
