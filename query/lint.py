"""
Lint: finds constructs that are allowed in a script but seldom meant.

Each rule is one function over the bound plan, or over the syntax tree if binding removes the construct. Law: findings depend on
the script and the settings alone. A script without findings may still be wrong, one with warnings may be right.

======================  ======================================================================================================
``TG-LINT-STAR``        ``SELECT *`` in rows that others read: they get new fields of the input too
``TG-LINT-FLOAT``       floats compared by ``=`` or ``<>``
``TG-LINT-KEY``         a grouping key that is not selected: rows of different groups look alike
``TG-LINT-ALIAS``       a column without a name of its own
``TG-LINT-PARTITION``   a function that looks back on the events of all keys
``TG-LINT-SPREAD``      PARTITION BY after an input, which changes nothing here
``TG-LINT-PROCESSED``   EventProcessedUtcTime of an input that is not configured, which files have as a field and not every job has
``TG-LINT-RETENTION``   a topic keeps its events for less time than a restart reads back
``TG-LINT-EARLY``       an input with early off: one event with a wrong time moves the times of all later ones
``TG-LINT-LIKE``        LIKE without a wildcard
``TG-LINT-NULL``        a comparison with NULL, which never holds
``TG-LINT-QUOTES``      a name in double quotes: a field where a text may be meant, or a text where no such column is known
``TG-LINT-PREFIX``      a name before a point that is no input's, and looks like one
``TG-LINT-WHERE``       a name in WHERE by which SELECT calls something else
``TG-LINT-WORD``        a word that other SQLs write for the clock or the user, and a field of the event here
``TG-LINT-GUARD``       a CAST beside a condition that is meant to keep it from failing, and does not
``TG-LINT-UNREAD``      a column of a step that nothing reads, on which a row can fail
``TG-LINT-START``       the start of a window is computed, and the window does not include it
``TG-LINT-HOP``         windows further apart than they are long
``TG-LINT-LOOKBACK``    a restart must read from the beginning
======================  ======================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ordering.errors import QueryError
from ordering.ticks import format_duration
from query.plan.columns_read import can_fail, needed_columns
from query.plan.nodes import UNBOUNDED, Node, Plan, Project, WindowedAggregate, exprs_in, lookback_of, walk
from query.plan.windows import Window
from query.sql.bind import bind_outputs
from query.sql.doubtful_names import foreign_prefixes, names_of_columns
from query.sql.input_clauses import named_table, spelled_name
from query.sql.misused_names import is_quoted, text_or_field
from query.sql.windows.window_lengths import WindowLengths
from tidegate.language.expressions.binding.declarations import apply_declarations
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.scalar_binder import is_bare_word
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.evaluation.translation import translate
from tidegate.language.expressions.functions.catalog import DOUBTFUL_WORDS
from tidegate.language.expressions.functions.column_functions import has_column_calls
from tidegate.language.expressions.functions.conversions import TypedSql
from tidegate.language.expressions.functions.conversions import can_fail as may_convert
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.counterparts import WINDOW_EDGES
from tidegate.language.expressions.syntax.dialect import PARTITION_BY
from tidegate.language.expressions.syntax.errors import offset_of
from tidegate.language.expressions.syntax.parse import Script
from tidegate.language.expressions.tree import (
    UNITS_US,
    Aggregate,
    Analytic,
    Call,
    Case,
    Cast,
    DatePart,
    Expr,
    Field,
    Key,
    Leaf,
    Literal,
    Payload,
    Slot,
    Total,
    WindowEnd,
)

if TYPE_CHECKING:  # settings import pydantic, which is slow to load
    from tidegate.platform.settings.load import Settings

_UNNAMED = re.compile(r"Column\d+")
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
# Findings of a script that selects no rows, or other rows than meant: reported whenever a script runs.
MISTAKES = frozenset({"TG-LINT-NULL", "TG-LINT-QUOTES", "TG-LINT-PREFIX", "TG-LINT-WHERE"})
# Aggregates that keep the values of single rows.
_KEEPING = frozenset({"topone", "min", "max", "collect", "collecttop"})
_WILDCARDS = re.compile(r"[%_\[]")


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a script to check."""

    # Stable identifier: ``TG-LINT-...``, or the error's own.
    code: str
    # ``file:line:column``.
    where: str
    # The problem.
    what: str
    # What to write instead.
    fix: str
    # Whether the script cannot be run.
    is_error: bool = False


