"""Binding of expressions: sqlglot's syntax tree -> :mod:`tidegate.language.expressions.tree`, names resolved, kinds checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from math import isinf
from typing import Any

from sqlglot import exp

from tidegate.language.expressions.binding.function_binder import SHORTER, FunctionBinder, callee
from tidegate.language.expressions.binding.local_times import ZONE_EXAMPLE, at_zone, bind_zone
from tidegate.language.expressions.evaluation.static_kinds import check_size
from tidegate.language.expressions.functions import column_functions, extension_aggregates
from tidegate.language.expressions.functions.catalog import NOT_YET, REFUSED, REFUSED_WORDS
from tidegate.language.expressions.functions.conversions import TooLong
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import offset_of, suggest, suggest_type
from tidegate.language.expressions.tree import (
    Aggregate,
    Analytic,
    Call,
    Case,
    Cast,
    Expr,
    Literal,
    Property,
    Required,
    Requirement,
    SystemTimestamp,
    WindowId,
    Zoned,
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
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
# The arguments of sqlglot's nodes that binding reads or may ignore; any other is a construct of another SQL dialect.
_READ_PARTS = frozenset(
    {
        *("this", "expression", "expressions", "negate", "low", "high", "ifs", "default", "to", "safe", "requires_string"),
        *("typed", "is_string", "table", "db", "catalog", "quoted", "join_mark", "query", "zone"),
    }
)
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
# Clauses without aggregates in which analytic functions may stand.
_ROW_CLAUSES = frozenset({"WHERE", "GROUP BY"})


class ScalarBinder(FunctionBinder):
    """Binds names, constants and operators; the base class binds functions."""

    def bind(self, node: exp.Expr, *, event_clause: str = "") -> Expr:
        """Bind one expression; *event_clause* is the clause around it if that clause works on single events and refuses aggregates."""
        bound = self._bind(node)
        self._refuse_long(bound, node)
        refused_types = (Aggregate, WindowId) if event_clause in _ROW_CLAUSES else (Aggregate, WindowId, Analytic)
        refused_part = next((part for part in bound.walk() if isinstance(part, refused_types)), None)
        if event_clause and refused_part is not None:
            fix = "put the condition on groups into HAVING" if event_clause == "WHERE" else "name the aggregate in SELECT"
            fix = "compute it in a step" if isinstance(refused_part, Analytic) else fix
            message = f"{event_clause} works on single events, so {refused_part} cannot stand there"
            raise self.source.error("GROUP", refused_part.offset, message, fix=fix)
        zoned = next((part for part in bound.walk() if isinstance(part, Zoned)), None)
        if event_clause == "TIMESTAMP BY" and zoned is not None:
            message, fix = "an event time is an instant, the same in every zone", "leave AT TIME ZONE to the query's columns and windows"
            raise self.source.error("TIMESTAMP", zoned.offset, message, fix=fix)
        return bound

    def _refuse_long(self, bound: Expr, node: exp.Expr) -> None:
        for expr in (bound, *(inner for part in bound.walk() if isinstance(part, Aggregate) for inner in part.parts)):
            try:
                check_size(expr)
            except TooLong as problem:
                raise self.source.error("SIZE", node, str(problem), fix=SHORTER) from None

    def bind_condition(self, node: exp.Expr, clause: str) -> Expr:
        bound = self.bind(node, event_clause=clause if clause in ("WHERE", "ON") else "")
        return self._check_kinds(Required(bound, Requirement.CONDITION, offset=bound.offset), node)

    def _bind(self, node: exp.Expr) -> Expr:
        for kind, handler in _HANDLERS.items():
            if isinstance(node, kind):
                self._refuse_other_parts(node)
                return handler(self, node)
        raise self.source.not_yet(node, f"{self._spelling_of(node)} is")

    def _refuse_other_parts(self, node: exp.Expr) -> None:
        """Refuse a construct with a part that no handler reads: otherwise the part would be silently ignored."""
        read = _READ_PARTS - {"default"} if isinstance(node, exp.Cast) else _READ_PARTS
        part = next((name for name, value in node.args.items() if value and name not in read), None)
        if part and not isinstance(node, (exp.Query, exp.Window, exp.Interval)):
            raise self.source.not_yet(node, f"{part.upper()} in {self._spelling_of(node)} is")

    # Leaves

    def _column(self, node: exp.Expr) -> Expr:
        names = [part.name for part in _identifiers(node)]
        offset = offset_of(node)
        if node.find(exp.Star):
            raise self.source.not_yet(node, "* beside other columns is")
        if [name.lower() for name in names] == ["system", "timestamp"]:
            return SystemTimestamp(offset=offset)
        named = self._aliases.get(names[0].lower()) if len(names) == 1 and not self._is_inside_aggregate else None
        if named is None and is_bare_word(node, REFUSED_WORDS) and not self.names.knows(names[0]):
            what, fix = REFUSED[names[0].lower()]
            fix = f"{fix}; [{names[0]}] is the field of that name"
            raise self.source.error("FUNCTION", offset, f"{names[0]} {what}", fix=fix)
        return named or self.names.resolve(tuple(names), offset)

    def _dot(self, node: exp.Expr) -> Expr:
        if is_window_id(node):
            return self._window_id(node)
        if not isinstance(node.expression, exp.Anonymous):
            return self._property(node)
        owner, name = node.this, str(node.expression.name)
        function_name, call = callee(node)
        function_name = self.source.registered(function_name)
        if column_functions.REGISTERED.get(function_name):
            return self._column_function(function_name, call)
        if extension_aggregates.REGISTERED.get(function_name):
            return self._aggregate(function_name, call)
        if owner.name.lower() == "system" and name.lower() == "timestamp":
            return self._system_timestamp(node, [part.name for part in _identifiers(owner)][:-1])
        if (owner.name.lower(), name.lower()) == ("system", "window"):
            fix, example = "name its .Id; it ends at System.Timestamp()", "DATEADD(minute, -5, System.Timestamp()) AS window_start"
            raise self.source.not_yet(node, "System.Window() is", fix=fix, example=example)
        if name.lower() in NOT_YET:
            raise self.source.not_yet(node, f"{owner.name}.{name}() is")
        if function_name.startswith(("udf.", "uda.")) and not self._suggest_dotted(function_name, name):
            message = f"there is no function {owner.name}.{name}()"
            fix = f"put functions/{name}.js beside the script, or add [functions.{name}] to tidegate.toml (docs/queries/javascript.md)"
            raise self.source.error("FUNCTION", node, message, fix=fix, example=f'functions.{name}.script = "{name}.js"')
        message = f"there is no function {owner.name}.{name}()"
        raise self.source.error("FUNCTION", node, message, fix=self._suggest_dotted(function_name, name))

    def _system_timestamp(self, node: exp.Expr, qualifiers: Sequence[str]) -> Expr:
        """Bind ``System.Timestamp()``, or that of one side of a join: ``System.Timestamp(a)``, ``a.System.Timestamp()``."""
        args, offset = node.expression.expressions, offset_of(node)
        names = [*qualifiers, *(arg.name for arg in args if isinstance(arg, exp.Column) and len(arg.parts) == 1)]
        if len(names) != len(qualifiers) + len(args) or len(names) > 1:
            message, fix = "System.Timestamp() takes nothing, or the name of an input", "name a side of the join"
            raise self.source.error("FUNCTION", offset, message, fix=fix, example="System.Timestamp(a)")
        return self.names.of_row(names[0], SystemTimestamp(), offset) if names else SystemTimestamp(offset=offset)

    def _suggest_dotted(self, function_name: str, name: str) -> str:
        if function_name.startswith(("udf.", "uda.")):
            dotted = [registered for registered in column_functions.REGISTERED if "." in registered]
            known = [registered for registered in (*extension_aggregates.REGISTERED, *dotted) if "@" not in registered]
            return suggest(function_name, [*known, *self.source.functions])
        return suggest(name, ["System.Timestamp()"])

    def _property(self, node: exp.Expr) -> Expr:
        """Bind a dotted name, or a member of an expression: ``f(x).a.b``."""
        base, path = node, []
        while isinstance(base, exp.Dot) and isinstance(base.expression, exp.Identifier):
            path.append(str(base.expression.name))
            base = base.this
        if not isinstance(base, (exp.Anonymous, exp.Dot, exp.Paren, exp.Cast, exp.Window, exp.Case)):
            return self._column(node)
        if not path:
            message, fix = f"{self._spelling_of(node.expression)} is no name of a member", "write a name after the point"
            raise self.source.error("SYNTAX", node, message, fix=fix, example="GetArrayElement(legs, 0).to")
        return self._check_kinds(Property(self._bind(base), tuple(reversed(path)), offset=offset_of(node)), node)

    def _window_id(self, node: exp.Expr) -> Expr:
        offset = offset_of(node)
        if self._is_inside_aggregate:
            message = "System.Window().Id belongs to a group, so it cannot stand inside an aggregate"
            raise self.source.error("GROUP", offset, message, fix="write it beside the aggregate")
        return WindowId(offset=offset)

    def _literal(self, node: exp.Expr) -> Expr:
        text, offset = str(node.this), offset_of(node)
        if node.is_string or isinstance(node, exp.National):
            return Literal(text, Kind.NVARCHAR, offset=offset)
        if text.isdigit() and int(text) < 2**63:
            return Literal(int(text), Kind.BIGINT, offset=offset)
        try:
            value = float(text)
        except ValueError:
            raise self.source.error("SYNTAX", offset, f"{text} is no number", fix="write the exponent, or put a name in brackets") from None
        if isinf(value):
            fix = "floats go up to 1.7976931348623157e308"
            raise self.source.error("TYPE", offset, f"{text if len(text) < 30 else 'the number'} is more than a float can hold", fix=fix)
        return Literal(value, Kind.FLOAT, offset=offset)

    # Operators

    def _binary(self, node: exp.Expr) -> Expr:
        name = _BINARY[type(node)]
        call = self._comparison if name in _COMPARISONS else self._call
        return call(name, node, node.this, node.expression)

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
            raise self.source.error("SYNTAX", node, f"IS takes NULL: {self._spelling_of(node)}", fix="compare with =")
        return self._call("is null", node, node.this)

    def _in(self, node: exp.Expr) -> Expr:
        if not node.expressions:
            fix = "JOIN the two, with the time between them; LEFT JOIN and IS NULL for NOT IN"
            raise self.source.not_yet(node, "IN with a subquery is", fix=fix)
        return self._comparison("in", node, node.this, *node.expressions)

    def _like(self, node: exp.Expr) -> Expr:
        pattern = self._pattern("like", node.expression)
        like = self._match("like", self._fold_case(self._bind(node.this)), self._fold_case(pattern), node)
        return Call("not", (like,), offset=like.offset) if node.args.get("negate") else like

    def _escape(self, node: exp.Expr) -> Expr:
        fix, example = "write a wildcard that is meant as a character in brackets", "note LIKE '10[%]%'"
        raise self.source.not_yet(node, "LIKE with ESCAPE is", fix=fix, example=example)

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

    def _at_time_zone(self, node: exp.Expr) -> Expr:
        value, offset = self._bind_time(node.this), offset_of(node)
        return self._check_kinds(at_zone(value, bind_zone(node.args["zone"], self.source, ZONE_EXAMPLE), offset), node)

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
        raise self.source.error("TYPE", node, message, fix=fix, example="CAST(delay AS bigint)")

    def _spelled_type(self, node: exp.Expr) -> str:
        """Return the type as the script spells it, which sqlglot's tree does not keep."""
        end = max((part.meta["end"] for part in node.this.walk() if "end" in part.meta), default=0)
        match = re.search(r"\bAS\s+(\[[^\]]*\]|\w+(?:\s*\([^)]*\))?)", self.source.text[end:], re.IGNORECASE)
        return match[1] if match else str(node.args["to"])

    # Functions

    def _subquery(self, node: exp.Expr) -> Expr:
        raise self.source.not_yet(node, "a subquery is", fix="write it as a step, and JOIN that, with the time between the two")

    def _interval(self, node: exp.Expr) -> Expr:
        fix, example = "add to a datetime with DATEADD, compare two with DATEDIFF", "DATEADD(hour, -1, System.Timestamp())"
        raise self.source.error("FUNCTION", node, "there is no INTERVAL", fix=fix, example=example)

    def _star(self, node: exp.Expr) -> Expr:
        raise self.source.not_yet(node, "* beside other columns is")


