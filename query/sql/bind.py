"""
Binding: trees -> plans, with every name resolved or refused.

A script has steps (WITH) and one or more SELECT ... INTO; each SELECT becomes a plan. Plans that use the same step share its nodes, so the
step is computed once. A construct of Stream Analytics that is missing here is refused as "not supported yet".

Statements that write INTO one output are one plan, a union: rows of one instant come in the order of the statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from query.columns.splicing import STAR
from query.plan.nodes import Column, Node, Plan, Project, Rows, Union
from query.sql.scopes import slot
from query.sql.select_statement import SelectBinder
from query.sql.windows.group_by import WINDOW_EXAMPLE
from query.sql.windows.window_functions import WINDOW_US_MAX
from tidegate.language.expressions.binding.declarations import apply_declarations
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import Source, offset_of
from tidegate.language.expressions.syntax.parse import Script
from tidegate.language.expressions.tree import Literal, Slot

# The output of a statement without INTO, as in Stream Analytics.
DEFAULT_OUTPUT = "output"
# Most operators in the plan of one statement.
OPERATORS_MAX = 400
# Deepest chain of operators.
OPERATORS_DEPTH_MAX = 100


def bind_script(script: Script, inputs: Sequence[InputSchema], *, into: str | None = None, window_us_max: int = WINDOW_US_MAX) -> Plan:
    """
    Bind a script of one output to the configured inputs.

    *into* is the output of a statement without INTO, by default ``output``. Raises QueryError: the script is wrong; with file, line, column
    and fix.
    """
    plans = bind_outputs(script, inputs, into=into, window_us_max=window_us_max)
    if len(plans) == 1:
        return plans[0]
    offset = offset_of(script.statements[1])
    raise script.source.not_yet(offset, "a second output is", fix="run each SELECT as its own query")


def bind_outputs(
    script: Script, inputs: Sequence[InputSchema], *, into: str | None = None, window_us_max: int = WINDOW_US_MAX
) -> tuple[Plan, ...]:
    """Bind a script; return a plan for each of its outputs, in the order of their first statements. See :func:`bind_script`."""
    inputs = apply_declarations(script.source, script.declarations, inputs)
    binding = _ScriptBinder(script.source, inputs, into, window_us_max, all(map(_into_of, script.statements)))
    written = [_written_name(statement) for statement in script.statements]
    roots: dict[str, list[Rows]] = {}
    for statement, name in zip(script.statements, written, strict=True):
        plan = binding.statement(statement, is_side=name is not None and written.count(name) > 1)
        if name is None and plan.output in roots:
            fix, example = "name another output, or name this one in both", f"SELECT ... INTO {plan.output} FROM a"
            raise script.source.error("OUTPUT", statement, f"two statements write INTO {plan.output}", fix=fix, example=example)
        roots.setdefault(plan.output, []).append(plan.root)
        if len(roots[plan.output]) > 1 and len({STAR in map(_name_of, root.columns) for root in roots[plan.output]}) > 1:
            message = f"a statement with * and one without write INTO {plan.output}"
            fix, example = (
                "name the columns in both, or select * in both",
                f"SELECT k INTO {plan.output} FROM a SELECT k INTO {plan.output} FROM b",
            )
            raise script.source.error("OUTPUT", statement, message, fix=fix, example=example)
    return tuple(Plan(parts[0] if len(parts) == 1 else _unite(parts), output) for output, parts in roots.items())


def _unite(parts: Sequence[Rows]) -> Union:
    """Return the rows of all parts, with the columns of each in the order of their first mention; NULL for those that a part lacks."""
    names: dict[str, str] = {}
    for part in parts:
        for column in part.columns:
            names.setdefault(column.name.lower(), column.name)
    sides = tuple(part if [*map(_name_of, part.columns)] == [*names.values()] else _lay_out(part, names) for part in parts)
    columns = []
    for place, name in enumerate(names.values()):
        kinds = {static_kind(side.columns[place].expr) for side in sides} - {Kind.NULL}
        columns.append(Column(name, Slot(place, name, kinds.pop() if len(kinds) == 1 else None)))
    return Union(sides, tuple(columns))


def _lay_out(part: Rows, names: Mapping[str, str]) -> Project:
    places = {column.name.lower(): place for place, column in enumerate(part.columns)}
    exprs = (slot(part, places[folded]) if folded in places else Literal(None, Kind.NULL) for folded in names)
    return Project(part, tuple(Column(name, expr) for name, expr in zip(names.values(), exprs, strict=True)))


def _name_of(column: Column) -> str:
    return column.name


def _written_name(statement: exp.Expr) -> str | None:
    """Return the output that a statement names by INTO; None if it names none."""
    into = _into_of(statement) if isinstance(statement, (exp.Select, exp.SetOperation)) else None
    return ".".join(part.name for part in into.this.parts) if into is not None and isinstance(into.this, exp.Table) else None


@dataclass
class _ScriptBinder:
    source: Source
    inputs: Sequence[InputSchema]
    into: str | None
    window_us_max: int
    # Whether each statement has an INTO of its own.
    names_outputs: bool
    steps: dict[str, tuple[str, Rows]] = field(default_factory=dict)
    # Number and depth of the operators under each node, by the node's identity: comparing nodes by contents walks all operators below.
    _sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    # These nodes, kept so that no other node gets the identity of one.
    _counted: list[Node] = field(default_factory=list)

    def statement(self, statement: exp.Expr, *, is_side: bool = False) -> Plan:
        if not isinstance(statement, (exp.Select, exp.SetOperation)):
            fix, example = "write SELECT ... INTO output FROM input", f"SELECT ... {WINDOW_EXAMPLE}"
            raise self.source.error("SYNTAX", statement, "a script is a SELECT statement", fix=fix, example=example)
        self._add_steps(statement)
        output = self._output(statement)
        return Plan(self._rows(statement, is_result=True, is_side=is_side), output)

    def _rows(self, query: exp.Expr, *, is_result: bool = False, is_side: bool = False) -> Rows:
        rows = SelectBinder(self.source, self.inputs, self.steps, self.window_us_max, is_side, is_result).bind(query)
        count, depth = self._size(rows)
        if count > OPERATORS_MAX or depth > OPERATORS_DEPTH_MAX:
            message = f"more than {OPERATORS_MAX} operators, with each step in all places where it is read"
            if depth > OPERATORS_DEPTH_MAX:
                message = f"more than {OPERATORS_DEPTH_MAX} operators one above the other"
            raise self.source.error("SIZE", query, message, fix="run some of the steps as a query of their own, and read its output")
        return rows

    def _size(self, node: Node) -> tuple[int, int]:
        """Return the number of operators under a node (a shared node counts for each reader), and their depth."""
        size = self._sizes.get(id(node))
        if size is None:
            child_sizes = [self._size(child) for child in node.children]
            size = 1 + sum(count for count, _ in child_sizes), 1 + max((depth for _, depth in child_sizes), default=0)
            self._sizes[id(node)] = size
            self._counted.append(node)
        return size

    def _add_steps(self, statement: exp.Expr) -> None:
        clause = statement.args.get("with_")
        for step in clause.expressions if clause else []:
            name, offset = str(step.alias), offset_of(step)
            # A step may have the name of an output: then the name means the step.
            names_in_use = [schema.name for schema in self.inputs if not schema.is_result] + [known for known, _ in self.steps.values()]
            if name.lower() in map(str.lower, names_in_use):
                raise self.source.error("NAME", offset, f"there is already an input or step {name}", fix="give the step another name")
            if step.this.find(exp.Into):
                raise self.source.error("OUTPUT", step.this, f"step {name} has an INTO", fix="write INTO in the statements after the steps")
            outer = dict(self.steps)
            # Steps within a step are known in that step only.
            self._add_steps(step.this)
            self.steps = {**outer, name.lower(): (name, self._rows(step.this))}

    def _output(self, statement: exp.Expr) -> str:
        into = _into_of(statement)
        if (second := next((into_clause for into_clause in statement.find_all(exp.Into) if into_clause is not into), None)) is not None:
            message, fix = "INTO in a later SELECT of a UNION", "write INTO once, in the first SELECT; for two outputs write two statements"
            if second.find_ancestor(exp.From, exp.Join):
                message, fix = "INTO in a subquery", "write INTO in the outermost SELECT"
            raise self.source.error("OUTPUT", second, message, fix=fix)
        if into is None:
            return self.into or DEFAULT_OUTPUT
        if not isinstance(into.this, exp.Table):
            raise self.source.error("OUTPUT", into, "INTO names no output", fix="write one name after INTO", example="INTO out")
        name = ".".join(part.name for part in into.this.parts)
        if self.names_outputs and self.into not in (None, name):
            raise self.source.error("OUTPUT", into, f"INTO {name} contradicts --into {self.into}", fix="give the name once")
        return name


def _into_of(statement: exp.Expr) -> exp.Into | None:
    while isinstance(statement, exp.SetOperation):
        statement = statement.this
    return statement.args.get("into")
