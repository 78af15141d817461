"""Operators computed without SQL have the values that DuckDB gives, row by row, whatever stands in the other rows."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tidegate.language.expressions.evaluation import evaluate as evaluation
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.evaluation.without_sql import operator_values
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Expr, Field, Literal, Required, Requirement
from tidegate.language.expressions.variant import Variant

SOME = settings(max_examples=max(settings().max_examples, 1))
FIELDS = [Field((name,)) for name in "abc"]
WHOLE = st.sampled_from([0, 1, -1, 2, -7, 3, 50, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1])
REAL = st.sampled_from([0.0, 0.1, 0.2, -0.5, 1.0, 2.0, 50.0, 3.0, 2.0**53, 2.0**63, -(2.0**63), 1e308, -1e308, 5e-324, 1e-300, 2.5])
TEXT = st.sampled_from(["", "a", "A", "b", "ab", "é", "\U0001f600", "\uffff", "\0", "12", "1.5", "x"])
KINDS = {Kind.BIGINT: WHOLE, Kind.FLOAT: REAL, Kind.NVARCHAR: TEXT, Kind.BIT: st.booleans()}
VALUES = st.one_of(st.none(), *(st.tuples(st.just(kind), values) for kind, values in KINDS.items()))
NUMBERS = st.one_of(st.none(), st.tuples(st.just(Kind.BIGINT), WHOLE), st.tuples(st.just(Kind.FLOAT), REAL))
ROWS = 6
OF_ONE_KIND = [st.lists(st.none() | st.tuples(st.just(kind), values), min_size=ROWS, max_size=ROWS) for kind, values in KINDS.items()]
OF_NUMBERS = st.one_of(*OF_ONE_KIND[:2], st.lists(NUMBERS, min_size=ROWS, max_size=ROWS))
COLUMNS = st.tuples(OF_NUMBERS, OF_NUMBERS, st.one_of(*OF_ONE_KIND, st.lists(VALUES, min_size=ROWS, max_size=ROWS)))
LITERALS = {kind: st.builds(Literal, values, st.just(kind)) for kind, values in KINDS.items()}
COUNTABLE, A_TEXT = LITERALS[Kind.BIGINT] | LITERALS[Kind.FLOAT], LITERALS[Kind.NVARCHAR]


def numbers(arguments: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Draw a calculation with drawn numbers."""
    calculated = st.builds(Call, st.sampled_from([*"+-*/"]), st.tuples(arguments, arguments) | st.tuples(arguments, COUNTABLE))
    needed = st.builds(Required, arguments, st.sampled_from([Requirement.NUMBER, Requirement.COMPARABLE]))
    return calculated | st.builds(Call, st.just("negate"), st.tuples(arguments)) | needed


A_NUMBER = st.recursive(st.sampled_from(FIELDS[:2]), numbers, max_leaves=3)
A_VALUE = A_NUMBER | st.sampled_from(FIELDS)
COMPARED = st.one_of(st.tuples(A_NUMBER, COUNTABLE | A_NUMBER), st.tuples(st.sampled_from(FIELDS), A_TEXT), st.tuples(A_VALUE, A_VALUE))
BOUNDS = st.one_of(*(st.tuples(literals, literals) for literals in LITERALS.values()))
CONDITIONS = st.recursive(
    st.one_of(
        st.builds(Call, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), COMPARED),
        st.builds(Call, st.just("is null"), st.tuples(A_VALUE)),
        st.builds(lambda name, value, bounds: Call(name, (value, *bounds)), st.sampled_from(["between", "in"]), A_VALUE, BOUNDS),
    ),
    lambda conditions: st.one_of(
        st.builds(Call, st.sampled_from(["and", "or"]), st.tuples(conditions, conditions)),
        st.builds(Call, st.just("not"), st.tuples(conditions)),
        st.builds(Required, conditions, st.just(Requirement.CONDITION)),
    ),
    max_leaves=3,
)


def column(values: list[tuple[Kind, object] | None]) -> Variant:
    """Return values, None for NULL, as a column."""
    parts = {kind: pa.array([value[1] if value and value[0] is kind else None for value in values], kind.arrow) for kind in KINDS}
    return Variant.of(len(values), parts)


def told(exprs: list[Expr], leaves: dict[Expr, Variant], length: int) -> tuple[list[object], list[object]]:
    """Return the values of each row of each expression with their kinds and bits, and the failures."""
    columns, failures = evaluate(exprs, leaves, length)
    values = [
        [(kind, part.to_pylist(), [str(value) for value in part.to_pylist()]) for kind, part in each.parts.items()] for each in columns
    ]
    return values, [(failure.rows.tolist(), failure.reason) for failure in failures]


@SOME
@given(st.lists(A_NUMBER | CONDITIONS, min_size=1, max_size=4), COLUMNS)
def test_operators_have_the_values_that_sql_gives(exprs: list[Expr], drawn: tuple[list[tuple[Kind, object] | None], ...]) -> None:
    """Level 2: so a result does not depend on which of the two computed it, down to the sign of zero."""
    leaves: dict[Expr, Variant] = {field: column(values) for field, values in zip(FIELDS, drawn, strict=True)}
    event(f"without SQL {sum(operator_values(expr, leaves, ROWS) is not None for expr in exprs)} of {len(exprs)}")
    with patch.object(evaluation, "operator_values", lambda *_: None), patch.object(evaluation, "plain_values", lambda *_: None):
        expected = told(exprs, leaves, ROWS)
    assert told(exprs, leaves, ROWS) == expected
