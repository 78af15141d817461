"""
Plans: what a query computes, as frozen nodes that print themselves. The SQL binder builds them, :mod:`query.engine.program` executes them.

A node gives *rows*: each has a System.Timestamp, a place in the node's fixed order among the rows of its instant, and columns. Expressions
over a :class:`Scan` read payload fields; over any other node they read the columns of its rows
(:class:`~tidegate.language.expressions.tree.Slot`). Nodes that are equal compute the same and are computed once.

The look-back of a plan is the time before an output instant in which events can still count for it, so a restart reads that much again. It
is ``UNBOUNDED`` if the query must be read from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Protocol

from ordering.ticks import INFINITY, format_duration
from query.plan.join_bounds import Bounds
from query.plan.operator import Operator
from query.plan.row_patterns import Pattern
from query.plan.windows import AnyWindow, WindowSet
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate, Analytic, Expr, MatchValue, Required, Requirement, Slot

# The look-back of a query that can be computed only from the beginning.
UNBOUNDED = INFINITY


@dataclass(frozen=True, slots=True)
class Column:
    """An output column: its name as the script spells it, and its value."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} AS {self.name}"


class Node(Protocol):
    """A node of a plan. By default it has no children and reads nothing of earlier events."""

    # Protocols make these class attributes of the nodes, which are dataclasses with slots.
    __slots__ = ()

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes whose rows it takes."""
        return ()

    @property
    def reach_us(self) -> int:
        """How long after an event a row of this node can still depend on it, microseconds."""
        return 0

    def describe(self) -> str:
        """Describe the node in one line; a checkpoint is bound to it."""


class SingleInputNode(Node, Protocol):
    """A node with one input: ``child``."""

    __slots__ = ()
    child: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


class Rows(Node, Protocol):
    """A node that gives rows of named columns."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Name of each column, and an expression whose kind is the column's."""


@dataclass(frozen=True, slots=True)
class Scan(Node):
    """Reads one input in order."""

    input: str
    # The event time of TIMESTAMP BY; None: arrival time, or a result's system timestamp.
    timestamp_by: Expr | None = None
    # The substream key; None: the watermark follows the floor.
    over: Expr | None = None

    def describe(self) -> str:
        by = f", timestamp by {self.timestamp_by}" if self.timestamp_by else ""
        return f"Scan {self.input}{by}" + (f", over {self.over}" if self.over else "")


@dataclass(frozen=True, slots=True)
class Filter(SingleInputNode):
    """Passes on the rows for which the predicate is true."""

    child: Scan | Filter | Rows
    predicate: Expr

    def describe(self) -> str:
        return f"Filter {self.predicate}"


@dataclass(frozen=True, slots=True)
class Project(SingleInputNode):
    """One result per row, at the row's own system timestamp; without columns (``SELECT *`` from an input) the payload itself."""

    child: Scan | Filter | Rows
    columns: tuple[Column, ...]

    def describe(self) -> str:
        return f"Project {', '.join(map(str, self.columns)) or 'the payload as it is'}"


@dataclass(frozen=True, slots=True)
class WindowedAggregate(SingleInputNode):
    """One result per window and group that has rows, at the window's end."""

    child: Scan | Filter | Rows
    # Which rows belong together in time.
    window: AnyWindow | WindowSet
    # The grouping keys, computed from a row.
    keys: tuple[Expr, ...]
    # The aggregates, over values computed from a row.
    totals: tuple[Aggregate, ...]
    # Condition on a group, None without HAVING; only groups for which it is true give results.
    having: Expr | None
    # The columns of a result, computed from keys, totals and the window's end.
    columns: tuple[Column, ...]
    # The numbers of the keys that OVER names, in its order; None without OVER.
    over_key: tuple[int, ...] | None = None

    @property
    def reach_us(self) -> int:
        return self.window.reach_us

    def describe(self) -> str:
        keys = ", ".join(map(str, self.keys)) or "all"
        having = f", having {self.having}" if self.having else ""
        return f"WindowedAggregate {self.window} by {keys}: {', '.join(map(str, self.columns))}{having}"


@dataclass(frozen=True, slots=True)
class Union(Node):
    """The rows of all parts, duplicates kept; rows of one instant are in the order of the parts."""

    parts: tuple[Rows, ...]
    # As many as each part has, with the names of the first, and a kind if all parts agree in it.
    columns: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts

    def describe(self) -> str:
        return "Union"


