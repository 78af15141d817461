"""
Plans: what a query computes, as frozen nodes that print themselves; built by the SQL binder, executed by
:mod:`query.compile`.

A plan says what must be read again when it is restarted: ``lookback_us`` is the span before an output instant in which
events can still count for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ordering.ticks import format_duration
from query.operators.windows import Window
from tidegate.runtime.scalars.evaluate import static_kind
from tidegate.runtime.scalars.expressions import Aggregate, Expr


@dataclass(frozen=True, slots=True)
class Column:
    """An output column: its name as the script spells it, and what it holds."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} AS {self.name}"


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

    def describe(self) -> str:
        """Return one line."""
        by = f", timestamp by {self.timestamp_by}" if self.timestamp_by else ""
        return f"Scan {self.input}{by}" + (f", over {self.over}" if self.over else "")


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows whose predicate is true."""

    child: Scan
    predicate: Expr

    def describe(self) -> str:
        """Return one line."""
        return f"Filter {self.predicate}"


@dataclass(frozen=True, slots=True)
class Project:
    """One result per row, at the row's own system timestamp; without columns (``SELECT *``) the payload itself."""

    child: Scan | Filter
    columns: tuple[Column, ...]

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

    child: Scan | Filter
    window: Window
    keys: tuple[Expr, ...]
    totals: tuple[Aggregate, ...]
    having: Expr | None
    columns: tuple[Column, ...]
    over_key: int | None = None

    def describe(self) -> str:
        """Return one line."""
        keys = ", ".join(map(str, self.keys)) or "all"
        having = f", having {self.having}" if self.having else ""
        return f"WindowedAggregate {self.window} by {keys}: {', '.join(map(str, self.columns))}{having}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole query: its last operator and the name of its output."""

    root: Project | WindowedAggregate
    output: str

    @property
    def scan(self) -> Scan:
        """The operator that reads the input."""
        return self.root.child.child if isinstance(self.root.child, Filter) else self.root.child

    @property
    def input(self) -> str:
        """The input's name as it is configured."""
        return self.scan.input

    @property
    def over(self) -> Expr | None:
        """The substream key of OVER, or None."""
        return self.scan.over

    @property
    def predicate(self) -> Expr | None:
        """The condition of WHERE, or None."""
        return self.root.child.predicate if isinstance(self.root.child, Filter) else None

    @property
    def windowed(self) -> bool:
        """Tell whether results are stamped at window ends rather than at their events."""
        return isinstance(self.root, WindowedAggregate)

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, in microseconds."""
        return self.root.window.size_us if isinstance(self.root, WindowedAggregate) else 0

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each output column; ``any`` is a value that has the kind its event gave it."""
        return tuple((column.name, _type(column.expr)) for column in self.root.columns) or (("*", "any"),)

    def explain(self) -> str:
        """Return the plan as a tree, the output on top, followed by look-back and column types."""
        lines = [f"Output {self.output}"]
        lines += [f"{'  ' * depth}{node.describe()}" for depth, node in enumerate(self._nodes(), start=1)]
        types = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return "\n".join([*lines, f"look-back: {format_duration(self.lookback_us)}", f"columns: {types}"])

    def _nodes(self) -> Iterator[Project | WindowedAggregate | Filter | Scan]:
        yield self.root
        if isinstance(self.root.child, Filter):
            yield self.root.child
        yield self.scan


def _type(expr: Expr) -> str:
    kind = static_kind(expr)
    return "any" if kind is None else kind.asa_name
