"""
Binding of operators that FROM and JOIN call by name: ``FROM shift(flights, minute, 5) AS later``.

First stands the step or the input whose rows it takes, by name; of an input TIMESTAMP BY and OVER follow the call. After it come
columns of these rows, by a word where the operator has words for them (``ends = lands``), constants, and lengths of time
(a unit and a number). Over an input the rows are the events as
records - a column ``*``, whose members can be asked for by name - and the columns that the call names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ordering.ticks import format_duration
from query.operators.lifetimes.active import ACTIVE
from query.operators.lifetimes.shift import SHIFT
from query.plan.nodes import Column, Custom, Project, Reference, Rows, type_name
from query.plan.operator import Operator
from query.plan.operator_extensions import (
    Argument,
    ColumnArgument,
    Length,
    NamedColumn,
    OperatorExtension,
    RowColumn,
    find_operator,
    operator_names,
)
from query.sql.column_layout import Layout
from query.sql.input_clauses import named_table
from query.sql.scopes import Relation, ScopeNames, slot
from query.sql.window_lengths import UNITS_US
from tidegate.expressions.binding.input_schema import ANY
from tidegate.expressions.binding.scalar_binder import ScalarBinder
from tidegate.expressions.evaluation.static_kinds import static_kind
from tidegate.expressions.kinds import DECLARABLE
from tidegate.expressions.syntax.errors import Source, nearest, suggest
from tidegate.expressions.syntax.parse import offset_of
from tidegate.expressions.tree import Cast, Expr, Literal, Property, Slot

BUILT_IN_OPERATORS = {"active": ACTIVE, "shift": SHIFT}
"""The operators that need no package."""
_BoundArgument = Expr | Length
"""An argument: a length of time, or what is bound over the rows below."""


@dataclass(frozen=True)
class OperatorCallBinder:
    """
    Binds one call.

    Args:
        source: The script, for error places.
        bind_relation: Binds a name after FROM.
        length_us_max: Longest time that may be named, or looked back on, microseconds.
    """

    source: Source
    bind_relation: Callable[[exp.Table], Relation]
    length_us_max: int

    def bind(self, table: exp.Table) -> Custom:
        """
        Return the rows that the operator gives.

        Raises:
            QueryError: There is none of that name, or what it is given will not do.
        """
        name, offset = ".".join(part.name for part in table.parts), offset_of(table)
        offered = BUILT_IN_OPERATORS.get(name.lower()) or find_operator(name)
        if offered is None:
            fix = suggest(name, (*BUILT_IN_OPERATORS, *operator_names()), "install the package that offers it")
            raise self.source.error(f"there is no operator {name}", code="FUNCTION", offset=offset, fix=fix)
        relation = self._input_relation(table, name, offered)
        scope = ScopeNames(self.source, [relation])
        nodes, words = self._separate_words(table.this.expressions[1:], name, offered)
        bound_arguments = list(self._arguments(nodes, name, offered, scope))
        exprs = [argument for argument in bound_arguments if not isinstance(argument, (Length, Literal))]
        layout = Layout.of([relation], [scope.whole_row(offset), *exprs] if relation.schema is not None else exprs)
        settled = [argument if isinstance(argument, Length) else layout.over_columns(argument) for argument in bound_arguments]
        rows, settled = self._with_members(layout.rows[0], settled)  # type: ignore[arg-type]
        columns = tuple(RowColumn(column.name, _kind_of(column)) for column in rows.columns)
        arguments = [self._argument(argument, name, offered, offset) for argument in settled]
        worded = arguments[len(arguments) - len(words) :]
        named = [
            NamedColumn(word, argument.index) for word, argument in zip(words, worded, strict=True) if isinstance(argument, ColumnArgument)
        ]
        arguments = [*arguments[: len(arguments) - len(words)], *named]
        columns_out, operator = self._make(offered, name, columns, arguments, offset)
        shown = tuple(_argument_text(argument, columns) for argument in arguments)
        return Custom(rows, name.lower(), shown, self._columns(columns_out, name, operator, columns, offset), operator)

    # What it takes

    def _input_relation(self, table: exp.Table, name: str, offered: OperatorExtension) -> Relation:
        first = next(iter(table.this.expressions), None)
        if not isinstance(first, exp.Column) or first.find(exp.Star):
            offset = offset_of(table)
            message = f"{name} takes the name of a step or an input first"
            raise self.source.error(
                message, code="FUNCTION", offset=offset, fix="put what it works on into a step", example=offered.example
            )
        relation = self.bind_relation(named_table(table))
        if isinstance(relation.rows, Reference):
            message = f"{relation.name} is reference data, and {name} needs a stream"
            raise self.source.error(message, code="INPUT", offset=offset_of(first), fix="name a step or an input")
        return relation

    def _separate_words(self, nodes: Sequence[exp.Expr], name: str, offered: OperatorExtension) -> tuple[list[exp.Expr], list[str]]:
        """Return the arguments, columns that are given by words last, and these words."""
        words: dict[str, exp.Expr] = {}
        others = []
        for node in nodes:
            if isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) and offered.named_columns:
                word = self._word(node, name, offered)
                if word in words:
                    message = f"{name} is given {word} twice"
                    raise self.source.error(message, code="FUNCTION", offset=offset_of(node), fix="leave one out", example=offered.example)
                words[word] = node.expression
            else:
                others.append(node)
        return [*others, *words.values()], list(words)

    def _word(self, node: exp.EQ, name: str, offered: OperatorExtension) -> str:
        word, offset = str(node.this.name).lower(), offset_of(node)
        if len(node.this.parts) > 1 or word not in offered.named_columns:
            fix = suggest(word, offered.named_columns, f"columns are given to it as {', '.join(offered.named_columns)}")
            example = f"{nearest(word, offered.named_columns) or offered.named_columns[0]} = column"
            raise self.source.error(f"{name} takes nothing as {node.this.name}", code="FUNCTION", offset=offset, fix=fix, example=example)
        if not isinstance(node.expression, exp.Column):
            fix = "name one, and compute it in a step where there is none"
            raise self.source.error(f"{name} takes a column as {word}", code="FUNCTION", offset=offset, fix=fix, example=f"{word} = column")
        return word

    def _arguments(self, nodes: Sequence[exp.Expr], name: str, offered: OperatorExtension, scope: ScopeNames) -> Iterator[_BoundArgument]:
        remaining = list(nodes)
        while remaining:
            node = remaining.pop(0)
            if remaining and _is_unit(node) and _is_number(remaining[0]):
                yield self._length(node, remaining.pop(0), name, offered)
            elif isinstance(node, (exp.Column, exp.Literal, exp.National, exp.Neg, exp.Null, exp.Boolean)):
                yield ScalarBinder(self.source, scope).bind(node, aggregates="FROM")
            else:
                raise self._unfit(name, offered, offset_of(node))

    def _length(self, unit: exp.Expr, number: exp.Expr, name: str, offered: OperatorExtension) -> Length:
        us = UNITS_US[unit.name.lower()] * int(number.name)
        if not 0 < us <= self.length_us_max:
            least = "above 0" if us <= 0 else f"of {format_duration(self.length_us_max)} at most"
            fix = "give a positive number" if us <= 0 else "shorten it, or raise query.window_max in the settings"
            message = f"{name} takes lengths of time {least}"
            raise self.source.error(message, code="WINDOW", offset=offset_of(unit), fix=fix, example=offered.example)
        return Length(us)

    def _with_members(self, rows: Rows, bound_arguments: Sequence[_BoundArgument]) -> tuple[Rows, list[_BoundArgument]]:
        """Add a column to the rows for each argument that is a member of a record, a star's above all."""
        members = list(dict.fromkeys(argument for argument in bound_arguments if not isinstance(argument, Length) and _path(argument)))
        names_in_use = {column.name.lower() for column in rows.columns}
        members = [argument for argument in members if _path(argument).lower() not in names_in_use]
        if not members:
            return rows, list(bound_arguments)
        own_columns = tuple(Column(column.name, slot(rows, place)) for place, column in enumerate(rows.columns))
        added = Project(rows, (*own_columns, *(Column(_path(argument), argument) for argument in members)))
        places = {argument: slot(added, len(own_columns) + index) for index, argument in enumerate(members)}
        return added, [argument if isinstance(argument, Length) else places.get(argument, argument) for argument in bound_arguments]

    def _argument(self, bound_argument: _BoundArgument, name: str, offered: OperatorExtension, offset: int) -> Argument:
        if isinstance(bound_argument, Length):
            return bound_argument
        if isinstance(bound_argument, Literal):
            return bound_argument.value
        if not isinstance(bound_argument, Slot):
            raise self._unfit(name, offered, bound_argument.offset if bound_argument.offset >= 0 else offset)
        return ColumnArgument(bound_argument.index)

    def _unfit(self, name: str, offered: OperatorExtension, offset: int) -> Exception:
        message, fix = f"{name} takes columns, constants, and lengths of time", "compute it in a step, and name its column"
        return self.source.error(message, code="FUNCTION", offset=offset, fix=fix, example=offered.example)

    # What it gives

    def _make(
        self, offered: OperatorExtension, name: str, columns: Sequence[RowColumn], arguments: Sequence[Argument], offset: int
    ) -> tuple[Sequence[RowColumn], Operator]:
        try:
            columns_out, operator = offered.make(columns, arguments)
        except ValueError as problem:
            raise self.source.error(str(problem), code="FUNCTION", offset=offset, fix="call it as shown", example=offered.example) from None
        except Exception as error:  # a package's mistake must show where it was met
            raise self._useless(name, f"making it raised {type(error).__name__}: {error}", offset) from error
        if not isinstance(operator, Operator):
            raise self._useless(name, f"it is a {type(operator).__name__}, not an Operator", offset)
        if operator.reach_us > self.length_us_max:
            message = f"{name} looks {format_duration(operator.reach_us)} back, longer than {format_duration(self.length_us_max)}"
            fix = "shorten it, or raise query.window_max in the settings"
            raise self.source.error(message, code="WINDOW", offset=offset, fix=fix)
        if operator.reach_us < 0 or operator.sides != 1:
            raise self._useless(name, f"it says reach_us {operator.reach_us} and sides {operator.sides}", offset)
        return columns_out, operator

    def _columns(
        self, columns_out: Sequence[RowColumn], name: str, operator: Operator, input_columns: Sequence[RowColumn], offset: int
    ) -> tuple[Column, ...]:
        """Return what it gives as columns of a plan."""
        spelled = [column.name.lower() for column in columns_out]
        unknown = [column.kind for column in columns_out if column.kind != ANY and column.kind.lower() not in DECLARABLE]
        if not columns_out or len(set(spelled)) < len(spelled) or unknown:
            raise self._useless(
                name, f"it says that it gives {', '.join(f'{column.name} {column.kind}' for column in columns_out) or 'no columns'}", offset
            )
        if operator.keeps_columns and tuple(columns_out[: len(input_columns)]) != tuple(input_columns):
            raise self._useless(name, "it says that it passes columns on, and does not begin with them", offset)
        return tuple(
            Column(column.name, Slot(place, column.name, DECLARABLE.get(column.kind.lower()))) for place, column in enumerate(columns_out)
        )

    def _useless(self, name: str, why: str, offset: int) -> Exception:
        fix = "mend or remove the package that offers it"
        return self.source.error(f"the operator {name} cannot be used: {why}", code="EXTENSION", offset=offset, fix=fix)


def _path(expr: Expr) -> str:
    """Return the path of a member of a record, converted to its declared type or not; empty for all else."""
    inner = expr.arg if isinstance(expr, Cast) and expr.declared else expr
    return ".".join(inner.path) if isinstance(inner, Property) and isinstance(inner.arg, Slot) else ""


def _is_unit(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) != 1:
        return False
    return not node.parts[0].args.get("quoted") and node.name.lower() in UNITS_US


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit() and len(str(node.this)) <= 18


def _kind_of(column: Column) -> str:
    return type_name(static_kind(column.expr))


def _argument_text(argument: Argument, columns: Sequence[RowColumn]) -> str:
    """Write an argument as a script does."""
    if isinstance(argument, Length):
        return format_duration(argument.us)
    if isinstance(argument, ColumnArgument):
        return columns[argument.index].name
    if isinstance(argument, NamedColumn):
        return f"{argument.name} = {columns[argument.index].name}"
    return "NULL" if argument is None else repr(argument)
