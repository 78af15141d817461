"""
Binding of one SELECT, or of several joined by UNION -> the node of the plan that gives its rows.

Expressions are bound over the names of all relations first; only then is it settled what is computed below them
(:mod:`query.sql.layout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from query.operators.windows import AnyWindow, Several
from query.plan import Column, Filter, Project, Rows, Scan, Union, WindowedAggregate, scan_of
from query.sql.grouping import WINDOW_EXAMPLE, Grouping, Lifting
from query.sql.layout import Layout
from query.sql.reading import Reading, spelled_name
from query.sql.scopes import Relation, ScopeNames
from query.sql.windowing import WINDOW_US_MAX
from tidegate.runtime.scalars.bind import ScalarBinder
from tidegate.runtime.scalars.catalog import InputSchema
from tidegate.runtime.scalars.dialect import OVER, TIMESTAMP_BY
from tidegate.runtime.scalars.errors import Source
from tidegate.runtime.scalars.evaluate import static_kind
from tidegate.runtime.scalars.expressions import Aggregate, Expr, Slot, WindowId
from tidegate.runtime.scalars.parse import offset_of

_CLAUSES = frozenset({"expressions", "into", "from_", "where", "group", "having", "with_", "kind"})
_CLAUSE_NAMES = {"joins": "JOIN", "distinct": "DISTINCT", "limit": "TOP", "order": "ORDER BY", "laterals": "APPLY"}


@dataclass(frozen=True)
class Selecting:
    """
    Args:
        source: The script, for error places.
        inputs: The inputs it may read.
        steps: The steps it may read, by name in lower case.
        window_us_max: Longest window accepted, in microseconds.
    """

    source: Source
    inputs: Sequence[InputSchema]
    steps: Mapping[str, tuple[str, Rows]]
    window_us_max: int = WINDOW_US_MAX

    def rows(self, query: exp.Expr) -> Rows:
        """
        Bind a query.

        Raises:
            QueryError: Something in it is wrong.
        """
        query = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.Union):
            return self._union(query)
        if not isinstance(query, exp.Select):
            raise self.source.not_yet(f"{query.key.upper()} is", at=offset_of(query))
        return self._select(query)

    # UNION

    def _union(self, union: exp.Union) -> Rows:
        parts = tuple(self.rows(side) for side in _sides(union))
        first = parts[0].columns
        for part, side in zip(parts, _sides(union), strict=True):
            if len(part.columns) != len(first):
                raise self.source.error(
                    f"UNION of {len(first) or 'all'} and {len(part.columns) or 'all'} columns",
                    code="TYPE",
                    at=offset_of(side),
                    fix="select as many columns on each side, in the same order",
                )
        columns = []
        for place, column in enumerate(first):
            kinds = {static_kind(part.columns[place].expr) for part in parts}
            columns.append(Column(column.name, Slot(place, column.name, kinds.pop() if len(kinds) == 1 else None)))
        return Union(parts, tuple(columns))

    # SELECT

    def _select(self, select: exp.Select) -> Rows:
        self._refuse_other_clauses(select)
        relations = self._relations(select)
        bound = self._bound(select, relations)
        layout = Layout.alone(relations[0])
        settled = bound.over(layout)
        child = layout.rows[0]
        if settled.where:
            child = Filter(child, settled.where)
        if settled.group is not None:
            return self._grouped(settled, child)
        return Project(child, settled.columns)

    def _bound(self, select: exp.Select, relations: Sequence[Relation]) -> _Bound:
        """Bind every expression over the names of the relations."""
        binder = ScalarBinder(self.source, ScopeNames(self.source, relations))
        where, having, group = (select.args.get(name) for name in ("where", "having", "group"))
        condition = binder.condition(where.this, "WHERE") if where else None
        if group:
            window, keys = Grouping(self.source, self.window_us_max).bind(group, binder)
            if len(select.expressions) == 1 and isinstance(star := select.expressions[0], exp.Star):
                fix = "name the keys and aggregates"
                raise self.source.error("* cannot be selected from groups", code="GROUP", at=offset_of(star), fix=fix)
            chosen = self._chosen(select, binder, [])
            return _Bound(condition, group, window, keys, chosen, binder.condition(having.this, "HAVING") if having else None)
        if having:
            raise self.source.error(
                "HAVING needs GROUP BY", code="GROUP", at=offset_of(having), fix="use WHERE, or group", example=WINDOW_EXAMPLE
            )
        return _Bound(condition, None, None, (), self._single(select, binder, relations), None)

    def _refuse_other_clauses(self, select: exp.Select) -> None:
        for name, value in select.args.items():
            if value and name not in _CLAUSES:
                nodes = value if isinstance(value, list) else [value]
                at = next((at for node in nodes if isinstance(node, exp.Expr) and (at := offset_of(node)) >= 0), offset_of(select))
                raise self.source.not_yet(f"{_CLAUSE_NAMES.get(name, name.strip('_').upper())} is", at=at)

    # FROM

    def _relations(self, select: exp.Select) -> list[Relation]:
        clause = select.args.get("from_")
        table = clause.this if clause else None
        if table is None:
            raise self.source.error("SELECT needs FROM", code="INPUT", at=offset_of(select), fix="name an input", example="FROM flights")
        return [self._relation(table)]

    def _relation(self, table: exp.Expr) -> Relation:
        if not isinstance(table, exp.Table):
            raise self.source.not_yet("FROM with a subquery is", at=offset_of(table))
        if table.args.get("joins"):
            raise self.source.not_yet("JOIN is", at=offset_of(table.args["joins"][0]))
        for name in ("pivots", "hints", "sample", "version", "laterals", "when"):
            if table.args.get(name):
                raise self.source.not_yet(f"{name} after an input is", at=offset_of(table))
        spelled = spelled_name(table)
        names = frozenset(name.lower() for name in (spelled, table.alias) if name)
        if spelled.lower() in self.steps:
            return self._step(table, names)
        reading = Reading(self.source, self.inputs)
        schema = reading.schema(table, [name for name, _ in self.steps.values()])
        names |= {schema.name.lower()}
        return Relation(table.alias or schema.name, names, reading.scan(table, schema, names), schema)

    def _step(self, table: exp.Table, names: frozenset[str]) -> Relation:
        for clause in (TIMESTAMP_BY, OVER):
            if table.args.get(clause):
                raise self.source.error(
                    f"{table.name} is a step: its time and substreams are those of its inputs",
                    code="TIMESTAMP",
                    at=offset_of(table),
                    fix="write TIMESTAMP BY and OVER where the step names the input",
                )
        name, step = self.steps[table.name.lower()]
        scan = scan_of(step) if isinstance(step, Project) and not step.columns else None
        if scan is None or not isinstance(step, Project):
            return Relation(table.alias or name, names, step)
        # SELECT * of an input: its events pass as they are, and whatever fields they have can be asked for.
        schema = next(schema for schema in self.inputs if schema.name == scan.input)
        return Relation(table.alias or name, names, step.child, schema)

    # SELECT and GROUP BY

    def _single(self, select: exp.Select, binder: ScalarBinder, relations: Sequence[Relation]) -> tuple[Column, ...]:
        """Bind the columns of a SELECT whose results are single rows; none for whole payloads."""
        if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star) and relations[0].schema is not None:
            return ()
        chosen = self._chosen(select, binder, relations)
        found = next((part for column in chosen for part in column.expr.walk() if isinstance(part, (Aggregate, WindowId))), None)
        if found:
            raise self.source.error(
                f"{found} needs a window: a stream has no end",
                code="GROUP",
                at=found.at,
                fix="add GROUP BY with a window",
                example=WINDOW_EXAMPLE,
            )
        return chosen

    def _chosen(self, select: exp.Select, binder: ScalarBinder, relations: Sequence[Relation]) -> tuple[Column, ...]:
        """Bind the columns of SELECT; ``*`` stands for the columns of *relations*."""
        chosen: dict[str, Expr] = {}

        def choose(name: str, expr: Expr, node: exp.Expr) -> None:
            if name.lower() in {other.lower() for other in chosen}:
                fix = f"rename it with AS, e.g. AS {name}_{len(chosen) + 1}"
                raise self.source.error(f"two columns are named {name}", code="NAME", at=offset_of(node), fix=fix)
            chosen[name] = expr

        for number, node in enumerate(select.expressions, start=1):
            if isinstance(node, exp.Star) and len(relations) == 1 and relations[0].schema is None:
                for name, expr in relations[0].everything(0):
                    choose(name, expr, node)
            else:
                choose(_name(node, number), binder.bind(node.this if isinstance(node, exp.Alias) else node), node)
        return tuple(Column(name, expr) for name, expr in chosen.items())

    def _grouped(self, bound: _Bound, child: Scan | Filter | Rows) -> WindowedAggregate:
        assert bound.group is not None
        assert bound.window is not None
        everything = [*(column.expr for column in bound.columns), *([bound.having] if bound.having else [])]
        totals = tuple(dict.fromkeys(part for expr in everything for part in expr.walk() if isinstance(part, Aggregate)))
        lifting = Lifting(self.source, bound.keys, totals)
        scan = scan_of(child) if isinstance(child, Filter) else child
        return WindowedAggregate(
            child,
            bound.window,
            bound.keys,
            totals,
            lifting.lift(bound.having) if bound.having else None,
            tuple(Column(column.name, lifting.lift(column.expr)) for column in bound.columns),
            self._over_key(scan.over if isinstance(scan, Scan) else None, bound.keys, bound.group),
        )

    def _over_key(self, over: Expr | None, keys: tuple[Expr, ...], group: exp.Expr) -> int | None:
        if over is None:
            return None
        if over not in keys:
            raise self.source.error(
                f"with OVER {over} the grouping keys must include {over}",
                code="OVER",
                at=offset_of(group),
                fix=f"add {over} to GROUP BY, or leave OVER out",
                example=f"GROUP BY {over}, TumblingWindow(hour, 1)",
            )
        return keys.index(over)


@dataclass(frozen=True)
class _Bound:
    """The expressions of one SELECT: first over the names of its relations, then over the rows below."""

    where: Expr | None
    group: exp.Expr | None
    window: AnyWindow | Several | None
    keys: tuple[Expr, ...]
    columns: tuple[Column, ...]
    having: Expr | None

    def over(self, layout: Layout) -> _Bound:
        """Return the expressions over the rows of a layout."""
        return replace(
            self,
            where=layout.settled(self.where) if self.where else None,
            keys=tuple(map(layout.settled, self.keys)),
            columns=tuple(Column(column.name, layout.settled(column.expr)) for column in self.columns),
            having=layout.settled(self.having) if self.having else None,
        )


def _sides(union: exp.Union) -> list[exp.Expr]:
    """Return what a chain of UNIONs puts together, in the order of the script."""
    sides: list[exp.Expr] = []
    node: exp.Expr = union
    while isinstance(node, exp.Union):
        sides.append(node.expression)
        node = node.this
    return [node, *reversed(sides)]


def _name(node: exp.Expr, number: int) -> str:
    """Return the name of an output column: its alias, else the field's or function's own, else Column and its number."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    inner = node.expression if isinstance(node, exp.Dot) else node
    if isinstance(inner, (exp.Column, exp.Identifier, exp.Anonymous)) and inner.name:
        return str(inner.name)
    return f"Column{number}"
