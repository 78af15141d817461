"""
Binding: tree -> plan. Every name finds its meaning here, or its error.

What a script may contain so far: one SELECT from one input, with WHERE, and either a plain projection or GROUP BY with
one window. Everything else that Stream Analytics knows is refused by name as "not supported yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from ordering.errors import QueryError
from query.operators.windows import Window
from query.plan import Column, Filter, Plan, Project, Scan, WindowedAggregate
from query.sql.windowing import WINDOW_US_MAX, bind_window
from tidegate.runtime.scalars.bind import ScalarBinder
from tidegate.runtime.scalars.catalog import InputSchema
from tidegate.runtime.scalars.configured import bind_configured
from tidegate.runtime.scalars.dialect import OVER, TIMESTAMP_BY
from tidegate.runtime.scalars.errors import Source, suggest
from tidegate.runtime.scalars.evaluate import static_kind
from tidegate.runtime.scalars.expressions import (
    Aggregate,
    Call,
    Case,
    Cast,
    Expr,
    Field,
    Key,
    Leaf,
    PartitionId,
    SystemTimestamp,
    Total,
    WindowEnd,
)
from tidegate.runtime.scalars.functions import KNOWN_LATER, WINDOWS
from tidegate.runtime.scalars.parse import Script, offset_of

_CLAUSES = frozenset({"expressions", "into", "from_", "where", "group", "having"})
_CLAUSE_NAMES = {"with_": "WITH", "joins": "JOIN", "distinct": "DISTINCT", "limit": "TOP", "order": "ORDER BY", "laterals": "APPLY"}
_WINDOW_EXAMPLE = "GROUP BY origin, TumblingWindow(hour, 1)"


def bind_script(script: Script, inputs: Sequence[InputSchema], *, into: str | None = None, window_us_max: int = WINDOW_US_MAX) -> Plan:
    """
    Bind a script to the configured inputs.

    Args:
        script: The parsed script.
        inputs: The inputs it may read.
        into: The output given beside the script; INTO may then be absent, and must agree when it is not.
        window_us_max: Longest window accepted, in microseconds.

    Raises:
        QueryError: Something in the script is wrong; with file, line, column, and what to write instead.
    """
    return _Binding(script.source, inputs, into, window_us_max).statement(_only_select(script))


def _only_select(script: Script) -> exp.Select:
    first, source = script.statements[0], script.source
    if len(script.statements) > 1:
        raise source.not_yet("a second statement is", at=offset_of(script.statements[1]), fix="run each SELECT as its own query")
    if isinstance(first, exp.SetOperation):
        raise source.not_yet("UNION is", at=offset_of(first), fix="run each SELECT as its own query")
    if isinstance(first, exp.Create):
        raise source.not_yet("CREATE TABLE is", at=offset_of(first), fix="declare the fields' types in the input's configuration")
    if not isinstance(first, exp.Select):
        raise source.error("a script is a SELECT statement", code="SYNTAX", at=offset_of(first), example=f"SELECT ... {_WINDOW_EXAMPLE}")
    return first


@dataclass(frozen=True)
class _Binding:
    source: Source
    inputs: Sequence[InputSchema]
    into: str | None
    window_us_max: int

    def statement(self, select: exp.Select) -> Plan:
        self._refuse_other_clauses(select)
        table = self._table(select)
        schema = self._input(table)
        aliases = frozenset(name.lower() for name in (schema.name, table.alias) if name)
        binder = ScalarBinder(self.source, schema, aliases)
        scan = self._scan(table, schema, binder)
        where = select.args.get("where")
        child = Filter(scan, binder.condition(where.this, "WHERE")) if where else scan
        group = select.args.get("group")
        root = self._grouped(select, group, child, binder) if group else self._plain(select, child, binder)
        return Plan(root, self._output(select))

    # FROM and INTO

    def _refuse_other_clauses(self, select: exp.Select) -> None:
        for name, value in select.args.items():
            if value and name not in _CLAUSES:
                nodes = value if isinstance(value, list) else [value]
                at = next((at for node in nodes if isinstance(node, exp.Expr) and (at := offset_of(node)) >= 0), offset_of(select))
                raise self.source.not_yet(f"{_CLAUSE_NAMES.get(name, name.strip('_').upper())} is", at=at)

    def _table(self, select: exp.Select) -> exp.Table:
        clause = select.args.get("from_")
        table = clause.this if clause else None
        if not isinstance(table, exp.Table):
            if table is None:
                raise self.source.error(
                    "SELECT needs FROM", code="INPUT", at=offset_of(select), fix="name an input", example="FROM flights"
                )
            raise self.source.not_yet("FROM with a subquery is", at=offset_of(table))
        if table.args.get("joins"):
            raise self.source.not_yet("JOIN is", at=offset_of(table.args["joins"][0]))
        for name in ("pivots", "hints", "sample", "version", "laterals", "when"):
            if table.args.get(name):
                raise self.source.not_yet(f"{name} after an input is", at=offset_of(table))
        return table

    def _input(self, table: exp.Table) -> InputSchema:
        spelled = ".".join(part.name for part in table.parts)
        found = next((schema for schema in self.inputs if schema.name.lower() == spelled.lower()), None)
        if found is None:
            known = [schema.name for schema in self.inputs]
            fix = suggest(spelled, known, f"inputs are {', '.join(known)}" if known else "configure it under [inputs]")
            raise self.source.error(f"there is no input {spelled}", code="INPUT", at=offset_of(table), fix=fix)
        return found

    def _output(self, select: exp.Select) -> str:
        into = select.args.get("into")
        name = ".".join(part.name for part in into.this.parts) if into is not None else None
        if name is None and self.into is None:
            raise self.source.error(
                "the query has no output",
                code="OUTPUT",
                at=offset_of(select),
                fix="write INTO name after SELECT, or give --into",
                example="INTO out",
            )
        if into is not None and self.into is not None and name != self.into:
            raise self.source.error(
                f"INTO {name} contradicts --into {self.into}", code="OUTPUT", at=offset_of(into), fix="give the name once"
            )
        return name or self.into or ""

    # TIMESTAMP BY and OVER

    def _scan(self, table: exp.Table, schema: InputSchema, binder: ScalarBinder) -> Scan:
        over = self._over(table, schema, binder)
        return Scan(schema.name, self._timestamp_by(table, schema, binder), over)

    def _timestamp_by(self, table: exp.Table, schema: InputSchema, binder: ScalarBinder) -> Expr | None:
        node = table.args.get(TIMESTAMP_BY)
        written = binder.bind(node, aggregates="TIMESTAMP BY") if node is not None else None
        if schema.is_result:
            if written is not None and not isinstance(written, SystemTimestamp):
                what = f"{schema.name} is the result of a query: its event time is System.Timestamp(), not {written}"
                raise self.source.error(what, code="TIMESTAMP", at=offset_of(node or table), fix="leave TIMESTAMP BY out")
            return None
        wanted = self._configured(schema, "timestamp_by", schema.timestamp_by, binder)
        if written == wanted:
            return wanted
        if written is None:
            what = f"{schema.name} has the event time {wanted}, and the query does not say so"
            fix, example = "add TIMESTAMP BY", f"FROM {schema.name} TIMESTAMP BY {wanted}"
        elif wanted is None:
            what = f"{schema.name} is ordered by arrival, not by {written}"
            fix, example = "leave TIMESTAMP BY out, or set timestamp_by of the input and order it anew", f"FROM {schema.name}"
        else:
            what = f"{schema.name} is ordered by {wanted}, not by {written}"
            fix, example = "write the input's event time", f"FROM {schema.name} TIMESTAMP BY {wanted}"
        raise self.source.error(what, code="TIMESTAMP", at=offset_of(node if node is not None else table), fix=fix, example=example)

    def _over(self, table: exp.Table, schema: InputSchema, binder: ScalarBinder) -> Expr | None:
        nodes = table.args.get(OVER) or []
        written = [(node, bound) for node in nodes if not isinstance(bound := binder.bind(node, aggregates="OVER"), PartitionId)]
        if not written:
            return None
        if len(written) > 1:
            raise self.source.not_yet("OVER with several keys is", at=offset_of(written[1][0]))
        node, over = written[0]
        wanted = self._configured(schema, "over", schema.over, binder)
        if over != wanted and not (schema.is_result and wanted is None):
            what = f"{schema.name} is ordered over {wanted}, not over {over}" if wanted else f"{schema.name} has no substreams"
            fix = f"write OVER {wanted}, or leave OVER out" if wanted else "leave OVER out, or set over of the input and order it anew"
            raise self.source.error(what, code="OVER", at=offset_of(node), fix=fix)
        return over

    def _configured(self, schema: InputSchema, setting: str, text: str | None, binder: ScalarBinder) -> Expr | None:
        if text is None:
            return None
        if setting == "over":
            return binder.field(tuple(text.split(".")))
        return replace(bind_configured(text, f"inputs.{schema.name}.{setting}", schema, binder.aliases), at=-1)

    # SELECT without GROUP BY

    def _plain(self, select: exp.Select, child: Scan | Filter, binder: ScalarBinder) -> Project:
        having = select.args.get("having")
        if having:
            raise self.source.error(
                "HAVING needs GROUP BY", code="GROUP", at=offset_of(having), fix="use WHERE, or group", example=_WINDOW_EXAMPLE
            )
        if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star):
            return Project(child, ())
        chosen = self._chosen(select, binder)
        for expr in chosen.values():
            found = next((part for part in expr.walk() if isinstance(part, Aggregate)), None)
            if found:
                raise self.source.error(
                    f"{found} needs a window: a stream has no end",
                    code="GROUP",
                    at=found.at,
                    fix="add GROUP BY with a window",
                    example=_WINDOW_EXAMPLE,
                )
        return Project(child, tuple(Column(name, expr) for name, expr in chosen.items()))

    def _chosen(self, select: exp.Select, binder: ScalarBinder) -> Mapping[str, Expr]:
        chosen: dict[str, Expr] = {}
        for number, node in enumerate(select.expressions, start=1):
            name = _name(node, number)
            if name.lower() in {other.lower() for other in chosen}:
                fix = f"rename it with AS, e.g. AS {name}_{number}"
                raise self.source.error(f"two columns are named {name}", code="NAME", at=offset_of(node), fix=fix)
            chosen[name] = binder.bind(node.this if isinstance(node, exp.Alias) else node)
        return chosen

    # SELECT with GROUP BY

    def _grouped(self, select: exp.Select, group: exp.Expr, child: Scan | Filter, binder: ScalarBinder) -> WindowedAggregate:
        window, keys = self._group(group, binder)
        if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star):
            raise self.source.error(
                "* cannot be selected from groups", code="GROUP", at=offset_of(select.expressions[0]), fix="name the keys and aggregates"
            )
        having = select.args.get("having")
        chosen = self._chosen(select, binder)
        condition = binder.condition(having.this, "HAVING") if having else None
        everything = [*chosen.values(), *([condition] if condition else [])]
        totals = tuple(dict.fromkeys(part for expr in everything for part in expr.walk() if isinstance(part, Aggregate)))
        lifting = _Lifting(self.source, keys, totals)
        scan = child.child if isinstance(child, Filter) else child
        return WindowedAggregate(
            child,
            window,
            keys,
            totals,
            lifting.lift(condition) if condition else None,
            tuple(Column(name, lifting.lift(expr)) for name, expr in chosen.items()),
            self._over_key(scan.over, keys, group),
        )

    def _group(self, group: exp.Expr, binder: ScalarBinder) -> tuple[Window, tuple[Expr, ...]]:
        for name, value in group.args.items():
            if value and name != "expressions":
                raise self.source.not_yet(f"{name.replace('_', ' ').upper()} is", at=offset_of(group))
        windows: list[tuple[exp.Expr, Window]] = []
        keys: list[Expr] = []
        for node in group.expressions:
            if isinstance(node, exp.Anonymous) and str(node.name).lower() in WINDOWS:
                windows.append((node, bind_window(node, self.source, self.window_us_max)))
            else:
                keys.append(self._key(node, binder))
        if not windows:
            raise self.source.error(
                "GROUP BY needs a window: a stream has no end", code="GROUP", at=offset_of(group), fix="add one", example=_WINDOW_EXAMPLE
            )
        if len(windows) > 1:
            raise self.source.error("GROUP BY takes one window", code="GROUP", at=offset_of(windows[1][0]), fix="run one query per window")
        return windows[0][1], tuple(dict.fromkeys(keys))

    def _key(self, node: exp.Expr, binder: ScalarBinder) -> Expr:
        if isinstance(node, exp.Literal):
            raise self.source.error(
                "GROUP BY takes expressions, not positions", code="GROUP", at=offset_of(node), fix="name the field", example=_WINDOW_EXAMPLE
            )
        if isinstance(node, exp.Anonymous) and (name := str(node.name).lower()).endswith("window") and name not in KNOWN_LATER:
            fix = suggest(name, ("TumblingWindow", "HoppingWindow"))
            raise self.source.error(f"there is no window {node.name}", code="WINDOW", at=offset_of(node), fix=fix, example=_WINDOW_EXAMPLE)
        key = binder.bind(node, aggregates="GROUP BY")
        if isinstance(key, SystemTimestamp):
            raise self.source.not_yet("GROUP BY System.Timestamp() is", at=key.at)
        return key

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
class _Lifting:
    """Turns expressions over events into expressions over groups."""

    source: Source
    keys: tuple[Expr, ...]
    totals: tuple[Aggregate, ...]

    def lift(self, expr: Expr) -> Expr:
        if expr in self.keys:
            return Key(self.keys.index(expr), str(expr), static_kind(expr), at=expr.at)
        if isinstance(expr, Aggregate):
            return Total(self.totals.index(expr), str(expr), static_kind(expr), at=expr.at)
        if isinstance(expr, SystemTimestamp):
            return WindowEnd(at=expr.at)
        if isinstance(expr, Leaf):
            raise self._not_grouped(expr)
        if isinstance(expr, Cast):
            if expr.declared:
                raise self._not_grouped(expr)
            return replace(expr, arg=self.lift(expr.arg))
        if isinstance(expr, Case):
            whens = tuple((self.lift(condition), self.lift(value)) for condition, value in expr.whens)
            return replace(expr, whens=whens, otherwise=self.lift(expr.otherwise))
        if isinstance(expr, Call):
            return replace(expr, args=tuple(self.lift(arg) for arg in expr.args))
        return expr

    def _not_grouped(self, expr: Expr) -> QueryError:
        grouped = [str(key) for key in self.keys if isinstance(key, (Field, Cast))]
        fix = suggest(str(expr), grouped, f"add {expr} to GROUP BY, or aggregate it")
        return self.source.error(f"{expr} is neither grouped nor aggregated", code="GROUP", at=expr.at, fix=fix, example=f"MAX({expr})")


def _name(node: exp.Expr, number: int) -> str:
    """Return the name of an output column: its alias, else the field's or function's own, else Column and its number."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    inner = node.expression if isinstance(node, exp.Dot) else node
    if isinstance(inner, (exp.Column, exp.Identifier, exp.Anonymous)) and inner.name:
        return str(inner.name)
    return f"Column{number}"