@dataclass(frozen=True, slots=True)
class Apply(SingleInputNode):
    """Each row below with each element of an array, or each member of a record, that it holds, in their order."""

    child: Rows
    # The array or record, which it is required to be.
    value: Required
    # Whether a row without elements gives one row, with NULL.
    outer: bool
    # The script's name of the elements.
    name: str

    @property
    def columns(self) -> tuple[Column, ...]:
        width = len(self.child.columns)
        added = (Column(f"{self.name}.{name}", Slot(width + i, name, kind)) for i, (name, kind) in enumerate(element_columns(self.value)))
        return (*self.child.columns, *added)

    def describe(self) -> str:
        return f"{'OuterApply' if self.outer else 'CrossApply'} {self.value} AS {self.name}"


def element_columns(value: Required) -> tuple[tuple[str, Kind | None], ...]:
    """Return the columns that the elements of an array, or the members of a record, have, and their kinds."""
    if value.requirement is Requirement.ARRAY:
        return ("ArrayIndex", Kind.BIGINT), ("ArrayValue", None)
    return ("PropertyName", Kind.NVARCHAR), ("PropertyValue", None)


@dataclass(frozen=True, slots=True)
class Analyze(SingleInputNode):
    """The rows below, each with one more column for each analytic function over their columns."""

    child: Rows
    analytics: tuple[Analytic, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.child.columns, *(Column(str(analytic), analytic) for analytic in self.analytics))

    @property
    def reach_us(self) -> int:
        return max(analytic.limit_us for analytic in self.analytics)

    def describe(self) -> str:
        return f"Analyze {', '.join(map(str, self.analytics))}"


@dataclass(frozen=True, slots=True)
class Join(Node):
    """Pairs of a left and a right row that match, each at the later of its two times; see :mod:`query.operators.joins.temporal_join`."""

    left: Rows
    right: Rows
    # Whether left rows without a match give a row too, with NULL on the right.
    outer: bool
    # How far apart in time matching rows may be.
    bounds: Bounds
    # Pairs that must be equal: an expression over the left row, and one over the right.
    keys: tuple[tuple[Expr, Expr], ...]
    # Another condition, over the columns of both; None: none.
    residual: Expr | None
    # The left row's, then the right row's.
    columns: tuple[Column, ...]
    # The column of the left row whose time is compared; None: its System.Timestamp.
    left_time: Slot | None = None
    # How much older than its System.Timestamp that time may be, microseconds.
    left_spread_us: int = 0

    @property
    def children(self) -> tuple[Node, ...]:
        return self.left, self.right

    @property
    def reach_us(self) -> int:
        distance_us = max(0, self.bounds.after_us, self.bounds.before_us + self.left_spread_us)
        # A left row is known to be unmatched only when all right rows that could have matched it are known.
        return max(distance_us, self.bounds.width_us) if self.outer else distance_us

    def describe(self) -> str:
        on = [str(self.bounds), *(f"{left} = {right}" for left, right in self.keys), *([str(self.residual)] if self.residual else [])]
        # A checkpoint is bound to this text. The instant of unmatched rows was another one before, so the text says which it is.
        return f"{'LeftJoin, unmatched at the last instant,' if self.outer else 'Join'} on {' AND '.join(on)}"


@dataclass(frozen=True, slots=True)
class Reference(Node):
    """The records of a table of reference data. No operator reads them; :class:`ReferenceJoin` looks them up."""

    name: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """Always empty: records have fields, as events have, and no columns."""
        return ()

    def describe(self) -> str:
        return f"Reference {self.name}"


@dataclass(frozen=True, slots=True)
class ReferenceJoin(Node):
    """Rows, each with the records of a table that it matches, at its own time; see :mod:`query.operators.joins.reference_join`."""

    left: Rows
    # Gives the records: a projection of a :class:`Reference`, perhaps filtered.
    reference: Project
    # Whether rows without a match give a row too, with NULL on the right.
    outer: bool
    # Pairs that must be equal: an expression over the row, and one over the record's columns.
    keys: tuple[tuple[Expr, Expr], ...]
    # Another condition, over the columns of both; None: none.
    residual: Expr | None
    # The row's, then the record's.
    columns: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        # A table is no stream: only the left rows come from a node that is computed.
        return (self.left,)

    @property
    def name(self) -> str:
        table = source_of(self.reference)
        assert isinstance(table, Reference)
        return table.name

    def describe(self) -> str:
        on = [*(f"{left} = {right}" for left, right in self.keys), *([str(self.residual)] if self.residual else [])]
        where = [f" where {' AND '.join(map(str, conditions))}"] if (conditions := predicates_of(self.reference)) else []
        return f"{'LeftReferenceJoin' if self.outer else 'ReferenceJoin'} {self.name}{''.join(where)} on {' AND '.join(on) or 'all'}"


