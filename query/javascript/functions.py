"""
A function in JavaScript as the language calls it: over whole columns, each row by a call of its own.

Law: a value follows from the function's text and the row's arguments alone (:mod:`tidegate.language.javascript.engine`). A call that
fails costs its row, or the result of an aggregate, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from query.javascript.values import argument, json_argument, results, row_groups
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.functions import column_functions, extension_aggregates
from tidegate.language.expressions.functions.column_functions import ColumnFunction, FailedRows, RowNumbers, argument_column, wrong_kinds
from tidegate.language.expressions.functions.extension_aggregates import ExtensionAggregate
from tidegate.language.expressions.kinds import DECLARABLE, Kind
from tidegate.language.expressions.variant import Variant
from tidegate.language.javascript.engine import Engine, ScriptFailure, ScriptLimits, failure_of

# A call may have this many arguments if the function does not say how many it takes.
ARGUMENTS_MAX = 255
# An aggregate is fed so many rows at once, each time within the limits of one call.
_FED_ROWS = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScriptFunction:
    """A declared function, as a plan carries it to the workers."""

    # How scripts call it, in lower case: ``udf.name`` or ``uda.name``.
    called: str
    # The text in JavaScript.
    source: str
    # The function in it that is called.
    entry: str
    # The least number of arguments, *args_max* the largest.
    args_min: int
    args_max: int
    # The ASA type of each argument; "" any. Empty: all may be any.
    takes: tuple[str, ...]
    # The ASA type of the value; "" any.
    gives: str
    # The limit on the processor's time of a call.
    seconds: float
    # The limit on what the script keeps.
    memory_bytes: int

    @property
    def digest(self) -> str:
        """All that decides a value, in 16 letters."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:16]

    @property
    def registered(self) -> str:
        """Its name among the functions of the language: functions of one name and other texts do not meet."""
        return f"{self.called}@{self.digest}"

    @property
    def is_aggregate(self) -> bool:
        return self.called.startswith("uda.")

    @property
    def limits(self) -> ScriptLimits:
        return ScriptLimits(self.seconds, self.memory_bytes)


# Every function that this process knows, by its registered name.
_KNOWN: dict[str, ScriptFunction] = {}
# An engine belongs to the process that made it: a forked worker makes its own.
_ENGINES: dict[tuple[int, str], Engine] = {}


def register(function: ScriptFunction) -> None:
    """Let expressions call the function by its registered name."""
    name = function.registered
    if name in _KNOWN:
        return
    _KNOWN[name] = function
    kinds = tuple(DECLARABLE.get(spelled) for spelled in function.takes)
    gives = DECLARABLE.get(function.gives)
    if function.is_aggregate:
        aggregate = ExtensionAggregate(
            kinds, gives, _aggregate_rule(function, gives), function.args_min, function.args_max, takes_time=True
        )
        extension_aggregates.REGISTERED[name] = aggregate
    else:
        rule = _scalar_rule(function, kinds, gives)
        column_functions.REGISTERED[name] = ColumnFunction(function.args_min, function.args_max, rule, gives, kinds, takes_rows=True)


def known(registered: str) -> ScriptFunction | None:
    """Return a function by its registered name, None if it is none of ours."""
    return _KNOWN.get(registered)


def _engine(function: ScriptFunction) -> Engine:
    key = os.getpid(), function.registered
    if key not in _ENGINES:
        _ENGINES[key] = Engine(function.source, function.entry, function.limits)
    return _ENGINES[key]


def _try(function: ScriptFunction, engine: Engine, attempt: Callable[[], T]) -> T:
    """Return what *attempt* returns; if it reaches a limit, let it try once more in a new context. ScriptFailure: it fails."""
    try:
        return attempt()
    except Exception as error:
        failure = failure_of(error, function.limits)
        if not failure.is_limit:
            raise failure from None
    engine.reset()
    try:
        return attempt()
    except Exception as error:
        engine.reset()
        raise failure_of(error, function.limits) from None


def _scalar_rule(
    function: ScriptFunction, takes: Sequence[Kind | None], gives: Kind | None
) -> Callable[[Sequence[Variant], int], tuple[Variant, Sequence[FailedRows]]]:
    called = function.called

    def rule(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
        usable = np.ones(length, dtype=np.bool_)
        for failure in wrong_kinds(args, takes):
            usable[failure.rows] = False
        args = [
            arg if kind is None else Variant.of(length, {kind: argument_column(arg, kind)})
            for arg, kind in zip(args, (*takes, *[None] * len(args)), strict=False)
        ]
        engine, values, failures = _engine(function), [None] * length, list[FailedRows]()
        for rows, kinds in row_groups(args, np.flatnonzero(usable)) if args else [(np.flatnonzero(usable), ())]:
            columns = [argument(arg, kind, rows) for arg, kind in zip(args, kinds, strict=True)]
            forms, lists = "".join(form for form, _ in columns), [listed for _, listed in columns]
            found, failed = _call_rows(function, engine, forms, lists, len(rows))
            failures += [FailedRows(rows[[row]], QueryReason.CALL.text(called, failure)) for row, failure in failed]
            if len(rows) == length:
                values = found
            else:
                for row, value in zip(rows.tolist(), found, strict=True):
                    values[row] = value
        column, failed_results = results(values, gives, called)
        return column, [*failures, *failed_results]

    return rule


def _call_rows(
    function: ScriptFunction, engine: Engine, forms: str, lists: Sequence[list[Any]], count: int
) -> tuple[list[Any], list[tuple[int, ScriptFailure]]]:
    """Return the value of each row, and the rows whose call failed."""
    try:
        call = engine.function(forms)
        return (list(map(call, *lists)) if lists else [call() for _ in range(count)]), []
    except Exception:  # which rows fail is found out below
        engine.reset()
    values, failed = list[Any](), list[tuple[int, ScriptFailure]]()
    for row in range(count):
        arguments = [listed[row] for listed in lists]
        try:
            values.append(_try(function, engine, lambda arguments=arguments: engine.function(forms)(*arguments)))  # type: ignore[misc]
        except ScriptFailure as failure:
            values.append(None)
            failed.append((row, failure))
    return values, failed


def _aggregate_rule(function: ScriptFunction, gives: Kind | None) -> extension_aggregates.AggregateRule:
    called = function.called

    def rule(args: Sequence[Variant], first: RowNumbers, last: RowNumbers) -> tuple[Variant, list[FailedRows]]:
        engine, values, failures = _engine(function), list[Any](), list[FailedRows]()
        every = np.arange(args[0].length)
        rows = list(map(",".join, zip(*(json_argument(arg, every) for arg in args), strict=True)))

        def compute(low: int, high: int) -> Any:
            begin, feed, end = engine.aggregate()
            begin()
            for start in range(low, high, _FED_ROWS):
                feed(f"[[{'],['.join(rows[start : min(start + _FED_ROWS, high)])}]]")
            return end()

        for number, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            try:
                values.append(_try(function, engine, lambda low=low, high=high: compute(low, high + 1)))  # type: ignore[misc]
            except ScriptFailure as failure:
                values.append(None)
                failures.append(FailedRows(np.array([number]), QueryReason.CALL.text(called, failure)))
        column, failed = results(values, gives, called)
        return column, [*failures, *failed]

    return rule
