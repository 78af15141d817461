"""
Extensions: what other packages add to queries, found by their entry points.

============================  ==================================================================================
``tidegate.functions``        scalar functions, called in scripts as ``udf.name(...)``: :class:`ScalarFunction`
``tidegate.aggregates``       aggregates, called in scripts as ``uda.name(...)``: :class:`AggregateFunction`
``tidegate.operators``        operators, called in FROM as ``name(step, ...)``: :class:`query.plan.operator_extensions.OperatorExtension`
``tidegate.queries``          whole queries, run by name as ``tidegate query name``: a function that returns a
                              :class:`query.api.Query`, or a script's text
============================  ==================================================================================

A package is asked for only when a script, or the command line, names what it offers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.errors import QueryError
from query.plan import operator_extensions as operators
from query.plan.operator_extensions import OperatorExtension
from query.sql.operator_calls import BUILT_IN_OPERATORS
from tidegate.expressions.functions import column_functions, extension_aggregates
from tidegate.expressions.functions.column_functions import ColumnFunction, Failure, wrong_kinds
from tidegate.expressions.functions.extension_aggregates import ExtensionAggregate, RowNumbers
from tidegate.expressions.kinds import DECLARABLE, Kind
from tidegate.expressions.syntax.errors import suggest
from tidegate.expressions.variant import Variant, finite

FUNCTIONS, AGGREGATES, OPERATORS, QUERIES = "tidegate.functions", "tidegate.aggregates", "tidegate.operators", "tidegate.queries"
PREFIX, AGGREGATE_PREFIX = "udf.", "uda."


@dataclass(frozen=True)
class ScalarFunction:
    """
    A function of one row, computed over whole Arrow columns at once.

    Args:
        compute: Takes an Arrow array for each argument, all of one length, and returns one of that length. A value may
            depend on the arguments in its own row alone: where batches begin and end is nobody's business. An exception
            makes the rows it was asked for dead letters.
        takes: The ASA type of each argument: bigint, float, nvarchar(max), datetime (int64 microseconds since 1970), bit, record
            or array (JSON text). A value of another type makes its row a dead letter; NULL is null.
        gives: The ASA type of the result.
    """

    compute: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str

    def column_function(self, name: str) -> ColumnFunction:
        """
        Return the function as expressions call it.

        Raises:
            QueryError: It names a type there is not (TG-QUERY-EXTENSION).
        """
        kinds = tuple(_kind(f"{PREFIX}{name}", each) for each in self.takes)
        gives = _kind(f"{PREFIX}{name}", self.gives)

        def rule(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[Failure]]:
            failures = wrong_kinds(args, kinds)
            fine = np.ones(length, dtype=np.bool_)
            for failure in failures:
                fine[failure.rows] = False
            rows = np.flatnonzero(fine)
            values, failed = self._computed(
                name, [arg.take_rows(rows).of_kind(kind) for arg, kind in zip(args, kinds, strict=True)], gives, len(rows)
            )
            failures += [Failure(rows[each.rows], each.reason) for each in failed]
            places = pa.array(np.where(fine, np.cumsum(fine) - 1, 0), mask=~fine)
            return Variant.of(length, {gives: values.take(places)}), failures

        return ColumnFunction(len(kinds), len(kinds), rule, gives, kinds)

    def _computed(self, name: str, args: Sequence[pa.Array], gives: Kind, length: int) -> tuple[pa.Array, list[Failure]]:
        """Return the results of rows without a wrong type; where the whole call fails, each row is asked for alone."""
        try:
            return self._called(args, gives, length), []
        except Exception:  # whatever a user's function raises, it is that row's fate and not the job's
            pieces, failures = [], []
            for row in range(length):
                try:
                    pieces.append(self._called([arg.slice(row, 1) for arg in args], gives, 1))
                except Exception as error:
                    pieces.append(pa.nulls(1, gives.arrow))
                    failures.append(Failure(np.array([row]), f"{PREFIX}{name} failed: {type(error).__name__}: {error}"))
            return pa.concat_arrays(pieces) if pieces else pa.nulls(0, gives.arrow), failures

    def _called(self, args: Sequence[pa.Array], gives: Kind, length: int) -> pa.Array:
        return _usable(self.compute(*args), gives, length, "rows")


@dataclass(frozen=True)
class AggregateFunction:
    """
    An aggregate, computed for many groups and windows at once.

    Args:
        compute: Takes an Arrow array for each argument - the rows of one group after the other, those of a group by time -
            and two int64 numpy arrays, the numbers of the first and of the last row (inclusive) of each result; returns an
            Arrow array with a value for each result. Runs of rows may overlap, and none is empty. A value may depend on the
            rows of its own run and their order alone. NULLs are passed on. An exception makes dead letters of the results
            it cannot compute: then each is asked for alone.
        takes: The ASA type of each argument, one at least, as :class:`ScalarFunction` has them.
        gives: The ASA type of the result.
    """

    compute: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str

    def offered(self, name: str) -> ExtensionAggregate:
        """
        Return the aggregate as queries call it.

        Raises:
            QueryError: It takes nothing, or names a type there is not (TG-QUERY-EXTENSION).
        """
        called = f"{AGGREGATE_PREFIX}{name}"
        if not self.takes:
            what, fix = f"{called} takes no argument", "let it take one: COUNT(*) counts rows"
            raise QueryError(what, code="TG-QUERY-EXTENSION", where=name, fix=fix)
        gives = _kind(called, self.gives)

        def rule(args: Sequence[pa.Array], first: RowNumbers, last: RowNumbers) -> tuple[pa.Array, list[Failure]]:
            some = np.flatnonzero(last >= first)
            values, failed = self._computed(called, args, gives, first[some], last[some])
            places = np.full(len(first), -1, dtype=np.int64)
            places[some] = np.arange(len(some))
            failures = [Failure(some[each.rows], each.reason) for each in failed]
            return values.take(pa.array(places, mask=places < 0)), failures

        return ExtensionAggregate(tuple(_kind(called, each) for each in self.takes), gives, rule)

    def _computed(
        self, called: str, args: Sequence[pa.Array], gives: Kind, first: RowNumbers, last: RowNumbers
    ) -> tuple[pa.Array, list[Failure]]:
        """Return the results; where the whole call fails, each is asked for alone, of nothing but its own rows."""
        if not len(first):
            return pa.nulls(0, gives.arrow), []
        try:
            return _usable(self.compute(*args, first, last), gives, len(first), "results"), []
        except Exception:  # whatever a user's function raises, it is that result's fate and not the job's
            pieces, failures = [], []
            for number, (low, count) in enumerate(zip(first.tolist(), (last - first + 1).tolist(), strict=True)):
                try:
                    alone = self.compute(*(arg.slice(low, count) for arg in args), np.array([0]), np.array([count - 1]))
                    pieces.append(_usable(alone, gives, 1, "results"))
                except Exception as error:
                    pieces.append(pa.nulls(1, gives.arrow))
                    failures.append(Failure(np.array([number]), f"{called} failed: {type(error).__name__}: {error}"))
            return pa.concat_arrays(pieces), failures


def _usable(found: Any, gives: Kind, length: int, of: str) -> pa.Array:
    """Return what a function of a package gave as an array of its kind."""
    values = found if isinstance(found, pa.Array) else pa.array(found)
    values = values.cast(gives.arrow)
    if len(values) != length:
        raise ValueError(f"it gave {len(values)} values for {length} {of}")
    return finite(values) if gives is Kind.FLOAT else values


def _kind(name: str, spelled: str) -> Kind:
    kind = DECLARABLE.get(spelled.lower())
    if kind is None:
        raise QueryError(
            f"{name} has a type {spelled!r}, which there is not",
            code="TG-QUERY-EXTENSION",
            where=name,
            fix=suggest(spelled, DECLARABLE, f"types are {', '.join(DECLARABLE)}"),
        )
    return kind


def register(name: str, extension: ScalarFunction | AggregateFunction | OperatorExtension) -> None:
    """
    Make a function known as ``udf.name``, an aggregate as ``uda.name``, an operator as ``name``; packages need not call it.

    Raises:
        QueryError: It cannot be used, or an operator of ours has its name (TG-QUERY-EXTENSION).
    """
    if isinstance(extension, OperatorExtension):
        if name.lower() in BUILT_IN_OPERATORS:
            what, fix = f"there is an operator {name} already", "give it another name"
            raise QueryError(what, code="TG-QUERY-EXTENSION", where=name, fix=fix)
        operators.register_operator(name, extension)
    elif isinstance(extension, AggregateFunction):
        extension_aggregates.register(f"{AGGREGATE_PREFIX}{name}", extension.offered(name))
    else:
        column_functions.register(f"{PREFIX}{name}", extension.column_function(name))


@cache
def load() -> None:
    """
    Register what all installed packages add to the language; once in a process.

    Raises:
        QueryError: Something cannot be imported, or is not what its entry point says (TG-QUERY-EXTENSION).
    """
    for group, wanted in ((FUNCTIONS, ScalarFunction), (AGGREGATES, AggregateFunction), (OPERATORS, OperatorExtension)):
        for entry in entry_points(group=group):
            extension = _loaded(entry)
            if not isinstance(extension, wanted):
                raise _useless(entry, f"it is a {type(extension).__name__}, not a {wanted.__name__}")
            register(entry.name, extension)


def find_query(name: str) -> Any:
    """
    Return the query that a package offers under *name*: what its entry point returns.

    Raises:
        QueryError: There is none, or it cannot be imported (TG-QUERY-EXTENSION).
    """
    known = {entry.name: entry for entry in entry_points(group=QUERIES)}
    if name not in known:
        raise QueryError(
            f"there is no file {name}, and no installed package offers a query of that name",
            code="TG-QUERY-FILE",
            where=name,
            fix=suggest(name, known, f"packages offer {', '.join(sorted(known))}" if known else "give the path of a script"),
        )
    return _loaded(known[name])()


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise _useless(entry, f"{type(error).__name__}: {error}") from error


def _useless(entry: EntryPoint, why: str) -> QueryError:
    return QueryError(
        f"the extension {entry.name} ({entry.value}) cannot be used: {why}",
        code="TG-QUERY-EXTENSION",
        where=f"{entry.group}: {entry.name}",
        fix="mend or remove the package that offers it",
    )
