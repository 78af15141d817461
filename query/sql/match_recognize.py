"""
Binding of MATCH_RECOGNIZE -> :class:`query.plan.nodes.Recognize`.

A name after a variable (``A.price``) is a value of the variable's rows; without one it is a value of all rows of the match. In DEFINE a
plain value is that of the row that is tested, or of the last row of a variable defined before; FIRST, LAST, MIN and MAX read the rows up to
that row. In MEASURES a plain value is the last one, and every aggregate may stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from ordering.ticks import format_duration
from query.plan.nodes import Column, Filter, Project, Recognize, Reference, Rows, Scan
from query.plan.row_patterns import ANY, Pattern, names_in
from query.sql.column_layout import over_own_rows
from query.sql.match_pattern import PATTERN_EXAMPLE, parse_pattern
from query.sql.scopes import Relation, ScopeNames, slot
from query.sql.windows.window_lengths import UNITS_US
from tidegate.language.expressions.binding.analytic import whole_number
from tidegate.language.expressions.binding.local_times import as_column
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.functions.catalog import AGGREGATES
from tidegate.language.expressions.functions.dates import DATE_PARTS
from tidegate.language.expressions.syntax.dialect import LIMIT, PARTITION_BY, WHEN
from tidegate.language.expressions.syntax.errors import Source, offset_of, suggest
from tidegate.language.expressions.tree import Expr, MatchValue, Slot, Total, keys_of, replace_parts

_EXAMPLE = (
    "FROM a TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(minute, 5) PARTITION BY k MEASURES LAST(Up.v) AS v "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (Start Up+) DEFINE Up AS Up.v > 9) AS m"
)
_NEXT_ROW = "AFTER MATCH SKIP TO NEXT ROW"
_IN_DEFINE = ("min", "max")


@dataclass(frozen=True)
class MatchBinder:
    """Binds one MATCH_RECOGNIZE; *limit_us_max* limits its duration."""

    source: Source
    limit_us_max: int

    def bind(self, match: exp.Expr, relation: Relation) -> Recognize:
        """Bind the clauses over the rows of *relation*. Raises QueryError: a clause is missing or wrong."""
        if isinstance(relation.rows, Reference):
            raise self.source.error("INPUT", match.this, f"{relation.name} is reference data and has no order", fix="name a stream")
        self._check_clauses(match)
        text = match.args["pattern"]
        pattern = parse_pattern(self.source, text.meta["start"], text.meta["end"])
        variables = {name.lower(): name for name in names_in(pattern)}
        scope = ScopeNames(self.source, [relation])
        scalar = ScalarBinder(self.source, scope)
        when = scalar.bind_condition(match.args[WHEN], "WHEN") if match.args.get(WHEN) else None
        partition = [scalar.bind(node, event_clause="PARTITION BY") for node in match.args.get(PARTITION_BY) or ()]
        self._check_partition(match, relation, partition)
        definitions = self._definitions(match, variables, scope)
        measures = self._measures(match, variables, scope)
        rows = relation.rows if when is None else Filter(relation.rows, over_own_rows(when))
        return _lay_out(rows, partition, self._limit_us(match), pattern, definitions, measures)

    # Clauses

    def _check_clauses(self, match: exp.Expr) -> None:
        args = match.args
        if args.get("order"):
            fix = "leave it out: rows stand in the order of time, and rows of one instant have a fixed order"
            raise self._error(match.args["order"], "MATCH_RECOGNIZE takes no ORDER BY", fix)
        rows = args.get("rows")
        if rows is not None and str(rows.this) != "ONE ROW PER MATCH":
            raise self.source.not_yet(rows, f"{rows.this} is", fix="leave it out: there is one row per match", example=_EXAMPLE)
        for name, clause in ((LIMIT, "LIMIT DURATION(unit, n)"), ("measures", "MEASURES"), ("after", _NEXT_ROW), ("pattern", "PATTERN")):
            if not args.get(name):
                raise self._error(match, f"MATCH_RECOGNIZE needs {clause}", f"add {clause}")
        after = args["after"]
        if str(after.this) != _NEXT_ROW:
            raise self.source.not_yet(after, f"{after.this} is", fix=f"write {_NEXT_ROW}: matches may overlap", example=_EXAMPLE)

    def _limit_us(self, match: exp.Expr) -> int:
        limit = match.args[LIMIT]
        args = limit.expressions
        if not isinstance(limit, exp.Anonymous) or str(limit.name).lower() != "duration" or len(args) != 2:
            raise self._error(limit, "LIMIT takes DURATION(unit, n)", "write it as shown", code="WINDOW")
        unit_us, number = UNITS_US.get(DATE_PARTS.get(args[0].name.lower(), "")), whole_number(args[1])
        if unit_us is None:
            fix = suggest(args[0].name, UNITS_US, f"units are {', '.join(UNITS_US)}")
            raise self._error(limit, f"there is no unit {args[0].name}", fix, code="WINDOW")
        if number is None or number < 1:
            raise self._error(limit, "a duration is a whole number of units, 1 or more", "write a number", code="WINDOW")
        if unit_us * number > self.limit_us_max:
            message = f"a match over {format_duration(unit_us * number)} looks back beyond {format_duration(self.limit_us_max)}"
            raise self._error(limit, message, "shorten it, or raise query.window_max in the settings", code="WINDOW")
        return unit_us * number

    def _check_partition(self, match: exp.Expr, relation: Relation, partition: Sequence[Expr]) -> None:
        bound = ScalarBinder(self.source, ScopeNames(self.source, [relation]))
        for place in match.this.args.get(PARTITION_BY) or ():
            key = bound.bind(place)
            if key not in partition:
                message = f"PARTITION BY {key} after the input, and not in MATCH_RECOGNIZE"
                raise self.source.error("OVER", place, message, fix=f"write PARTITION BY {key} there too, or leave this one out")
        scan = relation.rows
        if isinstance(scan, Scan) and scan.over is not None:
            known = [over_own_rows(key) for key in partition]
            missing = ", ".join(str(key) for key in keys_of(scan.over) if key not in known)
            if missing:
                message, fix = f"with OVER {scan.over} MATCH_RECOGNIZE must be partitioned by {missing}", f"add PARTITION BY {missing}"
                raise self.source.error("OVER", match, message, fix=f"{fix}, or leave OVER out", example=_EXAMPLE)

    # DEFINE and MEASURES

    def _definitions(self, match: exp.Expr, variables: Mapping[str, str], scope: ScopeNames) -> list[tuple[str, Expr]]:
        nodes = match.args.get("define") or []
        names = [str(node.alias) for node in nodes]
        definitions: list[tuple[str, Expr]] = []
        for number, (node, name) in enumerate(zip(nodes, names, strict=True)):
            if name.lower() in [other.lower() for other in names[:number]]:
                raise self._error(node, f"DEFINE has {name} twice", "join the conditions by AND, or leave one out")
            if name.lower() not in variables or name == ANY:
                fix = suggest(name, variables.values(), f"PATTERN has {', '.join(dict.fromkeys(variables.values()))}")
                raise self._error(node.args["alias"], f"PATTERN has no {name}", fix)
            later = {other.lower() for other in names[number + 1 :]}
            binder = _MatchScalar(self.source, scope, variables, name.lower(), later)
            definitions.append((name.lower(), binder.bind_condition(node.this, "DEFINE")))
        return definitions

    def _measures(self, match: exp.Expr, variables: Mapping[str, str], scope: ScopeNames) -> list[Column]:
        columns: list[Column] = []
        for node in match.args["measures"]:
            if not isinstance(node, exp.Alias):
                raise self._error(node, "a measure has no name", "write AS and a name after it")
            if node.alias.lower() in [column.name.lower() for column in columns]:
                raise self.source.error("NAME", node, f"two columns are named {node.alias}", fix="give each its own")
            value = _MatchScalar(self.source, scope, variables).bind(node.this)
            columns.append(Column(str(node.alias), as_column(value, is_result=True)))
        return columns

    def _error(self, place: exp.Expr, message: str, fix: str, *, code: str = "PATTERN") -> Exception:
        return self.source.error(code, place, message, fix=fix, example=_EXAMPLE)


@dataclass(frozen=True)
class _MatchNames:
    """The names of a row, of which the first part may be a variable."""

    source: Source
    scope: ScopeNames
    variables: Mapping[str, str]
    # The variable that is defined, and those that may not be read yet; None and nothing in MEASURES.
    defined: str | None
    later: frozenset[str]

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        first = path[0].lower()
        if len(path) == 1 or first not in self.variables:
            known = [*self.variables.values(), *self.scope.relations[0].names]
            if len(path) > 1 and first not in known and not self.scope.relations[0].knows(path[0]):
                # Behind a variable's name a member of the row is expected: another first name is a misspelling if it is close to one.
                meant = suggest(path[0], self.variables.values())
                if meant:
                    raise self.source.error("PATTERN", offset, f"PATTERN has no {path[0]}", fix=meant, example=PATTERN_EXAMPLE)
            return MatchValue("value", None, self.scope.resolve(path, offset), offset=offset)
        if first in self.later:
            message = f"{self.variables[first]} is defined after {self.variables[str(self.defined)]}, which reads it"
            raise self.source.error("PATTERN", offset, message, fix="define it first", example="DEFINE A AS ..., B AS LAST(A.v) < B.v")
        return MatchValue("value", first, self.scope.resolve(path[1:], offset), offset=offset)

    def of_row(self, name: str, leaf: Expr, offset: int) -> Expr:
        return MatchValue("value", None, self.scope.of_row(name, leaf, offset), offset=offset)  # type: ignore[arg-type]

    def time_of_side(self, name: str, offset: int) -> Expr | None:
        return None

    def knows(self, name: str) -> bool:
        return self.scope.knows(name)

    def is_row_name(self, name: str) -> bool:
        return name.lower() in self.variables and not self.scope.knows(name)

    def row_as_record(self, name: str, offset: int) -> Expr | None:
        return MatchValue("value", name.lower(), self.scope.whole_row(offset), offset=offset) if self.is_row_name(name) else None

    def whole_row(self, offset: int) -> Expr:
        return MatchValue("value", None, self.scope.whole_row(offset), offset=offset)


class _MatchScalar(ScalarBinder):
    """Binds expressions over the rows of a match."""

    def __init__(
        self, source: Source, scope: ScopeNames, variables: Mapping[str, str], defined: str | None = None, later: set[str] | None = None
    ) -> None:
        self._defined = defined
        super().__init__(source, _MatchNames(source, scope, variables, defined, frozenset(later or ())))

    def _bind(self, node: exp.Expr) -> Expr:
        for kind, handler in ((exp.Column, self._column), (exp.Dot, self._dot), (exp.Anonymous, self._function)):
            if isinstance(node, kind):
                self._refuse_other_parts(node)
                return handler(node)
        return super()._bind(node)

    def _column(self, node: exp.Expr) -> Expr:
        bound = super()._column(node)
        # System.Timestamp() is a leaf of the row.
        return bound if isinstance(bound, MatchValue) else MatchValue("value", None, bound, offset=bound.offset)

    def _dot(self, node: exp.Expr) -> Expr:
        bound = super()._dot(node)
        return (
            bound if any(isinstance(part, MatchValue) for part in bound.walk()) else MatchValue("value", None, bound, offset=bound.offset)
        )

    def _function(self, node: exp.Expr) -> Expr:
        name = str(node.name).lower()
        if name == "classifier":
            if self._defined is not None or node.expressions:
                fix = "write Classifier() in MEASURES"
                raise self.source.error("PATTERN", node, "Classifier() takes nothing, and stands in MEASURES", fix=fix)
            return MatchValue("classifier", None, None, offset=offset_of(node))
        if name in ("first", "last"):
            if len(node.expressions) != 1:
                message, fix = f"{node.name} takes one value", "write it as shown"
                raise self.source.error("FUNCTION", node, message, fix=fix, example=f"{name.upper()}(A.price)")
            return self._of_rows(name, self._bind(node.expressions[0]), node)
        if name in AGGREGATES and self._defined is not None and name not in _IN_DEFINE:
            fix = "take FIRST, LAST, MIN or MAX, or put the condition into WHERE over a measure"
            raise self.source.not_yet(node, f"{name.upper()} in DEFINE is", fix=fix, example="Up AS Up.v > MAX(Start.v)")
        return super()._function(node)

    def _aggregate(self, name: str, call: exp.Expr, over: exp.Expr | None = None) -> Expr:  # type: ignore[override]
        aggregate = super()._aggregate(name, call, over)
        if name in _IN_DEFINE and self._defined is not None:
            assert aggregate.arg is not None
            return self._of_rows(name, aggregate.arg, call)
        variables = self._variables_of(aggregate, call)
        inner = replace_parts(aggregate, lambda part: part.arg if isinstance(part, MatchValue) else None)
        return MatchValue(name, variables, None, inner, offset=aggregate.offset)  # type: ignore[arg-type]

    def _analytic(self, name: str, call: exp.Expr, over: exp.Expr | None) -> Expr:
        message, fix = f"{name.upper()} cannot stand in MATCH_RECOGNIZE", "compute it in a step, whose rows MATCH_RECOGNIZE reads"
        raise self.source.error("PATTERN", call, message, fix=fix)

    def _of_rows(self, function: str, bound: Expr, node: exp.Expr) -> Expr:
        if any(isinstance(part, MatchValue) and part.function != "value" for part in bound.walk()):
            raise self.source.error("PATTERN", node, f"{node.name} stands outside another function of rows", fix="name a value of a row")
        variable = self._variables_of(bound, node)
        arg = replace_parts(bound, lambda part: part.arg if isinstance(part, MatchValue) else None)
        return MatchValue(function, variable, arg, offset=offset_of(node))

    def _variables_of(self, bound: Expr, node: exp.Expr) -> str | None:
        variables = {part.variable for part in bound.walk() if isinstance(part, MatchValue)}
        if len(variables) > 1:
            message = f"{node.name} takes values of one variable, not of several"
            raise self.source.error("PATTERN", node, message, fix="write a call for each", example="MAX(A.v) + MAX(B.v)")
        return variables.pop() if variables else None


def _lay_out(
    rows: Scan | Filter | Rows,
    partition: Sequence[Expr],
    limit_us: int,
    pattern: Pattern,
    definitions: Sequence[tuple[str, Expr]],
    measures: Sequence[Column],
) -> Recognize:
    """Return the node over one projection that holds every value of a row."""
    of_row: dict[Expr, int] = {}

    def place(expr: Expr) -> Slot:
        number = of_row.setdefault(over_own_rows(expr), len(of_row))
        return Slot(number, str(expr), None, offset=expr.offset)

    settled = [_over_tested_row(name, condition) for name, condition in definitions]
    keys = [place(key) for key in partition]
    inputs: dict[MatchValue, int] = {}
    totals: dict[MatchValue, int] = {}

    def over_rows(expr: Expr, values: dict[MatchValue, int]) -> Expr:
        def leaf(part: Expr) -> Expr | None:
            if not isinstance(part, MatchValue):
                return None
            if part.function == "tested":
                assert part.arg is not None
                return place(part.arg)
            inner = part.with_parts(tuple(place(each) for each in part.parts))
            assert isinstance(inner, MatchValue)
            return Total(values.setdefault(inner, len(values)), str(part), static_kind(part), offset=part.offset)

        return replace_parts(expr, leaf)

    conditions: list[tuple[str, Expr]] = []
    for name, condition in settled:
        parts = [part for part in condition.walk() if isinstance(part, MatchValue)]
        if all(part.function == "tested" for part in parts):
            # The condition is that of a row alone: it is computed once for each row.
            conditions.append((name, place(replace_parts(condition, lambda part: part.arg if isinstance(part, MatchValue) else None))))
        else:
            conditions.append((name, over_rows(condition, inputs)))
    columns = [Column(column.name, over_rows(_last_of_value(column.expr), totals)) for column in measures]
    child = Project(rows, tuple(Column(str(expr), expr) for expr in of_row))
    typed = {number: slot(child, number) for number in range(len(of_row))}

    def of_kind(expr: Expr) -> Expr:
        return replace_parts(expr, lambda part: replace(typed[part.index], offset=part.offset) if isinstance(part, Slot) else None)

    return Recognize(
        child,
        tuple(typed[key.index] for key in keys),
        limit_us,
        pattern,
        tuple((name, of_kind(condition)) for name, condition in conditions),
        tuple(of_kind(value) for value in inputs),  # type: ignore[misc]
        tuple(of_kind(value) for value in totals),  # type: ignore[misc]
        tuple(columns),
    )


def _over_tested_row(name: str, condition: Expr) -> tuple[str, Expr]:
    """Return a condition whose plain values are those of the tested row, or the last ones of another variable."""

    def settle(part: Expr) -> Expr | None:
        if not isinstance(part, MatchValue) or part.function != "value":
            return None
        return replace(part, function="tested" if part.variable in (None, name) else "last")

    return name, replace_parts(condition, settle)


def _last_of_value(expr: Expr) -> Expr:
    def settle(part: Expr) -> Expr | None:
        return replace(part, function="last") if isinstance(part, MatchValue) and part.function == "value" else None

    return replace_parts(expr, settle)
