"""
Columns read: which columns of a node's rows the nodes above it use, so that others are neither computed nor retained.

Law: results are the same as if every column were computed. So a column that can fail is computed even if nobody reads it, since a row on
which it fails is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from query.plan.nodes import (
    Analyze,
    Apply,
    Custom,
    Join,
    Plan,
    Project,
    Recognize,
    ReferenceJoin,
    Rows,
    Union,
    WindowedAggregate,
    exprs_in,
    predicates_of,
    scan_of,
    source_of,
    walk,
)
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import (
    Call,
    Cast,
    Expr,
    Field,
    Header,
    Leaf,
    Literal,
    Payload,
    Property,
    Required,
    Requirement,
    Slot,
    Zoned,
    keys_of,
)

LeafKind = TypeVar("LeafKind", bound=Leaf)
# Numbers of columns; None: all of them.
ColumnNumbers = frozenset[int] | None

_COMPARED = frozenset((Kind.BIT, Kind.BIGINT, Kind.FLOAT, Kind.DATETIME, Kind.NVARCHAR))
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">=", "between", "in", Requirement.COMPARABLE))
_LOGIC = frozenset(("and", "or", "not", Requirement.CONDITION))


def needed_columns(plans: Sequence[Plan]) -> dict[Rows, ColumnNumbers]:
    """Return for each node that gives rows the columns of it that are used."""
    needed: dict[Rows, ColumnNumbers] = {}
    for plan in plans:
        _add_below_first(plan.root, needed)
    needed |= {plan.root: None for plan in plans}
    for node in reversed([*needed]):
        # A node over events reads columns of no other node.
        for below, read in zip(rows_below(node), columns_read(node, needed[node]), strict=False):
            known = needed[below]
            needed[below] = None if known is None or read is None else known | read
    return needed


def _add_below_first(node: Rows, needed: dict[Rows, ColumnNumbers]) -> None:
    for below in rows_below(node) if node not in needed else ():
        _add_below_first(below, needed)
    needed.setdefault(node, frozenset())


def rows_below(node: Rows) -> Sequence[Rows]:
    """Return the nodes whose rows *node* takes, without the filters between; none if it takes events."""
    if scan_of(node) is not None:
        return ()
    return (source_of(node),) if len(node.children) == 1 else node.children  # type: ignore[return-value]


def fields_extracted(plans: Sequence[Plan]) -> dict[str, tuple[Field, ...]]:
    """Return for each input the fields that are extracted from its payloads, in one pass for all nodes."""
    fields: dict[str, dict[Field, None]] = {}
    for node, needed in needed_columns(plans).items():
        if (scan := scan_of(node)) is not None:
            exprs = [*predicates_of(node), *(_own_expressions(node, needed) or []), *keys_of(scan.over)]
            used = (leaf for expr in exprs for leaf in expr.leaves() if isinstance(leaf, Field))
            fields.setdefault(scan.input, {}).update(dict.fromkeys(used))
    return {name: tuple(used) for name, used in fields.items()}


def leaves_read(plans: Sequence[Plan], input: str, kind: type[LeafKind]) -> tuple[LeafKind, ...]:
    """Return the leaves of one *kind* that *plans* read of an input's events, each once."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root) if len(node.children) == 1)
    reading = [node for node in nodes if (scan := scan_of(node)) is not None and scan.input == input]
    return tuple(dict.fromkeys(part for node in reading for part in exprs_in(node) if isinstance(part, kind)))


def headers_read(plans: Sequence[Plan], input: str) -> tuple[str, ...]:
    """Return the names of the headers that *plans* read of an input's records."""
    return tuple(sorted(header.name for header in leaves_read(plans, input, Header)))


