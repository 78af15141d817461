"""
The planner's desk for facts of the journal: all it asks of the journal, it asks here.

Law: what a call returns is in force and durable, so it may be planned; what the journal did not answer for is not in
force for this planner. A journal that fails is asked again after a while and never ends the job. While it does not answer:

- no estimate is made, and where ingest stamps arrivals nothing is planned at all;
- elsewhere records are planned on that nobody had judged or estimated before: what was in force there is known. That
  they are judged is remembered in Spark's offset, and the journal is told first thing when it answers;
- what others may have judged (a replay) waits, and so does a partition for which an answer was lost: a fact may be in force
  there that nobody heard of.

A journal that lost facts is given back those that this planner heard and made, before anything else is asked of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.fact_memory import FactMemory
from ingest.journal.redis_journal import RedisJournal, SeenWrites
from ingest.offsets import Join, Marks, PlannedPosition
from ordering.errors import RefusedError, TidegateError
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import (
    Call,
    Close,
    Closed,
    Forget,
    ForgetfulJournalError,
    Hush,
    JournalKey,
    Moment,
    Raise,
    Read,
    Settle,
    Silence,
)
from ordering.ticks import INFINITY, MINUTE_US

_RETRY_S = 1.0
_TRIM_US = 10 * MINUTE_US
_VERDICT_SHARE = 1000
"""A verdict holds on until it is one part in a thousand of ``arrival_max_ahead`` old."""

Proposal = tuple[Partition, int, int]
"""(partition, position, time in microseconds): what is to be in force just before the record at that position is judged."""


Starts = Callable[[Collection[Partition]], Mapping[Partition, int]]


class RangeFacts(NamedTuple):
    """
    What a range must repeat.

    Args:
        marks, imports: Estimates and imports in the range, those where it starts included.
        spans: When its records were first planned: stamps or verdicts, the one in force where it starts first.
        unclosed: Whether the journal has not been told that it is judged.
        clamped: How many moments were lifted, because a clock had gone back.
    """

    marks: Marks
    imports: Marks
    spans: Marks
    unclosed: bool = False
    clamped: int = 0


class JournaledFacts(NamedTuple):
    """What the journal holds of a partition from where the job goes on: the first open position, and facts as (position, value)."""

    closed: int
    estimates: list[tuple[int, int]]
    imports: list[tuple[int, int]]
    spans: list[tuple[int, int]]

    def lacks(self, at: PlannedPosition) -> bool:
        """Return whether it does not know what Spark's offset says to be in force there."""
        estimate_us, import_us = (max((us for _, us in marks), default=0) for marks in (self.estimates, self.imports))
        return estimate_us < at.frontier_us or import_us < at.import_us


