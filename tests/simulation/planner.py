"""
The simulated planner: the rules of ``ingest/planner/planner.py``, one step at a time, so that a crash fits between any two.

Law: what a batch applies is journaled, then logged, then used. Positions are closed before the records below them are
judged. While the journal is away a range is planned only where nothing can be in force that this planner does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from simulation.checkpoint import Checkpoint, Fact, Offset, Planned
from simulation.clock import MonotonicClock
from simulation.estimating import Estimates, Reports, own_reports
from simulation.journaling import JournalClient, Marks, facts_of_notes, facts_of_topic, rebuild_journal
from simulation.resuming import moment_of_joining
from simulation.skipping import SkipPlan
from simulation.world import World, join_key

from ingest.offsets import IngestOffset, PlannedPosition
from ingest.planner.opening import may_stay_open
from ingest.skips import first_read
from ordering.errors import UnreachableError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Propose, Read
from ordering.ticks import INFINITY, TICK_MIN

Steps = Iterator[str]


class Planner:
    """
    The planner of one driver.

    Args:
        checkpoints: The job's folder and those before it that were lost: they give facts back to a journal that has lost them.
        until_end: Whether the job reads to the present end and stops.
        broken: Names of rules it breaks on purpose.
        skips: What this life of the job does not read.
        may_open: Whether batches may stay open.
    """

    def __init__(
        self,
        world: World,
        clock: MonotonicClock,
        checkpoints: list[Checkpoint],
        until_end: bool,
        broken: frozenset[str],
        skips: SkipPlan,
        may_open: bool,
    ) -> None:
        self._skips, self._may_open = skips, may_open
        self._world, self._clock, self._checkpoints, self._broken = world, clock, checkpoints, broken
        self._folder = checkpoints[-1]
        self._journal = JournalClient(world, self._known_facts, broken, lambda: rebuild_journal(world, self._folder))
        self._estimates = Estimates(world, clock, self._journal, self._read_reports, broken)
        self._frozen = [raw.visible_end(committed=True) for raw in world.raw] if until_end else None
        self._told: set[int] = set()
        self._imports_due_us = 0
        self._unclosed: dict[int, int] = {}
        self._noted: dict[int, int] = {}
        self._noted_facts: dict[Fact, None] = {}
        self._is_caught_up = False
        self.there = Offset(())
        """What the last pass planned."""
        self.opens, self.end_request = False, 0
        """Whether the batch up to there stays open, and the last request to end one when it was planned."""

    def advance(self, here: Offset) -> Steps:
        """Plan the next batch from *here*; what is planned stands in ``there``."""
        self.there = here
        try:
            if not here.final:
                yield from self._advance(here)
        except UnreachableError:
            self._world.happened["nothing planned: no answer"] += 1

    def _advance(self, here: Offset) -> Steps:
        asked_us = self._clock()
        self._learn()
        self.opens, self.end_request = False, self._folder.end_request
        yield "clock read"
        self._world.check_broker()
        if self._is_caught_up or not self._folder.end_request:
            yield from self._join(here)
        else:
            self._tell_joins(here)
        if self.there != here:
            return
        ends = self._frozen or [raw.visible_end(committed=True) for raw in self._world.raw[: len(here.partitions)]]
        self._estimates.observe_ends(dict(enumerate(ends)), self._clock())
        yield "ends known"
        planned: dict[int, Planned] = {}
        yield from self._plan_ranges(here, ends, planned)
        there = here.with_planned(planned)
        self._is_caught_up |= all(at.next_offset >= end for at, end in zip(there.partitions, ends, strict=False))
        if self._frozen is not None:
            partitions = here.partitions
            reached = len(partitions) == len(ends) and all(at.next_offset >= end for at, end in zip(partitions, ends, strict=True))
            self.there = there if planned else replace(here, final=reached)
            return
        # A partition that is silent beside a busy one is estimated in the same pass, or it would never be.
        if self._world.settings.estimates and not (planned and "estimates wait for silence everywhere" in self._broken):
            positions = dict(enumerate(here.partitions))
            yield from self._estimates.raise_silent(positions, asked_us, lambda: self._reach_journal(here), planned)
            planned |= self._estimates.raised
        there = here.with_planned(planned)
        yield from self._import(here, there, planned)
        self.there = here.with_planned(planned)
        if self._may_open and self.there != here and self._stays_open(here, ends):
            # From the first one on the folder shows that batches have stayed open.
            self._folder.end_request = self._folder.end_request or 1
            self.opens, self.end_request = True, self._folder.end_request

    def _stays_open(self, here: Offset, ends: list[int]) -> bool:
        compared = {("raw", number): span for number, span in self._skips.compared.items()}
        plan = SimpleNamespace(topic_ids={"raw": "id"}, skipped_spans=lambda partition: self._skips.spans(partition[1]), compared=compared)
        start, end = (
            IngestOffset(
                {("raw", n): PlannedPosition(at.next_offset, is_unclosed=at.is_unclosed) for n, at in enumerate(offset.partitions)}
            )
            for offset in (here, self.there)
        )
        return may_stay_open(cast(Any, plan), start, end, {("raw", number): until for number, until in enumerate(ends)})

    def _tell_joins(self, here: Offset) -> None:
        """Journal which partitions have joined; the journal hears of it once that is logged."""
        self._reach_journal(here)
        first = len(here.partitions) - len(here.joined)
        untold = [number for number in range(first, len(here.partitions)) if number not in self._told]
        if untold and self._journal.is_connected:
            self._journal.ask(lambda journal: journal.execute([Propose(FactKind.JOIN, join_key(n), n, here.joined_us(n)) for n in untold]))
            self._told |= set(untold)

    def _join(self, here: Offset) -> Steps:
        """Let new input partitions join, in a batch of their own."""
        self._tell_joins(here)
        # A run to the present end takes those that were there when it began.
        new = range(len(here.partitions), len(self._frozen or self._world.raw))
        if not new or not self._journal.is_connected:
            return
        if not self._folder.all_have_ended() and "partitions join while something goes on" not in self._broken:
            self._world.happened["a join waited for what goes on"] += 1
            return
        known = self._journal.ask(lambda journal: journal.execute([Read(FactKind.JOIN, join_key(number), 0, INFINITY) for number in new]))
        yield "new partitions found"
        moment_us = TICK_MIN if "partitions join behind" in self._broken else moment_of_joining(self._world)
        moments = [mark[0][1] for mark in known if mark] or [moment_us] * len(new)
        self._world.happened["joined again"] += any(known)
        partitions = (*here.partitions, *(Planned() for _ in moments))
        self.there = replace(here, partitions=partitions, joined=(*here.joined, *moments))

    def _plan_ranges(self, here: Offset, ends: list[int], planned: dict[int, Planned]) -> Steps:
        behind = {number: at for number, at in enumerate(here.partitions) if ends[number] > at.next_offset}
        if not behind:
            return
        self._reach_journal(here)
        skips = "marks are skipped when the journal fails" in self._broken
        if not self._journal.is_connected:
            behind = self._sure(behind)
        share = max(self._world.settings.batch_events // max(len(behind), 1), 1)
        judged = self._folder.judged(here)
        until = {n: min(ends[n], first_read(max(judged[n], at.next_offset) + share, self._skips.spans(n))) for n, at in behind.items()}
        self._unclosed |= until
        found: tuple[Marks, Marks] = {}, {}
        if self._journal.is_connected:
            yield from self._close(behind, until, found)
        is_unclosed = not self._journal.is_connected
        if is_unclosed and not skips:
            until = {number: until[number] for number in self._sure(behind)}
            found = self._known_within(behind, until)
        now_us = self._world.time.now_us
        for number, end in until.items():
            # What is in force where a range starts was applied when it was planned, except after a start in the middle.
            at = replace(behind[number], marks=(), imports=())
            marks, imports = (
                (*known, *read.get(number, [])) for known, read in zip((at.all_marks(), at.all_imports()), found, strict=True)
            )
            planned[number] = Planned(end, 0, marks, now_us, 0, imports, is_unclosed)

    def _known_within(self, behind: dict[int, Planned], until: dict[int, int]) -> tuple[Marks, Marks]:
        """Return what is known to be in force inside some ranges."""

        def within(known: Marks) -> Marks:
            return {n: [mark for mark in known.get(n, []) if behind[n].next_offset <= mark[0] < end] for n, end in until.items()}

        return within(self._journal.known[0]), within(self._journal.known[1])

    def _sure(self, behind: dict[int, Planned]) -> dict[int, Planned]:
        """Return the partitions of which this planner knows, without the journal, all that can be in force."""
        try:
            self._recall()
        except UnreachableError:
            self._world.happened["the planner waited for what goes on"] += 1
            return {}
        judged = self._folder.judged(Offset(tuple(Planned() for _ in self._world.raw)))
        lost = {n for n, at in self._folder.reached.items() if at.lost_answer and at.next_offset == judged[n]}
        unsure = set() if "unanswered estimates are forgotten" in self._broken else self._journal.unsure | lost
        closed, noted = self._journal.closed, self._noted
        return {
            n: at
            for n, at in behind.items()
            if n not in unsure and n in closed and max(at.next_offset, noted.get(n, 0)) >= max(closed[n], noted.get(n, 0))
        }

    def _recall(self) -> None:
        """Learn all that open batches have noted. Raises UnreachableError: something still goes on."""
        if not self._folder.all_have_ended():
            raise UnreachableError("a task of the last batch still goes on", where="checkpoint", fix="wait")
        self._learn()

    def _learn(self) -> None:
        """Learn what open batches have noted so far."""
        self._noted_facts |= dict.fromkeys(facts_of_notes(self._folder))
        for number, notes in self._folder.notes.items():
            known = self._journal.known[0].setdefault(number, [])
            known += [mark for _, end in notes for mark in end.all_marks() if mark not in known]
            self._noted[number] = max([self._noted.get(number, 0), *(end.next_offset for _, end in notes)])

    def _close(self, behind: dict[int, Planned], until: dict[int, int], found: tuple[Marks, Marks]) -> Steps:
        """Close the positions about to be judged and read what is in force among them."""
        try:
            self._journal.close(self._unclosed)
            if "positions stay open" not in self._broken:
                self._unclosed.clear()
            yield "positions closed"
            marks, imports = self._journal.read({number: (at.next_offset, until[number] - 1) for number, at in behind.items()})
            found[0].update(marks)
            found[1].update(imports)
            self._journal.unsure -= set(behind)
            yield "marks read"
        except UnreachableError:
            self._world.happened["journal lost while planning"] += 1

    def _import(self, here: Offset, there: Offset, planned: dict[int, Planned]) -> Steps:
        """Raise the partitions that were read to their end to the other input's time, each raise journaled first."""
        world, now_us = self._world, self._clock()
        c_us = world.imported_us()
        if c_us is None or now_us < self._imports_due_us:
            return
        self._imports_due_us = now_us + world.settings.cadence_us
        self._reach_journal(here)
        if not self._journal.is_connected:
            return
        yield "other input seen"
        # The ends are asked for after the look: what was there by then is judged before the imported time counts.
        numbers = [n for n, at in enumerate(there.partitions) if world.raw[n].visible_end(committed=False) == at.next_offset]
        agreed = self._journal.agree("import", [(number, there.partitions[number].next_offset, c_us) for number in numbers])
        yield "imports journaled"
        for number, agreed_us in zip(numbers, agreed, strict=True):
            at = there.partitions[number]
            if agreed_us is not None and agreed_us > at.import_us:
                at = planned.get(number, Planned(at.next_offset, at.frontier_us))
                planned[number] = replace(at, import_us=agreed_us)

    def _reach_journal(self, here: Offset) -> None:
        """Connect if there is no connection; learn what is in force, and give back what the journal has lost."""
        positions = {number: at.next_offset for number, at in enumerate(here.partitions)}

        def judged() -> dict[int, int]:
            return {number: max(at, self._noted.get(number, 0)) for number, at in self._folder.judged(here).items()}

        self._journal.reach(positions, judged)

    def _known_facts(self) -> list[Fact]:
        """Return the facts that the journal may have lost: what batches have applied, and what was closed after the last one."""
        self._recall()
        of_batches = [fact for checkpoint in self._checkpoints for fact in checkpoint.facts()]
        noted = [*self._noted_facts]
        # What open batches have used is in no offset; where old notes were deleted CTIs carry it.
        return [*of_batches, *noted, *facts_of_topic(self._world)]

    def _read_reports(self) -> Reports:
        return own_reports(self._folder, self._clock.boot, self._broken)