@dataclass(frozen=True, slots=True)
class Custom(SingleInputNode):
    """The rows of an operator that the script calls by name with these other arguments (:mod:`query.plan.operator_extensions`)."""

    child: Rows
    name: str
    arguments: tuple[str, ...]
    columns: tuple[Column, ...]
    # Not compared: name and arguments identify the operator, so equal calls are equal nodes and are computed once.
    operator: Operator = field(compare=False, repr=False)

    @property
    def reach_us(self) -> int:
        return self.operator.reach_us

    def describe(self) -> str:
        return f"Custom {self.name}({', '.join(self.arguments)}): {', '.join(column.name for column in self.columns)}"


@dataclass(frozen=True, slots=True)
class Recognize(SingleInputNode):
    """One result for each row that begins a match of a pattern, when the match is certain; see :mod:`query.operators.patterns`."""

    # The partition keys and all values of a row that definitions and measures need.
    child: Rows
    # Columns whose values rows of one match have in common.
    partition: tuple[Slot, ...]
    # How much later than the first row of a match its other rows may be.
    limit_us: int
    pattern: Pattern
    # For a variable its condition, over columns of the row and over *inputs*, whose numbers are those of :class:`Total`.
    definitions: tuple[tuple[str, Expr], ...]
    # The values of earlier rows that conditions read.
    inputs: tuple[MatchValue, ...]
    # The values of whole matches that *columns* are computed from, as totals.
    measures: tuple[MatchValue, ...]
    columns: tuple[Column, ...]

    @property
    def reach_us(self) -> int:
        return self.limit_us

    def describe(self) -> str:
        keys = ", ".join(map(str, self.partition)) or "all"
        rules = ", ".join(f"{name} AS {condition}" for name, condition in self.definitions)
        columns = ", ".join(map(str, self.columns))
        return f"Recognize ({self.pattern}) within {format_duration(self.limit_us)} by {keys}, {rules}: {columns}"


def scan_of(node: Node) -> Scan | None:
    """Return the scan whose events a node takes, with nothing but filters between; None if it takes rows of other nodes."""
    below = source_of(node) if len(node.children) == 1 else node
    return below if isinstance(below, Scan) else None


def predicates_of(node: Node) -> tuple[Expr, ...]:
    """Return the conditions on the input rows of *node*, in the order in which they are evaluated."""
    child = node.children[0]
    return (*predicates_of(child), child.predicate) if isinstance(child, Filter) else ()


def source_of(node: Node) -> Node:
    """Return the node whose rows *node* takes, without the filters between them."""
    child = node.children[0]
    return source_of(child) if isinstance(child, Filter) else child


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, each as often as it is used, the outermost first."""
    stack = [node]
    while stack:
        yield (top := stack.pop())
        stack.extend(reversed(top.children))


def exprs_in(node: Node) -> Iterator[Expr]:
    """Yield every expression in the fields of a node, and every part of it."""
    values: list[object] = [getattr(node, node_field.name) for node_field in fields(node)]  # type: ignore[arg-type]
    while values:
        value = values.pop(0)
        if isinstance(value, tuple):
            values[:0] = value
        elif isinstance(value, (Column, Expr)):
            yield from (value.expr if isinstance(value, Column) else value).walk()


def lookback_of(node: Node) -> int:
    """Return how long before a row of *node* events can still count for it, microseconds, or ``UNBOUNDED``."""
    below = max(map(lookback_of, node.children), default=0)
    return UNBOUNDED if UNBOUNDED in (below, node.reach_us) else below + node.reach_us


@dataclass(frozen=True, slots=True)
class Plan:
    """One SELECT ... INTO: its last node and the name of its output."""

    root: Rows
    output: str

    @property
    def scans(self) -> tuple[Scan, ...]:
        """The inputs it reads, each once, in the order of the script."""
        return tuple(dict.fromkeys(node for node in walk(self.root) if isinstance(node, Scan)))

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scan.input for scan in self.scans))

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node.name for node in walk(self.root) if isinstance(node, ReferenceJoin)))

    @property
    def over(self) -> Expr | None:
        return self.scans[0].over

    @property
    def lookback_us(self) -> int:
        return lookback_of(self.root)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each output column; ``any`` if the type depends on the event."""
        return tuple((column.name, type_name(static_kind(column.expr))) for column in self.root.columns) or (("*", "any"),)

    def explain(self) -> str:
        """Return the plan as a tree, the output on top, followed by look-back and column types."""
        lines = [f"Output {self.output}", *_tree(self.root, 1)]
        types = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        lookback = "unbounded" if self.lookback_us == UNBOUNDED else format_duration(self.lookback_us)
        return "\n".join([*lines, f"look-back: {lookback}", f"columns: {types}"])


def _tree(node: Node, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{node.describe()}"
    for child in node.children:
        yield from _tree(child, depth + 1)


def type_name(kind: Kind | None) -> str:
    """Return a kind as ASA spells it, ``any`` if values differ in kind."""
    return "any" if kind is None else kind.asa_name
