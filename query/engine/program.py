"""
The program of a query: the operators of all its plans in order, and the computation of a finished slice of time.

The caller owns time and memory. It passes events in order to ``prepare``, keeps the returned rows in its retention, calls ``finish`` when
instants have become final, and ``forget`` to drop rows that are no longer needed. Law: the results of all calls of ``finish`` together
depend on the events, not on how time was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.ticks import INFINITY, NEVER
from query.columns.encode import encode_objects
from query.engine.compile import make_operator
from query.engine.gathering import combine_pieces, compute_rows, expiring_rows, find_step_end, select_pieces
from query.engine.lead import ahead_of, shift_slices
from query.engine.retention import Retained, Retention
from query.operators.rows.project import EncodedProjection
from query.plan.nodes import Custom, Node, Plan, ReferenceJoin, Rows, lookback_of, scan_of, source_of
from query.plan.operator import Operator
from query.plan.operator_extensions import check_rows_in_slice
from query.plan.row_tables import RESULT_SCHEMA, encode_rows, first_reasons, split_failed
from query.reference.tables import ReferenceTable
from tidegate.expressions.variant import from_columns
from tidegate.payloads.formats import JSON, PayloadFormat

# Names, and the rows to retain under them.
Prepared = list[tuple[str, pa.Table]]


@dataclass(frozen=True)
class Step:
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
    # S: results below this instant are left out; ``NEVER``: none is.
    start_us: int = NEVER
    # E: results at or above this instant are left out; ``INFINITY``: none is.
    until_us: int = INFINITY
    # The tables of reference data that are looked up, by name.
    references: Mapping[str, ReferenceTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steps: list[Step] = []
        self._number: dict[tuple[Node, bool], int] = {}
        self.outputs = tuple(self._add_step(plan.root, is_last=True) for plan in self.plans)
        self._operators = {name: (operator, side) for operator, side, name in self._retained_sides}
        self._rows_left: dict[str, int] = {}
        self._is_one_timeline = all(plan.over is None for plan in self.plans)
        # System timestamp, JSON and reason of operators' rows on which an expression failed; the caller clears it.
        self.bad: list[tuple[int, bytes, str]] = []

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, microseconds."""
        return max(lookback_of(plan.root) for plan in self.plans)

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

    def _add_step(self, node: Rows, *, is_last: bool = False) -> int:
        """Return the number of the step that computes *node*; add the step if it is new."""
        scan = scan_of(node)
        # A last operator over events encodes its results at once, so it differs from the operator whose rows other steps read.
        kind = node, is_last and scan is not None
        if kind not in self._number:
            below = () if scan is not None else tuple(self._add_step(child) for child in _nodes_below(node))
            payloads = self.payloads.get(scan.input, JSON) if scan else JSON
            operator = make_operator(node, payloads, is_last=kind[1], references=self.references)
            number = len(self._steps)
            names = tuple(Retained.ROWS.of(number, side) for side in range(operator.sides))
            self._steps.append(Step(node, operator, below, scan.input if scan else None, names, ahead_of(node)))
            self._number[kind] = number
        return self._number[kind]

    def replace_references(self, references: Mapping[str, ReferenceTable]) -> None:
        """Look up rows that are not finished yet in *references*; retained rows do not change."""
        self.references = references
        for number, step in enumerate(self._steps):
            if isinstance(step.node, ReferenceJoin):
                self._steps[number] = replace(step, operator=make_operator(step.node, references=references))
        self._operators = {name: (operator, side) for operator, side, name in self._retained_sides}

    def prepare(self, input: str, events: pa.Table) -> tuple[Prepared, pa.Table]:
        """
        Evaluate events (``EVENTS_SCHEMA``) of one input, in order; return the rows to retain, and each failed row once (``BAD_SCHEMA``).
        """
        prepared: Prepared = []
        failed = []
        for step in self._steps:
            if step.input == input:
                kept, bad = step.operator.prepare(events)
                prepared.append((step.names[0], _drop_positions(kept)))
                failed.append(bad)
        return prepared, first_reasons(failed)

    def finish(self, retention: Retention, closing: pa.Table) -> list[pa.Table]:
        """
        Compute the results of a finished slice of time; return them for each output (``RESULT_SCHEMA``), of each substream in order.

        Args:
            retention: The retained rows; the rows that operators keep of each other's results are added to it.
            closing: ``sub``, ``from_us``, ``to_us``, a row per substream (without OVER one row, sub 0): from_us <= System.Timestamp < to_us
                has become final.
        """
        if not closing.num_rows:
            return [RESULT_SCHEMA.empty_table() for _ in self.outputs]
        rows_by_step: list[pa.Table | None] = []
        results: list[pa.Table | None] = []
        for number, step in enumerate(self._steps):
            self._prepare_rows_below(step, rows_by_step, retention)
            is_taken = any(number in other.below for other in self._steps)
            slices = shift_slices(closing, step.ahead_us, self.until_us)
            rows, encoded = self._compute_step(step, retention, slices, is_output=number in self.outputs, is_taken=is_taken)
            rows_by_step.append(rows)
            results.append(encoded)
        self.forget(retention, closing.select(["sub", "to_us"]))
        return [RESULT_SCHEMA.empty_table() if (found := results[number]) is None else found for number in self.outputs]

    def find_step_end(self, retention: Retention, from_us: int, to_us: int) -> int:
        """
        Return the end of the first step of a finish if all rows are of one substream: *to_us*, or sooner.

        If time jumps, after silence or at the end of the input, more results can become final than there is memory for.
        """
        rows = (part for step in self._steps for part in expiring_rows(step.operator, retention, step.names, step.ahead_us))
        return find_step_end(rows, from_us, to_us)

    def _prepare_rows_below(self, step: Step, rows_by_step: Sequence[pa.Table | None], retention: Retention) -> None:
        for side, (below, name) in enumerate(zip(step.below, step.names, strict=False)):
            rows = rows_by_step[below]
            if rows is not None and rows.num_rows:
                numbered = rows.append_column("position", pa.array(np.arange(rows.num_rows)))
                kept, bad = step.operator.prepare(numbered, side)
                retention.add(name, _drop_positions(kept))
                self._record_failures(self._steps[below].node, rows.take(bad["position"]), bad["reason"])

    def _record_failures(self, node: Rows, failed: pa.Table, reasons: pa.ChunkedArray) -> None:
        if not failed.num_rows:
            return
        names = [column.name for column in node.columns]
        values = encode_objects(names, [from_columns(failed, f"s{at}") for at in range(len(names))], failed.num_rows)
        self.bad += zip(failed["system_us"].to_pylist(), values.to_pylist(), reasons.to_pylist(), strict=True)

    def _compute_step(
        self, step: Step, retention: Retention, closing: pa.Table, *, is_output: bool, is_taken: bool
    ) -> tuple[pa.Table | None, pa.Table | None]:
        """Return the step's rows if other steps take them, and its encoded results if it is an output."""
        from_us, to_us = int(pc.min(closing["from_us"]).as_py()), int(pc.max(closing["to_us"]).as_py())
        pieces_by_side = select_pieces(step.operator, retention, step.names, from_us, to_us)
        if not any(pieces_by_side):
            return None, None
        # There are no results beyond the reach of the last row. So an end at infinity becomes a finite one, up to which windows can be
        # counted.
        latest_us = max(piece.high_us for pieces in pieces_by_side for piece in pieces)
        last_us = pa.scalar(latest_us + step.operator.reach_us + 1, pa.int64())
        clipped = closing.set_column(2, "to_us", pc.min_element_wise(closing["to_us"], last_us))
        from_start = clipped.set_column(1, "from_us", pc.max_element_wise(closing["from_us"], pa.scalar(self.start_us, pa.int64())))
        if isinstance(step.operator, EncodedProjection):
            return None, step.operator.encoded([combine_pieces(pieces) for pieces in pieces_by_side], from_start)
        # Other steps need rows from before the first instant that leaves the query.
        asked = clipped if is_taken else from_start
        rows, failed = split_failed(compute_rows(step.operator, pieces_by_side, asked))
        if isinstance(step.node, Custom):
            check_rows_in_slice(step.node.name, rows, asked)
        results, failed = (self._drop_before_start(each) if is_taken else each for each in (rows, failed))
        if failed.num_rows:
            self._record_failures(step.node, failed, failed["reason"])
        return rows, encode_rows(results, [column.name for column in step.node.columns]) if is_output else None

    def _drop_before_start(self, rows: pa.Table) -> pa.Table:
        return rows if self.start_us == NEVER else rows.filter(pc.greater_equal(rows["system_us"], self.start_us))

    def forget(self, retention: Retention, horizon: pa.Table) -> None:
        """
        Drop retained rows that no later result can need.

        *horizon* has ``sub`` and ``to_us``: all instants below to_us are finished. Other substreams keep their rows.
        """
        if not horizon.num_rows:
            return
        for step in self._steps:
            # An operator that is ahead has finished later instants, up to which its rows can be dropped.
            own = shift_slices(horizon, step.ahead_us, self.until_us)
            for side, name in enumerate(step.names):
                self._forget(step.operator, side, name, retention, own)

    def _forget(self, operator: Operator, side: int, name: str, retention: Retention, horizon: pa.Table) -> None:
        expire = partial(operator.expire, horizon=horizon, side=side)
        span = partial(operator.span_us, side=side)
        retention.expire(name, expire, span, int(pc.max(horizon["to_us"]).as_py()), is_one_timeline=self._is_one_timeline)
        if operator.can_condense:
            self._condense(operator, retention, name, horizon, side)

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
        if name not in self._operators:
            return rows
        operator, side = self._operators[name]
        return operator.compact(rows, side)

    @property
    def _retained_sides(self) -> Iterator[tuple[Operator, int, str]]:
        return ((step.operator, side, name) for step in self._steps for side, name in enumerate(step.names))


def _nodes_below(node: Rows) -> Sequence[Rows]:
    return node.children if len(node.children) != 1 else (source_of(node),)  # type: ignore[return-value]


def _drop_positions(rows: pa.Table) -> pa.Table:
    # Rows get new positions each time they are used in a computation.
    return rows.drop_columns(["position"]) if "position" in rows.column_names else rows
