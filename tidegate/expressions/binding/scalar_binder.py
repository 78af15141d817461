"""
Binding of expressions: sqlglot's tree of words -> :mod:`tidegate.expressions.tree`, names resolved, kinds checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any, Protocol

from sqlglot import exp

from tidegate.expressions.binding.aggregates import LOOK_BACK_CLAUSES, ORDERED_AGGREGATES, AggregateBinder
from tidegate.expressions.binding.analytic import AnalyticBinder
from tidegate.expressions.binding.input_schema import InputSchema
from tidegate.expressions.evaluation.static_kinds import check_kinds, check_size, static_kind
from tidegate.expressions.functions import column_functions, extension_aggregates
from tidegate.expressions.functions.catalog import AGGREGATES, ANALYTICS, CALLABLE, FUNCTIONS, KNOWN_LATER, REFUSED, WINDOWS
from tidegate.expressions.functions.conversions import TooLong
from tidegate.expressions.functions.dates import DATE_PART_FUNCTIONS, DATE_PARTS
from tidegate.expressions.functions.definition import ARGUMENTS_MAX, Function
from tidegate.expressions.functions.patterns import PATTERN_EXAMPLES, PATTERN_PLACES, pattern_problem
from tidegate.expressions.kinds import DECLARABLE, Kind, KindMismatch
from tidegate.expressions.syntax.errors import Source, suggest, suggest_type
from tidegate.expressions.syntax.parse import offset_of
from tidegate.expressions.tree import (
    Aggregate,
    Analytic,
    Arrival,
    Call,
    Case,
    Cast,
    DatePart,
    Expr,
    Field,
    Literal,
    PartitionId,
    Payload,
    Property,
    SystemTimestamp,
    WindowId,
)

_BINARY: dict[type[Any], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_READ_PARTS = frozenset(
    {
        "this",
        "expression",
        "expressions",
        "negate",
        "low",
        "high",
        "ifs",
        "default",
        "to",
        "safe",
        "requires_string",
        "typed",
        "is_string",
        "table",
        "db",
        "catalog",
        "quoted",
        "join_mark",
        "query",
    }
)
"""The parts of a tree's nodes that binding reads or may ignore."""
_TYPES = {
    "BIGINT": Kind.BIGINT,
    "FLOAT": Kind.FLOAT,
    "DOUBLE": Kind.FLOAT,
    "NVARCHAR": Kind.NVARCHAR,
    "DATETIME": Kind.DATETIME,
    "BIT": Kind.BIT,
    "BOOLEAN": Kind.BIT,
    "ARRAY": Kind.ARRAY,
}

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_ROW_CLAUSES = frozenset({"WHERE", "GROUP BY"})
"""Clauses without aggregates in which analytic functions may stand."""


class Names(Protocol):
    """What names mean where an expression stands."""

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        """
        Return what a dotted name means; *offset* is its place in the script.

        Raises:
            QueryError: Nothing, or more than one thing.
        """
        ...

    def is_row_name(self, name: str) -> bool:
        """Tell whether a name that stands alone means a whole row rather than a column."""
        ...

    def whole_row(self, offset: int) -> Expr:
        """
        Return a whole row as a record; *offset* is the place of the word that takes it.

        Raises:
            QueryError: There is more than one row to take.
        """
        ...