@dataclass(frozen=True)
class LintContext:
    """What a linter knows beside the script."""

    # The configured inputs; None: FROM may name any input.
    schemas: Sequence[InputSchema] | None = None
    # The names in FROM and JOIN that are tables of reference data, if no inputs are configured.
    references: Sequence[str] = ()
    # How long the topic of each input keeps its events, microseconds; topics that keep them for ever are left out.
    retentions_us: Mapping[str, int] = field(default_factory=dict)
    # The inputs with ``early = "off"``.
    early_off: frozenset[str] = frozenset()
    # The outputs that are topics, so that others may read them.
    topics: frozenset[str] = frozenset()
    # Further arguments of :func:`query.sql.bind.bind_outputs`.
    settings: Mapping[str, Any] = field(default_factory=dict)


def context_of(settings: Settings, into: str | None) -> LintContext:
    """Return what a configuration tells the linter; *into* is the output of a script without INTO."""
    schemas = [table.schema_of_events(name) for name, table in settings.inputs.items()]
    topics = {name: table for name, table in settings.outputs.items() if table.topic}
    schemas += [InputSchema(name, is_result=True) for name in topics]
    schemas += [InputSchema(name, fields=table.fields, is_reference=True) for name, table in settings.references.items()]
    limits = {"into": into, "window_us_max": settings.query.window_max_us}
    early_off = frozenset(name for name, table in settings.inputs.items() if table.timestamp_by is not None and table.early_us is None)
    return LintContext(schemas, retentions_us=settings.retentions_us(), early_off=early_off, topics=frozenset(topics), settings=limits)


@dataclass(frozen=True)
class _Bound:
    """A script with its plans, and each node of them once."""

    script: Script
    plans: tuple[Plan, ...]
    nodes: tuple[Node, ...]
    context: LintContext
    schemas: Sequence[InputSchema]

    def warning(self, code: str, message: str, offset: int, fix: str) -> Finding:
        return Finding(code, self.script.source.location(offset), message, fix)

    def exprs(self) -> Iterator[Expr]:
        """Return every expression of the plans, and every part of it."""
        return (expr for node in self.nodes for expr in exprs_in(node))


def lint_script(script: Script, context: LintContext) -> list[Finding]:
    """Return the findings of a script in the order of places; if it cannot be run, only its first error."""
    schemas = context.schemas if context.schemas is not None else undeclared_inputs(script, context.references)
    try:
        plans = bind_outputs(script, schemas, **context.settings)
    except QueryError as error:
        return [error_finding(error)]
    nodes = tuple(dict.fromkeys(node for plan in plans for node in walk(plan.root)))
    bound = _Bound(script, plans, nodes, context, apply_declarations(script.source, script.declarations, schemas))
    findings = dict.fromkeys(finding for rule in RULES for finding in rule(bound))
    return sorted(findings, key=lambda finding: (*_line_and_column(finding.where), finding.code, finding.what))


def error_finding(error: QueryError) -> Finding:
    """Return the finding of a script that cannot be run."""
    fix = "; e.g. ".join(part for part in (error.fix, error.example) if part)
    return Finding(error.code, error.where, error.what, fix, is_error=True)


