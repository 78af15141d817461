"""
Facts that a planner received or made, kept to give them back to a journal that has lost them.
Law: at each position the largest estimate or import counts, as in the journal, and the newest planning time. A limited number of each kind
is kept; facts at the lowest positions are forgotten first, because the ordered topic has them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from ingest.offsets import Marks, PlannedPosition
from ordering.protocol.facts import Fact, FactKind

# Per partition and kind; some megabytes. Enough for hours of idle estimates at the default cadence, if a record follows each.
FACTS_MAX = 20_000


class _FactTable:
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
    """The facts of one input partition; *planning_kind*: its planning times are stamps or clock readings."""

    def __init__(self, planning_kind: FactKind) -> None:
        self.planning_kind = planning_kind
        self.is_incomplete = False
        self._kinds = {kind: _FactTable() for kind in FactKind}

    def remember(self, kind: FactKind, marks: Iterable[tuple[int, int]]) -> None:
        table = self._kinds[kind]
        for position, value in marks:
            table.put(position, value if kind.is_planning_time else max(value, table.values.get(position, value)))
        if len(table.positions) > FACTS_MAX:
            table.drop(len(table.positions) - FACTS_MAX)
            self.is_incomplete = True

    def remember_planned(self, planned: PlannedPosition) -> None:
        self.remember(FactKind.ESTIMATE, planned.marks_with_end())
        self.remember(FactKind.IMPORT, planned.imports_with_end())
        self.remember(self.planning_kind, planned.spans)

    def between(self, kind: FactKind, start: int, end: int) -> Marks:
        """Return the facts with start <= position < end, positions rising; of planning times also the one in force at *start*."""
        table = self._kinds[kind]
        in_range = table.positions[self._first_in_force(kind, start) : bisect_left(table.positions, end)]
        return tuple((position, table.values[position]) for position in in_range)

    def _first_in_force(self, kind: FactKind, position: int) -> int:
        positions = self._kinds[kind].positions
        return max(bisect_right(positions, position) - 1, 0) if kind.is_planning_time else bisect_left(positions, position)

    def value(self, kind: FactKind, position: int) -> int | None:
        return self._kinds[kind].values.get(position)

    def latest_us(self) -> int:
        """Return the latest time that this job has made or believed: estimates and planning times; 0 if there is none."""
        return max((us for kind in (FactKind.ESTIMATE, self.planning_kind) for us in self._kinds[kind].values.values()), default=0)

    def last(self, kind: FactKind) -> tuple[int, int] | None:
        table = self._kinds[kind]
        return (table.positions[-1], table.values[table.positions[-1]]) if table.positions else None

    def facts(self, imports: bool) -> list[Fact]:
        """Return the imports, or all other facts: they have separate keys in the journal."""
        kinds = [kind for kind in FactKind if (kind is FactKind.IMPORT) == imports]
        return [Fact(kind, *mark) for kind in kinds for mark in self._kinds[kind].values.items()]

    def forget_below(self, position: int) -> None:
        """Forget facts below *position*, except the planning time in force there and facts without a position."""
        for kind in (FactKind.ESTIMATE, FactKind.IMPORT, self.planning_kind):
            self._kinds[kind].drop(self._first_in_force(kind, position))
