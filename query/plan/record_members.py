"""
Record members: TopOne() picks a whole row as a record. If nothing but members of it is read, these are picked and no record is made.

Law: results and dead letters are those of the plan as the script has it. So a record stays one if a row that holds it may become a dead
letter, which shows it, or if a member of its text may differ from the column: a float, or a value of no known kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, count
from typing import TypeVar

from query.columns.splicing import STAR
from query.plan.columns_read import can_fail
from query.plan.nodes import Column, Filter, Node, Plan, Project, WindowedAggregate, predicates_of, source_of, walk
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate, Cast, Expr, Key, Payload, Property, Slot, Total, replace_parts

AnyNode = TypeVar("AnyNode", bound=Node)

# Written as JSON and read back, values of these kinds are themselves; a datetime becomes its text.
_KINDS = frozenset((Kind.BIT, Kind.BIGINT, Kind.NVARCHAR, Kind.DATETIME))


def members_as_columns(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return the plans with columns in place of the records that TopOne() picks, where only members of them are read."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root))
    roots = {plan.root for plan in plans}
    splits: dict[Node, _Split] = {}
    for node in nodes:
        if isinstance(node, WindowedAggregate) and node not in roots:
            split = _split(node, [taker for taker in nodes if node in map(_without_filters, taker.children)])
            splits |= {} if split is None else {node: split}
    return tuple(replace(plan, root=_rebuild(plan.root, splits)) for plan in plans) if splits else tuple(plans)


@dataclass(frozen=True)
class _Split:
    """How a record is split: the totals and columns in its place, and for each member the expression that reads it from these columns."""

    totals: tuple[Aggregate, ...]
    columns: tuple[Column, ...]
    members: Mapping[Expr, Expr]


def _split(node: WindowedAggregate, takers: Sequence[Node]) -> _Split | None:
    """Return how to split the record of an aggregate whose only one is TopOne(); None if it stays."""
    if len(node.totals) != 1 or node.having is not None or not all(isinstance(taker, (Project, Filter)) for taker in takers):
        return None
    (total,) = node.totals
    read = [expr for taker in takers for expr in _own_exprs(taker)]
    computed = [*node.keys, *predicates_of(node), *(key for key, _ in total.order), *(column.expr for column in node.columns), *read]
    places = [place for place, column in enumerate(node.columns) if isinstance(column.expr, Total)]
    if total.function != "topone" or len(places) != 1 or any(map(can_fail, computed)):
        return None
    parts = [part for expr in read for part in expr.walk()]
    uses = [part for part in parts if isinstance(part, Slot) and part.index == places[0]]
    reads = [part for part in parts if isinstance(part, Property) and part.arg in uses]
    slots = {member: slot for member in reads if (slot := _column_of(total.arg, member.path)) is not None}
    is_split = slots and len(reads) == len(uses) and all(member in slots for member in reads)
    return _split_columns(node, places[0], slots) if is_split else None


def _split_columns(node: WindowedAggregate, place: int, slots: Mapping[Property, Slot]) -> _Split:
    """Put the first member into the record's place, and the others behind the other columns."""
    (record,) = node.totals
    totals, columns, members = list[Aggregate](), list(node.columns), dict[Expr, Expr]()
    # All rows of a group have its keys, so a member that is a key is not picked, unless there is no other member.
    keys_last = sorted(slots.items(), key=lambda item: item[1] in node.keys)
    for number, (member, slot) in zip(chain([place], count(len(columns))), keys_last, strict=False):
        if totals and slot in node.keys:
            value: Expr = Key(node.keys.index(slot), str(slot), slot.kind)
        else:
            value = Total(len(totals), str(slot), slot.kind)
            totals.append(replace(record, arg=slot))
        columns[number : number + 1] = [Column(str(member), value)]
        picked = Slot(number, str(member), slot.kind)
        members[member] = Cast(picked, Kind.NVARCHAR, lenient=True) if slot.kind is Kind.DATETIME else picked
    return _Split(tuple(totals), tuple(columns), members)


def _column_of(record: Expr | None, path: Sequence[str]) -> Slot | None:
    """Return the column of the rows that a path into a record of them leads to; None if it is not as good as the record's text."""
    if not isinstance(record, Payload) or STAR in record.names or len(path) != 1:
        return None
    found = [column for name, column in zip(record.names, record.columns, strict=True) if name.lower() == path[0].lower()]
    return found[0] if len(found) == 1 and isinstance(found[0], Slot) and found[0].kind in _KINDS else None


def _without_filters(node: Node) -> Node:
    return source_of(node) if isinstance(node, Filter) else node


def _own_exprs(node: Node) -> list[Expr]:
    assert isinstance(node, (Project, Filter))
    return [node.predicate] if isinstance(node, Filter) else [column.expr for column in node.columns]


def _rebuild(node: AnyNode, splits: Mapping[Node, _Split]) -> AnyNode:
    """Return a node over rebuilt children, itself split if it is in *splits*."""
    children = [(child, _rebuild(child, splits)) for child in node.children]

    def rebuilt(value: object) -> object:
        return next((new for child, new in children if child is value), value)

    values = {field.name: getattr(node, field.name) for field in fields(node)}  # type: ignore[arg-type]
    changes = {name: tuple(map(rebuilt, value)) if isinstance(value, tuple) else rebuilt(value) for name, value in values.items()}
    if (split := splits.get(node)) is not None:
        changes |= {"totals": split.totals, "columns": split.columns}
    elif isinstance(node, (Project, Filter)) and (split := splits.get(source_of(node))) is not None:
        change = partial(replace_parts, change=split.members.get)
        if isinstance(node, Filter):
            changes["predicate"] = change(node.predicate)
        else:
            changes["columns"] = tuple(replace(column, expr=change(column.expr)) for column in node.columns)
    return replace(node, **changes)  # type: ignore[type-var]
