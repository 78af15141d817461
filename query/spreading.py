"""
Spreading: into how many buckets the work of a query without OVER is split, and why.

An ordered topic with substreams is spread by their keys: all events of a key, of every input partition, lie in one of its
partitions, and each partition says how far every input partition has come. So where everything in a query that puts rows
together - grouping, joining, looking back - keeps rows of different keys apart, each partition can be worked on alone, by a
bucket of its own, and no row ever changes buckets. Law: what all buckets give together is what one bucket would give.

It holds if rows that a query takes for equal have equal key bytes. A field without a declared type groups by kind and
value, and so do its bytes; but ``1 = 1.0`` in a join, while their bytes differ: there the key must be declared as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from query.operators.windows import Session, each
from query.plan import Analyze, Custom, Filter, Join, Node, Plan, Project, Rows, Scan, Union, WindowedAggregate, source_of, walk
from tidegate.runtime.scalars.expressions import Cast, Expr, Field, Key, Slot
from tidegate.runtime.scalars.kinds import Kind


@dataclass(frozen=True, slots=True)
class Spreading:
    """
    Args:
        by_partition: Whether each partition of the ordered topics is a bucket of its own; else one bucket merges them all.
        why: The reason, for people.
    """

    by_partition: bool
    why: str


def spreading_of(plans: Sequence[Plan], overs: Mapping[str, Expr | None], partitions: Mapping[str, int]) -> Spreading:
    """
    Decide how a query without OVER is spread.

    Args:
        plans: What is computed.
        overs: The substream key of each input, None where its topic has no substreams.
        partitions: How many partitions the ordered topic of each input has.
    """
    if len(set(partitions.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in partitions.items())
        return Spreading(False, f"one bucket: the ordered topics have different numbers of partitions ({told})")
    without = [name for name, over in overs.items() if over is None]
    if without:
        return Spreading(False, f"one bucket: {', '.join(without)} has no substreams (over) that could be spread")
    for node in (node for plan in plans for node in walk(plan.root)):
        obstacle = _obstacle(node, overs)
        if obstacle:
            return Spreading(False, f"one bucket: {obstacle}")
    keys = ", ".join(dict.fromkeys(str(over) for over in overs.values()))
    return Spreading(True, f"one bucket for each partition: everything keeps rows of different {keys} apart")


def _obstacle(node: Node, overs: Mapping[str, Expr | None]) -> str:
    """Return why rows of different substream keys meet in a node; empty where they do not."""
    if isinstance(node, WindowedAggregate):
        apart = [at for at, key in enumerate(node.keys) if _is_key(source_of(node), key, overs)]
        mixed = not apart or any(not set(session.partition) & set(apart) for session in _sessions(node))
        return f"groups hold rows of different substream keys: {node.describe()}" if mixed else ""
    if isinstance(node, Analyze):
        for analytic in node.analytics:
            if not any(_is_key(node.child, key, overs) for key in analytic.partition):
                return f"{analytic} is not partitioned by the substream key"
    if isinstance(node, Join):
        pairs = [pair for pair in node.keys if _is_key(node.left, pair[0], overs) and _is_key(node.right, pair[1], overs)]
        if not pairs:
            return f"rows of different substream keys meet: {node.describe()}"
        if not any(_is_text(node.left, left) and _is_text(node.right, right) for left, right in pairs):
            return 'a number may equal another one that is written differently: declare the key of the join as "nvarchar(max)" in fields'
    if isinstance(node, Custom):
        telling: Sequence[int] | None = getattr(node.operator, "apart", ())
        if telling is not None and not any(_is_key(node.child, Slot(at, "", None), overs) for at in telling):
            return f"rows of different substream keys may meet: {node.describe()}"
    if not isinstance(node, (Analyze, Join, Project, Filter, Scan, Union)) and len(node.children) != 1:
        return f"{node.describe()} is not spread"
    return ""


def _sessions(node: WindowedAggregate) -> list[Session]:
    """Return the session windows of a node: one of them may serve the groups of many keys."""
    return [window for window in each(node.window) if isinstance(window, Session)]


def _is_key(node: Node, expr: Expr, overs: Mapping[str, Expr | None]) -> bool:
    """Tell whether an expression over the rows of *node* is, in every row, the substream key of the event it comes from."""
    origins = _origins(node, expr)
    return bool(origins) and all(origin is not None and _same(origin[1], overs[origin[0]]) for origin in origins)


def _is_text(node: Node, expr: Expr) -> bool:
    """Tell whether it is text in every row."""
    return all(origin is not None and isinstance(origin[1], Cast) and origin[1].kind is Kind.NVARCHAR for origin in _origins(node, expr))


def _same(found: Expr, over: Expr | None) -> bool:
    """Tell whether what is equal by *found* has equal bytes as the substream key."""
    if isinstance(found, Cast) and found.declared and found.kind is not Kind.NVARCHAR:
        # A declared number is read: 07 and 7 are equal then, but not their bytes.
        return False
    return found == over


def _origins(node: Node, expr: Expr) -> list[tuple[str, Expr] | None]:
    """Return input and field that an expression over the rows of *node* is, in each way rows come about; None for anything else."""
    if isinstance(node, Filter):
        return _origins(node.child, expr)
    if isinstance(node, Scan):
        plain = isinstance(expr, Field) or (isinstance(expr, Cast) and expr.declared)
        return [(node.input, expr) if plain else None]
    if not isinstance(expr, Slot):
        return [None]
    if isinstance(node, Union):
        return [origin for part in node.parts for origin in _origins_of_column(part, expr.index)]
    return _origins_of_column(node, expr.index)


def _origins_of_column(node: Node, index: int) -> list[tuple[str, Expr] | None]:
    if isinstance(node, Union):
        return [origin for part in node.parts for origin in _origins_of_column(part, index)]
    if isinstance(node, WindowedAggregate):
        column = node.columns[index].expr
        return _origins(source_of(node), node.keys[column.index]) if isinstance(column, Key) else [None]
    if isinstance(node, Project) and node.columns:
        return _origins(source_of(node), node.columns[index].expr)
    if isinstance(node, Custom) and not getattr(node.operator, "passes", False):
        return [None]
    if isinstance(node, Join):
        width = len(node.left.columns)
        return _origins_of_column(node.left, index) if index < width else _origins_of_column(node.right, index - width)
    child: Rows | None = getattr(node, "child", None)
    if child is not None and index < len(child.columns):
        # A node that adds columns to the rows below.
        return _origins_of_column(child, index)
    return [None]
