"""Binding of function calls: the number and kinds of arguments are checked against
:mod:`tidegate.language.expressions.functions.catalog`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from sqlglot import exp

from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.binding.aggregates import LOOK_BACK_CLAUSES, ORDERED_AGGREGATES, AggregateBinder
from tidegate.language.expressions.binding.analytic import AnalyticBinder
from tidegate.language.expressions.binding.local_times import ZONE_EXAMPLE, ZonesDiffer, collect_texts, settle_zones, zone_of
from tidegate.language.expressions.binding.metadata import METADATA_FUNCTION, MetadataBinder
from tidegate.language.expressions.binding.names import Names
from tidegate.language.expressions.evaluation.static_kinds import check_kinds, static_kind
from tidegate.language.expressions.functions import column_functions, extension_aggregates
from tidegate.language.expressions.functions.catalog import (
    AGGREGATES,
    ANALYTICS,
    ANOMALIES,
    CALLABLE,
    FUNCTIONS,
    GEOGRAPHY,
    NOT_YET,
    PATTERN_CALLS,
    REFUSED,
    WINDOWS,
)
from tidegate.language.expressions.functions.conversions import TooLong
from tidegate.language.expressions.functions.dates import DATE_PART_FUNCTIONS, DATE_PARTS
from tidegate.language.expressions.functions.definition import ARGUMENTS_MAX, Function
from tidegate.language.expressions.functions.geography import missing_packages
from tidegate.language.expressions.functions.patterns import PATTERN_EXAMPLES, PATTERN_PLACES, pattern_problem
from tidegate.language.expressions.kinds import DECLARABLE, Kind, KindMismatch
from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS
from tidegate.language.expressions.syntax.errors import Source, offset_of, suggest, suggest_type
from tidegate.language.expressions.tree import Aggregate, Call, CaseFolded, Cast, DatePart, Expr, Literal, Property, Zoned

# A number is refused where a time is needed: the script must say its unit and its zero, as in Stream Analytics.
_NUMBERS_AS_TIMES = {QueryReason.NOT_CONVERTIBLE.text(kind.asa_name, Kind.DATETIME.asa_name) for kind in (Kind.BIGINT, Kind.FLOAT)}

# The fix for an expression that is too long.
SHORTER = "write shorter expressions; JOIN a long list of values as reference data"


class FunctionBinder(ABC):
    """
    Binds function calls; a subclass binds the other expressions. *aliases* are expressions by the lower-case names of the script; they take
    precedence over *names*, except inside aggregates and analytic functions.
    """

    def __init__(self, source: Source, names: Names, aliases: Mapping[str, Expr] | None = None) -> None:
        self.source, self.names = source, names
        self._aliases = aliases or {}
        self._is_inside_aggregate = False

    @abstractmethod
    def bind(self, node: exp.Expr, *, event_clause: str = "") -> Expr:
        """Bind one whole expression."""

    @abstractmethod
    def bind_condition(self, node: exp.Expr, clause: str) -> Expr:
        """Bind the condition of a clause."""

    @abstractmethod
    def _bind(self, node: exp.Expr) -> Expr:
        """Bind a part of an expression."""

    # Calls by name

    def _function(self, node: exp.Expr) -> Expr:
        spelled, offset = str(node.name), offset_of(node)
        name, args = spelled.lower(), node.expressions
        if name in AGGREGATES:
            return self._aggregate(name, node)
        if name in (*ANALYTICS, *ANOMALIES):
            return self._analytic(name, node, None)
        if name in WINDOWS:
            raise self.source.error("WINDOW", offset, f"{spelled} can stand in GROUP BY only", fix=f"write GROUP BY ..., {spelled}(...)")
        if name in ("convert", "try_convert"):
            return self._convert(node)
        if column_functions.REGISTERED.get(name):
            return self._column_function(name, node)
        if name == METADATA_FUNCTION:
            return MetadataBinder(self.source, self.names).bind(node)
        if name not in CALLABLE:
            if name in REFUSED:
                message, fix = REFUSED[name]
                raise self.source.error("FUNCTION", offset, f"{spelled} {message}", fix=fix)
            if name in NOT_YET:
                fix, example = NOT_YET[name]
                raise self.source.not_yet(offset, f"{spelled} is", fix=fix, example=example)
            if name in COUNTERPARTS:
                fix, example = COUNTERPARTS[name]
                raise self.source.error("FUNCTION", offset, f"there is no function {spelled}", fix=fix, example=example)
            known = [
                known.upper()
                for known in (*CALLABLE, *column_functions.REGISTERED, *AGGREGATES, *ANALYTICS, *ANOMALIES)
                if " " not in known
            ]
            otherwise = "docs/queries/expressions.md has those that there are, docs/queries/extending.md how to write one in Python"
            fix = suggest(spelled, known, otherwise)
            raise self.source.error("FUNCTION", offset, f"there is no function {spelled}", fix=fix)
        self._refuse_count(FUNCTIONS[name], node)
        if name == "getrecordproperties":
            return self._check_kinds(Call(name, (self._bind_record(args[0]),), offset=offset), node)
        if name in DATE_PART_FUNCTIONS:
            return self._date_function(name, node)
        if name in PATTERN_PLACES:
            pattern = self._pattern(name, args[PATTERN_PLACES[name]])
            value = self._bind(args[1 - PATTERN_PLACES[name]])
            return self._match(name, value, pattern, node)
        return self._comparison(name, node, *args) if name == "nullif" else self._call(name, node, *args)

    def _refuse_count(self, function: Function | column_functions.ColumnFunction, node: exp.Expr) -> None:
        count = len(node.expressions)
        if not function.args_min <= count <= function.args_max:
            message = f"{node.name} takes {_argument_count(function)}, not {count}"
            raise self.source.error("FUNCTION", node, message, fix=f"give it {_argument_count(function)}")

    def _column_function(self, name: str, node: exp.Expr) -> Expr:
        function = column_functions.REGISTERED.get(name)
        assert function is not None, f"{name} is registered"
        self._refuse_count(function, node)
        if name in GEOGRAPHY and (missing := missing_packages()):
            message = f"{node.name} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
            fix, example = "install the extra geo, here and wherever workers run", "pip install 'tidegate[geo]'"
            raise self.source.error("FUNCTION", node, message, fix=fix, example=example)
        args = node.expressions
        if name == "getrecordpropertyvalue" and isinstance(args[1], exp.Column) and {"[", "]"} & set(args[1].name):
            # "[my][Field]": Stream Analytics takes a name with brackets in double quotes for the text.
            return Property(self._bind_record(args[0]), (args[1].name,), offset=offset_of(node))
        kinds = (*function.argument_kinds, *[None] * len(args))
        takes_row = [kind is Kind.RECORD or (kind is None and function.takes_rows) for kind in kinds]
        bound = tuple((self._bind_record if is_row else self._bind)(arg) for is_row, arg in zip(takes_row, args, strict=False))
        call = self._check_kinds(Call(name, bound, offset=offset_of(node)), node)
        if name == "getrecordpropertyvalue" and isinstance(call, Call) and isinstance(property := call.args[1], Literal) and property.value:
            return Property(call.args[0], (str(property.value),), offset=call.offset)
        return call

    def bind_row(self, node: exp.Expr) -> Expr | None:
        """Return the whole row as a record, if *node* is the bare name of an input or step."""
        return self.names.row_as_record(node.name, offset_of(node)) if isinstance(node, exp.Column) and len(node.parts) == 1 else None

    def _bind_record(self, node: exp.Expr) -> Expr:
        return self.bind_row(node) or self._bind(node)

    def _convert(self, node: exp.Expr) -> Expr:
        name, args = str(node.name), node.expressions
        if len(args) != 2:
            fix = "write CAST, and DATENAME or DATEPART for parts of a datetime"
            raise self.source.error("FUNCTION", node, f"{name} takes a type and a value", fix=fix)
        spelled = args[0].sql(dialect="tsql").lower()
        kind = DECLARABLE.get(spelled)
        if kind is None:
            message, fix, example = f"there is no type {spelled}", suggest_type(spelled), f"{name}(bigint, delay)"
            raise self.source.error("TYPE", node, message, fix=fix, example=example)
        cast = Cast(self._bind(args[1]), kind, lenient=name.lower() == "try_convert", offset=offset_of(node))
        return self._check_kinds(cast, node)

    def _date_function(self, name: str, node: exp.Expr) -> Expr:
        first, *others = node.expressions
        spelled = first.name if isinstance(first, (exp.Column, exp.Identifier)) else ""
        unit = DATE_PARTS.get(spelled.lower())
        if unit is None:
            message = f"{name.upper()} has no unit {spelled or self._spelling_of(first)}"
            if isinstance(first, exp.Literal) and str(first.this).lower() in DATE_PARTS:
                example = f"DATEADD({first.this}, 5, scheduled)"
                raise self.source.error("FUNCTION", first, message, fix="write it without quotes", example=example)
            fix = suggest(spelled, DATE_PARTS, f"units are {', '.join(dict.fromkeys(DATE_PARTS.values()))}")
            raise self.source.error("FUNCTION", first, message, fix=fix, example="DATEADD(second, 5, scheduled)")
        args = (DatePart(unit, offset=offset_of(first)), *(self._bind_time(arg) for arg in others))
        return self._check_kinds(Call(name, args, offset=offset_of(node)), node)

    def _bind_time(self, node: exp.Expr) -> Expr:
        """Bind an argument of a function over datetimes, where the bare name of a side of a join is its System.Timestamp()."""
        is_name = isinstance(node, exp.Column) and len(node.parts) == 1
        return (self.names.time_of_side(node.name, offset_of(node)) if is_name else None) or self._bind(node)

    def _pattern(self, name: str, node: exp.Expr) -> Expr:
        """Bind the pattern of a function; a constant must be valid."""
        is_text = self.source.text[max(offset_of(node), 0)] == '"' and not self.names.knows(node.name)
        pattern = Literal(node.name, Kind.NVARCHAR, offset=offset_of(node)) if is_text else self._bind(node)
        if not isinstance(pattern, Literal):
            return pattern
        if pattern.kind not in (Kind.NVARCHAR, Kind.NULL):
            example = PATTERN_EXAMPLES[name]
            raise self.source.error("TYPE", pattern.offset, f"the pattern of {name.upper()} is text", fix="quote it", example=example)
        if pattern.value is not None and (problem := pattern_problem(name, str(pattern.value))):
            message = f"the pattern of {name.upper()} {problem}"
            raise self.source.error("TYPE", pattern.offset, message, fix="write another pattern", example=PATTERN_EXAMPLES[name])
        return pattern

    def _match(self, name: str, value: Expr, pattern: Expr, node: exp.Expr) -> Expr:
        """Return the call of a function of patterns."""
        is_constant = isinstance(pattern.arg if isinstance(pattern, CaseFolded) else pattern, Literal)
        if not is_constant:
            # A constant's value becomes text by itself.
            name, value = PATTERN_CALLS[name], Cast(value, Kind.NVARCHAR, declared=True, offset=value.offset)
        args = (pattern, value) if name.startswith("patindex") else (value, pattern)
        return self._check_kinds(Call(name, args, offset=offset_of(node)), node)

    # Aggregates and functions that look back

    def _aggregate(self, name: str, call: exp.Expr, over: exp.Expr | None = None) -> Aggregate:
        if self._is_inside_aggregate:
            raise self.source.error("GROUP", call, f"{name.upper()} cannot stand inside an aggregate", fix="aggregate once per query")
        self._is_inside_aggregate = True
        try:
            aggregate = AggregateBinder(self.source, self._bind, self._check_kinds, self.names).bind_call(name, call, over)
            return collect_texts(aggregate)
        finally:
            self._is_inside_aggregate = False

    def _analytic(self, name: str, call: exp.Expr, over: exp.Expr | None) -> Expr:
        # Analytic functions are computed before aggregates, so an aggregate may contain one: a new binder allows it.
        binder = type(self)(self.source, self.names)
        binding = AnalyticBinder(self.source, binder.bind, binder.bind_condition, binder._aggregate, self.names.whole_row)
        return binding.bind_call(name, call, over)

    def _window_function(self, node: exp.Expr) -> Expr:
        name, call = callee(node.this)
        name = self.source.registered(name)
        if extension_aggregates.REGISTERED.get(name) or name in (*ANALYTICS, *ANOMALIES):
            return self._analytic(name, call, node)
        if name in AGGREGATES:
            looks_back = name not in ORDERED_AGGREGATES or any(node.args.get(clause) for clause in LOOK_BACK_CLAUSES)
            return (self._analytic if looks_back else self._aggregate)(name, call, node)
        self._bind(node.this)
        message, fix = f"{node.this.name or self._spelling_of(node.this)} takes no OVER", "leave it out, or take a function that looks back"
        raise self.source.error("FUNCTION", node, message, fix=fix, example="LAG(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))")

    def _filter(self, node: exp.Expr) -> Expr:
        raise self.source.not_yet(node, "FILTER is", fix="write CASE in the aggregate: SUM(CASE WHEN delay > 0 THEN delay END)")

    def _within_group(self, node: exp.Expr) -> Expr:
        message, fix = "WITHIN GROUP is not written here", "write OVER (ORDER BY ...) in its place"
        raise self.source.error("FUNCTION", node, message, fix=fix, example="PERCENTILE_CONT(0.95) OVER (ORDER BY delay)")

    # Checks

    def _call(self, name: str, node: exp.Expr, *args: exp.Expr) -> Expr:
        return self._check_kinds(Call(name, tuple(self._bind(arg) for arg in args), offset=offset_of(node)), node)

    def _comparison(self, name: str, node: exp.Expr, *args: exp.Expr) -> Expr:
        return self._check_kinds(Call(name, tuple(self._fold_case(self._bind(arg)) for arg in args), offset=offset_of(node)), node)

    def _fold_case(self, expr: Expr) -> Expr:
        """Return the expression to compare instead of *expr*, if the script ignores case."""
        may_be_text = self.source.ignores_case and static_kind(expr) in (None, Kind.NVARCHAR)
        return CaseFolded(expr, offset=expr.offset) if may_be_text else expr

    def _check_kinds(self, expr: Expr, node: exp.Expr) -> Expr:
        expr = self._settle_zones(expr, node)
        try:
            check_kinds(expr)
            if isinstance(expr, Zoned) and expr.arg.parts:
                check_kinds(expr.arg)
        except TooLong as problem:
            raise self.source.error("SIZE", node, str(problem), fix=SHORTER) from None
        except KindMismatch as problem:
            fix, example = "convert with CAST or TRY_CAST", "CAST(delay AS bigint)"
            if problem.reason in _NUMBERS_AS_TIMES:
                fix, example = "a number is no time: add it to 1970 in its unit", "DATEADD(second, delay, '1970-01-01T00:00:00Z')"
            elif problem.reason.startswith("a condition"):
                fix, example = "compare it with a value", "ISFIRST(minute, 15) = 1"
            raise self.source.error("TYPE", node, f"{problem}: {expr}", fix=fix, example=example) from None
        return expr

    def _settle_zones(self, expr: Expr, node: exp.Expr) -> Expr:
        """Return *expr* with what it makes of local times."""
        if isinstance(expr, Cast) and expr.kind is Kind.DATETIME and zone_of(expr.arg) is not None:
            message = f"{expr.arg} is a datetime already, the same instant in every zone"
            fix = "leave CAST out; for the local time without its offset take parts, or cut the text"
            raise self.source.error("TYPE", node, message, fix=fix, example=f"SUBSTRING(CAST({ZONE_EXAMPLE} AS nvarchar(max)), 1, 19)")
        try:
            return settle_zones(expr)
        except ZonesDiffer:
            fix = "read both by one clock"
            raise self.source.error("ZONE", node, f"two time zones have different calendars: {expr}", fix=fix) from None

    def _spelling_of(self, node: exp.Expr) -> str:
        return node.key.upper() if len(text := node.sql(dialect="tsql")) > 60 else text


def _argument_count(function: Function | column_functions.ColumnFunction) -> str:
    if function.args_min == function.args_max:
        return f"{function.args_min or 'no'} argument{'s' if function.args_min != 1 else ''}"
    most = "more" if function.args_max == ARGUMENTS_MAX else str(function.args_max)
    return f"{function.args_min} or {most} arguments"


def callee(node: exp.Expr) -> tuple[str, exp.Expr]:
    """Return the lower-case name (perhaps with a dot) of the called function, empty if *node* is no call, and the call."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
        return f"{node.this.name}.{node.expression.name}".lower(), node.expression
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else "", node
