"""
Common keys: by the values of which expressions events can be split, so that rows that meet in a query stay together.

Rows meet where a query groups, joins or looks back. There they share the values of keys; a key that can be told from the
event alone (:mod:`query.plan.origins`) names, for each input that takes part, an expression over its events: a *candidate*. What
is a candidate everywhere its inputs' rows meet is a common key. Law: rows that meet in any node come from events of which all
common keys have equal values, and values that count as equal there have equal bytes (:mod:`query.columns.encode`).

Two values of a join's key are equal by ``=``, across types; so its sides must have one type that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from query.plan.nodes import Analyze, Custom, Join, Node, Plan, Scan, Union, WindowedAggregate, source_of, walk
from query.plan.origins import Origins, origins
from query.plan.windows import Session
from query.plan.windows import windows_of as each_window
from tidegate.expressions.evaluation.static_kinds import static_kind
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Expr, Slot

Candidate = dict[str, Expr]
"""For each input an expression over its events."""
Keys = Mapping[str, tuple[Expr, ...]]
"""For each input of which rows meet the common keys, in one order; other inputs' rows meet nobody."""

_UNDECLARED = 'a number may equal another one that is written differently: declare the keys of the join as "nvarchar(max)" in fields'
_INCOMPARABLE = (Kind.RECORD, Kind.ARRAY, Kind.NULL)


@dataclass(frozen=True, slots=True)
class Meeting:
    """
    Where rows meet.

    Args:
        inputs: Whose rows do.
        candidates: What tells rows apart that do not.
        where: The place, for people.
        missing: Why nothing does, where it could be helped.
    """

    inputs: frozenset[str]
    candidates: tuple[Candidate, ...]
    place: str
    hint: str = ""


def common_keys(plans: Sequence[Plan]) -> Keys | str:
    """Return the common keys of all that is computed; where rows meet that have none in common, where that is."""
    groups: list[Meeting] = []
    for plan in plans:
        for meeting in meetings(plan.root):
            joined = [group for group in groups if group.inputs & meeting.inputs]
            candidates = _agreed(meeting, joined)
            if not candidates:
                return _obstacle(meeting, joined)
            inputs = frozenset().union(meeting.inputs, *(group.inputs for group in joined))
            groups = [group for group in groups if group not in joined] + [Meeting(inputs, candidates, meeting.place)]
    keys: dict[str, tuple[Expr, ...]] = {}
    for group in groups:
        every = [candidate for candidate in group.candidates if candidate.keys() == group.inputs]
        keys |= {name: tuple(candidate[name] for candidate in every) for name in sorted(group.inputs) if every}
    return keys


def meetings(node: Node) -> Iterator[Meeting]:
    """Yield each place at which rows meet, those below first."""
    for child in node.children:
        yield from meetings(child)
    inputs = frozenset(below.input for below in walk(node) if isinstance(below, Scan))
    if isinstance(node, WindowedAggregate):
        sessions = [set(window.partition) for window in each_window(node.window) if isinstance(window, Session)]
        keys = [key for at, key in enumerate(node.keys) if all(at in partition for partition in sessions)]
        yield Meeting(inputs, _candidates(origins(source_of(node), key) for key in keys), f"groups of {node.describe()}")
    elif isinstance(node, Analyze):
        for analytic in node.analytics:
            yield Meeting(inputs, _candidates(origins(node.child, key) for key in analytic.partition), str(analytic))
    elif isinstance(node, Join):
        pairs = [(*origins(node.left, left), *origins(node.right, right)) for left, right in node.keys]
        candidates = _candidates(pair for pair in pairs if _is_of_one_kind(pair))
        yield Meeting(inputs, candidates, node.describe(), _UNDECLARED if _candidates(pairs) and not candidates else "")
    elif isinstance(node, Custom):
        key_columns = node.operator.key_columns
        if key_columns is not None:
            slots = (Slot(number, "", None) for number in key_columns)
            yield Meeting(inputs, _candidates(origins(node.child, slot) for slot in slots), node.describe())
    elif len(node.children) > 1 and not isinstance(node, Union):
        yield Meeting(inputs, (), node.describe())


def _candidates(keys: Iterable[Origins]) -> tuple[Candidate, ...]:
    """Return the candidates among keys: those that are one expression over the events of each input."""
    found: list[Candidate] = []
    for key in keys:
        known = dict.fromkeys(origin for origin in key if origin is not None)
        candidate = {origin.input: origin.expr for origin in known}
        if None not in key and len(candidate) == len(known) and candidate not in found:
            found.append(candidate)
    return tuple(found)


def _is_of_one_kind(pair: Origins) -> bool:
    kinds = {None if origin is None else static_kind(origin.expr) for origin in pair}
    return len(kinds) == 1 and not kinds & {None, *_INCOMPARABLE}


def _obstacle(meeting: Meeting, groups: Sequence[Meeting]) -> str:
    if not meeting.candidates:
        return meeting.hint or f"rows meet without a key of their events: {meeting.place}"
    return f"no key is common to {' and '.join(each.place for each in (*groups, meeting))}"


def _agreed(meeting: Meeting, groups: Sequence[Meeting]) -> tuple[Candidate, ...]:
    """Return what tells rows apart both in a meeting and wherever its inputs' rows have met before."""
    agreed = meeting.candidates
    for group in groups:
        pairs = [(mine, theirs) for theirs in group.candidates for mine in agreed]
        both = [{**theirs, **mine} for mine, theirs in pairs if _agree(mine, theirs)]
        agreed = tuple(each for at, each in enumerate(both) if each not in both[:at])
    return agreed


def _agree(mine: Candidate, theirs: Candidate) -> bool:
    shared = mine.keys() & theirs.keys()
    return bool(shared) and all(mine[name] == theirs[name] for name in shared)