def undeclared_inputs(script: Script, references: Sequence[str]) -> list[InputSchema]:
    """Return a schema for each name in FROM and JOIN that is no step."""
    steps = {str(step.alias).lower() for tree in script.statements for step in tree.find_all(exp.CTE)}
    sources = [table for tree in script.statements for table in tree.find_all(exp.Table) if not isinstance(table.parent, exp.Into)]
    names = {name.lower(): name for table in sources if (name := spelled_name(named_table(table)))}
    tables = {name.lower() for name in references}
    streams = [InputSchema(name, is_free=True) for lower, name in names.items() if lower not in steps | tables]
    return streams + [InputSchema(name, is_reference=True) for name in references]


def _line_and_column(where: str) -> tuple[int, int]:
    _, line, column = ("::" + where).rsplit(":", 2)
    return (int(line), int(column)) if line.isdigit() and column.isdigit() else (0, 0)


# Rules: each function yields the findings of the code that ends in its name.


def _star(bound: _Bound) -> Iterator[Finding]:
    for tree in bound.script.statements:
        read_by_others = [(step.this, f"step {step.alias}") for step in tree.find_all(exp.CTE)]
        into = tree.find(exp.Into)
        if into is not None and into.this.name in bound.context.topics:
            read_by_others.append((tree, f"output {into.this.name}"))
        for query, name in read_by_others:
            star = next((expr for expr in getattr(query, "expressions", []) if isinstance(expr, exp.Star)), None)
            if star is not None:
                message, place = f"{name} passes on whatever its input has", star if offset_of(star) >= 0 else query
                yield bound.warning("TG-LINT-STAR", message, offset_of(place), "name the columns that others read")


def _float(bound: _Bound) -> Iterator[Finding]:
    for part in bound.exprs():
        if isinstance(part, Call) and part.name in ("=", "<>") and Kind.FLOAT in map(static_kind, part.args):
            fix = "compare with a tolerance, or ROUND both sides"
            yield bound.warning("TG-LINT-FLOAT", f"{part} compares floats, which seldom are equal", part.offset, fix)


def _key(bound: _Bound) -> Iterator[Finding]:
    for node in bound.nodes:
        if isinstance(node, WindowedAggregate):
            parts = [part for column in node.columns for part in column.expr.walk()]
            selected = {part.index for part in parts if isinstance(part, Key)}
            totals = [node.totals[part.index] for part in parts if isinstance(part, Total)]
            for number, key in enumerate(node.keys):
                if number not in selected and not any(_shows(total, key) for total in totals):
                    message = f"{key} is grouped by and not selected: rows of different groups look alike"
                    yield bound.warning("TG-LINT-KEY", message, key.offset, f"select {key}, or leave it out of GROUP BY")


def _shows(total: Aggregate, key: Expr) -> bool:
    """Return whether a group's rows differ in *total* if they differ in *key*: it is the key of any row, or holds a whole row."""
    if total.function not in _KEEPING or total.arg is None:
        return False
    of_row = all(isinstance(part, (Field, Slot)) for part in key.walk() if isinstance(part, Leaf))
    return (of_row and isinstance(total.arg, Payload)) or key in total.arg.walk()


def _alias(bound: _Bound) -> Iterator[Finding]:
    for node in bound.nodes:
        for column in getattr(node, "columns", ()):
            if _UNNAMED.fullmatch(column.name) and str(column.expr).lower() != column.name.lower():
                yield bound.warning("TG-LINT-ALIAS", f"{column.expr} is called {column.name}", column.expr.offset, "give it a name with AS")


def _partition(bound: _Bound) -> Iterator[Finding]:
    is_over = any(plan.over is not None for plan in bound.plans)
    for part in bound.exprs():
        if isinstance(part, Analytic) and not part.partition and not is_over:
            message = f"{part} looks back on the events of all keys"
            yield bound.warning("TG-LINT-PARTITION", message, part.offset, "add PARTITION BY, where each key is meant for itself")


