"""
Evaluating row-level expressions over whole columns.

Law: the value of an expression in a row depends on that row alone. Rows are sorted by *signature* - the kind each
leaf has in the row - and each signature gets its own statically typed DuckDB statement; nearly always there is one. A
row in which a leaf is NULL joins the rows of another signature only where that cannot show.

A row *fails* when a conversion in it fails or an operation meets a kind it cannot work on. Failing is a result: the
caller decides whether the row becomes a dead letter or the value NULL.

Column functions (:mod:`tidegate.expressions.functions.columns`) are computed before the expressions around them
(:mod:`tidegate.expressions.evaluation.lifted`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.expressions.binding import offered
from tidegate.expressions.duckdb_pool import quote, run, run_row_by_row
from tidegate.expressions.evaluation.lifted import ColumnCalls
from tidegate.expressions.functions import catalogue
from tidegate.expressions.functions import columns as column_functions
from tidegate.expressions.functions.columns import Failure, RowNumbers
from tidegate.expressions.functions.conversions import DUCK_TYPES, TooLong, TypedSql, can_fail, convert, refuse_long, unify
from tidegate.expressions.kinds import Kind, KindMismatch
from tidegate.expressions.tree import (
    Aggregate,
    Analytic,
    Arrival,
    Call,
    Case,
    Cast,
    DatePart,
    Expr,
    Leaf,
    Literal,
    Numbered,
    PartitionId,
    Payload,
    Property,
    SystemTimestamp,
    WindowEnd,
    WindowId,
)
from tidegate.expressions.variant import Variant, finite, gather

_KINDS = tuple(Kind)
_CODES_IN_INT64 = 10
"""So many kinds are told apart by 30 bits, which leaves more than 30 for the number of a row."""


def evaluate(exprs: Sequence[Expr], leaves: Mapping[Expr, Variant], length: int) -> tuple[list[Variant], list[Failure]]:
    """
    Evaluate expressions over columns of *length* rows.

    Args:
        exprs: What to compute.
        leaves: The column of every leaf that occurs in them.
        length: Number of rows.

    Returns:
        One column per expression, NULL where it failed, and the failures.
    """
    columns: list[Variant] = []
    failures: list[Failure] = []
    computed_everywhere: dict[Expr, tuple[Variant, list[Failure]]] = {}
    for expr in exprs:
        if column_functions.has_column_calls(expr):
            column, failed = _evaluate_with_column_calls(expr, ColumnCalls(dict(leaves), length, _evaluate_plain, computed_everywhere))
        else:
            column, failed = _evaluate_plain(expr, leaves, length)
        columns.append(column)
        failures += failed
    return columns, failures


def _evaluate_with_column_calls(expr: Expr, lifting: ColumnCalls) -> tuple[Variant, list[Failure]]:
    plain = lifting.replace_calls(expr, np.arange(lifting.length, dtype=np.int64))
    column, failures = _evaluate_plain(plain, lifting.leaves, lifting.length)
    if lifting.failures:
        fine = np.ones(lifting.length, dtype=np.bool_)
        fine[np.concatenate([failure.rows for failure in lifting.failures])] = False
        column = Variant.of(column.length, {kind: pc.if_else(pa.array(fine), part, None) for kind, part in column.parts.items()})
    return column, [*lifting.failures, *failures]


def _evaluate_plain(expr: Expr, leaves: Mapping[Expr, Variant], length: int) -> tuple[Variant, list[Failure]]:
    """Evaluate an expression that has no column functions."""
    if expr in leaves:
        return leaves[expr], []
    pieces: list[tuple[RowNumbers, Variant]] = []
    failures: list[Failure] = []
    for rows, signature in _signatures(expr, leaves, length):
        inputs = {leaf: leaves[leaf] if len(rows) == length else leaves[leaf].take_rows(rows) for leaf in expr.leaves()}
        piece, failed = _evaluate_signature(expr, signature, inputs, len(rows))
        pieces.append((rows, piece))
        failures += [Failure(rows[failure.rows], failure.reason) for failure in failed]
    return gather(length, pieces), failures


def static_kind(expr: Expr) -> Kind | None:
    """Return the one kind the values of *expr* have, or None when it differs from row to row."""
    if isinstance(expr, (Literal, Cast, Numbered)):
        return expr.kind
    if isinstance(expr, (SystemTimestamp, WindowEnd, Arrival)):
        return Kind.DATETIME
    if isinstance(expr, PartitionId):
        return Kind.BIGINT
    if isinstance(expr, WindowId):
        return Kind.NVARCHAR
    if isinstance(expr, Payload):
        return Kind.RECORD
    if isinstance(expr, Aggregate):
        return _aggregate_kind(expr)
    if isinstance(expr, Analytic):
        return _analytic_kind(expr)
    if isinstance(expr, Call) and (column_function := column_functions.find(expr.name)):
        return column_function.result_kind
    if isinstance(expr, Call) and (function := catalogue.find(expr.name)) and function.result_kind:
        return function.result_kind
    if isinstance(expr, (Call, Case)):
        kinds = [static_kind(part) for part in expr.parts]
        if None not in kinds:
            return _emit(expr, _stand_ins(dict(zip(expr.parts, kinds, strict=True)))).kind
    return None


_AGGREGATE_KINDS = {
    "count": Kind.BIGINT,
    **dict.fromkeys(("avg", "stdev", "stdevp", "var", "varp", "percentile_cont"), Kind.FLOAT),
    **dict.fromkeys(("collect", "collecttop"), Kind.ARRAY),
}


def _aggregate_kind(expr: Aggregate) -> Kind | None:
    if (extension := offered.find(expr.function)) is not None:
        return extension.result_kind
    fixed = _AGGREGATE_KINDS.get(expr.function)
    return fixed or (static_kind(expr.parts[0]) if expr.parts else None)


def _analytic_kind(expr: Analytic) -> Kind | None:
    if expr.function == "isfirst":
        return Kind.BIGINT
    if expr.aggregate is not None:
        return static_kind(expr.aggregate)
    kinds = {static_kind(value) for value in (expr.arg, expr.default) if value is not None} - {Kind.NULL}
    return kinds.pop() if len(kinds) == 1 else None if kinds else Kind.NULL


def check_kinds(expr: Expr) -> None:
    """
    Check the outermost operation of *expr* as far as its arguments have one kind.

    Raises:
        KindMismatch: It cannot work on them.
    """
    kinds = {part: static_kind(part) for part in expr.parts if not isinstance(part, DatePart)}
    if isinstance(expr, Property):
        return
    if isinstance(expr, Call) and (function := column_functions.find(expr.name)):
        for arg, expected in zip(expr.args, function.argument_kinds, strict=False):
            if expected is not None and (kind := kinds[arg]) not in (expected, Kind.NULL, None):
                raise KindMismatch(column_functions.mismatch_reason(expected, kind))
        return
    if None not in kinds.values():
        _emit(expr, _stand_ins(kinds))


def _stand_ins(kinds: Mapping[Expr, Kind | None]) -> dict[Expr, TypedSql]:
    """Return something of each part's kind in its place; constants stand for themselves."""
    return {part: TypedSql("NULL", kind) for part, kind in kinds.items() if kind is not None and not _is_constant(part)}


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Literal) or (isinstance(expr, Call) and expr.name == "fold" and isinstance(expr.args[0], Literal))


