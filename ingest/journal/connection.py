"""
A planner's connection to the journal, which may fail and return without ending the job.
Law: a journal that fails is asked again after a while. Each time it answers again it catches up before any other call.

Catching up (:class:`CatchUp`): the planner closes the positions that were judged meanwhile and gives back lost facts. No other call is made
before the journal has all facts that this planner knows. If another job journaled facts for records that were judged without them, this is
reported and counted; it cannot be repaired.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.impossible_facts import FactBounds, mend_journal
from ingest.journal.known_facts import FactMemory, KnownFacts
from ingest.journal.redis_journal import RedisJournal, SeenWrites
from ordering.errors import TidegateError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Call, ImpossibleFactError, JournalKey, JournalWipedError, Read, ReadClosed
from ordering.ticks import INFINITY, NEVER
from tidegate.platform.settings.tables.redis import RedisSettings


class JournaledFacts(NamedTuple):
    """The journal's facts of a partition from the job's position on: the first open position, and (position, value) of each kind."""

    closed: int
    estimates: list[tuple[int, int]]
    imports: list[tuple[int, int]]
    planning_times: list[tuple[int, int]]

    def by_kind(self, planning_kind: FactKind) -> dict[FactKind, list[tuple[int, int]]]:
        """Return the facts of each kind."""
        return {FactKind.ESTIMATE: self.estimates, FactKind.IMPORT: self.imports, planning_kind: self.planning_times}

    def lacks(self, memory: FactMemory, start: int) -> bool:
        """Return whether one of the facts from the position *start* on is missing that this job knows."""
        return any(
            journaled.get(position, NEVER) < value
            for kind, journaled in ((kind, dict(marks)) for kind, marks in self.by_kind(memory.planning_kind).items())
            for position, value in memory.between(kind, start, INFINITY)
            if position >= start
        )


class CatchUp:
    """
    Brings the journal and a planner's facts into agreement. *gives_back* is false in a task of the stage: it knows some facts only, and
    closed what it gave back above facts that its planner alone knows. For it a journal that has lost facts does not answer.
    """

    def __init__(self, plan: IngestPlan, known: KnownFacts, bounds: FactBounds, log: FilteringBoundLogger, *, gives_back: bool) -> None:
        self._plan, self._known, self._bounds, self._log, self._gives_back = plan, known, bounds, log, gives_back
        self._compared: set[Partition] = set()
        self._conflicts: dict[Partition, int] = {}
        self._losses: dict[Partition, int] = {}

    def pop_conflicts(self, partition: Partition) -> int:
        return self._conflicts.pop(partition, 0)

    def pop_losses(self, partition: Partition) -> int:
        """Return how often the journal has turned out to have lost facts of a partition since the last call."""
        return self._losses.pop(partition, 0)

    def forget_comparisons(self) -> None:
        """Compare every partition again, after the connection was lost."""
        self._compared.clear()

    def compare_new(self, journal: RedisJournal) -> None:
        """
        Compare the partitions that were not compared since the connection was opened: give back the facts that the journal lacks, and
        remember those that it has.
        """
        known = self._known
        new = [partition for partition in known.positions if partition not in self._compared]
        if not new:
            return
        journaled, has_forgotten = self._read(journal, new)
        for partition in new:
            self._check(partition, journaled[partition])
        behind = [p for p in new if journaled[p].closed < known.judged_to(p) and not known.is_fresh(p)]
        starts = {p: known.positions[p].next_offset for p in new}
        lacking = [p for p in new if has_forgotten or p in behind or journaled[p].lacks(known.memory(p), starts[p])]
        if lacking:
            self._begin_giving_back(journal.wiped_error([known.key(partition) for partition in lacking]))
        # Conflicts are looked for before facts are given back: afterwards this job's facts and those of others would look alike.
        for partition in behind:
            self._find_conflicts(journal, partition, journaled[partition].closed)
        lost = self._report_loss(behind, journaled)
        for partition in new if has_forgotten else lost:
            self._losses[partition] = self._losses.get(partition, 0) + 1
        self._give_back(journal, lacking)
        for partition in new:
            for kind, marks in journaled[partition].by_kind(known.planning_kind).items():
                known.memory(partition).remember(kind, marks)
            judged = known.judged_to(partition) if partition in behind else 0
            known.closed[partition] = max(journaled[partition].closed, judged)
        self._compared |= set(new)
        known.uncertain -= set(new)

    def mend(self, journal: RedisJournal) -> None:
        """Mend a journal that has said what cannot be."""
        mend_journal(journal, self._known, self._bounds, self._log, _wall_us())

    def _check(self, partition: Partition, journaled: JournaledFacts) -> None:
        known, now_us = self._known, _wall_us()
        self._bounds.check_closed(partition, journaled.closed)
        for kind, marks in journaled.by_kind(known.planning_kind).items():
            self._bounds.check_marks(partition, kind, marks, known.memory(partition), now_us)

    def give_back_all(self, journal: RedisJournal, keys: Iterable[JournalKey], error: JournalWipedError) -> None:
        """
        Give all known facts to a journal that has lost some, as *error* says; *keys* are those of the calls that follow. Raises the error
        in a task of the stage.
        """
        self._begin_giving_back(error)
        self._log.warning(error.what, code=error.code)
        self._give_back(journal, self._known.positions)
        self._give_back_own(journal, keys)

    def _read(self, journal: RedisJournal, partitions: Sequence[Partition]) -> tuple[dict[Partition, JournaledFacts], bool]:
        """Return the journal's facts from the job's positions on, and whether the journal has lost facts that this process had seen."""
        known = self._known
        calls: list[Call] = []
        for partition in partitions:
            start, key = known.positions[partition].next_offset, known.key(partition)
            kinds = {FactKind.ESTIMATE: key, FactKind.IMPORT: known.import_key(partition), known.planning_kind: key}
            calls += [ReadClosed(key), *(Read(kind, key_of_kind, start, INFINITY) for kind, key_of_kind in kinds.items())]
        has_forgotten = False
        try:
            answers = journal.execute(calls)
        except JournalWipedError as error:
            has_forgotten = True
            self._begin_giving_back(error)
            self._log.warning(error.what, code=error.code)
            self._give_back_own(journal, [call.key for call in calls])
            answers = journal.execute(calls)
        count = len(calls) // len(partitions)
        parts = (answers[place * count : (place + 1) * count] for place in range(len(partitions)))
        return {partition: JournaledFacts(*part) for partition, part in zip(partitions, parts, strict=True)}, has_forgotten

    def _find_conflicts(self, journal: RedisJournal, partition: Partition, closed: int) -> None:
        """Count facts that another job, or a driver that should be gone, journaled for records that were judged without them."""
        known = self._known
        unclosed = known.unclosed.get(partition)
        # A driver that knows only Spark's offset does not know the facts at its predecessor's position, so it begins after that.
        start = closed + 1 if unclosed is None else unclosed.offset
        end = known.judged_to(partition)
        conflicts = 0
        for kind, key in ((FactKind.ESTIMATE, known.key(partition)), (FactKind.IMPORT, known.import_key(partition))):
            own = dict(known.memory(partition).between(kind, start, end))
            if unclosed is not None and kind is FactKind.ESTIMATE:
                # The stage makes estimates itself, of which it tells the frontier that follows.
                own[start] = max(own.get(start, 0), unclosed.frontier_us)
            marks = journal.execute([Read(kind, key, start, end - 1)])[0] if start < end else []
            conflicts += sum(us > own.get(position, 0) for position, us in marks)
        self._report_conflicts(partition, conflicts)

    def _report_conflicts(self, partition: Partition, conflicts: int) -> None:
        if not conflicts:
            return
        self._conflicts[partition] = self._conflicts.get(partition, 0) + conflicts
        self._log.warning(
            "another job journaled facts where records were judged without them: the two differ there",
            code="TG-JOURNAL-CONFLICT",
            topic=partition[0],
            partition=partition[1],
            facts=conflicts,
        )

    def _report_loss(self, behind: Sequence[Partition], journaled: Mapping[Partition, JournaledFacts]) -> list[Partition]:
        """Log it if the journal has lost facts; return the partitions of which it has."""
        known = self._known
        # Up to here the journal must have closed positions, by its own answers or by what this job has kept.
        lost = [p for p in behind if journaled[p].closed < known.closed.get(p, known.closed_to(p))]
        if lost:
            is_complete = not any(known.memory(partition).is_incomplete for partition in lost)
            returned = "all that this job knows" if is_complete else "the newest facts; tidegate journal rebuild brings back the others"
            self._log.warning("the journal had lost facts and was given back " + returned, partitions=len(lost))
        return lost

    def _begin_giving_back(self, error: JournalWipedError) -> None:
        """Know all facts. Raises *error* in a task of the stage, TidegateError (TG-JOURNAL-BUSY) if that cannot be now."""
        if not self._gives_back:
            raise error
        self._known.recall()

    def _give_back(self, journal: RedisJournal, partitions: Collection[Partition]) -> None:
        known = self._known
        for partition in partitions:
            below = 0 if known.is_fresh(partition) else max(known.judged_to(partition), known.closed.get(partition, 0))
            import_key = known.import_key(partition) if self._plan.imported is not None else None
            contradicted = known.memory(partition).restore(journal, known.key(partition), import_key, below)
            # Verdicts may differ slightly without harm; arrival stamps may not.
            self._report_conflicts(partition, contradicted if known.stamps_arrivals else 0)
            known.unclosed.pop(partition, None)

    def _give_back_own(self, journal: RedisJournal, keys: Iterable[JournalKey]) -> None:
        for key, facts in self._known.own.items():
            journal.restore(key, sorted(facts))
        # Even an empty restore updates the era and the writes that this connection has seen, so the calls that follow are accepted.
        for key in dict.fromkeys(keys):
            journal.restore(key, [])


def _wall_us() -> int:
    return time.time_ns() // 1000


_RETRY_S = 1.0


class JournalConnection:
    """A connection opened on first use; *consequence* says in the log how the job goes on without it."""

    def __init__(self, settings: RedisSettings, input_name: str, catch_up: CatchUp, consequence: str, log: FilteringBoundLogger) -> None:
        self._settings, self._catch_up, self._consequence, self._log = settings, catch_up, consequence, log
        self._input_name = input_name
        self._journal: RedisJournal | None = None
        self._is_lost = False
        # Whether it was lost because it has lost facts that only another process can give back.
        self.is_emptied = False
        self._retry_s = 0.0
        self._distrusted_because = ""
        # Kept from one connection to the next, so that facts lost between them are noticed.
        self._seen_writes: SeenWrites = {}

    def open(self) -> RedisJournal | None:
        """Return the journal, caught up; None if it does not answer."""
        if self._journal is None and time.monotonic() < self._retry_s:
            return None
        try:
            journal = self._journal or RedisJournal.open(self._settings, self._seen_writes, self._input_name)
            self._catch_up.compare_new(journal)
        except ImpossibleFactError as error:
            self._journal = journal
            self.distrust(error)
            return None
        except TidegateError as error:
            self._lose(error)
            return None
        if self._is_lost:
            self._log.info("the journal answers again", redis=self._settings.address)
        self._journal, self._is_lost = journal, False
        return journal

    def ask(self, calls: Sequence[Call]) -> list[Any] | None:
        """Execute *calls*; None without an answer. A journal that has lost facts gets them back first."""
        journal = self.open() if calls else None
        if journal is None:
            return None
        try:
            try:
                return journal.execute(calls)
            except JournalWipedError as error:
                self._catch_up.give_back_all(journal, [call.key for call in calls], error)
                return journal.execute(calls)
        except ImpossibleFactError as error:
            self.distrust(error)
            return None
        except TidegateError as error:
            self._lose(error)
            return None

    def read_fingerprint(self, topic: str, topic_id: str, own: str) -> str | None:
        """Return the fingerprint of an ordered topic; None without an answer. One that cannot be read is replaced by this job's *own*."""
        journal = self.open()
        try:
            return None if journal is None else journal.read_fingerprint(topic, topic_id)
        except ImpossibleFactError as error:
            self._log.error(error.what, code=error.code, where=error.where, fix="nothing: this job has written its own again")
            return journal.read_or_set_fingerprint(topic, topic_id, own, begins_anew=True)[0] if journal is not None and own else None
        except TidegateError as error:
            self._lose(error)
            return None

    def is_answering(self) -> bool:
        """Ask the server, and return whether it answers."""
        journal = self.open()
        if journal is None:
            return False
        try:
            journal.check()
        except TidegateError as error:
            self._lose(error)
            return False
        return True

    def distrust(self, error: ImpossibleFactError) -> None:
        """Use nothing that the journal says until it is mended, which is tried at once; meanwhile it counts as lost."""
        if error.what != self._distrusted_because:
            self._log.error(error.what, code=error.code, where=error.where, fix=error.fix, example=error.example)
            self._distrusted_because = error.what
        journal = self._journal
        try:
            if journal is not None:
                self._catch_up.mend(journal)
        except TidegateError as failure:
            self._log.warning("the journal could not be repaired", reason=failure.what)
        self._lose(error)

    def _lose(self, error: TidegateError) -> None:
        if not self._is_lost:
            fault = "is not believed" if isinstance(error, ImpossibleFactError) else "does not answer"
            event = f"the journal {fault}: {self._consequence} until it {'is mended' if fault == 'is not believed' else 'does'}"
            self._log.warning(event, redis=self._settings.address, reason=error.what)
        self._journal, self._is_lost, self._retry_s = None, True, time.monotonic() + _RETRY_S
        self.is_emptied = isinstance(error, JournalWipedError)
        self._catch_up.forget_comparisons()
