"""
Evaluating row-level expressions over whole columns. Law: the value of an expression in a row depends on that row alone.

Rows are grouped by *signature*: the kind of each leaf in the row. Each signature gets its own statically typed DuckDB statement; nearly
always there is one. A row with a NULL leaf joins the rows of another signature only if that cannot change its value.

A row *fails* if a conversion in it fails or an operation meets a kind it cannot work on. A failure is a result: the caller decides whether
the row becomes a dead letter or the value NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.expressions.duckdb_pool import run, run_row_by_row
from tidegate.expressions.evaluation.column_calls import ColumnCalls
from tidegate.expressions.evaluation.translation import translate, translate_literal
from tidegate.expressions.functions import catalog, column_functions
from tidegate.expressions.functions.column_functions import Failure, RowNumbers
from tidegate.expressions.functions.conversions import DUCK_TYPES, TypedSql, can_fail
from tidegate.expressions.kinds import Kind, KindMismatch
from tidegate.expressions.tree import Call, Case, Cast, Expr, Literal
from tidegate.expressions.variant import Variant, finite, gather

_KINDS = tuple(Kind)
# The codes of this many leaves fit 30 bits; the rest of an int64 has room for row numbers.
_CODES_IN_INT64 = 10


def evaluate(exprs: Sequence[Expr], leaves: Mapping[Expr, Variant], length: int) -> tuple[list[Variant], list[Failure]]:
    """Evaluate expressions, given the column of every leaf; return a column per expression (NULL in failed rows) and the failures."""
    columns: list[Variant] = []
    failures: list[Failure] = []
    computed_everywhere: dict[Expr, tuple[Variant, list[Failure]]] = {}
    for expr in exprs:
        # Column functions are computed before the expression around them.
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


def _signatures(expr: Expr, leaves: Mapping[Expr, Variant], length: int) -> Iterator[tuple[RowNumbers, tuple[Kind, ...]]]:
    """Yield each signature's rows and its kinds, one per leaf, in a fixed order."""
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
            # There are no more distinct numbers than rows, so renumbering them makes room for the next columns.
            combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    for number, first in zip(*np.unique(combined, return_index=True), strict=True):
        yield np.flatnonzero(combined == number).astype(np.int64), tuple(_KINDS[code[first]] for code in codes)


def _has_no_nulls(column: Variant) -> bool:
    return not column.kinds or all(part.null_count == 0 for part in column.parts.values())


@lru_cache(maxsize=4096)
def _can_merge_nulls(expr: Expr, signature: tuple[Kind, ...]) -> bool:
    """Return whether a NULL leaf may be treated as a NULL of the kind that *signature* gives it."""
    if any(isinstance(node, Case) or (isinstance(node, Call) and _mixes_kinds(node)) for node in expr.walk()):
        return False
    statement = _statement(expr, signature)
    return not isinstance(statement, str) and (not can_fail(statement.sql) or not _skips_conversions(expr))


def _skips_conversions(expr: Expr) -> bool:
    """Return whether a NULL may spare another value of the row a failing conversion: ``NULL - 'x'`` is NULL, ``1 - 'x'`` fails."""
    nodes, leaves = list(expr.walk()), set(expr.leaves())
    has_other_values = len(leaves) > 1 or any(isinstance(node, Literal) and node.kind is Kind.NVARCHAR for node in nodes)
    # A CAST gives even NULL its kind.
    return has_other_values and any(part in leaves for node in nodes if not isinstance(node, Cast) for part in node.parts)


def _mixes_kinds(call: Call) -> bool:
    function = catalog.FUNCTIONS.get(call.name)
    return function is not None and function.mixes_kinds


@lru_cache(maxsize=4096)
def _statement(expr: Expr, signature: tuple[Kind, ...]) -> TypedSql | str:
    """Return the DuckDB expression over columns c0, c1, ..., or the reason if the kinds do not fit."""
    columns = {leaf: TypedSql(f"c{index}", kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    try:
        return translate(expr, columns)
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
        # Some row fails, and DuckDB does not say which: compute again with TRY. A failed row is a null struct, NULL a struct with null.
        structs = _row_by_row(expr, signature, table)
        values = pc.struct_field(structs, "v")
        rows = np.flatnonzero(structs.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
        failed = [Failure(rows, f"conversion failed: {expr}")]
    if statement.kind is Kind.FLOAT:
        values = finite(values)
    return Variant.of(length, {statement.kind: values}), failed


def _row_by_row(expr: Expr, signature: tuple[Kind, ...], table: pa.Table) -> pa.StructArray:
    """Return ``{'v': value}`` for each row, null for a row that fails."""
    known = {leaf: TypedSql(f"c{index}", kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    # DuckDB folds constants before the first row. As columns they fail inside of TRY, and only in the rows that use them.
    texts = dict.fromkeys(part for part in expr.walk() if isinstance(part, Literal) and part.kind is Kind.NVARCHAR)
    for index, literal in enumerate(texts):
        known[literal] = replace(translate_literal(literal), sql=f"t{index}")
        table = table.append_column(f"t{index}", pa.array([literal.value] * table.num_rows, pa.string()))
    statement = translate(expr, known)
    sql = f"SELECT TRY({{'v': CAST({statement.sql} AS {DUCK_TYPES[statement.kind]})}}) AS o FROM input"
    return run_row_by_row(sql, input=table)["o"].combine_chunks()
