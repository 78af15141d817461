"""
Plans: what a query computes, as frozen nodes that print themselves; built by the SQL binder, executed by
:mod:`query.engine.program`.

A node gives *rows*: each has a System.Timestamp, a place in the node's own fixed order among rows of the same instant, and
columns. Expressions over a :class:`Scan` read payload fields; over any other node they read the columns of its rows
(:class:`~tidegate.expressions.tree.Slot`). Nodes that are equal compute the same and are computed once.

A plan says what must be read again when it is restarted: ``lookback_us`` is the span before an output instant in which
events can still count for it; ``UNBOUNDED`` where only the beginning is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ordering.ticks import INFINITY, format_duration
from query.plan.join_bounds import Bounds
from query.plan.operator import Operator
from query.plan.windows import AnyWindow, WindowSet
from tidegate.expressions.evaluation.static_kinds import static_kind
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Aggregate, Analytic, Call, Expr, Slot

UNBOUNDED = INFINITY
"""The look-back of what can only be computed from the beginning."""


@dataclass(frozen=True, slots=True)
class Column:
    """An output column: its name as the script spells it, and what it holds."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} AS {self.name}"


class Node(Protocol):
    """What every node says of itself."""

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes whose rows it takes."""
        ...

    @property
    def reach_us(self) -> int:
        """How long after an event a row of this node can still depend on it, microseconds."""
        ...

    def describe(self) -> str:
        """Return one line."""
        ...


class Rows(Node, Protocol):
    """A node that gives rows of named columns."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Name of each column, and an expression whose kind is the column's."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """
    Reads one input in order.

    Args:
        input: The input's name as it is configured.
        timestamp_by: The event time of TIMESTAMP BY, or None: arrival, or a result's system timestamp.
        over: The substream key along which time advances, or None: time advances by the floor.
    """

    input: str
    timestamp_by: Expr | None = None
    over: Expr | None = None

    @property
    def children(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def reach_us(self) -> int:
        """Nothing: an event is a row."""
        return 0

    def describe(self) -> str:
        """Return one line."""
        by = f", timestamp by {self.timestamp_by}" if self.timestamp_by else ""
        return f"Scan {self.input}{by}" + (f", over {self.over}" if self.over else "")


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows whose predicate is true."""

    child: Scan | Filter | Rows
    predicate: Expr

    @property
    def children(self) -> tuple[Node, ...]:
        """The node below."""
        return (self.child,)

    @property
    def reach_us(self) -> int:
        """Nothing."""
        return 0

    def describe(self) -> str:
        """Return one line."""
        return f"Filter {self.predicate}"


@dataclass(frozen=True, slots=True)
class Project:
    """One result per row, at the row's own system timestamp; without columns (``SELECT *`` from an input) the payload itself."""

    child: Scan | Filter | Rows
    columns: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The node below."""
        return (self.child,)

    @property
    def reach_us(self) -> int:
        """Nothing."""
        return 0

    def describe(self) -> str:
        """Return one line."""
        return f"Project {', '.join(map(str, self.columns)) or 'the payload as it is'}"


@dataclass(frozen=True, slots=True)
class WindowedAggregate:
    """
    One result per window and group that has rows, at the window's end.

    Args:
        child: Where rows come from.
        window: Which rows belong together in time.
        keys: The grouping keys, computed from a row.
        totals: The aggregates, over values computed from a row.
        having: Computed from a group; only groups for which it is true give results. None: all.
        columns: What a result holds, computed from keys, totals and the window's end.
        over_key: Which key is the substream key; None without OVER.
    """

    child: Scan | Filter | Rows
    window: AnyWindow | WindowSet
    keys: tuple[Expr, ...]
    totals: tuple[Aggregate, ...]
    having: Expr | None
    columns: tuple[Column, ...]
    over_key: int | None = None

    @property
    def children(self) -> tuple[Node, ...]:
        """The node below."""
        return (self.child,)

    @property
    def reach_us(self) -> int:
        """How long a result can depend on an event."""
        return self.window.reach_us

    def describe(self) -> str:
        """Return one line."""
        keys = ", ".join(map(str, self.keys)) or "all"
        having = f", having {self.having}" if self.having else ""
        return f"WindowedAggregate {self.window} by {keys}: {', '.join(map(str, self.columns))}{having}"


@dataclass(frozen=True, slots=True)
class Union:
    """
    The rows of all parts, duplicates kept; of the same instant in the order of the parts.

    Args:
        parts: What is put together; all have as many columns.
        columns: Names of the first part, with a kind where all parts agree in it.
    """

    parts: tuple[Rows, ...]
    columns: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The parts."""
        return self.parts

    @property
    def reach_us(self) -> int:
        """Nothing."""
        return 0

    def describe(self) -> str:
        """Return one line."""
        return "Union"


@dataclass(frozen=True, slots=True)
class Apply:
    """
    Each row below with each element of an array, or each member of a record, that it holds, in their order.

    Args:
        child: Where rows come from.
        value: The array or record, as a call of ``array`` or ``record``.
        outer: Whether a row without elements is given once, with NULL.
        name: What the script calls the elements.
    """

    child: Rows
    value: Call
    outer: bool
    name: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the rows below, then the element's."""
        width = len(self.child.columns)
        added = (Column(f"{self.name}.{name}", Slot(width + at, name, kind)) for at, (name, kind) in enumerate(element_columns(self.value)))
        return (*self.child.columns, *added)

    @property
    def children(self) -> tuple[Node, ...]:
        """The node below."""
        return (self.child,)

    @property
    def reach_us(self) -> int:
        """Nothing."""
        return 0

    def describe(self) -> str:
        """Return one line."""
        return f"{'OuterApply' if self.outer else 'CrossApply'} {self.value} AS {self.name}"


def element_columns(value: Call) -> tuple[tuple[str, Kind | None], ...]:
    """Return the columns that the elements of an array, or the members of a record, have, and their kinds."""
    if value.name == "array":
        return ("ArrayIndex", Kind.BIGINT), ("ArrayValue", None)
    return ("PropertyName", Kind.NVARCHAR), ("PropertyValue", None)


@dataclass(frozen=True, slots=True)
class Analyze:
    """
    The rows below, each with one more column for each analytic function.

    Args:
        child: Where rows come from.
        analytics: The functions, computed from the columns of the rows below.
    """

    child: Rows
    analytics: tuple[Analytic, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the rows below, then one for each function."""
        return (*self.child.columns, *(Column(str(analytic), analytic) for analytic in self.analytics))

    @property
    def children(self) -> tuple[Node, ...]:
        """The node below."""
        return (self.child,)

    @property
    def reach_us(self) -> int:
        """How far back the functions look."""
        return max(analytic.limit_us for analytic in self.analytics)

    def describe(self) -> str:
        """Return one line."""
        return f"Analyze {', '.join(map(str, self.analytics))}"


@dataclass(frozen=True, slots=True)
class Join:
    """
    Pairs of a left and a right row that match, each at the later of its two times; see :mod:`query.operators.joins.temporal_join`.

    Args:
        left: Gives the left rows.
        right: Gives the right rows.
        outer: Whether left rows without any match are given too, with NULL on the right.
        bounds: How far apart in time rows may be that match.
        keys: What must be equal: an expression over the left row, and one over the right.
        residual: What else must be true, over the columns of both; None: nothing.
        columns: The left row's, then the right row's.
        left_time: Which column of the left row is the time that is compared, None: its System.Timestamp.
        left_spread_us: How much older than its System.Timestamp that time may be, microseconds.
    """

    left: Rows
    right: Rows
    outer: bool
    bounds: Bounds
    keys: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    columns: tuple[Column, ...]
    left_time: Slot | None = None
    left_spread_us: int = 0

    @property
    def children(self) -> tuple[Node, ...]:
        """Both sides."""
        return self.left, self.right

    @property
    def reach_us(self) -> int:
        """How far apart matches may be; and that a left row stays alone depends on all right rows that could have matched it."""
        apart = max(0, self.bounds.after_us, self.bounds.before_us + self.left_spread_us)
        return max(apart, self.bounds.width_us) if self.outer else apart

    def describe(self) -> str:
        """Return one line."""
        on = [str(self.bounds), *(f"{left} = {right}" for left, right in self.keys), *([str(self.residual)] if self.residual else [])]
        return f"{'LeftJoin' if self.outer else 'Join'} on {' AND '.join(on)}"


@dataclass(frozen=True, slots=True)
class Reference:
    """The records of a table of reference data; no operator of its own reads them, :class:`ReferenceJoin` looks them up."""

    name: str

    @property
    def children(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def reach_us(self) -> int:
        """Nothing."""
        return 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """None: it has fields, as events have."""
        return ()

    def describe(self) -> str:
        """Return one line."""
        return f"Reference {self.name}"


@dataclass(frozen=True, slots=True)
class ReferenceJoin:
    """
    Rows, each with the records of a table that it matches, at its own time; see :mod:`query.operators.joins.reference_join`.

    Args:
        left: Gives the rows.
        reference: Gives the records: a projection of a :class:`Reference`, perhaps filtered.
        outer: Whether rows without any match are given too, with NULL on the right.
        keys: What must be equal: an expression over the row, and one over the record's columns.
        residual: What else must be true, over the columns of both; None: nothing.
        columns: The row's, then the record's.
    """

    left: Rows
    reference: Project
    outer: bool
    keys: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    columns: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The node that gives the rows: a table is no stream."""
        return (self.left,)

    @property
    def reach_us(self) -> int:
        """Nothing."""
        return 0

    @property
    def name(self) -> str:
        """The name of the table."""
        table = source_of(self.reference)
        assert isinstance(table, Reference)
        return table.name

    def describe(self) -> str:
        """Return one line."""
        on = [*(f"{left} = {right}" for left, right in self.keys), *([str(self.residual)] if self.residual else [])]
        where = [f" where {' AND '.join(map(str, conditions))}"] if (conditions := predicates_of(self.reference)) else []
        return f"{'LeftReferenceJoin' if self.outer else 'ReferenceJoin'} {self.name}{''.join(where)} on {' AND '.join(on) or 'all'}"


@dataclass(frozen=True, slots=True)
class Custom:
    """
    Rows that an operator gives which scripts call by name; see :mod:`query.plan.operator_extensions`.

    Args:
        child: Gives the rows it takes.
        name: What scripts call it.
        arguments: What it was given beside the rows, as scripts write it.
        columns: What it gives.
        operator: What computes it; name and arguments say which one it is.
    """

    child: Rows
    name: str
    arguments: tuple[str, ...]
    columns: tuple[Column, ...]
    operator: Operator = field(compare=False, repr=False)

    @property
    def children(self) -> tuple[Node, ...]:
        """The node below."""
        return (self.child,)

    @property
    def reach_us(self) -> int:
        """What the operator says."""
        return self.operator.reach_us

    def describe(self) -> str:
        """Return one line."""
        return f"Custom {self.name}({', '.join(self.arguments)}): {', '.join(column.name for column in self.columns)}"


def scan_of(node: Node) -> Scan | None:
    """Return the scan whose events a node takes with nothing but a filter between, None where it takes other nodes' rows."""
    below = source_of(node) if len(node.children) == 1 else node
    return below if isinstance(below, Scan) else None


def predicates_of(node: Node) -> tuple[Expr, ...]:
    """Return the conditions that rows must meet before *node* takes them, in the order in which they are asked."""
    child = node.children[0]
    return (*predicates_of(child), child.predicate) if isinstance(child, Filter) else ()


def source_of(node: Node) -> Node:
    """Return the node whose rows *node* takes, filters between them left out."""
    child = node.children[0]
    return source_of(child) if isinstance(child, Filter) else child


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, each as often as it is used, the outermost first."""
    ahead = [node]
    while ahead:
        yield (here := ahead.pop())
        ahead.extend(reversed(here.children))


def lookback_of(node: Node) -> int:
    """Return how long before a row of *node* events can count for it, microseconds; ``UNBOUNDED`` without limit."""
    below = max(map(lookback_of, node.children), default=0)
    return UNBOUNDED if UNBOUNDED in (below, node.reach_us) else below + node.reach_us


@dataclass(frozen=True, slots=True)
class Plan:
    """One SELECT ... INTO as a whole: its last node and the name of its output."""

    root: Rows
    output: str

    @property
    def scans(self) -> tuple[Scan, ...]:
        """What is read, each input once, in the order in which the script names them."""
        return tuple(dict.fromkeys(node for node in walk(self.root) if isinstance(node, Scan)))

    @property
    def scan(self) -> Scan:
        """What is read first."""
        return self.scans[0]

    @property
    def input(self) -> str:
        """The first input's name as it is configured."""
        return self.scan.input

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all inputs."""
        return tuple(dict.fromkeys(scan.input for scan in self.scans))

    @property
    def references(self) -> tuple[str, ...]:
        """The names of the tables of reference data that are looked up."""
        return tuple(dict.fromkeys(node.name for node in walk(self.root) if isinstance(node, ReferenceJoin)))

    @property
    def over(self) -> Expr | None:
        """The substream key of OVER, or None."""
        return self.scan.over

    @property
    def is_windowed(self) -> bool:
        """Tell whether results are stamped at window ends rather than at their events."""
        return any(isinstance(node, WindowedAggregate) for node in walk(self.root))

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, in microseconds."""
        return lookback_of(self.root)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each output column; ``any`` is a value that has the kind its event gave it."""
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
    """Return a kind as ASA spells it, ``any`` where values differ in kind."""
    return "any" if kind is None else kind.asa_name
