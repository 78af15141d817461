"""
Binding of aggregates: their arguments and the order of their rows.

``COUNT(DISTINCT x)`` counts different values. ``COUNT(flights)``, with the name of an input, counts its events like ``COUNT(*)``.
``COLLECT()``, ``TopOne() OVER (ORDER BY a DESC, b)`` and ``CollectTop(3) OVER (ORDER BY a)`` return whole rows as records, or the values of
an argument. ``PERCENTILE_CONT(0.5) OVER (ORDER BY x)`` has its argument in ORDER BY.

Law: ORDER BY compares values as MIN and MAX do; NULL is lowest, and of equal rows the earlier one comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from sqlglot import exp

from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.functions import extension_aggregates
from tidegate.language.expressions.functions.catalog import ANOMALIES
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.dialect import LIMIT, WHEN
from tidegate.language.expressions.syntax.errors import Source, offset_of
from tidegate.language.expressions.tree import Aggregate, Expr, Required, Requirement, SystemTimestamp, called

# The aggregates that need OVER (ORDER BY ...).
ORDERED_AGGREGATES = ("collecttop", "topone", "percentile_cont", "percentile_disc")
# Clauses that make an aggregate look back from each row (:mod:`tidegate.language.expressions.binding.analytic`) instead of summing up a
# group.
LOOK_BACK_CLAUSES = ("partition_by", LIMIT, WHEN)
_CLAUSES = frozenset({"this", "over", "order", *LOOK_BACK_CLAUSES})
_NUMERIC = frozenset({"sum", "avg", "stdev", "stdevp", "var", "varp"})
_PERCENTILES = frozenset({"percentile_cont", "percentile_disc"})
_ARGUMENTS = {
    "count": (0, 1),
    "collect": (0, 1),
    "collecttop": (1, 2),
    "topone": (0, 1),
    "anomalydetection_changepoint": (3, 3),
    "anomalydetection_spikeanddip": (4, 4),
}
# What AnomalyDetection_SpikeAndDip looks for.
_MODES = ("spikes", "dips", "spikesanddips")
# The longest history of anomaly detection, in rows: the work for a change point grows with its square.
HISTORY_MAX = {"anomalydetection_changepoint": 2_000, "anomalydetection_spikeanddip": 10_000}
_EXAMPLES = {
    "anomalydetection_changepoint": "AnomalyDetection_ChangePoint(delay, 80, 120) OVER (LIMIT DURATION(minute, 20))",
    "anomalydetection_spikeanddip": "AnomalyDetection_SpikeAndDip(delay, 95, 120, 'spikesanddips') OVER (LIMIT DURATION(minute, 2))",
    "count": "COUNT(DISTINCT origin)",
    "collect": "COLLECT(delay)",
    "collecttop": "CollectTop(3) OVER (ORDER BY delay DESC)",
    "topone": "TopOne() OVER (ORDER BY delay DESC)",
    "percentile_cont": "PERCENTILE_CONT(0.95) OVER (ORDER BY delay)",
    "percentile_disc": "PERCENTILE_DISC(0.95) OVER (ORDER BY delay)",
}


class WholeRows(Protocol):
    """The part of :class:`tidegate.language.expressions.binding.names.Names` that binds whole rows."""

    def is_row_name(self, name: str) -> bool: ...

    def whole_row(self, offset: int) -> Expr: ...


@dataclass(frozen=True)
class AggregateBinder:
    """Binds one aggregate: *bind* binds an expression, *check_kinds* checks its kinds, *rows* resolves whole rows."""

    source: Source
    bind: Callable[[exp.Expr], Expr]
    check_kinds: Callable[[Expr, exp.Expr], Expr]
    rows: WholeRows

    def bind_call(self, name: str, call: exp.Expr, over: exp.Expr | None) -> Aggregate:
        """Bind a call; *name* is in lower case, *over* is None without OVER."""
        offset, args = offset_of(call), call.expressions
        if (extension := extension_aggregates.REGISTERED.get(name)) is not None:
            return self._extension(name, extension, call)
        self._check_count(name, call)
        order = self._order(name, call, over.args if over is not None else {})
        if name in ANOMALIES:
            return self._anomaly(name, call)
        if name in _PERCENTILES:
            return Aggregate(name, None, order=order, parameter=self._fraction(name, args[0]), offset=offset)
        if name == "collecttop":
            return Aggregate(name, self._row_value(name, call, args[1:]), order=order, parameter=self._row_count(args[0]), offset=offset)
        if name in ("collect", "topone"):
            return Aggregate(name, self._row_value(name, call, args), order=order, offset=offset)
        if not args:
            return Aggregate(name, None, offset=offset)
        if isinstance(args[0], exp.Distinct):
            return Aggregate(name, self._distinct(name, args[0]), distinct=True, offset=offset)
        if isinstance(args[0], exp.Star) or (name == "count" and self._is_row(args[0])):
            if name != "count":
                raise self._error(f"{name.upper()} takes a value, not *", call, fix="name a field", example="SUM(delay)")
            return Aggregate(name, None, offset=offset)
        arg = self.bind(args[0])
        return Aggregate(name, arg if name == "count" else self._comparable(arg, call, numbers=name in _NUMERIC), offset=offset)

    # Arguments

    def _extension(self, name: str, extension: extension_aggregates.ExtensionAggregate, call: exp.Expr) -> Aggregate:
        args, kinds = call.expressions, extension.argument_kinds
        least, most = (len(kinds), len(kinds)) if kinds else (extension.args_min, extension.args_max)
        if not least <= len(args) <= most:
            takes = f"{least} argument{'s' if least != 1 else ''}{' or more' if most > least else ''}"
            raise self._error(f"{called(name)} takes {takes}, not {len(args)}", call, fix=f"give it {takes}")
        star = next((arg for arg in args if isinstance(arg, (exp.Star, exp.Distinct))), None)
        if star is not None:
            message = "*" if isinstance(star, exp.Star) else "DISTINCT"
            raise self._error(f"{called(name)} takes values, not {message}", call, fix="name fields")
        offset = offset_of(call)
        bound = [
            (self.rows.whole_row(offset_of(arg)) if self._is_row(arg) else self.bind(arg))
            if kind is None
            else self._of_kind(self.bind(arg), kind, arg)
            for arg, kind in zip(args, kinds or [None] * len(args), strict=True)
        ]
        bound += [SystemTimestamp(offset=offset)] if extension.takes_time else []
        return Aggregate(name, bound[0], more_args=tuple(bound[1:]), offset=offset)

    def _of_kind(self, arg: Expr, kind: Kind, node: exp.Expr) -> Expr:
        return arg if static_kind(arg) is kind else self.check_kinds(extension_aggregates.require_kind(arg, kind), node)

    def _check_count(self, name: str, call: exp.Expr) -> None:
        least, most = _ARGUMENTS.get(name, (1, 1))
        count = len(call.expressions)
        if not least <= count <= most:
            takes = f"{least} argument" if least == most else f"{least} or {most} arguments"
            raise self._error(f"{name.upper()} takes {takes}, not {count}", call, example=_EXAMPLES.get(name, "COUNT(*)"))

    def _row_value(self, name: str, call: exp.Expr, args: list[exp.Expr]) -> Expr:
        if not args:
            return self.rows.whole_row(offset_of(call))
        if isinstance(args[0], exp.Star):
            raise self._error(f"{name.upper()} takes a value, not *", call, fix="leave * out for whole rows", example=_EXAMPLES[name])
        return self.bind(args[0])

    def _distinct(self, name: str, distinct: exp.Expr) -> Expr:
        if name != "count":
            if name in ("min", "max"):
                raise self._error(f"{name.upper()} takes no DISTINCT", distinct, fix="leave it out: it changes nothing")
            fix, example = "take the distinct values in a step of their own", "GROUP BY delay, TumblingWindow(hour, 1)"
            raise self._error(f"{name.upper()} takes no DISTINCT", distinct, fix=fix, example=example)
        if len(distinct.expressions) != 1 or isinstance(distinct.expressions[0], exp.Star):
            raise self._error("COUNT(DISTINCT ...) takes one value", distinct, fix="count values", example=_EXAMPLES[name])
        value = distinct.expressions[0]
        return self.rows.whole_row(offset_of(value)) if self._is_row(value) else self.bind(value)

    def _is_row(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and len(node.parts) == 1 and self.rows.is_row_name(node.name)

    def _comparable(self, arg: Expr, node: exp.Expr, *, numbers: bool) -> Expr:
        if static_kind(arg) in (Kind.BIGINT, Kind.FLOAT):
            return arg
        requirement = Requirement.NUMBER if numbers else Requirement.COMPARABLE
        return self.check_kinds(Required(arg, requirement, offset=arg.offset), node)

    def _anomaly(self, name: str, call: exp.Expr) -> Aggregate:
        value, *numbers = call.expressions
        if isinstance(value, (exp.Star, exp.Distinct)):
            raise self._error(f"{call.name} takes a value", value, fix="name a field", example=_EXAMPLES[name])
        confidence, history = map(_number, numbers[:2])
        if confidence is None or not 1 <= confidence <= 100:
            message = f"the confidence of {call.name} is a number from 1 to 100"
            raise self._error(message, numbers[0], fix="write a percentage, such as 95", example=_EXAMPLES[name])
        if history is None or history != int(history) or not 2 <= history <= HISTORY_MAX[name]:
            message = f"the history of {call.name} is a whole number of rows from 2 to {HISTORY_MAX[name]}"
            raise self._error(message, numbers[1], fix="write how many rows show what is normal", example=_EXAMPLES[name])
        options = [str(int(history))]
        if len(numbers) > 2:
            mode = str(numbers[2].this).lower() if isinstance(numbers[2], exp.Literal) and numbers[2].is_string else ""
            if mode not in _MODES:
                message, fix = f"there is no such mode of {call.name}", f"modes are {', '.join(map(repr, _MODES))}"
                raise self._error(message, numbers[2], fix=fix, example=_EXAMPLES[name])
            options.append(mode)
        arg = self._comparable(self.bind(value), call, numbers=True)
        return Aggregate(name, arg, parameter=confidence, options=tuple(options), offset=offset_of(call))

    def _fraction(self, name: str, node: exp.Expr) -> Decimal:
        part = _number(node)
        if part is None or not 0 <= part <= 1:
            raise self._error(f"{name.upper()} takes a number from 0 to 1", node, fix="write the number", example=_EXAMPLES[name])
        return part

    def _row_count(self, node: exp.Expr) -> Decimal:
        count = _number(node)
        if count is None or count < 1 or count != int(count):
            raise self._error(
                "CollectTop takes the number of rows, 1 or more", node, fix="write the number", example=_EXAMPLES["collecttop"]
            )
        return count

    # OVER

    def _order(self, name: str, call: exp.Expr, clauses: Mapping[str, Any]) -> tuple[tuple[Expr, bool], ...]:
        unknown_clause = next((clause for clause, value in clauses.items() if value and clause not in _CLAUSES), None)
        if unknown_clause:
            raise self.source.not_yet(call, f"{call.name} OVER with {unknown_clause.replace('_', ' ').upper()} is")
        if name not in ORDERED_AGGREGATES:
            return ()
        order = clauses.get("order")
        if order is None:
            raise self._error(f"{call.name} needs OVER (ORDER BY ...)", call, fix="say what comes first", example=_EXAMPLES[name])
        if name in _PERCENTILES and len(order.expressions) != 1:
            raise self._error(f"{call.name} is ordered by one value", order, fix="name one", example=_EXAMPLES[name])
        return tuple(self._order_key(name, node) for node in order.expressions)

    def _order_key(self, name: str, node: exp.Expr) -> tuple[Expr, bool]:
        descending = bool(node.args.get("desc"))
        if bool(node.args.get("nulls_first")) == descending:
            raise self.source.not_yet(node, "NULLS FIRST or LAST is", fix="leave it out: NULL is lowest")
        return self._comparable(self.bind(node.this), node, numbers=name in _PERCENTILES), descending

    def _error(self, message: str, node: exp.Expr, *, fix: str = "", example: str = "") -> Exception:
        return self.source.error("FUNCTION", node, message, fix=fix, example=example)


def _number(node: exp.Expr) -> Decimal | None:
    """Return the value of a number literal of at most 18 characters, else None."""
    if not isinstance(node, exp.Literal) or node.is_string or len(str(node.this)) > 18:
        return None
    return Decimal(str(node.this))
