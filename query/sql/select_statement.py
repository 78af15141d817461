"""
Binding of one SELECT, or of several joined by UNION -> the plan node of its rows.

All expressions are bound over the names of the relations first. They determine the columns that the rows below must have
(:mod:`query.sql.column_layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from query.columns.splicing import STAR
from query.plan.nodes import Analyze, Column, Custom, Filter, Project, Rows, Scan, Union, WindowedAggregate, scan_of, source_of
from query.plan.windows import AnyWindow, WindowSet
from query.sql.analytic_columns import analytics_of, over_columns, refuse_long
from query.sql.column_layout import Layout
from query.sql.cross_apply import bind_applies
from query.sql.input_clauses import InputBinder, spelled_name
from query.sql.join_on import OnBinder, joins_of, name_sides
from query.sql.match_recognize import MatchBinder
from query.sql.misused_names import clauses_over_rows, names_meant_as_texts, refuse_new_names_in_where
from query.sql.operator_calls import bind_operator_call
from query.sql.partition_by import PartitionKeys
from query.sql.scopes import Relation, ScopeNames, first_table, of_relation
from query.sql.select_list import SelectListBinder
from query.sql.top import STEP, TOP_EXAMPLE, has_top, rewrite_top, without_top
from query.sql.windows.group_by import WINDOW_EXAMPLE, GroupByBinder, GroupedExpressions
from query.sql.windows.window_functions import WINDOW_US_MAX
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.local_times import as_column, zone_of
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.functions.catalog import WINDOWS
from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS
from tidegate.language.expressions.syntax.dialect import OVER, TIMESTAMP_BY
from tidegate.language.expressions.syntax.errors import Source, offset_of
from tidegate.language.expressions.tree import Aggregate, Call, Expr, Payload, Slot, WindowId, keys_of

_CLAUSES = frozenset({"expressions", "into", "from_", "joins", "where", "group", "having", "with_", "kind"})
_CLAUSE_NAMES = {"distinct": "DISTINCT", "limit": "LIMIT", "order": "ORDER BY", "laterals": "APPLY"}
_FIRST_ROWS = "a stream has no end: take the first ones of each window", TOP_EXAMPLE
# The fix for an unsupported clause, and an example.
_INSTEAD = {
    "LIMIT": _FIRST_ROWS,
    "FETCH": _FIRST_ROWS,
    "ORDER BY": ("leave it out: rows come in the order of time; take the first ones of a window by TOP", TOP_EXAMPLE),
    "QUALIFY": (
        "compute the value in a step, and put the condition into WHERE of the next",
        "WITH s AS (SELECT k, ISFIRST(hour, 1) OVER (PARTITION BY k) AS is_first FROM a) SELECT k INTO out FROM s WHERE is_first = 1",
    ),
    "DISTINCT": ("group by the columns, in a window", WINDOW_EXAMPLE),
}


@dataclass(frozen=True)
class SelectBinder:
    """Binds SELECTs; *steps* are the readable steps, by name in lower case."""

    source: Source
    inputs: Sequence[InputSchema]
    steps: Mapping[str, tuple[str, Rows]]
    window_us_max: int = WINDOW_US_MAX
    # Whether the SELECT is a side of a UNION: its star is then a column, since payloads of several inputs are no rows of one kind.
    is_side: bool = False
    # Whether the rows are results, in which local times are texts; those of steps keep their zones.
    is_result: bool = False

    def bind(self, query: exp.Expr) -> Rows:
        query = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.Union):
            return self._union(query)
        if not isinstance(query, exp.Select):
            kept = "IS NULL" if isinstance(query, exp.Except) else "IS NOT NULL"
            fix = f"write a LEFT JOIN of the two, with the time between them, WHERE the right side {kept}"
            raise self.source.not_yet(query, f"{query.key.upper()} is", fix=fix)
        return self._select(query)

    # UNION

    def _union(self, union: exp.Union) -> Rows:
        binder = replace(self, is_side=True)
        parts = tuple(binder.bind(side) for side in _sides(union))
        first = parts[0].columns
        for part, side in zip(parts, _sides(union), strict=True):
            self._refuse_local_times(part, side)
            if _stars(part) != _stars(parts[0]):
                message = f"UNION of {_width(parts[0])} and {_width(part)} columns"
                raise self.source.error("TYPE", side, message, fix="select as many columns on each side, in the same order")
        columns = []
        for place, column in enumerate(first):
            kinds = {static_kind(part.columns[place].expr) for part in parts}
            columns.append(Column(column.name, Slot(place, column.name, kinds.pop() if len(kinds) == 1 else None)))
        return Union(parts, tuple(columns))

    def _refuse_local_times(self, part: Rows, side: exp.Expr) -> None:
        local = next((column for column in part.columns if zone_of(column.expr) is not None), None)
        if local is not None:
            message = f"{local.name} is a local time, and the columns of a UNION in a step have no zones"
            fix = "leave AT TIME ZONE to the SELECT that reads the step, or make it a text by CAST(... AS nvarchar(max))"
            raise self.source.error("ZONE", side, message, fix=fix)

    # SELECT

    def _select(self, select: exp.Select) -> Rows:
        if has_top(select, self.source):
            rows = replace(self, is_result=False)._select(without_top(select))
            over_rows = replace(self, steps={**self.steps, STEP.lower(): (STEP, rows)})
            return over_rows.bind(rewrite_top(select, rows, self.source))
        self._refuse_other_clauses(select)
        joins = joins_of(select, self.source)
        tables = self._tables(select, joins)
        relations = name_sides([self._relation(table) for table in tables], joins, self.source, offset_of(tables[0]))
        joining = OnBinder(self.source, self.window_us_max).bind(joins, relations)
        applying = bind_applies(select, relations, self.source)
        bound = self._bind_expressions(select, [*relations, *applying.relations])
        looking_back = analytics_of(bound.exprs)
        if joins or looking_back or bound.window is not None:
            partition_keys = PartitionKeys.of(tables, relations, self.source)
            partition_keys.check_joins(joining.on_conditions)
            partition_keys.check_analytics(looking_back)
            if bound.window is not None:
                partition_keys.check_groups(bound.keys, bound.window)
        # These operators take rows of columns; without them the expressions read the only relation as it is.
        needs_columns = joins or applying.clauses or looking_back
        named = [*bound.exprs, *joining.exprs, *applying.exprs]
        layout = Layout.of([*joining.relations, *applying.relations], named) if needs_columns else Layout.of_one(relations[0])
        settled = bound.transform(layout.over_columns)
        child = joining.rows(layout.first_relations(len(relations))) if joins else layout.rows[0]
        if applying.clauses:
            assert not isinstance(child, (Scan, Filter))
            child = applying.rows(child, layout)
        if looking_back:
            child, settled = self._add_analytic_columns(child, settled)
        if settled.where:
            child = Filter(child, settled.where)
        if settled.group is not None:
            return self._windowed_aggregate(settled, child, self._over(relations, layout))
        return Project(child, self._shown(settled.columns))

    def _add_analytic_columns(self, child: Scan | Filter | Rows, bound: _BoundSelect) -> tuple[Rows, _BoundSelect]:
        analytics = analytics_of(bound.exprs)
        refuse_long(analytics, self.source, self.window_us_max)
        assert not isinstance(child, (Scan, Filter))
        analyzed = Analyze(child, analytics)
        return analyzed, bound.transform(over_columns(analyzed))

    def _bind_expressions(self, select: exp.Select, relations: Sequence[Relation]) -> _BoundSelect:
        refuse_new_names_in_where(select, relations, self.source)
        texts = names_meant_as_texts(clauses_over_rows(select), relations, self.source)
        binder = ScalarBinder(self.source, ScopeNames(self.source, relations, texts))
        where, having, group = (select.args.get(name) for name in ("where", "having", "group"))
        condition = binder.bind_condition(where.this, "WHERE") if where else None
        if group:
            window, keys = GroupByBinder(self.source, self.window_us_max).bind(group, binder)
            chosen = SelectListBinder(self.source, binder, relations).bind(select, grouped=True)
            over_groups = ScalarBinder(self.source, binder.names, _aliases(chosen, keys))
            group_condition = over_groups.bind_condition(having.this, "HAVING") if having else None
            return _BoundSelect(condition, group, window, keys, chosen, group_condition)
        conditions = [condition] if condition is not None else []
        chosen = self._ungrouped_columns(select, binder, relations, looks_back=bool(analytics_of(conditions)))
        if having:
            # The columns are bound before HAVING, which uses their names, and again after it: if it looks back, SELECT * has columns.
            conditions.append(self._having_of_rows(having, ScalarBinder(self.source, binder.names, _aliases(chosen, ()))))
            condition = conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), offset=conditions[0].offset)
            chosen = self._ungrouped_columns(select, binder, relations, looks_back=bool(analytics_of(conditions)))
        return _BoundSelect(condition, None, None, (), chosen, None)

    def _having_of_rows(self, having: exp.Expr, binder: ScalarBinder) -> Expr:
        """Bind HAVING without GROUP BY, which is a second WHERE that may use the names of SELECT."""
        condition = binder.bind_condition(having.this, "HAVING")
        if any(isinstance(part, (Aggregate, WindowId)) for part in condition.walk()):
            message, fix = "HAVING of an aggregate needs GROUP BY", "use WHERE, or group"
            raise self.source.error("GROUP", having, message, fix=fix, example=WINDOW_EXAMPLE)
        return condition

    def _refuse_other_clauses(self, select: exp.Select) -> None:
        for name, value in select.args.items():
            if value and name not in _CLAUSES:
                offsets = [offset_of(node) for node in (value if isinstance(value, list) else [value]) if isinstance(node, exp.Expr)]
                offset = next((offset for offset in offsets if offset >= 0), offset_of(select))
                clause = _clause_name(name, value)
                fix, example = _INSTEAD.get(clause, ("", ""))
                raise self.source.not_yet(offset, f"{clause} is", fix=fix, example=example)

    # FROM

    def _tables(self, select: exp.Select, joins: Sequence[exp.Join]) -> list[exp.Expr]:
        table = first_table(select)
        if table is None:
            raise self.source.error("INPUT", select, "SELECT needs FROM", fix="name an input", example="FROM flights")
        return [table, *(join.this for join in joins)]

    def _relation(self, table: exp.Expr) -> Relation:
        if isinstance(table, exp.Subquery) and isinstance(table.this, (exp.Select, exp.SetOperation)):
            rows = replace(self, is_side=False, is_result=False).bind(table)
            return self._over_rows(table.alias or "subquery", frozenset({table.alias.lower()} - {""}), rows)
        if isinstance(table, exp.MatchRecognize):
            rows = MatchBinder(self.source, self.window_us_max).bind(table, self._relation(table.this))
            return Relation(table.alias or "match", frozenset({table.alias.lower()} - {""}), rows)
        if isinstance(table, exp.Unnest):
            fix, example = COUNTERPARTS["unnest"]
            raise self.source.error("FUNCTION", table, "there is no UNNEST", fix=fix, example=example)
        if not isinstance(table, exp.Table):
            fix, example = "write it as a step, and name that", "WITH s AS (SELECT ...) SELECT ... FROM s"
            raise self.source.not_yet(table, "FROM with a subquery is", fix=fix, example=example)
        for name in ("pivots", "hints", "sample", "version", "laterals", "when"):
            if table.args.get(name):
                if name == "version":
                    fix = "leave it out: of a table the version counts that is valid at the row's time"
                    raise self.source.error("SYNTAX", table, "FOR SYSTEM_TIME AS OF is not needed here", fix=fix)
                raise self.source.not_yet(table, f"{name} after an input is")
        alias = table.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            fix = f"write GROUP BY ..., {alias.name}(...)" if alias.name.lower() in WINDOWS else "leave the brackets out"
            raise self.source.error("SYNTAX", alias, f"{alias.name} after an input takes no brackets", fix=fix)
        if isinstance(table.this, exp.Anonymous):
            return self._operator_call(table)
        spelled = spelled_name(table)
        names = frozenset(name.lower() for name in (spelled, table.alias) if name)
        if spelled.lower() in self.steps:
            return self._step(table, names)
        reading = InputBinder(self.source, self.inputs)
        schema = reading.find_schema(table, [name for name, _ in self.steps.values()])
        names |= {schema.name.lower()}
        return Relation(table.alias or schema.name, names, reading.bind_rows(table, schema, names), schema)

    def _operator_call(self, table: exp.Table) -> Relation:
        custom = bind_operator_call(table, self.source, self._relation, self.window_us_max)
        names = frozenset(name.lower() for name in (custom.name, table.alias) if name)
        return Relation(table.alias or custom.name, names, custom, star=self._star(custom))

    def _step(self, table: exp.Table, names: frozenset[str]) -> Relation:
        for clause in (TIMESTAMP_BY, OVER):
            if table.args.get(clause):
                message = f"{table.name} is a step: its time and substreams are those of its inputs"
                raise self.source.error("TIMESTAMP", table, message, fix="write TIMESTAMP BY and OVER where the step names the input")
        name, step = self.steps[table.name.lower()]
        return self._over_rows(table.alias or name, names, step)

    def _over_rows(self, name: str, names: frozenset[str], step: Rows) -> Relation:
        scan = scan_of(step) if isinstance(step, Project) and not step.columns else None
        if scan is None or not isinstance(step, Project):
            return Relation(name, names, step, star=self._star(step))
        # The step is SELECT * of an input: its payloads pass unchanged, so every field of the input may be used.
        schema = next(schema for schema in self.inputs if schema.name == scan.input)
        return Relation(name, names, step.child, schema)

    def _star(self, step: Rows) -> InputSchema | None:
        star = next((column for column in step.columns if column.name == STAR), None)
        if star is None:
            return None
        if isinstance(step, Custom):
            return self._star(step.child) or InputSchema(STAR)
        scan = scan_of(step) if isinstance(step, Project) and isinstance(star.expr, Payload) else None
        if scan is not None:
            return next(schema for schema in self.inputs if schema.name == scan.input)
        below = source_of(step) if isinstance(step, Project) and isinstance(star.expr, Slot) else None
        return self._star(below) if isinstance(below, (Project, Custom)) else InputSchema(STAR)  # of a record nothing is known

    # SELECT and GROUP BY

    def _ungrouped_columns(
        self, select: exp.Select, binder: ScalarBinder, relations: Sequence[Relation], *, looks_back: bool
    ) -> tuple[Column, ...]:
        """Bind the columns of a SELECT without groups; return none for SELECT * of one input, whose payloads then pass unchanged."""
        is_star = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
        if is_star and len(relations) == 1 and relations[0].schema is not None and not looks_back and not self.is_side:
            return ()
        chosen = SelectListBinder(self.source, binder, relations).bind(select)
        group_part = next((part for column in chosen for part in column.expr.walk() if isinstance(part, (Aggregate, WindowId))), None)
        if group_part:
            message = f"{group_part} needs a window: a stream has no end"
            raise self.source.error("GROUP", group_part.offset, message, fix="add GROUP BY with a window", example=WINDOW_EXAMPLE)
        return chosen

    def _over(self, relations: Sequence[Relation], layout: Layout) -> Expr | None:
        """Return the substream key over the rows below; None without OVER, over steps and over joined rows."""
        if len(relations) > 1:
            return None
        rows = relations[0].rows
        scan = scan_of(rows) if isinstance(rows, Filter) else rows
        if not isinstance(scan, Scan) or scan.over is None:
            return None
        return layout.over_columns(of_relation(0, scan.over))

    def _windowed_aggregate(self, bound: _BoundSelect, child: Scan | Filter | Rows, over: Expr | None) -> WindowedAggregate:
        assert bound.group is not None
        assert bound.window is not None
        everything = [*(column.expr for column in bound.columns), *([bound.having] if bound.having else [])]
        totals = tuple(dict.fromkeys(part for expr in everything for part in expr.walk() if isinstance(part, Aggregate)))
        lifting = GroupedExpressions(self.source, bound.keys, totals)
        having = lifting.over_groups(bound.having) if bound.having else None
        columns = self._shown([Column(column.name, lifting.over_groups(column.expr, column.name)) for column in bound.columns])
        over_key = self._over_key(over, bound.keys, bound.group)
        return WindowedAggregate(child, bound.window, bound.keys, totals, having, columns, over_key)

    def _shown(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(Column(column.name, as_column(column.expr, is_result=self.is_result)) for column in columns)

    def _over_key(self, over: Expr | None, keys: tuple[Expr, ...], group: exp.Expr) -> tuple[int, ...] | None:
        if over is None:
            return None
        missing = ", ".join(str(key) for key in keys_of(over) if key not in keys)
        if missing:
            message, fix = f"with OVER {over} the grouping keys must include {missing}", f"add {missing} to GROUP BY, or leave OVER out"
            raise self.source.error("OVER", group, message, fix=fix, example=f"GROUP BY {over}, TumblingWindow(hour, 1)")
        return tuple(map(keys.index, keys_of(over)))


@dataclass(frozen=True)
class _BoundSelect:
    """The expressions of one SELECT: first over the names of its relations, then over the rows below."""

    where: Expr | None
    group: exp.Expr | None
    window: AnyWindow | WindowSet | None
    keys: tuple[Expr, ...]
    columns: tuple[Column, ...]
    having: Expr | None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        conditions = [condition for condition in (self.where, self.having) if condition is not None]
        return (*conditions, *self.keys, *(column.expr for column in self.columns))

    def transform(self, change: Callable[[Expr], Expr]) -> _BoundSelect:
        return replace(
            self,
            where=change(self.where) if self.where else None,
            keys=tuple(map(change, self.keys)),
            columns=tuple(Column(column.name, change(column.expr)) for column in self.columns),
            having=change(self.having) if self.having else None,
        )


def _aliases(columns: Sequence[Column], keys: Sequence[Expr]) -> dict[str, Expr]:
    """Return the expressions that HAVING may use by their alias in SELECT; a key of that name takes precedence."""
    names_of_keys = {str(key).lower() for key in keys}
    return {column.name.lower(): column.expr for column in columns if column.name.lower() not in names_of_keys}


def _clause_name(name: str, value: object) -> str:
    return "FETCH" if isinstance(value, exp.Fetch) else _CLAUSE_NAMES.get(name, name.strip("_").upper())


def _sides(union: exp.Union) -> list[exp.Expr]:
    sides: list[exp.Expr] = []
    node: exp.Expr = union
    while isinstance(node, exp.Union):
        sides.append(node.expression)
        node = node.this
    return [node, *reversed(sides)]


def _stars(rows: Rows) -> list[bool]:
    """Return of each column whether it is a star, which can only stand beside stars."""
    return [column.name == STAR for column in rows.columns]


def _width(rows: Rows) -> str:
    return "all" if True in _stars(rows) else str(len(rows.columns))