def check_size(expr: Expr) -> None:
    """
    Check that *expr* can be computed at all, whatever kinds its leaves turn out to have.

    Raises:
        TooLong: It would become too long a text.
    """
    for kind in (Kind.FLOAT, Kind.NVARCHAR):
        columns: dict[Expr, TypedSql] = {
            part: TypedSql("c0", static_kind(part) or kind)
            for part in expr.walk()
            if isinstance(part, (Leaf, Aggregate, Analytic)) or column_functions.is_column_call(part)
        }
        try:
            refuse_long(_emit(expr, columns).sql)
        except TooLong:
            raise
        except KindMismatch:
            continue
    for arg in (arg for part in expr.walk() if column_functions.is_column_call(part) for arg in part.parts):
        check_size(arg)


def _signatures(expr: Expr, leaves: Mapping[Expr, Variant], length: int) -> Iterator[tuple[RowNumbers, tuple[Kind, ...]]]:
    """Yield the rows of each signature with the kinds of the leaves in them, in a fixed order."""
    columns = [leaves[leaf] for leaf in expr.leaves()]
    everything = np.arange(length, dtype=np.int64)
    if all(len(column.kinds) <= 1 for column in columns):
        merged = tuple(column.kinds[0] if column.kinds else Kind.NULL for column in columns)
        if all(_has_no_nulls(column) for column in columns) or _can_merge_nulls(expr, merged):
            yield everything, merged
            return
    codes = [column.codes() for column in columns]
    combined = np.zeros(length, dtype=np.int64)
    for number, code in enumerate(codes, start=1):
        combined = combined * len(_KINDS) + code
        if number % _CODES_IN_INT64 == 0:
            # There are no more numbers than rows: renumbered, they leave room for the columns that follow.
            combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    for number, first in zip(*np.unique(combined, return_index=True), strict=True):
        yield np.flatnonzero(combined == number).astype(np.int64), tuple(_KINDS[code[first]] for code in codes)


def _has_no_nulls(column: Variant) -> bool:
    return not column.kinds or all(part.null_count == 0 for part in column.parts.values())


@lru_cache(maxsize=4096)
def _can_merge_nulls(expr: Expr, signature: tuple[Kind, ...]) -> bool:
    """Tell whether a NULL leaf may be treated as a NULL of the kind *signature* gives it."""
    if any(isinstance(node, Case) or (isinstance(node, Call) and _mixes_kinds(node)) for node in expr.walk()):
        return False
    statement = _statement(expr, signature)
    return not isinstance(statement, str) and (not can_fail(statement.sql) or not _skips_conversions(expr))