def columns_read(node: Rows, needed: ColumnNumbers) -> tuple[ColumnNumbers, ...]:
    """Return for each child the columns of its rows that *node* reads, if *needed* of its own columns are used."""
    if isinstance(node, Union):
        return tuple(needed for _ in node.parts)
    if isinstance(node, Join):
        return _read_by_join(node, needed)
    own = _own_expressions(node, needed)
    if own is None:
        return (None,)
    read = _slots([*predicates_of(node), *own])
    if isinstance(node, (Project, WindowedAggregate)):
        return (read,)
    # The node adds columns to those of the rows below.
    return (None if needed is None else frozenset(number for number in read | needed if number < len(node.children[0].columns)),)  # type: ignore[attr-defined]


def columns_present(node: Rows, needed: ColumnNumbers) -> list[int]:
    """Return the numbers of the columns that the rows of *node* have, if *needed* of them are used."""
    if needed is None or isinstance(node, (WindowedAggregate, Custom, Recognize)):
        return list(range(len(node.columns)))
    return sorted(computed_columns(node, needed)) if isinstance(node, Project) else sorted(needed)


def computed_columns(node: Project, needed: ColumnNumbers) -> dict[int, Expr]:
    """Return the columns that must be computed, by number: those *needed*, and those that can fail."""
    columns = {number: column.expr for number, column in enumerate(node.columns)}
    computed = {number: expr for number, expr in columns.items() if needed is None or number in needed or can_fail(expr)}
    # A payload that cannot be read is a dead letter, so if any field of it was to be read, one is.
    exprs = [*predicates_of(node), *computed.values()]
    first_field = next((number for number, expr in columns.items() if _reads_payload(expr)), None)
    if first_field is not None and not any(map(_reads_payload, exprs)):
        computed[first_field] = columns[first_field]
    return computed


def _read_by_join(node: Join, needed: ColumnNumbers) -> tuple[ColumnNumbers, ColumnNumbers]:
    if needed is None:
        return None, None
    width = len(node.left.columns)
    joined = needed | _slots([] if node.residual is None else [node.residual])
    left = _slots([*(left for left, _ in node.keys), *([] if node.left_time is None else [node.left_time])])
    right = _slots(right for _, right in node.keys)
    return left | {number for number in joined if number < width}, right | {number - width for number in joined if number >= width}


def _own_expressions(node: Rows, needed: ColumnNumbers) -> list[Expr] | None:
    """Return the expressions of a node over the rows below; None if they are not known."""
    if isinstance(node, Project):
        return list(computed_columns(node, needed).values())
    if isinstance(node, WindowedAggregate):
        return [*node.keys, *node.totals]
    if isinstance(node, Apply):
        return [node.value]
    if isinstance(node, Analyze):
        return list(node.analytics)
    if isinstance(node, ReferenceJoin):
        return [*(left for left, _ in node.keys), *([] if node.residual is None else [node.residual])]
    return None


def _reads_payload(expr: Expr) -> bool:
    return any(isinstance(leaf, Field) or (isinstance(leaf, Payload) and not leaf.names) for leaf in expr.leaves())


def can_fail(expr: Expr) -> bool:
    """Return whether an expression may fail on some row. Values of the row, TRY_CAST of them and comparisons of one known kind never do."""
    if isinstance(expr, (Leaf, Literal)):
        return False
    if isinstance(expr, (Call, Required)):
        kinds = {static_kind(part) for part in expr.parts} - {Kind.NULL}
        operation = expr.requirement if isinstance(expr, Required) else expr.name
        fits = kinds <= {Kind.BIT} if operation in _LOGIC else operation in _COMPARISONS and len(kinds) == 1 and kinds <= _COMPARED
        return not fits or any(map(can_fail, expr.parts))
    is_safe = isinstance(expr, (Property, Zoned)) or (isinstance(expr, Cast) and expr.lenient)
    return not is_safe or can_fail(expr.parts[0])


def _slots(exprs: Iterable[Expr]) -> frozenset[int]:
    return frozenset(part.index for expr in exprs for part in expr.walk() if isinstance(part, Slot))