@dataclass(frozen=True)
class InputNames:
    """
    Names of the events of one input.

    Args:
        source: The script, for error places.
        schema: The input.
        aliases: Names that may stand before a field's (``f.origin``), in lower case.
        reads_json_texts: Whether a declared record that is a text with JSON in it is read, too; a plain path reads records alone.
    """

    source: Source
    schema: InputSchema
    aliases: frozenset[str] = frozenset()
    reads_json_texts: bool = False

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        """Return the field, perhaps behind an alias."""
        path = path[1:] if len(path) > 1 and path[0].lower() in self.aliases else path
        field = self.field(path, offset)
        record = next((path[:end] for end in range(len(path) - 1, 0, -1) if self.schema.declared_kind(path[:end]) is Kind.RECORD), ())
        if not record or not self.reads_json_texts:
            return field
        member, kind = Property(self.field(record, offset), path[len(record) :], offset=offset), self.schema.declared_kind(path)
        return member if kind is None else Cast(member, kind, declared=True, offset=offset)

    def is_row_name(self, name: str) -> bool:
        """Tell whether *name* is the input's, and no field is known that is called so too."""
        return (
            name.lower() in self.aliases
            and self.schema.declared_kind((name,)) is None
            and not (self.schema.is_closed and self.schema.may_have((name,)))
        )

    def whole_row(self, offset: int) -> Expr:
        """Return the event's payload."""
        return Payload(offset=offset)

    def field(self, path: tuple[str, ...], offset: int = -1) -> Expr:
        """
        Return a field by its path, converted to its declared type if it has one.

        Raises:
            QueryError: The input has no such field.
        """
        if {"", "*"} & set(path):
            raise self.source.error(
                "a field cannot be named * or nothing", code="FIELD", offset=offset, fix="name the field", example="[my field]"
            )
        if len(path) == 1 and self.schema.declared_kind(path) is None:
            if path[0].lower() == "partitionid":
                return PartitionId(offset=offset)
            if path[0].lower() == "eventenqueuedutctime":
                return Arrival(offset=offset)
            if path[0].lower() == "eventprocessedutctime":
                fix = "use System.Timestamp(), or EventEnqueuedUtcTime"
                raise self.source.error(f"{path[0]} would differ between replays", code="FIELD", offset=offset, fix=fix)
        if not self.schema.may_have(path):
            known = [name.split(".")[0] for name in self.schema.fields]
            fix = suggest(path[0], known, f"its fields are {', '.join(known)}")
            raise self.source.error(f"{self.schema.name} has no field {path[0]}", code="FIELD", offset=offset, fix=fix)
        kind = self.schema.declared_kind(path)
        field = Field(path, offset=offset)
        return field if kind is None else Cast(field, kind, declared=True, offset=offset)