def _skips_conversions(expr: Expr) -> bool:
    """Tell whether a NULL may spare something else in the row a conversion: ``NULL - 'x'`` is NULL, ``1 - 'x'`` fails."""
    nodes, leaves = list(expr.walk()), set(expr.leaves())
    has_other_values = len(leaves) > 1 or any(isinstance(node, Literal) and node.kind is Kind.NVARCHAR for node in nodes)
    # What is cast has its kind even where it is NULL.
    return has_other_values and any(part in leaves for node in nodes if not isinstance(node, Cast) for part in node.parts)


def _mixes_kinds(call: Call) -> bool:
    function = catalogue.find(call.name)
    return function is not None and function.mixes_kinds


@lru_cache(maxsize=4096)
def _statement(expr: Expr, signature: tuple[Kind, ...]) -> TypedSql | str:
    """Return the DuckDB expression over columns c0, c1, ... or, when the kinds do not fit, why."""
    columns = {leaf: TypedSql(f"c{index}", kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    try:
        return _emit(expr, columns)
    except KindMismatch as mismatch:
        return str(mismatch)


def _evaluate_signature(
    expr: Expr, signature: tuple[Kind, ...], inputs: Mapping[Expr, Variant], length: int
) -> tuple[Variant, list[Failure]]:
    statement = _statement(expr, signature)
    if isinstance(statement, str):
        return Variant.of(length, {}), [Failure(np.arange(length, dtype=np.int64), f"{statement}: {expr}")]
    if statement.kind is Kind.NULL:
        return Variant.of(length, {}), []
    unchanged = next((leaf for index, leaf in enumerate(expr.leaves()) if statement.sql == f"c{index}"), None)
    if unchanged is not None:
        return inputs[unchanged], []
    arrays = {f"c{index}": inputs[leaf].of_kind(kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    table = pa.table(arrays or {"row": np.zeros(length, dtype=np.int8)})
    sql = f"CAST({statement.sql} AS {DUCK_TYPES[statement.kind]})"
    failed: list[Failure] = []
    try:
        values = run(f"SELECT {sql} AS v FROM input", input=table)["v"]
    except duckdb.Error:
        # Some row fails: ask again row by row. A failing row gives no struct, a NULL value a struct that holds NULL.
        structs = _row_by_row(expr, signature, table)
        values = pc.struct_field(structs, "v")
        rows = np.flatnonzero(structs.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
        failed = [Failure(rows, f"conversion failed: {expr}")]
    if statement.kind is Kind.FLOAT:
        values = finite(values)
    return Variant.of(length, {statement.kind: values}), failed


def _row_by_row(expr: Expr, signature: tuple[Kind, ...], table: pa.Table) -> pa.StructArray:
    """Return ``{'v': value}`` for each row, and nothing for one that fails."""
    known = {leaf: TypedSql(f"c{index}", kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    # What fails with a constant in it must fail in the rows, as with a field; the engine would meet it before the first of them.
    texts = dict.fromkeys(part for part in expr.walk() if isinstance(part, Literal) and part.kind is Kind.NVARCHAR)
    for index, literal in enumerate(texts):
        known[literal] = replace(_emit_literal(literal), sql=f"t{index}")
        table = table.append_column(f"t{index}", pa.array([literal.value] * table.num_rows, pa.string()))
    statement = _emit(expr, known)
    sql = f"SELECT TRY({{'v': CAST({statement.sql} AS {DUCK_TYPES[statement.kind]})}}) AS o FROM input"
    return run_row_by_row(sql, input=table)["o"].combine_chunks()


def _emit(expr: Expr, known: Mapping[Expr, TypedSql]) -> TypedSql:
    if expr in known:
        return known[expr]
    if isinstance(expr, Literal):
        return _emit_literal(expr)
    if isinstance(expr, DatePart):
        return TypedSql(expr.unit, Kind.NULL)
    if isinstance(expr, Cast):
        return TypedSql(convert(_emit(expr.arg, known), expr.kind, lenient=expr.lenient), expr.kind)
    if isinstance(expr, Case):
        return _emit_case(expr, known)
    if isinstance(expr, Call):
        return catalogue.FUNCTIONS[expr.name].rule([_emit(arg, known) for arg in expr.args])
    raise AssertionError(f"no column for {expr!r}")


def _emit_literal(literal: Literal) -> TypedSql:
    if literal.kind is Kind.NULL:
        return TypedSql("NULL", Kind.NULL)
    text = str(literal.value) if literal.kind is Kind.NVARCHAR else None
    value = repr(literal.value) if text is None else quote(text)
    return TypedSql(f"CAST({value} AS {DUCK_TYPES[literal.kind]})", literal.kind, text)


def _emit_case(case: Case, known: Mapping[Expr, TypedSql]) -> TypedSql:
    values, kind = unify([_emit(value, known) for _, value in case.whens] + [_emit(case.otherwise, known)])
    conditions = [catalogue.condition(_emit(condition, known)) for condition, _ in case.whens]
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in zip(conditions, values, strict=False))
    return TypedSql(f"CASE {whens} ELSE {values[-1]} END", kind)
