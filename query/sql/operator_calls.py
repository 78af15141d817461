"""
Binding of operators that FROM and JOIN call by name: ``FROM shift(flights, minute, 5) AS later``.

The first argument is the name of a step or an input; TIMESTAMP BY and OVER of an input follow the call. Further arguments are columns of
its rows (by keyword if the operator has keywords: ``ends = lands``), constants, and durations (a unit and a number). Over an input the rows
are the columns that the call names, and a column ``*`` with the event as a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ordering.ticks import format_duration
from query.operators.lifetimes.active import ACTIVE
from query.operators.lifetimes.shift import SHIFT
from query.plan import operator_extensions
from query.plan.nodes import Column, Custom, Project, Reference, Rows, type_name
from query.plan.operator import Operator
from query.plan.operator_extensions import (
    Argument,
    ColumnArgument,
    Length,
    NamedColumn,
    OperatorExtension,
    RowColumn,
)
from query.sql.column_layout import Layout
from query.sql.input_clauses import named_table
from query.sql.scopes import Relation, ScopeNames, slot
from query.sql.windows.window_lengths import UNITS_US
from tidegate.language.expressions.binding.analytic import whole_number
from tidegate.language.expressions.binding.input_schema import ANY
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import DECLARABLE
from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS
from tidegate.language.expressions.syntax.errors import Source, nearest, offset_of, suggest
from tidegate.language.expressions.tree import Cast, Expr, Literal, Property, Slot

# The operators that need no package.
BUILT_IN_OPERATORS = {"active": ACTIVE, "shift": SHIFT}
# An argument: a duration, or an expression over the rows below.
_BoundArgument = Expr | Length


def bind_operator_call(table: exp.Table, source: Source, bind_relation: Callable[[exp.Table], Relation], length_us_max: int) -> Custom:
    """
    Return the rows of the operator that *table* calls. *bind_relation* binds its input rows; *length_us_max* limits the durations of the
    call and its look-back.

    Raises:
        QueryError: There is no such operator, or its arguments are wrong.
    """
    name = ".".join(part.name for part in table.parts)
    extension = BUILT_IN_OPERATORS.get(name.lower()) or operator_extensions.REGISTERED.get(name.lower())
    if extension is None:
        if counterpart := COUNTERPARTS.get(name.lower()):
            raise source.error("FUNCTION", table, f"there is no {name} after FROM", fix=counterpart[0], example=counterpart[1])
        fix = suggest(name, (*BUILT_IN_OPERATORS, *operator_extensions.REGISTERED), "install the package that offers it")
        raise source.error("FUNCTION", table, f"there is no operator {name}", fix=fix)
    return _OperatorCall(source, bind_relation, length_us_max, name, extension, offset_of(table)).bind(table)


@dataclass(frozen=True)
class _OperatorCall:
    """One call; the fields are the arguments of :func:`bind_operator_call`, the operator by its name, and the place of the call."""

    source: Source
    bind_relation: Callable[[exp.Table], Relation]
    length_us_max: int
    name: str
    extension: OperatorExtension
    offset: int

    def bind(self, table: exp.Table) -> Custom:
        relation = self._input_relation(table)
        scope = ScopeNames(self.source, [relation])
        nodes, words = self._separate_words(table.this.expressions[1:])
        bound_arguments = list(self._bind_arguments(nodes, scope))
        exprs = [argument for argument in bound_arguments if not isinstance(argument, (Length, Literal))]
        layout = Layout.of([relation], [scope.whole_row(self.offset), *exprs] if relation.schema is not None else exprs)
        settled = [argument if isinstance(argument, Length) else layout.over_columns(argument) for argument in bound_arguments]
        rows, settled = self._with_members(layout.rows[0], settled)  # type: ignore[arg-type]
        columns = tuple(RowColumn(column.name, type_name(static_kind(column.expr))) for column in rows.columns)
        arguments = list(map(self._operator_argument, settled))
        # Keyword arguments stand last, in the order of the keywords.
        for index, word in enumerate(words, start=len(arguments) - len(words)):
            argument = arguments[index]
            assert isinstance(argument, ColumnArgument)
            arguments[index] = NamedColumn(word, argument.index)
        result_columns, operator = self._make(columns, arguments)
        shown = tuple(_argument_text(argument, columns) for argument in arguments)
        return Custom(rows, self.name.lower(), shown, self._plan_columns(result_columns, operator, columns), operator)

    # Arguments

    def _input_relation(self, table: exp.Table) -> Relation:
        first = next(iter(table.this.expressions), None)
        if not isinstance(first, exp.Column) or first.find(exp.Star):
            message = f"{self.name} takes the name of a step or an input first"
            raise self._error(table, message, "select its input rows in a step, and name that")
        relation = self.bind_relation(named_table(table))
        if isinstance(relation.rows, Reference):
            message = f"{relation.name} is reference data, and {self.name} needs a stream"
            raise self.source.error("INPUT", first, message, fix="name a step or an input")
        return relation

    def _separate_words(self, nodes: Sequence[exp.Expr]) -> tuple[list[exp.Expr], list[str]]:
        """Return the arguments, keyword arguments last, and the keywords."""
        words: dict[str, exp.Expr] = {}
        others = []
        for node in nodes:
            if isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) and self.extension.named_columns:
                word = self._word(node)
                if word in words:
                    raise self._error(node, f"{self.name} is given {word} twice", "leave one out")
                words[word] = node.expression
            else:
                others.append(node)
        return [*others, *words.values()], list(words)

    def _word(self, node: exp.EQ) -> str:
        word, words = str(node.this.name).lower(), self.extension.named_columns
        if len(node.this.parts) > 1 or word not in words:
            fix = suggest(word, words, f"columns are given to it as {', '.join(words)}")
            example = f"{nearest(word, words) or words[0]} = column"
            raise self.source.error("FUNCTION", node, f"{self.name} takes nothing as {node.this.name}", fix=fix, example=example)
        if not isinstance(node.expression, exp.Column):
            fix = "name one, and compute it in a step where there is none"
            raise self.source.error("FUNCTION", node, f"{self.name} takes a column as {word}", fix=fix, example=f"{word} = column")
        return word

    def _bind_arguments(self, nodes: Sequence[exp.Expr], scope: ScopeNames) -> Iterator[_BoundArgument]:
        remaining = list(nodes)
        while remaining:
            node = remaining.pop(0)
            if remaining and _is_unit(node) and whole_number(remaining[0]) is not None:
                yield self._length(node, remaining.pop(0))
            elif isinstance(node, (exp.Column, exp.Literal, exp.National, exp.Neg, exp.Null, exp.Boolean)):
                yield ScalarBinder(self.source, scope).bind(node, event_clause="FROM")
            else:
                raise self._unfit(offset_of(node))

    def _length(self, unit: exp.Expr, number: exp.Expr) -> Length:
        us = UNITS_US[unit.name.lower()] * int(number.name)
        if not 0 < us <= self.length_us_max:
            least = "above 0" if us <= 0 else f"of {format_duration(self.length_us_max)} at most"
            fix = "give a positive number" if us <= 0 else "shorten it, or raise query.window_max in the settings"
            raise self._error(unit, f"{self.name} takes lengths of time {least}", fix, code="WINDOW")
        return Length(us)

    def _with_members(self, rows: Rows, bound_arguments: Sequence[_BoundArgument]) -> tuple[Rows, list[_BoundArgument]]:
        """Add a column to the rows for each argument that is a member of a record, in particular of ``*``."""
        names_in_use = {"", *(column.name.lower() for column in rows.columns)}
        exprs = dict.fromkeys(argument for argument in bound_arguments if not isinstance(argument, Length))
        members = [expr for expr in exprs if _path(expr).lower() not in names_in_use]
        if not members:
            return rows, list(bound_arguments)
        own_columns = tuple(Column(column.name, slot(rows, place)) for place, column in enumerate(rows.columns))
        added = Project(rows, (*own_columns, *(Column(_path(argument), argument) for argument in members)))
        places = {argument: slot(added, len(own_columns) + index) for index, argument in enumerate(members)}
        return added, [argument if isinstance(argument, Length) else places.get(argument, argument) for argument in bound_arguments]

    def _operator_argument(self, bound_argument: _BoundArgument) -> Argument:
        if isinstance(bound_argument, Length):
            return bound_argument
        if isinstance(bound_argument, Literal):
            return bound_argument.value
        if not isinstance(bound_argument, Slot):
            raise self._unfit(bound_argument.offset if bound_argument.offset >= 0 else self.offset)
        return ColumnArgument(bound_argument.index)

    def _unfit(self, offset: int) -> Exception:
        message = f"{self.name} takes columns, constants, and lengths of time"
        return self._error(offset, message, "compute it in a step, and name its column")

    def _error(self, place: exp.Expr | int, message: str, fix: str, *, code: str = "FUNCTION") -> Exception:
        return self.source.error(code, place, message, fix=fix, example=self.extension.example)

    # Result

    def _make(self, columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Operator]:
        try:
            result_columns, operator = self.extension.make(columns, arguments)
        except ValueError as problem:
            raise self._error(self.offset, str(problem), "call it as shown") from None
        except Exception as error:  # any error of an extension must name the place of its call
            raise self._unusable(f"making it raised {type(error).__name__}: {error}") from error
        if not isinstance(operator, Operator):
            raise self._unusable(f"it is a {type(operator).__name__}, not an Operator")
        if operator.reach_us > self.length_us_max:
            message = f"{self.name} looks {format_duration(operator.reach_us)} back, longer than {format_duration(self.length_us_max)}"
            raise self.source.error("WINDOW", self.offset, message, fix="shorten it, or raise query.window_max in the settings")
        if operator.reach_us < 0 or operator.sides != 1:
            raise self._unusable(f"it says reach_us {operator.reach_us} and sides {operator.sides}")
        return result_columns, operator

    def _plan_columns(
        self, result_columns: Sequence[RowColumn], operator: Operator, input_columns: Sequence[RowColumn]
    ) -> tuple[Column, ...]:
        spelled = [column.name.lower() for column in result_columns]
        unknown = [column.kind for column in result_columns if column.kind != ANY and column.kind.lower() not in DECLARABLE]
        if not result_columns or len(set(spelled)) < len(spelled) or unknown:
            listed = ", ".join(f"{column.name} {column.kind}" for column in result_columns) or "no columns"
            raise self._unusable(f"it says that it gives {listed}")
        if operator.keeps_columns and tuple(result_columns[: len(input_columns)]) != tuple(input_columns):
            raise self._unusable("it says that it passes columns on, and does not begin with them")
        return tuple(
            Column(column.name, Slot(place, column.name, DECLARABLE.get(column.kind.lower())))
            for place, column in enumerate(result_columns)
        )

    def _unusable(self, why: str) -> Exception:
        fix = "repair or remove the package that offers it"
        return self.source.error("EXTENSION", self.offset, f"the operator {self.name} cannot be used: {why}", fix=fix)


def _path(expr: Expr) -> str:
    """Return the path of a member of a record, with or without conversion to its declared type; empty for anything else."""
    inner = expr.arg if isinstance(expr, Cast) and expr.declared else expr
    return ".".join(inner.path) if isinstance(inner, Property) and isinstance(inner.arg, Slot) else ""


def _is_unit(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) != 1:
        return False
    return not node.parts[0].args.get("quoted") and node.name.lower() in UNITS_US


def _argument_text(argument: Argument, columns: Sequence[RowColumn]) -> str:
    if isinstance(argument, Length):
        return format_duration(argument.us)
    if isinstance(argument, ColumnArgument):
        return columns[argument.index].name
    if isinstance(argument, NamedColumn):
        return f"{argument.name} = {columns[argument.index].name}"
    return "NULL" if argument is None else repr(argument)