class ScalarBinder:
    """
    Binds expressions.

    Args:
        source: The script, for error places.
        names: What the names in them mean.
        aliases: Expressions by the names that the script gave them, in lower case; outside of aggregates and of functions
            that look back these count before *names*.
    """

    def __init__(self, source: Source, names: Names, aliases: Mapping[str, Expr] | None = None) -> None:
        self.source, self.names = source, names
        self._aliases = aliases or {}
        self._is_inside_aggregate = False

    def bind(self, node: exp.Expr, *, aggregates: str = "") -> Expr:
        """
        Bind one expression.

        Args:
            node: The tree.
            aggregates: Empty where aggregates may stand; else the clause that forbids them, for the message.

        Raises:
            QueryError: A name, a function or a type is wrong; with its place.
        """
        bound = self._bind(node)
        self._refuse_long(bound, node)
        refused_types = (Aggregate, WindowId) if aggregates in _ROW_CLAUSES else (Aggregate, WindowId, Analytic)
        refused_part = next((part for part in bound.walk() if isinstance(part, refused_types)), None)
        if aggregates and refused_part is not None:
            fix = "put the condition on groups into HAVING" if aggregates == "WHERE" else "name the aggregate in SELECT"
            fix = "compute it in a step" if isinstance(refused_part, Analytic) else fix
            raise self.source.error(
                f"{aggregates} works on single events, so {refused_part} cannot stand there",
                code="GROUP",
                offset=refused_part.offset,
                fix=fix,
            )
        return bound

    def _refuse_long(self, bound: Expr, node: exp.Expr) -> None:
        for expr in (bound, *(inner for part in bound.walk() if isinstance(part, Aggregate) for inner in part.parts)):
            try:
                check_size(expr)
            except TooLong as problem:
                raise self.source.error(str(problem), code="SIZE", offset=offset_of(node), fix="write shorter expressions") from None

    def bind_condition(self, node: exp.Expr, clause: str) -> Expr:
        """Bind the condition of WHERE, HAVING or ON."""
        bound = self.bind(node, aggregates=clause if clause in ("WHERE", "ON") else "")
        return self._check_kinds(Call("condition", (bound,), offset=bound.offset), node)

    def _bind(self, node: exp.Expr) -> Expr:
        for kind, handler in _HANDLERS.items():
            if isinstance(node, kind):
                self._refuse_other_parts(node)
                return handler(self, node)
        raise self._not_yet(node, f"{self._spelled(node)} is")

    def _refuse_other_parts(self, node: exp.Expr) -> None:
        """Refuse a construct of which the tree holds a part that nobody here would read."""
        part = next((name for name, value in node.args.items() if value and name not in _READ_PARTS), None)
        if part and not isinstance(node, (exp.Query, exp.Window)):
            raise self._not_yet(node, f"{part.upper()} in {self._spelled(node)} is")

    def _check_kinds(self, expr: Expr, node: exp.Expr) -> Expr:
        try:
            check_kinds(expr)
        except KindMismatch as problem:
            raise self.source.error(
                f"{problem}: {expr}",
                code="TYPE",
                offset=offset_of(node),
                fix="convert with CAST or TRY_CAST",
                example="CAST(delay AS bigint)",
            ) from None
        return expr

    def _not_yet(self, node: exp.Expr, message: str) -> Exception:
        return self.source.not_yet(message, offset=offset_of(node))

    def _spelled(self, node: exp.Expr) -> str:
        return node.key.upper() if len(text := node.sql(dialect="tsql")) > 60 else text

    # Leaves

    def _column(self, node: exp.Expr) -> Expr:
        names = [part.name for part in _identifiers(node)]
        offset = offset_of(node)
        if node.find(exp.Star):
            raise self._not_yet(node, "* beside other columns is")
        if [name.lower() for name in names] == ["system", "timestamp"]:
            return SystemTimestamp(offset=offset)
        named = self._aliases.get(names[0].lower()) if len(names) == 1 and not self._is_inside_aggregate else None
        return named or self.names.resolve(tuple(names), offset)

    def _dot(self, node: exp.Expr) -> Expr:
        if is_window_id(node):
            return self._window_id(node)
        if not isinstance(node.expression, exp.Anonymous):
            return self._property(node)
        owner, name = node.this, str(node.expression.name)
        function_name, call = _callee(node)
        if column_functions.find(function_name):
            return self._column_function(function_name, call)
        if extension_aggregates.find(function_name):
            return self._aggregate(function_name, call)
        if isinstance(owner, exp.Identifier) and owner.name.lower() == "system" and name.lower() == "timestamp":
            return SystemTimestamp(offset=offset_of(node))
        if name.lower() in ("window", *KNOWN_LATER):
            raise self._not_yet(node, f"{owner.name}.{name}() is")
        raise self.source.error(
            f"there is no function {owner.name}.{name}()",
            code="FUNCTION",
            offset=offset_of(node),
            fix=self._suggest_dotted(function_name, name),
        )

    def _suggest_dotted(self, function_name: str, name: str) -> str:
        """Return what to write instead of a dotted function that there is not."""
        if function_name.startswith(("udf.", "uda.")):
            known_names = (*extension_aggregates.names(), *(known_names for known_names in column_functions.names() if "." in known_names))
            return suggest(function_name, known_names, "install the package that offers it")
        return suggest(name, ["System.Timestamp()"])

    def _property(self, node: exp.Expr) -> Expr:
        """Bind a dotted name, or a member of what is no name: ``f(x).a.b``."""
        base, path = node, []
        while isinstance(base, exp.Dot) and isinstance(base.expression, exp.Identifier):
            path.append(str(base.expression.name))
            base = base.this
        if not isinstance(base, (exp.Anonymous, exp.Dot, exp.Paren, exp.Cast, exp.Window, exp.Case)):
            return self._column(node)
        return self._check_kinds(Property(self._bind(base), tuple(reversed(path)), offset=offset_of(node)), node)

    def _window_id(self, node: exp.Expr) -> Expr:
        offset = offset_of(node)
        if self._is_inside_aggregate:
            message = "System.Window().Id belongs to a group, so it cannot stand inside an aggregate"
            raise self.source.error(message, code="GROUP", offset=offset, fix="write it beside the aggregate")
        return WindowId(offset=offset)

    def _literal(self, node: exp.Expr) -> Expr:
        text, offset = str(node.this), offset_of(node)
        if node.is_string or isinstance(node, exp.National):
            return Literal(text, Kind.NVARCHAR, offset=offset)
        if text.isdigit() and int(text) < 2**63:
            return Literal(int(text), Kind.BIGINT, offset=offset)
        if isinf(value := float(text)):
            fix = "floats go up to 1.7976931348623157e308"
            raise self.source.error(
                f"{text if len(text) < 30 else 'the number'} is more than a float can hold", code="TYPE", offset=offset, fix=fix
            )
        return Literal(value, Kind.FLOAT, offset=offset)

    def _null(self, node: exp.Expr) -> Expr:
        return Literal(None, Kind.NULL, offset=offset_of(node))

    def _boolean(self, node: exp.Expr) -> Expr:
        return Literal(bool(node.this), Kind.BIT, offset=offset_of(node))

    # Operators

    def _call(self, name: str, node: exp.Expr, *args: exp.Expr) -> Expr:
        return self._check_kinds(Call(name, tuple(self._bind(arg) for arg in args), offset=offset_of(node)), node)

    def _binary(self, node: exp.Expr) -> Expr:
        name = _BINARY[type(node)]
        call = self._comparison if name in _COMPARISONS else self._call
        return call(name, node, node.this, node.expression)

    def _comparison(self, name: str, node: exp.Expr, *args: exp.Expr) -> Expr:
        return self._check_kinds(Call(name, tuple(self._fold_case(self._bind(arg)) for arg in args), offset=offset_of(node)), node)

    def _fold_case(self, expr: Expr) -> Expr:
        """Return what is compared instead of *expr* where the script ignores case."""
        may_be_text = self.source.ignores_case and static_kind(expr) in (None, Kind.NVARCHAR)
        return Call("fold", (expr,), offset=expr.offset) if may_be_text else expr

    def _logic(self, node: exp.Expr) -> Expr:
        operands = [operand.unnest() for operand in node.flatten()]
        return self._call("and" if isinstance(node, exp.And) else "or", node, *operands)

    def _negative(self, node: exp.Expr) -> Expr:
        value = self._bind(node.this)
        if isinstance(value, Literal) and isinstance(value.value, (int, float)) and value.kind in (Kind.BIGINT, Kind.FLOAT):
            return Literal(-value.value, value.kind, offset=value.offset)
        return self._check_kinds(Call("negate", (value,), offset=offset_of(node)), node)

    def _is(self, node: exp.Expr) -> Expr:
        if not isinstance(node.expression, exp.Null):
            raise self.source.error(f"IS takes NULL: {self._spelled(node)}", code="SYNTAX", offset=offset_of(node), fix="compare with =")
        return self._call("is null", node, node.this)

    def _in(self, node: exp.Expr) -> Expr:
        if not node.expressions:
            fix = "JOIN the two, with the time between them; LEFT JOIN and IS NULL for NOT IN"
            raise self.source.not_yet("IN with a subquery is", offset=offset_of(node), fix=fix)
        return self._comparison("in", node, node.this, *node.expressions)

    def _between(self, node: exp.Expr) -> Expr:
        return self._comparison("between", node, node.this, node.args["low"], node.args["high"])

    def _like(self, node: exp.Expr) -> Expr:
        pattern = self._pattern("like", node.expression)
        values = self._fold_case(self._bind(node.this)), self._fold_case(pattern)
        like = self._check_kinds(Call("like", values, offset=offset_of(node)), node)
        return Call("not", (like,), offset=like.offset) if node.args.get("negate") else like

    def _escape(self, node: exp.Expr) -> Expr:
        fix, example = "write a wildcard that is meant as a character in brackets", "note LIKE '10[%]%'"
        raise self.source.not_yet("LIKE with ESCAPE is", offset=offset_of(node), fix=fix, example=example)

    def _pattern(self, name: str, node: exp.Expr) -> Expr:
        """Bind the pattern of a function: a constant that can be matched."""
        pattern = self._bind(node)
        if not isinstance(pattern, Literal):
            if self.source.text[max(offset_of(node), 0)] == '"':
                message, fix = f'"{node.name}" is a name, not a text', f"write '{node.name}'"
                raise self.source.error(message, code="FIELD", offset=pattern.offset, fix=fix, example=PATTERN_EXAMPLES[name])
            raise self._not_yet(node, f"{name.upper()} with a pattern that is no constant is")
        if pattern.kind not in (Kind.NVARCHAR, Kind.NULL):
            example = PATTERN_EXAMPLES[name]
            raise self.source.error(
                f"the pattern of {name.upper()} is text", code="TYPE", offset=pattern.offset, fix="quote it", example=example
            )
        if pattern.value is not None and (problem := pattern_problem(name, str(pattern.value))):
            raise self.source.error(
                f"the pattern of {name.upper()} {problem}",
                code="TYPE",
                offset=pattern.offset,
                fix="write another pattern",
                example=PATTERN_EXAMPLES[name],
            )
        return pattern

    def _case(self, node: exp.Expr) -> Expr:
        whens = []
        for branch in node.args["ifs"]:
            condition = self._bind(branch.this)
            if node.this is not None:
                compared = Call("=", (self._fold_case(self._bind(node.this)), self._fold_case(condition)), offset=condition.offset)
                condition = self._check_kinds(compared, branch)
            whens.append((condition, self._bind(branch.args["true"])))
        default = node.args.get("default")
        otherwise = Literal(None, Kind.NULL) if default is None else self._bind(default)
        return self._check_kinds(Case(tuple(whens), otherwise, offset=offset_of(node)), node)

    def _cast(self, node: exp.Expr) -> Expr:
        lenient = isinstance(node, exp.TryCast)
        return self._check_kinds(Cast(self._bind(node.this), self._type(node), lenient=lenient, offset=offset_of(node)), node)

    def _type(self, node: exp.Expr) -> Kind:
        to = node.args["to"]
        name = to.this.name if hasattr(to.this, "name") else str(to.this)
        if name == "USERDEFINED" and str(to.args.get("kind", "")).lower() == "record":
            return Kind.RECORD
        limited = [param for param in to.expressions if param.name.upper() != "MAX"]
        if name in _TYPES and not limited:
            return _TYPES[name]
        spelled = self._spelled_type(node)
        message, fix = f"there is no type {spelled}", suggest_type(spelled if name == "USERDEFINED" else name)
        raise self.source.error(message, code="TYPE", offset=offset_of(node), fix=fix, example="CAST(delay AS bigint)")

    def _spelled_type(self, node: exp.Expr) -> str:
        """Return the type as the script spells it, which the tree has forgotten."""
        end = max((part.meta["end"] for part in node.this.walk() if "end" in part.meta), default=0)
        match = re.search(r"\bAS\s+(\w+(?:\s*\([^)]*\))?)", self.source.text[end:], re.IGNORECASE)
        return match[1] if match else str(node.args["to"])

    # Functions

    def _function(self, node: exp.Expr) -> Expr:
        spelled, offset = str(node.name), offset_of(node)
        name, args = spelled.lower(), node.expressions
        if name in AGGREGATES:
            return self._aggregate(name, node)
        if name in ANALYTICS:
            return self._analytic(name, node, None)
        if name in WINDOWS:
            raise self.source.error(
                f"{spelled} can stand in GROUP BY only", code="WINDOW", offset=offset, fix=f"write GROUP BY ..., {spelled}(...)"
            )
        if name in ("convert", "try_convert"):
            return self._convert(node)
        if column_functions.find(name):
            return self._column_function(name, node)
        if name not in CALLABLE:
            if name in REFUSED:
                message, fix = REFUSED[name]
                raise self.source.error(f"{spelled} {message}", code="FUNCTION", offset=offset, fix=fix)
            if name in KNOWN_LATER:
                raise self.source.not_yet(f"{spelled} is", offset=offset)
            known = [known.upper() for known in (*CALLABLE, *column_functions.names(), *AGGREGATES, *ANALYTICS) if " " not in known]
            raise self.source.error(
                f"there is no function {spelled}", code="FUNCTION", offset=offset, fix=suggest(spelled, known, "see the list of functions")
            )
        self._refuse_count(FUNCTIONS[name], node)
        if name in DATE_PART_FUNCTIONS:
            return self._date_function(name, node)
        if name in PATTERN_PLACES:
            pattern = self._pattern(name, args[PATTERN_PLACES[name]])
            value = self._bind(args[1 - PATTERN_PLACES[name]])
            return self._check_kinds(Call(name, (value, pattern) if PATTERN_PLACES[name] else (pattern, value), offset=offset), node)
        return self._comparison(name, node, *args) if name == "nullif" else self._call(name, node, *args)

    def _refuse_count(self, function: Function | column_functions.ColumnFunction, node: exp.Expr) -> None:
        count = len(node.expressions)
        if not function.args_min <= count <= function.args_max:
            message = f"{node.name} takes {_argument_count(function)}, not {count}"
            raise self.source.error(message, code="FUNCTION", offset=offset_of(node), fix=f"give it {_argument_count(function)}")

    def _column_function(self, name: str, node: exp.Expr) -> Expr:
        function = column_functions.find(name)
        assert function is not None, f"{name} is registered"
        self._refuse_count(function, node)
        call = self._call(name, node, *node.expressions)
        if name == "getrecordpropertyvalue" and isinstance(call, Call) and isinstance(property := call.args[1], Literal) and property.value:
            return Property(call.args[0], (str(property.value),), offset=call.offset)
        return call

    def _convert(self, node: exp.Expr) -> Expr:
        """Bind CONVERT(type, x), which is CAST(x AS type); TRY_CONVERT is TRY_CAST."""
        name, args = str(node.name), node.expressions
        if len(args) != 2:
            fix = "write CAST, and DATENAME or DATEPART for parts of a datetime"
            raise self.source.error(f"{name} takes a type and a value", code="FUNCTION", offset=offset_of(node), fix=fix)
        spelled = args[0].sql(dialect="tsql").lower()
        kind = DECLARABLE.get(spelled)
        if kind is None:
            message, fix, example = f"there is no type {spelled}", suggest_type(spelled), f"{name}(bigint, delay)"
            raise self.source.error(message, code="TYPE", offset=offset_of(node), fix=fix, example=example)
        cast = Cast(self._bind(args[1]), kind, lenient=name.lower() == "try_convert", offset=offset_of(node))
        return self._check_kinds(cast, node)

    def _date_function(self, name: str, node: exp.Expr) -> Expr:
        first, *others = node.expressions
        spelled = first.name if isinstance(first, (exp.Column, exp.Identifier)) else ""
        unit = DATE_PARTS.get(spelled.lower())
        if unit is None:
            raise self.source.error(
                f"{name.upper()} has no unit {spelled or self._spelled(first)}",
                code="FUNCTION",
                offset=offset_of(first),
                fix=suggest(spelled, DATE_PARTS, f"units are {', '.join(dict.fromkeys(DATE_PARTS.values()))}"),
                example="DATEADD(second, 5, scheduled)",
            )
        args = (DatePart(unit, offset=offset_of(first)), *(self._bind(arg) for arg in others))
        return self._check_kinds(Call(name, args, offset=offset_of(node)), node)

    def _aggregate(self, name: str, call: exp.Expr, over: exp.Expr | None = None) -> Aggregate:
        if self._is_inside_aggregate:
            raise self.source.error(
                f"{name.upper()} cannot stand inside an aggregate", code="GROUP", offset=offset_of(call), fix="aggregate once per query"
            )
        self._is_inside_aggregate = True
        try:
            return AggregateBinder(self.source, self._bind, self._check_kinds, self.names).bind_call(name, call, over)
        finally:
            self._is_inside_aggregate = False

    def _window_function(self, node: exp.Expr) -> Expr:
        name, call = _callee(node.this)
        if extension_aggregates.find(name) or name in ANALYTICS:
            return self._analytic(name, call, node)
        if name in AGGREGATES:
            looks_back = name not in ORDERED_AGGREGATES or any(node.args.get(clause) for clause in LOOK_BACK_CLAUSES)
            return (self._analytic if looks_back else self._aggregate)(name, call, node)
        self._bind(node.this)
        raise self.source.error(
            f"{node.this.name or self._spelled(node.this)} takes no OVER",
            code="FUNCTION",
            offset=offset_of(node),
            fix="leave it out, or take a function that looks back",
            example="LAG(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))",
        )

    def _filter(self, node: exp.Expr) -> Expr:
        raise self.source.not_yet(
            "FILTER is", offset=offset_of(node), fix="write CASE in the aggregate: SUM(CASE WHEN delay > 0 THEN delay END)"
        )

    def _within_group(self, node: exp.Expr) -> Expr:
        raise self.source.error(
            "WITHIN GROUP is not written here",
            code="FUNCTION",
            offset=offset_of(node),
            fix="write OVER (ORDER BY ...) in its place",
            example="PERCENTILE_CONT(0.95) OVER (ORDER BY delay)",
        )

    def _analytic(self, name: str, call: exp.Expr, over: exp.Expr | None) -> Expr:
        # It is computed before any aggregate, so it may stand inside of one.
        binder = ScalarBinder(self.source, self.names)
        binding = AnalyticBinder(self.source, binder.bind, binder.bind_condition, binder._aggregate, self.names.whole_row)
        return binding.bind_call(name, call, over)

    def _subquery(self, node: exp.Expr) -> Expr:
        raise self._not_yet(node, "a subquery is")

    def _star(self, node: exp.Expr) -> Expr:
        raise self._not_yet(node, "* beside other columns is")


