"""
Extensions: functions, aggregates, operators and queries that installed packages provide, found by their entry points.

Authors of packages import :mod:`query.extending`; this module finds and registers what they provide.

============================  ==================================================================================
``tidegate.functions``        scalar functions, called in scripts as ``udf.name(...)``: :class:`ScalarFunction`
``tidegate.aggregates``       aggregates, called in scripts as ``uda.name(...)``: :class:`AggregateFunction`
``tidegate.operators``        operators, called in FROM as ``name(step, ...)``: :class:`query.plan.operator_extensions.OperatorExtension`
``tidegate.queries``          whole queries, run by name as ``tidegate query name``: a function that returns a
                              :class:`query.api.Query`, or a script's text
============================  ==================================================================================

A package is imported only when a script or the command line names what it provides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.errors import QueryError
from query.plan import operator_extensions as operators
from query.plan.operator_extensions import OperatorExtension
from query.sql.operator_calls import BUILT_IN_OPERATORS
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.basics.package_offers import find_offers, load_offer, unusable_offer
from tidegate.language.expressions.functions import column_functions, extension_aggregates
from tidegate.language.expressions.functions.column_functions import ColumnFunction, FailedRows, RowNumbers, argument_column, wrong_kinds
from tidegate.language.expressions.functions.extension_aggregates import ExtensionAggregate
from tidegate.language.expressions.kinds import DECLARABLE, Kind
from tidegate.language.expressions.syntax.errors import suggest, suggest_type
from tidegate.language.expressions.variant import Variant, finite

FUNCTIONS, AGGREGATES, OPERATORS, QUERIES = "tidegate.functions", "tidegate.aggregates", "tidegate.operators", "tidegate.queries"
PREFIX, AGGREGATE_PREFIX = "udf.", "uda."
_FAIL = partial(QueryError, code="TG-QUERY-EXTENSION")


@dataclass(frozen=True)
class ScalarFunction:
    """
    A function of one row, computed over whole Arrow columns at once.

    Args:
        compute: Takes an Arrow array for each argument, all of one length, and returns one of that length. A value may depend only on the
            arguments in its own row, since batches can begin and end anywhere. If it raises, each row is computed alone, and rows for which
            it raises again become dead letters.
        takes: The ASA type of each argument: bigint, float (a bigint is converted), nvarchar(max), datetime (int64 microseconds since
            1970), bit, record or array (JSON text). A value of another type makes its row a dead letter; NULL is null.
        gives: The ASA type of the result.
    """

    compute: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str

    def column_function(self, name: str) -> ColumnFunction:
        """Return the function for expressions. Raises QueryError: it names an unknown type (TG-QUERY-EXTENSION)."""
        called = f"{PREFIX}{name}"
        kinds = tuple(_kind(called, spelled) for spelled in self.takes)
        gives = _kind(called, self.gives)

        def rule(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
            failures = wrong_kinds(args, kinds)
            has_right_kinds = np.ones(length, dtype=np.bool_)
            for failure in failures:
                has_right_kinds[failure.rows] = False
            rows = np.flatnonzero(has_right_kinds)
            columns = [argument_column(arg.take_rows(rows), kind) for arg, kind in zip(args, kinds, strict=True)]
            values, failed = _compute_isolated(
                called,
                gives,
                len(rows),
                "rows",
                lambda: self.compute(*columns),
                lambda row: self.compute(*(column.slice(row, 1) for column in columns)),
            )
            failures += [FailedRows(rows[failure.rows], failure.reason) for failure in failed]
            places = pa.array(np.where(has_right_kinds, np.cumsum(has_right_kinds) - 1, 0), mask=~has_right_kinds)
            return Variant.of(length, {gives: values.take(places)}), failures

        return ColumnFunction(len(kinds), len(kinds), rule, gives, kinds)


@dataclass(frozen=True)
class AggregateFunction:
    """
    An aggregate, computed for many groups and windows at once.

    Args:
        compute: Takes an Arrow array for each argument (the rows of one group after the other, those of a group by time) and two int64
            numpy arrays, the numbers of the first and of the last row (inclusive) of each result; returns an Arrow array with a value for
            each result. Runs of rows may overlap, and none is empty. A value may depend only on the rows of its own run and their order.
            NULLs are passed on. If it raises, each result is computed alone, and results for which it raises again become dead letters.
        takes: The ASA type of each argument, at least one, spelled as for :class:`ScalarFunction`.
        gives: The ASA type of the result.
    """

    compute: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str

    def extension_aggregate(self, name: str) -> ExtensionAggregate:
        """Return the aggregate for queries. Raises QueryError: it takes nothing, or names an unknown type (TG-QUERY-EXTENSION)."""
        called = f"{AGGREGATE_PREFIX}{name}"
        if not self.takes:
            message, fix = f"{called} takes no argument", "let it take one: COUNT(*) counts rows"
            raise QueryError(message, code="TG-QUERY-EXTENSION", where=name, fix=fix)
        gives = _kind(called, self.gives)

        kinds = tuple(_kind(called, spelled) for spelled in self.takes)

        def rule(columns: Sequence[Variant], first: RowNumbers, last: RowNumbers) -> tuple[Variant, list[FailedRows]]:
            args = [column.of_kind(kind) for column, kind in zip(columns, kinds, strict=True)]
            with_rows = np.flatnonzero(last >= first)
            starts, counts = first[with_rows], (last - first + 1)[with_rows]

            def compute_one(number: int) -> Any:
                start, count = int(starts[number]), int(counts[number])
                return self.compute(*(arg.slice(start, count) for arg in args), np.array([0]), np.array([count - 1]))

            values, failed = _compute_isolated(
                called, gives, len(with_rows), "results", lambda: self.compute(*args, starts, last[with_rows]), compute_one
            )
            places = np.full(len(first), -1, dtype=np.int64)
            places[with_rows] = np.arange(len(with_rows))
            failures = [FailedRows(with_rows[failure.rows], failure.reason) for failure in failed]
            return Variant.of(len(first), {gives: values.take(pa.array(places, mask=places < 0))}), failures

        return ExtensionAggregate(kinds, gives, rule)


def _compute_isolated(
    called: str, gives: Kind, count: int, noun: str, compute_all: Callable[[], Any], compute_one: Callable[[int], Any]
) -> tuple[pa.Array, list[FailedRows]]:
    """
    Return *count* values of a function that scripts call *called*. If computing all of them fails, each is computed alone, and is null if
    that fails too. *noun* says in messages what has a value each.
    """
    if not count:
        return pa.nulls(0, gives.arrow), []
    try:
        return _check_values(compute_all(), gives, count, noun), []
    except Exception:  # a package's mistake costs the rows it concerns, not the job
        values: list[pa.Array] = []
    failures = []
    for number in range(count):
        try:
            values.append(_check_values(compute_one(number), gives, 1, noun))
        except Exception as error:
            values.append(pa.nulls(1, gives.arrow))
            failures.append(FailedRows(np.array([number]), QueryReason.CALL.text(called, f"{type(error).__name__}: {error}")))
    return pa.concat_arrays(values), failures


def _check_values(returned: Any, gives: Kind, count: int, noun: str) -> pa.Array:
    """Convert the values that a function of a package returned to an array of its kind."""
    values = returned if isinstance(returned, pa.Array) else pa.array(returned)
    values = values.cast(gives.arrow)
    if len(values) != count:
        raise ValueError(f"it gave {len(values)} values for {count} {noun}")
    # The language has no infinity and NaN: they become NULL.
    return finite(values) if gives is Kind.FLOAT else values


def _kind(name: str, spelled: str) -> Kind:
    kind = DECLARABLE.get(spelled.lower())
    if kind is None:
        raise _FAIL(f"{name} has a type {spelled!r}, which there is not", where=name, fix=suggest_type(spelled))
    return kind


def register(name: str, extension: ScalarFunction | AggregateFunction | OperatorExtension) -> None:
    """
    Register a function as ``udf.name``, an aggregate as ``uda.name``, an operator as ``name``. Packages need not call it.

    Raises QueryError: it cannot be used, or is named like an operator of Tidegate (TG-QUERY-EXTENSION).
    """
    if isinstance(extension, OperatorExtension):
        if name.lower() in BUILT_IN_OPERATORS:
            message, fix = f"there is an operator {name} already", "give it another name"
            raise QueryError(message, code="TG-QUERY-EXTENSION", where=name, fix=fix)
        operators.REGISTERED[name.lower()] = extension
    elif isinstance(extension, AggregateFunction):
        extension_aggregates.REGISTERED[f"{AGGREGATE_PREFIX}{name}".lower()] = extension.extension_aggregate(name)
    else:
        column_functions.REGISTERED[f"{PREFIX}{name}".lower()] = extension.column_function(name)


@cache
def load() -> None:
    """Make known what installed packages add to the language, once in a process: each is imported when a script first names it."""
    for group, prefix, registry, wanted in (
        (FUNCTIONS, PREFIX, column_functions.REGISTERED, ScalarFunction),
        (AGGREGATES, AGGREGATE_PREFIX, extension_aggregates.REGISTERED, AggregateFunction),
        (OPERATORS, "", operators.REGISTERED, OperatorExtension),
    ):
        for name in find_offers(group, _FAIL, only=""):
            registry.offer(f"{prefix}{name}".lower(), partial(_register_offer, group, name, wanted))


def _register_offer(group: str, name: str, wanted: type[ScalarFunction | AggregateFunction | OperatorExtension]) -> None:
    """Raises QueryError (TG-QUERY-EXTENSION): two packages offer the name, it cannot be imported, or is not what is *wanted*."""
    entry = find_offers(group, _FAIL, only=name.lower())[name]
    extension = load_offer(entry, _FAIL)
    if not isinstance(extension, wanted):
        raise unusable_offer(entry, f"it is a {type(extension).__name__}, not a {wanted.__name__}", _FAIL)
    register(name, extension)


def find_query(name: str) -> Any:
    """Return the result of a package's entry point. Raises QueryError: there is none (TG-QUERY-FILE), or no import (TG-QUERY-EXTENSION)."""
    known = find_offers(QUERIES, _FAIL, only=name.lower())
    if name not in known:
        message = f"there is no file {name}, and no installed package offers a query of that name"
        fix = suggest(name, known, f"packages offer {', '.join(sorted(known))}" if known else "give the path of a script")
        raise QueryError(message, code="TG-QUERY-FILE", where=name, fix=fix)
    return load_offer(known[name], _FAIL)()