def _spread(bound: _Bound) -> Iterator[Finding]:
    for tree in bound.script.statements:
        for table in tree.find_all(exp.Table):
            if keys := table.args.get(PARTITION_BY):
                message = "PARTITION BY after an input changes nothing: the query's own keys spread its work"
                fix = "leave it out; tidegate plan shows how the work is spread"
                yield bound.warning("TG-LINT-SPREAD", message, offset_of(keys[0]), fix)


def _processed(bound: _Bound) -> Iterator[Finding]:
    free = {schema.name for schema in bound.schemas if schema.is_free and schema.declared_kind(("EventProcessedUtcTime",)) is None}
    if not free & {name for plan in bound.plans for name in plan.inputs}:
        return
    for part in bound.exprs():
        if isinstance(part, Field) and part.folded == ("eventprocessedutctime",):
            message = 'a job knows EventProcessedUtcTime of inputs with arrival = "ingest" only; in files it is a field'
            yield bound.warning("TG-LINT-PROCESSED", message, part.offset, 'set arrival = "ingest", or use EventEnqueuedUtcTime')


def _retention(bound: _Bound) -> Iterator[Finding]:
    for plan in bound.plans:
        for scan in plan.scans:
            kept_us = bound.context.retentions_us.get(scan.input)
            if kept_us is not None and kept_us < plan.lookback_us < UNBOUNDED:
                message = f"{plan.output} looks {format_duration(plan.lookback_us)} back, {scan.input} keeps {format_duration(kept_us)}"
                yield bound.warning("TG-LINT-RETENTION", message, _place(plan), "keep events longer (retention), or shorten the window")


def _early(bound: _Bound) -> Iterator[Finding]:
    for plan in bound.plans:
        for name in sorted({*plan.inputs} & bound.context.early_off):
            message = (
                f'{name} has early = "off": one event with a wrong time in the future makes all later events of its timeline out of order'
            )
            yield bound.warning("TG-LINT-EARLY", message, _place(plan), "set early to how far event times may lie ahead of their arrival")


def _like(bound: _Bound) -> Iterator[Finding]:
    for part in bound.exprs():
        pattern = part.args[1] if isinstance(part, Call) and part.name == "like" else None
        if isinstance(pattern, Literal) and pattern.value is not None and not _WILDCARDS.search(str(pattern.value)):
            yield bound.warning("TG-LINT-LIKE", f"{part} has no wildcard", part.offset, "write =, or a pattern with % or _")


def _null(bound: _Bound) -> Iterator[Finding]:
    for part in bound.exprs():
        if isinstance(part, Call) and part.name in _COMPARISONS and Kind.NULL in map(static_kind, part.args):
            yield bound.warning("TG-LINT-NULL", f"{part} never holds: NULL equals nothing", part.offset, "write IS NULL or IS NOT NULL")
        nots = part.args if isinstance(part, Call) and part.name == "not" else ()
        for inside in (arg for arg in nots if isinstance(arg, Call) and arg.name == "in" and Kind.NULL in map(static_kind, arg.args)):
            fix = "leave NULL out of the list, and ask IS NOT NULL beside it"
            yield bound.warning("TG-LINT-NULL", f"{part} never holds: NULL may be equal to anything", inside.offset, fix)


def _quotes(bound: _Bound) -> Iterator[Finding]:
    texts = {part.offset for part in bound.exprs() if isinstance(part, Literal)}
    for tree in bound.script.statements:
        for column in tree.find_all(exp.Column):
            if is_quoted(column, bound.script.source):
                offset, fix = offset_of(column), text_or_field(column.name)
                if offset in texts:
                    yield bound.warning("TG-LINT-QUOTES", f'"{column.name}" is read as a text: no such column is known', offset, fix)
                # Brackets in a name can hardly be meant as a text: Stream Analytics writes such fields in double quotes.
                elif not set("[]") & set(column.name):
                    yield bound.warning("TG-LINT-QUOTES", f'"{column.name}" is a field, not a text', offset, fix)


def _prefix(bound: _Bound) -> Iterator[Finding]:
    for tree in bound.script.statements:
        for doubt in foreign_prefixes(tree, bound.schemas):
            yield bound.warning("TG-LINT-PREFIX", doubt.message, doubt.offset, doubt.fix)


