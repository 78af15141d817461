"""The planner's access to the journal.

Law: a fact that a call returns is in force and durable, so it may be planned; a fact that the journal did not confirm is not in force for
this planner. A journal that does not answer never ends the job. Meanwhile:

- no estimate is made, and if ingest stamps arrivals nothing is planned;
- otherwise only records are planned that no job had judged or estimated before: all their facts are known. Spark's offset remembers that
  they are judged, and when the journal answers again it receives this first;
- a replay of records that others may have judged waits. So does a partition for which an answer was lost: a fact may be in force that this
  planner never received.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.connection import CatchUp, JournalConnection
from ingest.journal.impossible_facts import FactBounds, ReadEnds
from ingest.journal.known_facts import KnownFacts, StageFacts
from ingest.journal.stage_notes import NoteReader
from ingest.offsets import PartitionJoin, PlannedPosition, Positions
from ordering.errors import RefusedError
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import (
    Call,
    Close,
    Forget,
    ImpossibleFactError,
    JournalKey,
    PlanningTime,
    Propose,
    Raise,
    Read,
    ReadClosed,
    RecordSilence,
    Silence,
)
from ordering.ticks import INFINITY, MINUTE_US


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


_TRIM_US = 10 * MINUTE_US

# (partition, position, microseconds): a time proposed to be in force just before the record at that position is judged.
Proposal = tuple[Partition, int, int]
ReadStarts = Callable[[Collection[Partition]], Mapping[Partition, int]]


class JournalClient:
    """The journal of one job, in its planner, which reads the *notes* of the stage; or, without them, in a task of the stage."""

    def __init__(
        self, plan: IngestPlan, log: FilteringBoundLogger, read_ends: ReadEnds | None = None, notes: NoteReader | None = None
    ) -> None:
        self._plan, self._log = plan, log
        self._known = KnownFacts(plan, notes)
        self._bounds = FactBounds(plan, read_ends)
        self._catch_up = CatchUp(plan, self._known, self._bounds, log, gives_back=notes is not None)
        self._closing = RangeClosing(plan, self._known, self._bounds)
        consequence = "nothing is planned" if self._known.stamps_arrivals else "no idle estimates"
        self._connection = JournalConnection(plan.redis, plan.settings.name, self._catch_up, consequence, log)
        self._trim_due_us = 0

    def begin_pass(self, positions: Positions, read_starts: ReadStarts, stages: Mapping[Partition, StageFacts]) -> None:
        """
        Begin a pass at *positions*, up to which the job has judged; *stages* is what open batches have told of them. Let the journal catch
        up, and from time to time forget facts of deleted records.
        """
        self.move_to(positions)
        self._known.stages = stages
        self._known.learn()
        now_us = time.monotonic_ns() // 1000
        if self.is_available() and now_us >= self._trim_due_us:
            self._trim_due_us = now_us + _TRIM_US
            self._trim(read_starts(positions.keys()))

    def move_to(self, positions: Positions) -> None:
        """Go on from *positions*: up to there the job has judged."""
        self._known.move_to(positions)

    def observe_records(self, ends: Mapping[Partition, int]) -> None:
        """Note that there are records up to these offsets."""
        self._bounds.observe_records(ends)

    def observe_ends(self, ends: Mapping[Partition, int], now_us: int) -> None:
        """Note the ends of partitions; *now_us* is the wall clock, read before they were asked for."""
        self._bounds.observe_ends(ends, now_us)

    def has_lost_answer(self, partition: Partition) -> bool:
        """Return whether the journal may have a fact at a partition's position that this client never received."""
        return partition in self._known.uncertain

    def is_available(self) -> bool:
        return self._connection.open() is not None

    @property
    def is_emptied(self) -> bool:
        """Whether the journal counts as lost since it has lost facts, which the planner must give back."""
        return self._connection.is_emptied

    def read_fingerprint(self) -> str | None:
        """Return the fingerprint of the ordered topic; None if there is none, or no answer."""
        plan = self._plan
        return self._connection.read_fingerprint(plan.settings.ordered_topic, plan.ordered_topic_id, plan.fingerprint)

    def select_plannable(self, positions: Positions) -> dict[Partition, PlannedPosition]:
        """
        Return the *positions* that may be planned: all, or without the journal the partitions whose facts are all known. Raises
        TidegateError (TG-JOURNAL-BUSY): that cannot be said now.
        """
        if self.is_available():
            return dict(positions)
        if self._known.stamps_arrivals or self._plan.settings.journal_outage == "pause":
            return {}
        self._known.recall()
        return {p: position for p, position in positions.items() if self._known.is_complete(p, position.next_offset)}

    def close_ranges(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> dict[Partition, PlannedPosition]:
        """Close ranges about to be judged; return their ends (a range left out must not be planned), RefusedError if stamps are lost."""
        now_us = time.time_ns() // 1000
        calls: list[Call] = []
        for partition, start in starts.items():
            calls += self._closing.calls(partition, start, ends[partition], now_us)
        answers = self._connection.ask(calls)
        if answers is None:
            if self.is_available():
                return {}
            plannable = self.select_plannable({partition: self._known.positions[partition] for partition in starts})
            return {p: self._closing.close_later(p, starts[p], ends[p], now_us) for p in plannable}
        count = len(calls) // len(starts)
        try:
            return {
                p: self._closing.accept_answers(p, start, ends[p], now_us, answers[place * count : (place + 1) * count])
                for place, (p, start) in enumerate(starts.items())
            }
        except ImpossibleFactError as error:
            self._connection.distrust(error)
            return {}

    def pop_conflicts(self, partition: Partition) -> int:
        return self._catch_up.pop_conflicts(partition)

    def pop_losses(self, partition: Partition) -> int:
        return self._catch_up.pop_losses(partition)

    def journal_estimates(self, proposals: Sequence[Proposal]) -> dict[Partition, int]:
        """Journal estimates; return the estimates in force: none for a closed position, and none at all without an answer."""
        return self._propose(FactKind.ESTIMATE, self._known.key, proposals)

    def journal_imports(self, proposals: Sequence[Proposal]) -> dict[Partition, int]:
        return self._propose(FactKind.IMPORT, self._known.import_key, proposals)

    def settle_base(self, partition: Partition, frontier_us: int) -> int | None:
        """Propose the frontier from which an empty partition starts; return the one in force, None without an answer."""
        answers = self._connection.ask([Propose(FactKind.BASE, self._known.key(partition), 0, frontier_us)])
        if answers is None:
            return None
        base_us: int = answers[0][1]
        if base_us > frontier_us and not self._is_believed(lambda: self._bounds.check_time(partition, "base", base_us, _wall_us())):
            return None
        self._known.memory(partition).remember(FactKind.BASE, [answers[0]])
        return base_us

    def share_silences(self, silences: Mapping[Partition, Silence]) -> dict[Partition, Silence]:
        """Journal the silences of partitions; return the silences that the journal has then, nothing without an answer."""
        answers = self._connection.ask([RecordSilence(self._known.key(partition), silence) for partition, silence in silences.items()])
        shared = dict(zip(silences, answers or [], strict=False))

        def check() -> None:
            for partition, silence in shared.items():
                if silence != silences[partition]:
                    self._bounds.check_time(partition, "silence", silence.arrival_us, _wall_us())

        return shared if self._is_believed(check) else {}

    def read_joins(self, partitions: Mapping[Partition, str]) -> dict[Partition, PartitionJoin] | None:
        """Return which of *partitions* (with their topic's id) have joined this ordered topic before, and when; None without an answer."""
        joins: dict[Partition, PartitionJoin] = {}
        for partition, topic_id in partitions.items():
            self._known.add_topic(partition[0], topic_id)
            answers = self._connection.ask([Read(FactKind.JOIN, self._plan.own_key(partition, topic_id), 0, INFINITY)])
            if answers is None:
                return None
            if answers[0]:
                joins[partition] = PartitionJoin(*answers[0][0])
        return joins

    def journal_join(self, partition: Partition, topic_id: str, join: PartitionJoin) -> bool:
        """Journal when a partition joined; return False if the journal did not answer: call again."""
        self._known.add_topic(partition[0], topic_id)
        key = self._plan.own_key(partition, topic_id)
        self._known.own.setdefault(key, set()).add(Fact(FactKind.JOIN, *join))
        return self._connection.ask([Propose(FactKind.JOIN, key, *join)]) is not None

    def _propose(self, kind: FactKind, key: Callable[[Partition], JournalKey], proposals: Sequence[Proposal]) -> dict[Partition, int]:
        partitions = {partition for partition, _, _ in proposals}
        # A server that was gone before the call has done nothing. If it fails during the call, it may have: the partitions stay uncertain.
        if not partitions or not self._connection.is_answering():
            return {}
        uncertain_before = set(self._known.uncertain)
        self._known.uncertain |= partitions
        answers = self._connection.ask([Raise(kind, key(partition), position, us) for partition, position, us in proposals])
        if answers is None:
            return {}
        self._known.uncertain = uncertain_before
        if not self._is_believed(lambda: self._check_raised(kind, proposals, answers)):
            return {}
        raised = {}
        for (partition, position, _), agreed_us in zip(proposals, answers, strict=True):
            if agreed_us is not None:
                self._known.memory(partition).remember(kind, [(position, agreed_us)])
                raised[partition] = agreed_us
        return raised

    def _check_raised(self, kind: FactKind, proposals: Sequence[Proposal], answers: Sequence[int | None]) -> None:
        """Raise ImpossibleFactError if an answer cannot be: it is ahead of the clock, or a position was closed beyond the end."""
        for (partition, position, us), agreed_us in zip(proposals, answers, strict=True):
            if agreed_us is not None and agreed_us > us:
                self._bounds.check_marks(partition, kind, [(position, agreed_us)], self._known.memory(partition), _wall_us())
        closed = [partition for (partition, _, _), agreed_us in zip(proposals, answers, strict=True) if agreed_us is None]
        key = self._known.import_key if kind is FactKind.IMPORT else self._known.key
        for partition, until in zip(closed, self._connection.ask([ReadClosed(key(partition)) for partition in closed]) or (), strict=False):
            self._bounds.check_closed(partition, until)

    def _is_believed(self, check: Callable[[], None]) -> bool:
        try:
            check()
        except ImpossibleFactError as error:
            self._connection.distrust(error)
            return False
        return True

    def _trim(self, starts: Mapping[Partition, int]) -> None:
        keys = [(key(partition), start) for partition, start in starts.items() for key in (self._known.key, self._known.import_key)]
        forgotten = self._connection.ask([Forget(key, start) for key, start in dict.fromkeys(keys)])
        for partition, start in starts.items():
            self._known.memory(partition).forget_below(start)
        if forgotten and sum(forgotten):
            self._log.info("facts of records that retention has deleted were forgotten", facts=sum(forgotten))


def _wall_us() -> int:
    return time.time_ns() // 1000
