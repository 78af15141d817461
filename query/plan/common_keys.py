"""
Common keys: expressions by whose values events can be split between buckets, so that rows that meet in a query stay together.

Rows meet where a query groups, joins or looks back, and rows that meet have equal keys there. If a key follows from the event alone
(:mod:`query.plan.origins`), it gives an expression over the events of each input that takes part: a *candidate*. A common key is a
candidate at every place where rows of its inputs meet.

Law: rows that meet in any node come from events with equal values of all common keys, and values that count as equal there have equal bytes
(:mod:`query.columns.encode`). A join compares keys by ``=``, across types, so both sides must be of one known type, or numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from query.plan.nodes import Analyze, Custom, Join, Node, Plan, Recognize, Scan, Union, WindowedAggregate, source_of, walk
from query.plan.origins import Origins, origins
from query.plan.windows import Session
from query.plan.windows import windows_of as each_window
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, Slot

# For each input an expression over its events.
Candidate = dict[str, Expr]
# The common keys of each input whose rows meet, in one order; rows of other inputs meet none.
Keys = Mapping[str, tuple[Expr, ...]]

_UNDECLARED = (
    'a number may equal a text that is written differently: declare the keys of the join, as "bigint" or "nvarchar(max)", in fields'
)
_INCOMPARABLE = (Kind.RECORD, Kind.ARRAY, Kind.NULL)


@dataclass(frozen=True, slots=True)
class Meeting:
    """A place in a plan at which rows meet."""

    inputs: frozenset[str]
    # The keys: rows that differ in one of them do not meet.
    candidates: tuple[Candidate, ...]
    place: str
    # Why there are no candidates, if the user can change that.
    hint: str = ""


def common_keys(plans: Sequence[Plan]) -> Keys | str:
    """Return the common keys of all plans, or a text that names the place at which rows without a common key meet."""
    groups: list[Meeting] = []
    for plan in plans:
        for meeting in meetings(plan.root):
            overlapping = [group for group in groups if group.inputs & meeting.inputs]
            candidates = _shared_candidates(meeting, overlapping)
            if not candidates:
                return _obstacle(meeting, overlapping)
            inputs = frozenset().union(meeting.inputs, *(group.inputs for group in overlapping))
            groups = [group for group in groups if group not in overlapping] + [Meeting(inputs, candidates, meeting.place)]
    keys: dict[str, tuple[Expr, ...]] = {}
    for group in groups:
        # A candidate without an expression for some input would leave the rows of this input without a bucket.
        complete = [candidate for candidate in group.candidates if candidate.keys() == group.inputs]
        keys |= {name: tuple(candidate[name] for candidate in complete) for name in sorted(group.inputs) if complete}
    return keys


def meetings(node: Node) -> Iterator[Meeting]:
    """Yield each place at which rows meet, the places in lower nodes first."""
    for child in node.children:
        yield from meetings(child)
    inputs = frozenset(below.input for below in walk(node) if isinstance(below, Scan))
    if isinstance(node, WindowedAggregate):
        sessions = [set(window.partition) for window in each_window(node.window) if isinstance(window, Session)]
        # One session may serve all groups that share some of their keys: only these keys keep rows apart.
        keys = [key for number, key in enumerate(node.keys) if all(number in partition for partition in sessions)]
        yield Meeting(inputs, _candidates(origins(source_of(node), key) for key in keys), f"groups of {node.describe()}")
    elif isinstance(node, Analyze):
        for analytic in node.analytics:
            yield Meeting(inputs, _candidates(origins(node.child, key) for key in analytic.partition), str(analytic))
    elif isinstance(node, Recognize):
        yield Meeting(inputs, _candidates(origins(node.child, key) for key in node.partition), node.describe())
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
    """Return the candidates among keys: a key is one if it is a single expression over the events of each input."""
    candidates: list[Candidate] = []
    for key in keys:
        known = dict.fromkeys(origin for origin in key if origin is not None)
        candidate = {origin.input: origin.expr for origin in known}
        if None not in key and len(candidate) == len(known) and candidate not in candidates:
            candidates.append(candidate)
    return tuple(candidates)


def _is_of_one_kind(pair: Origins) -> bool:
    kinds = {None if origin is None else static_kind(origin.expr) for origin in pair}
    if kinds == {Kind.BIGINT, Kind.FLOAT}:
        return True
    # If a type is unknown (None), = may convert texts, and values that it finds equal may have different bytes.
    return len(kinds) == 1 and not kinds & {None, *_INCOMPARABLE}


def _obstacle(meeting: Meeting, groups: Sequence[Meeting]) -> str:
    if not meeting.candidates:
        return meeting.hint or f"rows meet without a key of their events: {meeting.place}"
    return f"no key is common to {' and '.join(group.place for group in (*groups, meeting))}"


def _shared_candidates(meeting: Meeting, groups: Sequence[Meeting]) -> tuple[Candidate, ...]:
    """Join the candidates of a meeting with the candidates of *groups*; return the joined ones that agree with every group."""
    candidates = meeting.candidates
    for group in groups:
        pairs = [(left, right) for right in group.candidates for left in candidates]
        joined = [{**right, **left} for left, right in pairs if _agree(left, right)]
        candidates = tuple(candidate for number, candidate in enumerate(joined) if candidate not in joined[:number])
    return candidates


def _agree(left: Candidate, right: Candidate) -> bool:
    """Return whether two candidates have inputs in common and the same expression for each of them."""
    shared = left.keys() & right.keys()
    return bool(shared) and all(left[name] == right[name] for name in shared)