def _where(bound: _Bound) -> Iterator[Finding]:
    for tree in bound.script.statements:
        for doubt in names_of_columns(tree, bound.schemas):
            yield bound.warning("TG-LINT-WHERE", doubt.message, doubt.offset, doubt.fix)


def _word(bound: _Bound) -> Iterator[Finding]:
    known = {name.lower() for schema in bound.schemas for name in schema.fields}
    named = known | {alias.alias.lower() for tree in bound.script.statements for alias in tree.find_all(exp.Alias)}
    for tree in bound.script.statements:
        for column in tree.find_all(exp.Column):
            # In small letters it hardly is meant as a keyword.
            if is_bare_word(column, DOUBTFUL_WORDS) and column.name.isupper() and column.name.lower() not in known:
                message = f"{column.name} is a field of the event; a query knows neither clock nor user"
                fix = f"write [{column.name}] for the field, System.Timestamp() for the event's time"
                yield bound.warning("TG-LINT-WORD", message, offset_of(column), fix)
        for column in (found for group in tree.find_all(exp.Group) for found in group.find_all(exp.Column)):
            name = ".".join(part.name.lower() for part in column.parts)
            is_bare = not any(part.args.get("quoted") for part in column.parts)
            if is_bare and name in WINDOW_EDGES and column.parts[0].name.lower() not in named:
                message = f"{name} is a field of the event here: a window's edges are no names"
                bracketed = name.replace(".", "].[")
                fix = f"leave it out of GROUP BY, and in SELECT {WINDOW_EDGES[name][0]}; [{bracketed}] is the field of that name"
                yield bound.warning("TG-LINT-WORD", message, offset_of(column), fix)


def _guard(bound: _Bound) -> Iterator[Finding]:
    for part in bound.exprs():
        if isinstance(part, Call) and part.name in ("and", "or"):
            for cast in dict.fromkeys(cast for arg in part.args for cast in _failing_casts(arg)):
                if any(_mentions(arg, cast) for arg in part.args):
                    message = (
                        f"{part.name.upper()} does not keep {cast} from failing: both sides are computed, and the row is a dead letter"
                    )
                    guarded = f"CASE WHEN ... THEN {cast} END"
                    fix = f"write TRY_{cast}, which is NULL instead, or {guarded}, or put the condition into a step before"
                    yield bound.warning("TG-LINT-GUARD", message, cast.offset, fix)


def _failing_casts(expr: Expr) -> Iterator[Cast]:
    """Yield the casts of texts, or of values of any kind, that no CASE stands around."""
    if isinstance(expr, Cast) and not expr.lenient and not expr.declared and static_kind(expr.arg) in (None, Kind.NVARCHAR):
        yield expr
    for part in () if isinstance(expr, Case) or (isinstance(expr, Call) and expr.name == "iif") else expr.parts:
        yield from _failing_casts(part)


def _mentions(condition: Expr, cast: Cast) -> bool:
    """Return whether a condition asks something of the values that *cast* converts, other than whether they are NULL."""
    if condition == cast or (isinstance(condition, Call) and condition.name == "is null" and condition.args[0] == cast.arg):
        return False
    return condition == cast.arg or any(_mentions(part, cast) for part in condition.parts)


def _unread(bound: _Bound) -> Iterator[Finding]:
    roots = {plan.root for plan in bound.plans}
    for node, needed in needed_columns(bound.plans).items():
        if needed is None or node in roots or not isinstance(node, (Project, WindowedAggregate)):
            continue
        totals = node.totals if isinstance(node, WindowedAggregate) else ()
        of_totals = {number: _failing_parts(column.expr, totals) for number, column in enumerate(node.columns)}
        read = {part for number in needed for part in of_totals[number]}
        for number, column in enumerate(node.columns):
            failing = next((part for part in of_totals[number] if part not in read), None)
            if number not in needed and failing is not None:
                message = f"nothing reads {column.name}, and a row on which {failing} fails is a dead letter all the same"
                yield bound.warning("TG-LINT-UNREAD", message, column.expr.offset, "leave the column out, or write TRY_CAST")