def is_bare_word(node: exp.Expr, words: Collection[str]) -> bool:
    """Return whether *node* is one of some words, without brackets and quotes around it."""
    if not isinstance(node, exp.Column) or len(node.parts) != 1:
        return False
    return node.name.lower() in words and not node.parts[0].args.get("quoted")


def is_window_id(node: exp.Expr) -> bool:
    """Return whether *node* is ``System.Window().Id``."""
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
    exp.Null: lambda _, node: Literal(None, Kind.NULL, offset=offset_of(node)),
    exp.Boolean: lambda _, node: Literal(bool(node.this), Kind.BIT, offset=offset_of(node)),
    exp.Paren: lambda binder, node: binder._bind(node.this),
    **dict.fromkeys(_BINARY, ScalarBinder._binary),
    exp.And: ScalarBinder._logic,
    exp.Or: ScalarBinder._logic,
    exp.Not: lambda binder, node: binder._call("not", node, node.this),
    exp.Neg: ScalarBinder._negative,
    exp.BitwiseNot: lambda binder, node: binder._call("~", node, node.this),
    exp.Is: ScalarBinder._is,
    exp.In: ScalarBinder._in,
    exp.Between: lambda binder, node: binder._comparison("between", node, node.this, node.args["low"], node.args["high"]),
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
    exp.Interval: ScalarBinder._interval,
    exp.AtTimeZone: ScalarBinder._at_time_zone,
}