class JournalClient:
    """
    All a planner knows of the journal.

    Args:
        plan: The job.
        log: Where it is said that the journal does not answer, or does again.
    """

    def __init__(self, plan: IngestPlan, log: FilteringBoundLogger) -> None:
        self._plan, self._log = plan, log
        self._stamps = plan.settings.arrival == "ingest"
        self._span_kind = plan.settings.span_kind
        self._journal: RedisJournal | None = None
        self._lost = False
        self._retry_s = 0.0
        self._trim_due_us = 0
        self._here: Mapping[Partition, PlannedPosition] = {}
        self._topic_ids = dict(plan.topic_ids)
        self._closed: dict[Partition, int] = {}
        self._learned: set[Partition] = set()
        self._unclosed: dict[Partition, int] = {}
        self._uncertain: set[Partition] = set()
        self._memory: dict[Partition, FactMemory] = {}
        self._conflicts: dict[Partition, int] = {}
        self._joins: dict[JournalKey, Fact] = {}
        self._standings: SeenWrites = {}

    def begin_pass(self, here: Mapping[Partition, PlannedPosition], starts: Starts) -> None:
        """
        Begin a pass: tell the journal what it has missed, and let it forget what no log can need.

        Args:
            here: Where the job stands, by Spark's offset.
            starts: Tells the first offset there is of each partition, asked now and then.
        """
        self._here = here
        for partition, at in here.items():
            if partition not in self._memory:
                self._remembered(partition).remember_planned(at)
        now_us = time.monotonic_ns() // 1000
        if self.is_available() and now_us >= self._trim_due_us:
            self._trim_due_us = now_us + _TRIM_US
            self._trim(starts(here.keys()))

    def is_available(self) -> bool:
        """Return whether the journal answers; asked for again once a second while it does not."""
        return self._reach() is not None

    def select_plannable(self, here: Mapping[Partition, PlannedPosition]) -> dict[Partition, PlannedPosition]:
        """Return those of *here* that may be planned on: all of them, or without the journal those of which all is known."""
        if self.is_available():
            return dict(here)
        if self._stamps or self._plan.settings.journal_outage == "pause":
            return {}
        return {
            partition: at
            for partition, at in here.items()
            if at.next_offset >= self._closed.get(partition, INFINITY) and partition not in self._uncertain
        }

    def close_ranges(self, here: Mapping[Partition, PlannedPosition], until: Mapping[Partition, int]) -> dict[Partition, RangeFacts]:
        """
        Close the positions about to be judged.

        Args:
            here: Where each range starts.
            until: Where it ends.

        Returns:
            What is in force in each range. Where that cannot be told without the journal the range is missing: it must not be
            planned.
        """
        now_us = time.time_ns() // 1000
        calls: list[Call] = []
        for partition, at in here.items():
            calls += self._closing(partition, at.next_offset, until[partition], now_us)
        answers = self._ask(calls)
        if answers is None:
            left = self.select_plannable(here) if not self.is_available() else {}
            return {partition: self._without_journal(partition, at, until[partition], now_us) for partition, at in left.items()}
        each = len(calls) // len(here)
        return {
            partition: self._heard(partition, at, until[partition], now_us, answers[place * each : (place + 1) * each])
            for place, (partition, at) in enumerate(here.items())
        }

    def pop_conflicts(self, partition: Partition) -> int:
        """Return how many facts were found where this planner had judged without them, since last asked."""
        return self._conflicts.pop(partition, 0)

    def journal_estimates(self, wanted: Sequence[Proposal]) -> dict[Partition, int]:
        """Journal estimates; return those in force. Where the position is closed, or no answer came, there is none."""
        return self._raise(FactKind.ESTIMATE, wanted)

    def journal_imports(self, wanted: Sequence[Proposal]) -> dict[Partition, int]:
        """Journal imported CTIs; return those in force. Where the position is closed, or no answer came, there is none."""
        return self._raise(FactKind.IMPORT, wanted)

    def settle_base(self, partition: Partition, frontier_us: int) -> int | None:
        """Propose the frontier from which a partition without any record starts; return the one in force, None without an answer."""
        answers = self._ask([Settle(FactKind.BASE, self._key(partition), 0, frontier_us)])
        if answers is None:
            return None
        self._remembered(partition).remember(FactKind.BASE, [answers[0]])
        base_us: int = answers[0][1]
        return base_us

    def share_silences(self, silences: Mapping[Partition, Silence]) -> dict[Partition, Silence]:
        """Say since when partitions are silent; return what is known of that by now, nothing without an answer."""
        answers = self._ask([Hush(self._key(partition), silence) for partition, silence in silences.items()])
        return dict(zip(silences, answers or [], strict=False))

    def read_joins(self, partitions: Mapping[Partition, str]) -> dict[Partition, Join] | None:
        """Return which of *partitions* (with their topic's id) once joined this ordered topic, and when; None without an answer."""
        joins: dict[Partition, Join] = {}
        for partition, topic_id in partitions.items():
            self._topic_ids.setdefault(partition[0], topic_id)
            answers = self._ask([Read(FactKind.JOIN, self._plan.join_key(partition, topic_id), 0, INFINITY)])
            if answers is None:
                return None
            if answers[0]:
                joins[partition] = Join(*answers[0][0])
        return joins

    def journal_join(self, partition: Partition, topic_id: str, joined: Join) -> bool:
        """
        Take a partition that joined into what is journaled, and journal when it did.

        Returns:
            Whether the journal has it; else call again.
        """
        self._topic_ids.setdefault(partition[0], topic_id)
        self._joins[self._plan.join_key(partition, topic_id)] = Fact(FactKind.JOIN, *joined)
        return self._ask([Settle(FactKind.JOIN, self._plan.join_key(partition, topic_id), *joined)]) is not None

    def _closing(self, partition: Partition, start: int, end: int, now_us: int) -> list[Call]:
        key, last = self._key(partition), end - 1
        moment = Moment(self._span_kind, now_us, self._slack_us)
        calls: list[Call] = [Close(key, end, moment), Read(FactKind.ESTIMATE, key, start, last), Read(self._span_kind, key, start, last)]
        if self._plan.imported is not None:
            import_key = self._import_key(partition)
            calls += [Close(import_key, end), Read(FactKind.IMPORT, import_key, start, last)]
        return calls

    def _heard(self, partition: Partition, at: PlannedPosition, end: int, now_us: int, answers: Sequence[Any]) -> RangeFacts:
        memory, start = self._remembered(partition), at.next_offset
        memory.remember(FactKind.ESTIMATE, answers[1])
        memory.remember(self._span_kind, answers[2])
        if self._stamps and not (answers[2] and answers[2][0][0] <= start):
            raise RefusedError(
                "the journal has lost when records arrived that were judged before",
                code="TG-JOURNAL-LOST",
                where=f"{partition[0]}-{partition[1]}@{start}",
                fix="stop the job, bring the stamps back from the ordered topic, and start it again",
                example=f"tidegate journal rebuild {self._plan.settings.name}",
            )
        memory.remember(FactKind.IMPORT, answers[4] if len(answers) > 4 else ())
        clamped = int(self._closed.get(partition, end) < end and bool(answers[2]) and answers[2][-1][1] > now_us)
        self._closed[partition] = max(end, self._closed.get(partition, 0))
        return self._in_force(partition, start, end, clamped=clamped)

    def _without_journal(self, partition: Partition, at: PlannedPosition, end: int, now_us: int) -> RangeFacts:
        """Return what is known to be in force in a range that nobody judged before; remember that it is not closed."""
        memory = self._remembered(partition)
        last = memory.last(self._span_kind)
        if last is None or last[1] < now_us - self._slack_us:
            memory.remember(self._span_kind, [(at.next_offset, now_us)])
        self._unclosed.setdefault(partition, at.next_offset)
        return self._in_force(partition, at.next_offset, end, unclosed=True)

    def _in_force(self, partition: Partition, start: int, end: int, unclosed: bool = False, clamped: int = 0) -> RangeFacts:
        memory = self._remembered(partition)
        kinds = FactKind.ESTIMATE, FactKind.IMPORT, self._span_kind
        marks, imports, spans = (memory.between(kind, start, end) for kind in kinds)
        return RangeFacts(marks, imports, spans, unclosed, clamped)

    @property
    def _slack_us(self) -> int:
        return 0 if self._stamps else self._plan.settings.arrival_max_ahead_us // _VERDICT_SHARE

    def _raise(self, kind: FactKind, wanted: Sequence[Proposal]) -> dict[Partition, int]:
        keys = {partition: self._import_key(partition) if kind is FactKind.IMPORT else self._key(partition) for partition, _, _ in wanted}
        # A server that is gone by now cannot have carried anything out; of one that goes in between nobody knows.
        if not keys or not self._answers():
            return {}
        before = set(self._uncertain)
        self._uncertain |= keys.keys()
        answers = self._ask([Raise(kind, keys[partition], position, us) for partition, position, us in wanted])
        if answers is None:
            return {}
        self._uncertain = before
        raised = {}
        for (partition, position, _), agreed_us in zip(wanted, answers, strict=True):
            if agreed_us is not None:
                self._remembered(partition).remember(kind, [(position, agreed_us)])
                raised[partition] = agreed_us
        return raised

    def _ask(self, calls: Sequence[Call]) -> list[Any] | None:
        """Do *calls*; None without an answer. A journal that has lost facts is given them back first."""
        journal = self._reach() if calls else None
        if journal is None:
            return None
        try:
            try:
                return journal.do(calls)
            except ForgetfulJournalError as error:
                self._log.warning(error.what, code=error.code)
                self._give_back(journal, self._here)
                self._give_back_joins(journal)
                for key in dict.fromkeys(call.key for call in calls):
                    journal.restore(key, [])
                return journal.do(calls)
        except TidegateError as error:
            self._lose(error)
            return None

    def _answers(self) -> bool:
        """Return whether the journal answers right now."""
        journal = self._reach()
        if journal is None:
            return False
        try:
            journal.check()
        except TidegateError as error:
            self._lose(error)
            return False
        return True

    def _reach(self) -> RedisJournal | None:
        if self._journal is None and time.monotonic() < self._retry_s:
            return None
        try:
            journal = self._journal or RedisJournal.open(self._plan.redis, self._standings)
            self._learn(journal)
        except TidegateError as error:
            self._lose(error)
            return None
        if self._lost:
            self._log.info("the journal answers again", redis=self._plan.redis.address)
        self._journal, self._lost = journal, False
        return journal

    def _lose(self, error: TidegateError) -> None:
        if not self._lost:
            what = "nothing is planned" if self._stamps else "no idle estimates"
            self._log.warning(f"the journal does not answer: {what} until it does", redis=self._plan.redis.address, reason=error.what)
        self._journal, self._lost, self._retry_s = None, True, time.monotonic() + _RETRY_S
        self._learned.clear()

    def _learn(self, journal: RedisJournal) -> None:
        """Compare partitions not compared since the journal was reached; tell it what it has missed, hear what is in force."""
        new = [partition for partition in self._here if partition not in self._learned]
        if not new:
            return
        found, forgot = self._compare(journal, new)
        behind = [p for p in new if found[p].closed < self._here[p].next_offset and not self._fresh(p)]
        for partition in behind:
            self._find_conflicts(journal, partition, found[partition].closed)
        self._say_what_it_missed(behind, found)
        self._give_back(journal, [p for p in new if forgot or p in behind or found[p].lacks(self._here[p])])
        for partition in new:
            memory = self._remembered(partition)
            memory.remember(FactKind.ESTIMATE, found[partition].estimates)
            memory.remember(FactKind.IMPORT, found[partition].imports)
            memory.remember(self._span_kind, found[partition].spans)
            self._closed[partition] = max(found[partition].closed, self._here[partition].next_offset if partition in behind else 0)
        self._learned |= set(new)
        self._uncertain -= set(new)

    def _compare(self, journal: RedisJournal, partitions: Sequence[Partition]) -> tuple[dict[Partition, JournaledFacts], bool]:
        """Return what the journal holds from where the job goes on, and whether it is another than this planner knew."""
        calls: list[Call] = []
        for partition in partitions:
            start, key = self._here[partition].next_offset, self._key(partition)
            kinds = FactKind.ESTIMATE, FactKind.IMPORT, self._span_kind
            keys = key, self._import_key(partition), key
            calls += [Closed(key), *(Read(kind, each, start, INFINITY) for kind, each in zip(kinds, keys, strict=True))]
        forgot = False
        try:
            answers = journal.do(calls)
        except ForgetfulJournalError as error:
            self._log.warning(error.what, code=error.code)
            forgot = True
            for key in dict.fromkeys(call.key for call in calls):
                journal.restore(key, [])
            self._give_back_joins(journal)
            answers = journal.do(calls)
        each = len(calls) // len(partitions)
        return {p: JournaledFacts(*answers[place * each : (place + 1) * each]) for place, p in enumerate(partitions)}, forgot

    def _fresh(self, partition: Partition) -> bool:
        """Return whether nothing of a partition has been judged yet: then nothing below its start needs to be closed."""
        at = self._here[partition]
        if partition in self._plan.starts:
            return at.next_offset == self._plan.starts[partition].next_offset
        return not at.planned_ms and not at.frontier_us

    def _find_conflicts(self, journal: RedisJournal, partition: Partition, closed: int) -> None:
        """Look for facts where records were judged without them: another job, or a driver that should be gone, was at work."""
        known_from = self._unclosed.get(partition)
        # A driver that has only Spark's offset does not know what was in force where its predecessor stood: that may be its own.
        start = closed + 1 if known_from is None else known_from
        end = self._here[partition].next_offset
        memory, found = self._remembered(partition), 0
        for kind, key in ((FactKind.ESTIMATE, self._key(partition)), (FactKind.IMPORT, self._import_key(partition))):
            known = dict(memory.between(kind, start, end))
            marks = journal.do([Read(kind, key, start, end - 1)])[0] if start < end else []
            found += sum(us > known.get(position, 0) for position, us in marks)
        self._report_conflicts(partition, found)

    def _report_conflicts(self, partition: Partition, found: int) -> None:
        if not found:
            return
        self._conflicts[partition] = self._conflicts.get(partition, 0) + found
        self._log.warning(
            "another job journaled facts where records were judged without them: the two differ there",
            code="TG-JOURNAL-CONFLICT",
            topic=partition[0],
            partition=partition[1],
            facts=found,
        )

    def _say_what_it_missed(self, behind: Sequence[Partition], found: Mapping[Partition, JournaledFacts]) -> None:
        lost = [p for p in behind if found[p].closed < self._closed.get(p, self._judged_before_outage(p))]
        if lost:
            whole = not any(self._remembered(partition).is_incomplete for partition in lost)
            told = "all that this job knows" if whole else "the newest facts; tidegate journal rebuild brings back the others"
            self._log.warning("the journal had lost facts and was given back " + told, partitions=len(lost))

    def _judged_before_outage(self, partition: Partition) -> int:
        at = self._here[partition]
        return 0 if at.is_unclosed else at.next_offset

    def _give_back(self, journal: RedisJournal, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            memory, at = self._remembered(partition), self._here[partition]
            below = 0 if self._fresh(partition) else max(at.next_offset, self._closed.get(partition, 0))
            closing = [Fact(FactKind.CLOSED, below, 0)]
            contradicted = journal.restore(self._key(partition), memory.facts(imports=False) + closing)
            # Verdicts may differ by a moment without any harm; an arrival may not.
            self._report_conflicts(partition, contradicted if self._stamps else 0)
            if self._plan.imported is not None:
                journal.restore(self._import_key(partition), memory.facts(imports=True) + closing)
            self._unclosed.pop(partition, None)

    def _give_back_joins(self, journal: RedisJournal) -> None:
        for key, fact in self._joins.items():
            journal.restore(key, [fact])

    def _trim(self, starts: Mapping[Partition, int]) -> None:
        calls = [Forget(key, first) for partition, first in starts.items() for key in (self._key(partition), self._import_key(partition))]
        gone = self._ask(list(dict.fromkeys(calls)))
        for partition, first in starts.items():
            self._remembered(partition).forget_below(first)
        if gone and sum(gone):
            self._log.info("facts of records that retention has deleted were forgotten", facts=sum(gone))

    def _remembered(self, partition: Partition) -> FactMemory:
        return self._memory.setdefault(partition, FactMemory(self._span_kind))

    def _key(self, partition: Partition) -> JournalKey:
        return self._plan.journal_key(partition, self._topic_ids[partition[0]])

    def _import_key(self, partition: Partition) -> JournalKey:
        """Return the key of imports; without any it is the partition's own, where none will be found."""
        if self._plan.imported is None:
            return self._key(partition)
        return self._plan.import_key(partition, self._topic_ids[partition[0]])
