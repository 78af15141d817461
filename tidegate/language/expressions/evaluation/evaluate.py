"""
Evaluating row-level expressions over whole columns. Law: the value of an expression in a row depends on that row alone.

Rows are grouped by *signature*: the kind of each leaf in the row. Each signature gets its own statically typed DuckDB statement; nearly
always there is one. A row with a NULL leaf joins the rows of another signature only if that cannot change its value.

A row *fails* if a conversion in it fails or an operation meets a kind it cannot work on. A failure is a result: the caller decides whether
the row becomes a dead letter or the value NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.basics.budget import BUDGET, TooMuchAtOnce, cut
from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText, with_place
from tidegate.language.expressions.duckdb_pool import run, run_row_by_row
from tidegate.language.expressions.evaluation.column_calls import ColumnCalls, Evaluated
from tidegate.language.expressions.evaluation.translation import translate, translate_literal
from tidegate.language.expressions.evaluation.value_sizes import (
    RETURNED_BYTES_MAX,
    VALUE_BYTES_MAX,
    Sizes,
    bound_sizes,
    can_grow,
    counts,
    is_growing_call,
    largest_size,
    sizes_of_call,
    text_sizes,
)
from tidegate.language.expressions.evaluation.without_sql import operator_values, plain_values, replace_times
from tidegate.language.expressions.functions import catalog, column_functions
from tidegate.language.expressions.functions.column_functions import FailedRows, RowNumbers
from tidegate.language.expressions.functions.conversions import DUCK_TYPES, SQL_CHARACTERS_MAX, TypedSql, can_fail
from tidegate.language.expressions.functions.texts import REPEATED_CHARACTERS_MAX
from tidegate.language.expressions.kinds import Kind, KindMismatch
from tidegate.language.expressions.tree import Call, Case, Cast, ComputedCall, Expr, Literal
from tidegate.language.expressions.variant import Variant, finite, gather

# The kind of each leaf in a row.
Signature = tuple[Kind, ...]

_KINDS = tuple(Kind)
_CODES_IN_INT64 = 10  # the codes of this many leaves fit 30 bits; the rest of an int64 has room for row numbers


def evaluate(
    exprs: Sequence[Expr], leaves: Mapping[Expr, Variant], length: int, *, can_split: bool = False
) -> tuple[list[Variant], list[FailedRows]]:
    """
    Evaluate expressions, given the column of every leaf; return a column per expression (NULL in failed rows) and the failures.

    Raises TooMuchAtOnce, if *can_split*: the texts of one column might be too many for memory.
    """
    columns: list[Variant] = []
    failures: list[FailedRows] = []
    computed_everywhere: dict[Expr, Variant] = {}
    without_sql = {expr: values for expr in dict.fromkeys(exprs) if (values := operator_values(expr, leaves, length)) is not None}
    others = [expr for expr in exprs if expr not in without_sql]
    together = without_sql | (_evaluate_together(others, leaves, length) if len(others) > 1 else {})
    for expr in exprs:
        if expr in together:
            columns.append(together[expr])
            continue
        # Column functions are computed before the expression around them.
        if column_functions.has_column_calls(expr):
            calls = ColumnCalls(dict(leaves), length, partial(_evaluate_plain, can_split=can_split), computed_everywhere)
            column, failed = _evaluate_with_column_calls(expr, calls)
        else:
            column, failed = _evaluate_plain(expr, leaves, length, can_split=can_split)
        columns.append(column)
        failures += failed
    return columns, failures


def _evaluate_together(exprs: Sequence[Expr], leaves: Mapping[Expr, Variant], length: int) -> dict[Expr, Variant]:
    """
    Return the values of the expressions that one statement computes, which costs less than a statement for each; no row of them fails.

    These expressions have one signature in all rows and cannot make a text longer. The others are left out.
    """
    chosen: dict[Expr, tuple[Expr, Signature]] = {}
    for expr in dict.fromkeys(exprs):
        if expr in leaves or column_functions.has_column_calls(expr):
            continue
        plain, leaves = replace_times(expr, leaves)
        signature = None if plain in leaves else _common_signature(plain, leaves)
        if signature is not None and not can_grow(plain, signature):
            chosen[expr] = plain, signature
    statement = _joint_statement(tuple(chosen.values()))
    if len(statement.kinds) < 2:
        return {}
    table = pa.table({f"c{index}": leaves[leaf].of_kind(kind) for index, (leaf, kind) in enumerate(statement.inputs)})
    import duckdb

    try:
        values = run(statement.sql, input=table)
    except duckdb.Error:
        # Some row fails: each expression computed by itself shows which.
        return {}
    names = {plain: f"v{index}" for index, plain in enumerate(statement.kinds)}
    columns = {plain: (kind, values[names[plain]]) for plain, kind in statement.kinds.items()}
    computed = {expr: columns[plain] for expr, (plain, _) in chosen.items() if plain in columns}
    return {expr: _of_kind(kind, column, length) for expr, (kind, column) in computed.items()}


@dataclass(frozen=True, slots=True)
class _Joint:
    """A statement for several expressions: its columns c0, c1, ... (leaves with their kinds), and the kinds of its results v0, v1, ..."""

    sql: str
    inputs: tuple[tuple[Expr, Kind], ...]
    kinds: Mapping[Expr, Kind]


@lru_cache(maxsize=4096)
def _joint_statement(exprs: tuple[tuple[Expr, Signature], ...]) -> _Joint:
    inputs: dict[tuple[Expr, Kind], str] = {}
    chosen: dict[Expr, TypedSql] = {}
    length = 0
    for expr, signature in exprs:
        known = {}
        for leaf, kind in zip(expr.leaves(), signature, strict=True):
            known[leaf] = TypedSql(inputs.setdefault((leaf, kind), f"c{len(inputs)}"), kind)
        try:
            statement = translate(expr, known)
        except KindMismatch:
            continue
        length += len(statement.sql)
        if statement.kind is not Kind.NULL and statement.sql not in inputs.values() and length <= SQL_CHARACTERS_MAX:
            chosen[expr] = statement
    texts = [f"CAST({one.sql} AS {DUCK_TYPES[one.kind]}) AS v{index}" for index, one in enumerate(chosen.values())]
    return _Joint(f"SELECT {', '.join(texts)} FROM input", tuple(inputs), {expr: one.kind for expr, one in chosen.items()})


def _of_kind(kind: Kind, values: pa.ChunkedArray, length: int) -> Variant:
    return Variant.of(length, {kind: finite(values) if kind is Kind.FLOAT else values})


def _evaluate_with_column_calls(expr: Expr, calls: ColumnCalls) -> Evaluated:
    plain = calls.replace_calls(expr, np.arange(calls.length, dtype=np.int64))
    column, failures = calls.compute(plain, calls.leaves, calls.length)
    if calls.failures:
        is_computed = np.ones(calls.length, dtype=np.bool_)
        is_computed[np.concatenate([failure.rows for failure in calls.failures])] = False
        column = Variant.of(column.length, {kind: pc.if_else(pa.array(is_computed), part, None) for kind, part in column.parts.items()})
    return column, [*calls.failures, *failures]


def _evaluate_plain(expr: Expr, leaves: Mapping[Expr, Variant], length: int, *, can_split: bool = False) -> Evaluated:
    if (values := plain_values(expr, leaves, length)) is not None:
        return values, []
    expr, leaves = replace_times(expr, leaves)
    pieces: list[tuple[RowNumbers, Variant]] = []
    failures: list[FailedRows] = []
    for rows, signature in _signatures(expr, leaves, length):
        inputs = {leaf: leaves[leaf] if len(rows) == length else leaves[leaf].take_rows(rows) for leaf in expr.leaves()}
        piece, failed = _evaluate_sized(expr, signature, inputs, len(rows), can_split=can_split)
        pieces.append((rows, piece))
        failures += [FailedRows(rows[failure.rows], failure.reason) for failure in failed]
    return gather(length, pieces), failures


def _signatures(expr: Expr, leaves: Mapping[Expr, Variant], length: int) -> Iterator[tuple[RowNumbers, Signature]]:
    """Yield each signature's rows and its kinds, one per leaf, in a fixed order."""
    columns = [leaves[leaf] for leaf in expr.leaves()]
    if (common := _common_signature(expr, leaves)) is not None:
        yield np.arange(length, dtype=np.int64), common
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