def _failing_parts(expr: Expr, totals: Sequence[Aggregate]) -> list[Expr]:
    """Return what can fail in a column: it itself, or the values of its aggregates."""
    values = [value for part in expr.walk() if isinstance(part, Total) for value in totals[part.index].parts]
    return [part for part in (expr, *values) if _converts(part)]


def _converts(expr: Expr) -> bool:
    """Return whether an expression may fail on some row: it converts a value whose kind is not known, or a text."""
    kinds = {leaf: static_kind(leaf) for leaf in expr.leaves()}
    if not can_fail(expr) or None in kinds.values() or has_column_calls(expr):
        return can_fail(expr)
    return may_convert(translate(expr, {leaf: TypedSql("NULL", kind) for leaf, kind in kinds.items() if kind is not None}).sql)


def _start(bound: _Bound) -> Iterator[Finding]:
    for node in bound.nodes:
        if isinstance(node, WindowedAggregate) and isinstance(node.window, Window) and node.window.offset_us == 0:
            for part in (part for column in node.columns for part in column.expr.walk()):
                if isinstance(part, Call) and _is_start(part, node.window.size_us):
                    message = f"{part} is the window's start, and an event exactly there is in the window before: windows are (start, end]"
                    yield bound.warning(
                        "TG-LINT-START", message, part.offset, "for [start, end) shift the windows by Offset(microsecond, -1)"
                    )


def _is_start(call: Call, size_us: int) -> bool:
    """Return whether *call* subtracts the length of a window from its end."""
    if call.name != "dateadd" or not isinstance(call.args[2], WindowEnd):
        return False
    unit, number = call.args[:2]
    length_us = UNITS_US.get(unit.unit) if isinstance(unit, DatePart) else None
    return length_us is not None and isinstance(number, Literal) and number.kind is Kind.BIGINT and number.value == -size_us / length_us


def _hop(bound: _Bound) -> Iterator[Finding]:
    for tree in bound.script.statements:
        for call in tree.find_all(exp.Anonymous):
            # In a Dot it is a function of a package that bears this name.
            if str(call.name).lower() in ("hopping", "hoppingwindow") and not isinstance(call.parent, exp.Dot):
                lengths_us = WindowLengths(bound.script.source, UNBOUNDED).bind(call, "hopping")
                size_us, hop_us = lengths_us["Duration"], lengths_us["Hop"]
                if hop_us > size_us:
                    message = f"windows of {format_duration(size_us)} every {format_duration(hop_us)}: what falls between them is in none"
                    yield bound.warning("TG-LINT-HOP", message, offset_of(call), "write the size first, then the hop")


def _lookback(bound: _Bound) -> Iterator[Finding]:
    for plan in bound.plans:
        if lookback_of(plan.root) == UNBOUNDED:
            message = f"{plan.output} may need events however old: a restart reads from the beginning"
            yield bound.warning("TG-LINT-LOOKBACK", message, _place(plan), "bound it, or keep the input for ever")


def _place(plan: Plan) -> int:
    """Return the offset of some expression in the SELECT of a plan, -1 if none has one."""
    exprs = [column.expr for column in plan.root.columns]
    exprs += [scan.timestamp_by for scan in plan.scans if scan.timestamp_by is not None]
    return next((expr.offset for expr in exprs if expr.offset >= 0), -1)


RULES = (
    _star,
    _float,
    _key,
    _alias,
    _partition,
    _spread,
    _processed,
    _retention,
    _early,
    _like,
    _null,
    _quotes,
    _prefix,
    _where,
    _word,
    _guard,
    _unread,
    _start,
    _hop,
    _lookback,
)
