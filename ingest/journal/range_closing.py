"""
Closing ranges: before records are judged, their positions are closed in the journal and the facts in force are read.
Law: once a position is closed no fact below it changes, so every replay of the range finds the facts of the first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.journal.fact_bounds import FactBounds
from ingest.journal.known_facts import KnownFacts
from ingest.offsets import PlannedPosition
from ordering.errors import RefusedError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Call, Close, PlanningTime, Read, ReadClosed


class RangeClosing:
    """Closes the ranges of one job."""

    def __init__(self, plan: IngestPlan, known: KnownFacts, bounds: FactBounds) -> None:
        self._plan, self._known, self._bounds = plan, known, bounds

    def calls(self, partition: Partition, start: int, end: int, now_us: int) -> list[Call]:
        """Return the calls that close a range and read its facts; every range has the same number of calls."""
        key, last, kind = self._known.key(partition), end - 1, self._known.planning_kind
        planning_time = PlanningTime(kind, now_us, self._plan.clock_slack_us)
        calls: list[Call] = [Close(key, end, planning_time), Read(FactKind.ESTIMATE, key, start, last), Read(kind, key, start, last)]
        if self._plan.imported is not None:
            import_key = self._known.import_key(partition)
            calls += [Close(import_key, end), Read(FactKind.IMPORT, import_key, start, last)]
        return [*calls, ReadClosed(key)]

    def accept_answers(self, partition: Partition, start: int, end: int, now_us: int, answers: Sequence[Any]) -> PlannedPosition:
        """
        Remember the answers to :meth:`calls`; return the range's end with its facts. ImpossibleFactError: the journal says what cannot be.
        RefusedError: judged records lost their stamps.
        """
        known, memory = self._known, self._known.memory(partition)
        estimates, planning_times = answers[1], answers[2]
        imports = answers[4] if self._plan.imported is not None else ()
        self._check(
            partition,
            start,
            now_us,
            answers[-1],
            {FactKind.ESTIMATE: estimates, known.planning_kind: planning_times, FactKind.IMPORT: imports},
        )
        memory.remember(FactKind.ESTIMATE, estimates)
        memory.remember(known.planning_kind, planning_times)
        if known.stamps_arrivals and not (planning_times and planning_times[0][0] <= start):
            raise RefusedError(
                "the journal has lost when records arrived that were judged before",
                code="TG-JOURNAL-LOST",
                where=f"{partition[0]}-{partition[1]}@{start}",
                fix="stop the job, bring the stamps back from the ordered topic, and start it again",
                example=f"tidegate journal rebuild {self._plan.settings.name}",
            )
        memory.remember(FactKind.IMPORT, imports)
        is_newly_closed = known.closed.get(partition, end) < end
        clamped = int(is_newly_closed and bool(planning_times) and planning_times[-1][1] > now_us)
        known.closed[partition] = max(end, known.closed.get(partition, 0))
        return known.range_end(partition, start, end, clamped=clamped)

    def _check(
        self, partition: Partition, start: int, now_us: int, closed: int, marks_by_kind: Mapping[FactKind, Sequence[tuple[int, int]]]
    ) -> None:
        bounds, memory = self._bounds, self._known.memory(partition)
        bounds.check_closed(partition, closed)
        for kind, marks in marks_by_kind.items():
            bounds.check_marks(partition, kind, marks, memory, now_us)
        planning_times = marks_by_kind[self._known.planning_kind]
        if planning_times:
            bounds.check_age(partition, start, planning_times[0][1])

    def close_later(self, partition: Partition, start: int, end: int, now_us: int) -> PlannedPosition:
        """Return the end of a range that was never judged, without the journal; remember that the journal has not closed it."""
        known, memory = self._known, self._known.memory(partition)
        last = memory.last(known.planning_kind)
        if last is None or last[1] < now_us - self._plan.clock_slack_us:
            memory.remember(known.planning_kind, [(start, now_us)])
        known.begin_unclosed(partition, start)
        return known.range_end(partition, start, end, is_unclosed=True)