def _common_signature(expr: Expr, leaves: Mapping[Expr, Variant]) -> Signature | None:
    """Return the signature with which all rows can be computed; None if there are several."""
    columns = [leaves[leaf] for leaf in expr.leaves()]
    if any(len(column.kinds) > 1 for column in columns):
        return None
    merged = tuple(column.kinds[0] if column.kinds else Kind.NULL for column in columns)
    return merged if all(_has_no_nulls(column) for column in columns) or _can_merge_nulls(expr, merged) else None


def _has_no_nulls(column: Variant) -> bool:
    return not column.kinds or all(part.null_count == 0 for part in column.parts.values())


@lru_cache(maxsize=4096)
def _can_merge_nulls(expr: Expr, signature: Signature) -> bool:
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
def _statement(expr: Expr, signature: Signature) -> TypedSql | ReasonText:
    """Return the DuckDB expression over columns c0, c1, ..., or the reason if the kinds do not fit."""
    columns = {leaf: TypedSql(f"c{index}", kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    try:
        return translate(expr, columns)
    except KindMismatch as mismatch:
        return mismatch.reason


def _evaluate_sized(expr: Expr, signature: Signature, inputs: Mapping[Expr, Variant], length: int, *, can_split: bool) -> Evaluated:
    """Evaluate an expression in rows of one signature, so that no text becomes too long and not too many long ones are in memory."""
    if (values := operator_values(expr, inputs, length)) is not None:
        return values, []
    if not can_grow(expr, signature):
        return _evaluate_signature(expr, signature, inputs, length)

    def count_of(arg: Expr) -> Sizes:
        if any(map(is_growing_call, arg.walk())):
            return float(REPEATED_CHARACTERS_MAX)
        return counts(_evaluate_plain(arg, inputs, length)[0])

    _, largest, together = bound_sizes(expr, {leaf: largest_size(column) for leaf, column in inputs.items()}, count_of)
    if np.max(largest) <= VALUE_BYTES_MAX and np.max(together) * length <= BUDGET.bytes:
        return _evaluate_signature(expr, signature, inputs, length)
    bounds = bound_sizes(expr, {leaf: text_sizes(column) for leaf, column in inputs.items()}, count_of)
    value, largest, together = (np.broadcast_to(bound, length) for bound in bounds)
    if can_split and length > 1 and value.sum() > RETURNED_BYTES_MAX:
        raise TooMuchAtOnce
    is_within = largest <= VALUE_BYTES_MAX
    # In the other rows each growing call is computed by itself, and only if its text is not too long.
    growing = sum(map(is_growing_call, expr.walk()))
    together = np.where(is_within, together, np.minimum(together, growing * VALUE_BYTES_MAX))
    pieces, failures = [], []
    for chosen, compute in ((is_within, _evaluate_signature), (~is_within, _evaluate_large)):
        all_rows = np.flatnonzero(chosen).astype(np.int64)
        for part in cut(together[all_rows], BUDGET.bytes):
            rows = all_rows[part]
            piece, failed = compute(expr, signature, {leaf: column.take_rows(rows) for leaf, column in inputs.items()}, len(rows))
            pieces.append((rows, piece))
            failures += [FailedRows(rows[failure.rows], failure.reason) for failure in failed]
    return gather(length, pieces), failures


def _evaluate_large(expr: Expr, signature: Signature, inputs: Mapping[Expr, Variant], length: int) -> Evaluated:
    """Evaluate an expression in rows in which a text might become too long: functions that can lengthen a text are computed one by one."""
    return _evaluate_with_column_calls(expr, _GrowingCalls(dict(inputs), length, _evaluate_plain, {}))


class _GrowingCalls(ColumnCalls):
    """The functions of one expression that can lengthen a text."""

    def is_call(self, expr: Expr) -> bool:
        return is_growing_call(expr)

    def call(self, expr: Expr, args: Sequence[Variant], length: int) -> Evaluated:
        assert isinstance(expr, Call)
        sizes = sizes_of_call(expr, args)
        too_large = np.flatnonzero(sizes > VALUE_BYTES_MAX).astype(np.int64)
        reason = with_place(QueryReason.VALUE_TOO_LARGE.text(f"more than {VALUE_BYTES_MAX} bytes"), expr)
        failures = [FailedRows(too_large, reason)] if len(too_large) else []
        outer = expr.with_parts(tuple(ComputedCall(part) for part in expr.parts))
        pieces = []
        computed_rows = np.flatnonzero(sizes <= VALUE_BYTES_MAX).astype(np.int64)
        for part in cut(sizes[computed_rows], BUDGET.bytes):
            rows = computed_rows[part]
            columns = {leaf: arg.take_rows(rows) for leaf, arg in zip(outer.parts, args, strict=True)}
            for places, signature in _signatures(outer, columns, len(rows)):
                inputs = {leaf: column.take_rows(places) for leaf, column in columns.items()}
                piece, failed = _evaluate_signature(outer, signature, inputs, len(places))
                pieces.append((rows[places], piece))
                failures += [FailedRows(rows[places][failure.rows], failure.reason) for failure in failed]
        return gather(length, pieces), failures


def _evaluate_signature(expr: Expr, signature: Signature, inputs: Mapping[Expr, Variant], length: int) -> Evaluated:
    statement = _statement(expr, signature)
    if isinstance(statement, str):
        return Variant.of(length, {}), [FailedRows(np.arange(length, dtype=np.int64), with_place(statement, expr))]
    if statement.kind is Kind.NULL:
        return Variant.of(length, {}), []
    unchanged = next((leaf for index, leaf in enumerate(expr.leaves()) if statement.sql == f"c{index}"), None)
    if unchanged is not None:
        return inputs[unchanged], []
    arrays = {f"c{index}": inputs[leaf].of_kind(kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    table = pa.table(arrays or {"row": np.zeros(length, dtype=np.int8)})
    values, failed = _run(expr, signature, statement, table)
    return _of_kind(statement.kind, values, length), failed


def _run(expr: Expr, signature: Signature, statement: TypedSql, table: pa.Table) -> tuple[pa.ChunkedArray, list[FailedRows]]:
    """Return the values of a DuckDB expression, and the rows that fail."""
    import duckdb

    try:
        return run(f"SELECT CAST({statement.sql} AS {DUCK_TYPES[statement.kind]}) AS v FROM input", input=table)["v"], []
    except duckdb.OutOfMemoryException:
        return _run_halves(expr, signature, statement, table)
    except duckdb.Error:
        pass
    # Some row fails, and DuckDB does not say which: compute again with TRY. A failed row is a null struct, NULL a struct with null.
    try:
        structs = _row_by_row(expr, signature, table)
    except duckdb.OutOfMemoryException:
        return _run_halves(expr, signature, statement, table)
    rows = np.flatnonzero(structs.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
    return pa.chunked_array([pc.struct_field(structs, "v")]), [FailedRows(rows, with_place(QueryReason.CONVERSION.text(), expr))]


def _run_halves(expr: Expr, signature: Signature, statement: TypedSql, table: pa.Table) -> tuple[pa.ChunkedArray, list[FailedRows]]:
    """Compute each half of the rows by itself, since all need more memory than DuckDB may use; a single row that needs too much fails."""
    half = table.num_rows // 2
    if not half:
        reason = with_place(QueryReason.VALUE_TOO_LARGE.text("more memory than DuckDB may use"), expr)
        return pa.chunked_array([pa.nulls(1, statement.kind.arrow)]), [FailedRows(np.zeros(1, dtype=np.int64), reason)]
    first, failed_first = _run(expr, signature, statement, table.slice(0, half))
    second, failed_second = _run(expr, signature, statement, table.slice(half))
    failed_second = [FailedRows(failure.rows + half, failure.reason) for failure in failed_second]
    return pa.chunked_array([*first.chunks, *second.chunks]), [*failed_first, *failed_second]


def _row_by_row(expr: Expr, signature: Signature, table: pa.Table) -> pa.StructArray:
    """Return ``{'v': value}`` for each row, null for a row that fails."""
    known = {leaf: TypedSql(f"c{index}", kind) for index, (leaf, kind) in enumerate(zip(expr.leaves(), signature, strict=True))}
    # DuckDB computes with constants before the first row, outside of TRY. As columns they fail only in the rows that use them.
    texts = dict.fromkeys(part for part in expr.walk() if isinstance(part, Literal) and part.kind is Kind.NVARCHAR)
    for index, literal in enumerate(texts):
        known[literal] = replace(translate_literal(literal), sql=f"t{index}")
        table = table.append_column(f"t{index}", pa.array([literal.value] * table.num_rows, pa.string()))
    statement = translate(expr, known)
    sql = f"SELECT TRY({{'v': CAST({statement.sql} AS {DUCK_TYPES[statement.kind]})}}) AS o FROM input"
    return run_row_by_row(sql, input=table)["o"].combine_chunks()
