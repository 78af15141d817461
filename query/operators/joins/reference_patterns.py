"""
Patterns in reference data: a record whose pattern is none is refused before rows are looked up in it.

On such a record the condition of a join fails for every row, and a condition that fails matches nothing: a rule with a wrong bracket would
never match, and nobody would know. Law: this looks at the records alone, so the answer is the same at each start. Patterns that are
computed from a row too are checked where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from ordering.errors import RefusedError
from query.operators.rows.row_stage import RowStage
from query.plan.nodes import Plan, ReferenceJoin, predicates_of, walk
from query.reference.tables import ReferenceTable
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.functions.column_patterns import PATTERN_CALLS, column_pattern_problem
from tidegate.language.expressions.functions.patterns import PATTERN_PLACES
from tidegate.language.expressions.kinds import Kind, mismatch_reason
from tidegate.language.expressions.tree import Call, Expr, Slot
from tidegate.language.expressions.variant import Variant

_FUNCTIONS = {call: name for name, call in PATTERN_CALLS.items()}


def check_patterns(plans: Iterable[Plan], tables: Mapping[str, ReferenceTable]) -> None:
    """Raise RefusedError (TG-REFERENCE-RECORD) if a record of a table has a bad pattern where a join of *plans* matches by it."""
    for join in (node for plan in plans for node in walk(plan.root) if isinstance(node, ReferenceJoin) and node.name in tables):
        uses = list(_patterns(join))
        if uses:
            _check_records(join, tables[join.name], uses)


def _patterns(join: ReferenceJoin) -> Iterator[tuple[str, Expr]]:
    """Yield the functions of patterns in the condition of a join whose pattern is made of a record alone, with that pattern."""
    width = len(join.left.columns)
    for call in join.residual.walk() if join.residual is not None else ():
        if isinstance(call, Call) and (function := _FUNCTIONS.get(call.name)) is not None:
            pattern = call.args[PATTERN_PLACES[function]]
            if all(isinstance(leaf, Slot) and leaf.index >= width for leaf in pattern.leaves()):
                yield function, pattern


def _check_records(join: ReferenceJoin, table: ReferenceTable, uses: Iterable[tuple[str, Expr]]) -> None:
    width, records = len(join.left.columns), table.records
    kept, columns, _ = RowStage(predicates_of(join.reference), tuple(column.expr for column in join.reference.columns)).apply(records)
    leaves: dict[Expr, Variant] = {Slot(width + number, "", None): column for number, column in enumerate(columns)}
    for function, pattern in uses:
        named: dict[Expr, Variant] = {leaf: leaves[Slot(leaf.index, "", None)] for leaf in pattern.leaves() if isinstance(leaf, Slot)}
        (patterns,), _ = evaluate([pattern], named, kept.num_rows)
        for row, problem in _problems(function, patterns):
            position = int(kept["position"][row].as_py())
            number = position - int(np.searchsorted(records["sub"].to_numpy(), records["sub"][position].as_py()))
            raise RefusedError(
                f"record {number + 1} of {join.name} has no pattern for {function.upper()}: {problem}",
                code="TG-REFERENCE-RECORD",
                where=f"references.{join.name}, {pattern}",
                fix=f'correct the pattern; a column of numbers is declared as text: fields = {{ {pattern} = "nvarchar(max)" }}',
            )


def _problems(function: str, patterns: Variant) -> Iterator[tuple[int, str]]:
    """Yield the first row of each bad pattern, and what is wrong with it."""
    for kind, part in patterns.parts.items():
        if kind is not Kind.NVARCHAR:
            yield int(np.flatnonzero(part.is_valid().to_numpy(zero_copy_only=False))[0]), mismatch_reason(Kind.NVARCHAR, kind)
            continue
        distinct = part.dictionary_encode()
        for code, text in enumerate(distinct.dictionary.to_pylist()):
            if problem := column_pattern_problem(function, text):
                yield pa.compute.index(distinct.indices, code).as_py(), f"it {problem}"
