"""
What a planner remembers of the facts it heard and made, so that it can give them back to a journal that lost them.

Law: of each position the newest value stands, as in the journal. Of each kind so many facts are remembered at most;
beyond that those at the lowest positions are forgotten: they stand in the ordered topic.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from ingest.offsets import Marks, Planned
from ordering.protocol.facts import Fact, FactKind

FACTS_MAX = 20_000
"""Per partition and kind, some megabytes: idle estimates of hours at the default cadence, if a record follows each of them."""


class _Kind:
    """The facts of one kind."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}
        self.positions: list[int] = []

    def put(self, position: int, value: int) -> None:
        if position not in self.values:
            insort(self.positions, position)
        self.values[position] = value

    def drop(self, count: int) -> None:
        for position in self.positions[:count]:
            del self.values[position]
        del self.positions[:count]


class FactMemory:
    """
    The facts of one input partition.

    Args:
        span_kind: Which moments its ranges have: stamps or verdicts.
    """

    def __init__(self, span_kind: FactKind) -> None:
        self.span_kind = span_kind
        self.incomplete = False
        self._kinds = {kind: _Kind() for kind in FactKind}

    def hear(self, kind: FactKind, marks: Iterable[tuple[int, int]]) -> None:
        """Take (position, value) of facts that are in force."""
        known = self._kinds[kind]
        for position, value in marks:
            known.put(position, value if kind.is_span else max(value, known.values.get(position, value)))
        if len(known.positions) > FACTS_MAX:
            known.drop(len(known.positions) - FACTS_MAX)
            self.incomplete = True

    def hear_planned(self, at: Planned) -> None:
        """Take what stands in Spark's offset."""
        self.hear(FactKind.ESTIMATE, at.all_marks())
        self.hear(FactKind.IMPORT, at.all_imports())
        self.hear(self.span_kind, at.spans)

    def between(self, kind: FactKind, start: int, end: int) -> Marks:
        """Return the facts of a kind with start <= position < end, positions rising; of moments the one in force at *start* too."""
        known = self._kinds[kind]
        first = max(bisect_right(known.positions, start) - 1, 0) if kind.is_span else bisect_left(known.positions, start)
        return tuple((position, known.values[position]) for position in known.positions[first : bisect_left(known.positions, end)])

    def last(self, kind: FactKind) -> tuple[int, int] | None:
        """Return the fact of a kind with the highest position."""
        known = self._kinds[kind]
        return (known.positions[-1], known.values[known.positions[-1]]) if known.positions else None

    def facts(self, imports: bool) -> list[Fact]:
        """Return all facts: the imports, or all others. They are of two keys of the journal."""
        wanted = [kind for kind in FactKind if (kind is FactKind.IMPORT) == imports]
        return [Fact(kind, *mark) for kind in wanted for mark in self._kinds[kind].values.items()]

    def forget_below(self, position: int) -> None:
        """Forget what no log can need again; the moment in force at *position* stays, and what has no position."""
        for kind in (FactKind.ESTIMATE, FactKind.IMPORT, self.span_kind):
            known = self._kinds[kind]
            known.drop(max(bisect_right(known.positions, position) - 1, 0) if kind.is_span else bisect_left(known.positions, position))