def _argument_count(function: Function | column_functions.ColumnFunction) -> str:
    if function.args_min == function.args_max:
        return f"{function.args_min or 'no'} argument{'s' if function.args_min != 1 else ''}"
    most = "more" if function.args_max == ARGUMENTS_MAX else str(function.args_max)
    return f"{function.args_min} or {most} arguments"


def _callee(node: exp.Expr) -> tuple[str, exp.Expr]:
    """Return the name (lower case, perhaps with a dot) of the function that is called, and the call; no name where it is none."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
        return f"{node.this.name}.{node.expression.name}".lower(), node.expression
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else "", node


def is_window_id(node: exp.Expr) -> bool:
    """Tell whether *node* is ``System.Window().Id``."""
    if not isinstance(node, exp.Dot) or not isinstance(node.this, exp.Dot) or not isinstance(node.this.expression, exp.Anonymous):
        return False
    return [node.this.this.name.lower(), str(node.this.expression.name).lower(), node.expression.name.lower()] == ["system", "window", "id"]


def _identifiers(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Column):
        yield from node.parts
    elif isinstance(node, exp.Dot):
        yield from _identifiers(node.this)
        yield from _identifiers(node.expression)
    else:
        yield node


_HANDLERS: dict[type[Any], Callable[[ScalarBinder, exp.Expr], Expr]] = {
    exp.Column: ScalarBinder._column,
    exp.Dot: ScalarBinder._dot,
    exp.Literal: ScalarBinder._literal,
    exp.National: ScalarBinder._literal,
    exp.Null: ScalarBinder._null,
    exp.Boolean: ScalarBinder._boolean,
    exp.Paren: lambda binder, node: binder._bind(node.this),
    **dict.fromkeys(_BINARY, ScalarBinder._binary),
    exp.And: ScalarBinder._logic,
    exp.Or: ScalarBinder._logic,
    exp.Not: lambda binder, node: binder._call("not", node, node.this),
    exp.Neg: ScalarBinder._negative,
    exp.Is: ScalarBinder._is,
    exp.In: ScalarBinder._in,
    exp.Between: ScalarBinder._between,
    exp.Like: ScalarBinder._like,
    exp.Escape: ScalarBinder._escape,
    exp.Case: ScalarBinder._case,
    exp.Cast: ScalarBinder._cast,
    exp.Anonymous: ScalarBinder._function,
    exp.Window: ScalarBinder._window_function,
    exp.Filter: ScalarBinder._filter,
    exp.WithinGroup: ScalarBinder._within_group,
    exp.Query: ScalarBinder._subquery,
    exp.Exists: ScalarBinder._subquery,
    exp.Star: ScalarBinder._star,
}
