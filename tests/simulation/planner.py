"""
The simulated planner: the rules of ``ingest/source.py``, one step at a time, so that a crash fits between any two.

Law: what a batch applies is journaled, then logged, then used. Positions are closed before the records below them are
judged. While the journal is away a range is planned only where nothing can be in force that this planner does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from simulation.checkpoint import Checkpoint, Offset, Planned
from simulation.clock import MonotonicClock
from simulation.world import World, journal_key

from ingest.idle import Silences
from ordering.errors import UnreachableError
from ordering.journal import MemoryJournal
from ordering.ticks import INFINITY

Steps = Iterator[str]
Marks = dict[int, list[tuple[int, int]]]


class Planner:
    """
    The planner of one driver.

    Args:
        checkpoint: Its offset log gives facts back to a journal that has lost them.
        until_end: Whether the job reads to the present end and stops.
        broken: Names of rules it breaks on purpose.
    """

    def __init__(self, world: World, clock: MonotonicClock, checkpoint: Checkpoint, until_end: bool, broken: frozenset[str]) -> None:
        self._world, self._clock, self._checkpoint, self._broken = world, clock, checkpoint, broken
        self._numbers = range(len(world.raw))
        self._silences = Silences(world.settings.cadence_us, world.settings.margin_us)
        self._frozen = [raw.visible_end(committed=True) for raw in world.raw] if until_end else None
        self._journal_life: int | None = None
        self._closed: dict[int, int] = {}
        self._known: Marks = {}
        self._unclosed: dict[int, int] = {}
        self._unsure: set[int] = set()
        self.there = Offset(())
        """What the last pass planned."""

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
        yield "clock read"
        self._world.check_broker()
        ends = self._frozen or [raw.visible_end(committed=True) for raw in self._world.raw]
        self._silences.observe({("raw", number): end for number, end in enumerate(ends)}, self._clock())
        yield "ends known"
        planned: dict[int, Planned] = {}
        yield from self._plan_ranges(here, ends, planned)
        if self._frozen is not None:
            reached = all(at.next_offset >= end for at, end in zip(here.partitions, ends, strict=True))
            self.there = here.with_planned(planned) if planned else Offset(here.partitions, final=reached)
            return
        # A partition that is silent beside a busy one is estimated in the same pass, or it would never be.
        if self._world.settings.estimates and not (planned and "estimates wait for silence everywhere" in self._broken):
            yield from self._estimate(here, asked_us, planned)
        self.there = here.with_planned(planned)

    def _plan_ranges(self, here: Offset, ends: list[int], planned: dict[int, Planned]) -> Steps:
        behind = {number: at for number, at in enumerate(here.partitions) if ends[number] > at.next_offset}
        if not behind:
            return
        self._reach_journal(here)
        if self._journal_life is None:
            behind = self._sure(behind)
        share = max(self._world.settings.batch_events // max(len(behind), 1), 1)
        until = {number: min(ends[number], at.next_offset + share) for number, at in behind.items()}
        self._unclosed |= until
        marks: Marks = {}
        if self._journal_life is not None:
            yield from self._close(behind, until, marks)
        if self._journal_life is None and "marks are skipped when the journal fails" not in self._broken:
            until = {number: until[number] for number in self._sure(behind)}
            marks = {number: [mark for mark in self._known.get(number, []) if mark[0] < end] for number, end in until.items()}
        now_us = self._world.time.now_us
        planned |= {number: Planned(end, 0, tuple(marks.get(number, ())), now_us) for number, end in until.items()}

    def _sure(self, behind: dict[int, Planned]) -> dict[int, Planned]:
        """Return the partitions of which this planner knows, without the journal, all that can be in force."""
        forgetful = "unanswered estimates are forgotten" in self._broken
        unsure = set() if forgetful else self._unsure
        return {n: at for n, at in behind.items() if at.next_offset >= self._closed.get(n, INFINITY) and n not in unsure}

    def _close(self, behind: dict[int, Planned], until: dict[int, int], marks: Marks) -> Steps:
        """Close the positions about to be judged and read the estimates in force among them."""
        try:
            if "positions stay open" not in self._broken:
                below = [(journal_key(number), end) for number, end in self._unclosed.items()]
                self._ask(lambda journal: journal.close_many(below))
                self._unclosed.clear()
            yield "positions closed"
            wanted = [(journal_key(number), at.next_offset, until[number] - 1) for number, at in behind.items()]
            found = self._ask(lambda journal: journal.estimates_many(wanted))
            marks |= dict(zip(behind, found, strict=True))
            self._unsure -= set(behind)
            yield "marks read"
        except UnreachableError:
            self._world.happened["journal lost while planning"] += 1

    def _estimate(self, here: Offset, asked_us: int, planned: dict[int, Planned]) -> Steps:
        """Add the silent partitions at raised frontiers, each raise journaled first."""
        world = self._world
        due = self._silences.due({("raw", number): at.next_offset for number, at in enumerate(here.partitions)}, asked_us)
        numbers = [number for _, number in due if number not in planned]
        if not numbers:
            return
        self._reach_journal(here)
        if self._journal_life is None:
            return
        # Below an open transaction nothing has been read yet: the end must be the same with and without.
        below = "estimates pass over open transactions" in self._broken
        ends = {number: world.raw[number].visible_end(committed=below) for number in numbers}
        numbers = [number for number in numbers if ends[number] == here.partitions[number].next_offset]
        yield "silence seen"
        if "the clock is read last" in self._broken:
            asked_us = self._clock()
        self._learn_last_arrivals(numbers, here, asked_us)
        wanted = [(number, raised) for number in numbers if (raised := self._silences.estimate(("raw", number), asked_us)) is not None]
        rising = [(number, raised) for number, raised in wanted if raised > here.partitions[number].frontier_us]
        agreed = self._agree([(number, ends[number], raised) for number, raised in rising])
        if rising:
            yield "estimates journaled"
        for (number, _), frontier_us in zip(rising, agreed, strict=True):
            if frontier_us is None:
                world.happened["estimate refused"] += 1
                world.tell(f"the journal refuses an estimate for raw {number}")
            elif frontier_us > here.partitions[number].frontier_us:
                planned[number] = Planned(ends[number], frontier_us)

    def _agree(self, rising: list[tuple[int, int, int]]) -> list[int | None]:
        """Journal estimates; return those in force. If no answer comes they may be in force or not."""
        if "estimates are not journaled" in self._broken:
            return [raised for _, _, raised in rising]
        before = set(self._unsure)
        self._unsure |= {number for number, _, _ in rising}
        asked = [(journal_key(number), end, raised) for number, end, raised in rising]
        agreed: list[int | None] = self._ask(lambda journal: journal.estimate_many(asked))
        self._unsure = before
        return agreed

    def _learn_last_arrivals(self, due: list[int], here: Offset, asked_us: int) -> None:
        """Tell the silences from which arrival they count; a partition without any record follows the slowest of the others."""
        world = self._world
        empty = [number for number in due if here.partitions[number].next_offset == 0]
        unknown = [number for number in due if self._silences.needs_last_arrival(("raw", number))]
        if not unknown and not empty:
            return
        known = {}
        for number, at in enumerate(here.partitions):
            newest = world.raw[number].newest()
            if newest is not None and newest.offset < at.next_offset and newest.stamp_us > 0:
                known[number] = max(newest.stamp_us, at.frontier_us)
        for number in unknown:
            if number in known:
                self._silences.last_arrival(("raw", number), known[number])
        slowest = min(known.values(), default=0)
        for number in empty if slowest else ():
            base = slowest
            if self._silences.needs_last_arrival(("raw", number)):
                key = journal_key(number)
                base = self._ask(lambda journal, key=key: journal.base(key, slowest))  # type: ignore[misc]
            self._silences.count_from(("raw", number), max(base, here.partitions[number].frontier_us), asked_us)

    def _reach_journal(self, here: Offset) -> None:
        """Connect if there is no connection; learn what is in force, and give back what the journal has lost."""
        if self._journal_life is not None:
            return
        self._journal_life = self._world.journal.lives
        try:
            self._closed = {number: self._ask(lambda journal, n=number: journal.closed(journal_key(n))) for number in self._numbers}  # type: ignore[misc]
            if "a lost journal stays lost" not in self._broken:
                self._give_back(here)
            wanted = [(journal_key(number), at.next_offset, INFINITY) for number, at in enumerate(here.partitions)]
            self._known = dict(enumerate(self._ask(lambda journal: journal.estimates_many(wanted))))
        except UnreachableError:
            self._world.happened["journal not reached"] += 1

    def _give_back(self, here: Offset) -> None:
        """
        Journal again what batches have applied below positions that are open although they were judged.

        They are open if the journal has lost facts, and if they were judged while it was away and the driver died then.
        """
        lost = [number for number in self._numbers if self._closed[number] < here.partitions[number].next_offset]
        if not lost:
            return
        applied = [
            (journal_key(number), position, frontier_us)
            for batch, offset in enumerate(self._checkpoint.offsets)
            for number, position, frontier_us in offset.estimates(self._checkpoint.offset_before(batch))
            if number in lost
        ]
        self._ask(lambda journal: journal.estimate_many(applied))
        self._ask(lambda journal: journal.close_many([(journal_key(number), here.partitions[number].next_offset) for number in lost]))
        self._world.happened["facts given back to the journal"] += 1
        self._world.tell(f"the journal gets back {len(applied)} facts of raw {lost}")

    def _ask(self, call: Callable[[MemoryJournal], Any]) -> Any:
        assert self._journal_life is not None, "asked only where connected"
        try:
            return self._world.journal.answer(self._journal_life, call)
        except UnreachableError:
            self._journal_life = None
            raise
