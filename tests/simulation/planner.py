"""
The simulated planner: the rules of ``ingest/planner/planner.py``, one step at a time, so that a crash fits between any two.

Law: what a batch applies is journaled, then logged, then used. Positions are closed before the records below them are
judged. While the journal is away a range is planned only where nothing can be in force that this planner does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from simulation.checkpoint import Checkpoint, Offset, Planned
from simulation.clock import MonotonicClock
from simulation.resuming import moment_of_joining
from simulation.skipping import SkipPlan
from simulation.world import World, join_key, journal_key
from support.journals import MemoryJournal, close_many, estimate_many, import_many, read_many, settle_base

from ingest.planner.silences import Silences
from ingest.planner.stage_progress import StageProgress
from ingest.skips import first_read
from ordering.errors import UnreachableError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Propose, Read, RecordSilence, Silence
from ordering.ticks import INFINITY, TICK_MIN

Steps = Iterator[str]
Marks = dict[int, list[tuple[int, int]]]


class Planner:
    """
    The planner of one driver.

    Args:
        checkpoints: The job's folder and those before it that were lost: they give facts back to a journal that has lost them.
        until_end: Whether the job reads to the present end and stops.
        broken: Names of rules it breaks on purpose.
        skips: What this life of the job does not read.
    """

    def __init__(
        self,
        world: World,
        clock: MonotonicClock,
        checkpoints: list[Checkpoint],
        until_end: bool,
        broken: frozenset[str],
        skips: SkipPlan,
    ) -> None:
        self._skips = skips
        self._world, self._clock, self._checkpoints, self._broken = world, clock, checkpoints, broken
        self._silences = Silences(world.settings.cadence_us, world.settings.margin_us, (world.settings.policies.late_us or 0) // 2)
        self._nudged: dict[int, int] = {}
        self._one_clock = all(message.stamp_us is None for message in world.scenario.messages)
        self._frozen = [raw.visible_end(committed=True) for raw in world.raw] if until_end else None
        self._told: set[int] = set()
        self._imports_due_us = 0
        self._journal_life: int | None = None
        self._closed: dict[int, int] = {}
        self._known: tuple[Marks, Marks] = {}, {}
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
        yield from self._join(here)
        if self.there != here:
            return
        ends = self._frozen or [raw.visible_end(committed=True) for raw in self._world.raw[: len(here.partitions)]]
        self._silences.observe_ends({("raw", number): end for number, end in enumerate(ends)}, self._clock())
        yield "ends known"
        planned: dict[int, Planned] = {}
        yield from self._plan_ranges(here, ends, planned)
        if self._frozen is not None:
            partitions = here.partitions
            reached = len(partitions) == len(ends) and all(at.next_offset >= end for at, end in zip(partitions, ends, strict=True))
            self.there = here.with_planned(planned) if planned else replace(here, final=reached)
            return
        # A partition that is silent beside a busy one is estimated in the same pass, or it would never be.
        if self._world.settings.estimates and not (planned and "estimates wait for silence everywhere" in self._broken):
            yield from self._estimate(here, asked_us, planned)
        there = here.with_planned(planned)
        yield from self._import(here, there, planned)
        self.there = here.with_planned(planned)

    def _join(self, here: Offset) -> Steps:
        """Let new input partitions join, in a batch of their own; the journal hears of it once that is logged."""
        self._reach_journal(here)
        first = len(here.partitions) - len(here.joined)
        untold = [number for number in range(first, len(here.partitions)) if number not in self._told]
        if untold and self._journal_life is not None:
            self._ask(lambda journal: journal.execute([Propose(FactKind.JOIN, join_key(n), n, here.joined_us(n)) for n in untold]))
            self._told |= set(untold)
        # A run to the present end takes those that were there when it began.
        new = range(len(here.partitions), len(self._frozen or self._world.raw))
        if not new or self._journal_life is None:
            return
        known = self._ask(lambda journal: journal.execute([Read(FactKind.JOIN, join_key(number), 0, INFINITY) for number in new]))
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
        if self._journal_life is None:
            behind = self._sure(behind)
        share = max(self._world.settings.batch_events // max(len(behind), 1), 1)
        until = {n: min(ends[n], first_read(at.next_offset + share, self._skips.spans(n))) for n, at in behind.items()}
        self._unclosed |= until
        found: tuple[Marks, Marks] = {}, {}
        if self._journal_life is not None:
            yield from self._close(behind, until, found)
        if self._journal_life is None and not skips:
            until = {number: until[number] for number in self._sure(behind)}
            found = self._known_within(behind, until)
        now_us = self._world.time.now_us
        for number, end in until.items():
            # What is in force where a range starts was applied when it was planned, except after a start in the middle.
            at = replace(behind[number], marks=(), imports=())
            marks, imports = (
                (*known, *read.get(number, [])) for known, read in zip((at.all_marks(), at.all_imports()), found, strict=True)
            )
            planned[number] = Planned(end, 0, marks, now_us, 0, imports)

    def _known_within(self, behind: dict[int, Planned], until: dict[int, int]) -> tuple[Marks, Marks]:
        """Return what is known to be in force inside some ranges."""

        def within(known: Marks) -> Marks:
            return {n: [mark for mark in known.get(n, []) if behind[n].next_offset <= mark[0] < end] for n, end in until.items()}

        return within(self._known[0]), within(self._known[1])

    def _sure(self, behind: dict[int, Planned]) -> dict[int, Planned]:
        """Return the partitions of which this planner knows, without the journal, all that can be in force."""
        unsure = set() if "unanswered estimates are forgotten" in self._broken else self._unsure
        return {n: at for n, at in behind.items() if at.next_offset >= self._closed.get(n, INFINITY) and n not in unsure}

    def _close(self, behind: dict[int, Planned], until: dict[int, int], found: tuple[Marks, Marks]) -> Steps:
        """Close the positions about to be judged and read what is in force among them."""
        try:
            if "positions stay open" not in self._broken:
                below = [(journal_key(number), end) for number, end in self._unclosed.items()]
                self._ask(lambda journal: close_many(journal, below))
                self._unclosed.clear()
            yield "positions closed"
            wanted = [(journal_key(number), at.next_offset, until[number] - 1) for number, at in behind.items()]
            marks = self._ask(lambda journal: read_many(journal, FactKind.ESTIMATE, wanted))
            imports = self._ask(lambda journal: read_many(journal, FactKind.IMPORT, wanted))
            found[0].update(zip(behind, marks, strict=True))
            found[1].update(zip(behind, imports, strict=True))
            self._unsure -= set(behind)
            yield "marks read"
        except UnreachableError:
            self._world.happened["journal lost while planning"] += 1

    def _estimate(self, here: Offset, asked_us: int, planned: dict[int, Planned]) -> Steps:
        """Add the silent partitions at raised frontiers, each raise journaled first."""
        world = self._world
        late_us = world.settings.policies.late_us
        due = self._silences.select_due({("raw", number): at.next_offset for number, at in enumerate(here.partitions)}, asked_us)
        numbers = [number for _, number in due if number not in planned]
        if not numbers or late_us is None:
            return
        self._reach_journal(here)
        if self._journal_life is None:
            return
        found = dict(self._checkpoints[-1].reached)
        # Below an open transaction nothing has been read yet: the end must be the same with and without.
        below = "estimates pass over open transactions" in self._broken
        ends = {number: world.raw[number].visible_end(committed=below) for number in numbers}
        numbers = [number for number in numbers if ends[number] == here.partitions[number].next_offset]
        yield "silence seen"
        if "the clock is read last" in self._broken:
            asked_us = self._clock()
        if self._one_clock:
            for number, at in enumerate(here.partitions):
                known = found.get(number)
                if known is not None and known.next_offset == at.next_offset and known.has_arrived and at.frontier_us < TICK_MIN:
                    self._silences.observe_arrival(("raw", number), known.next_offset, known.arrival_us)
        elsewhere_us = self._silences.time_elsewhere(asked_us)
        spoken = [max(at.arrival_us, here.partitions[n].frontier_us) for n, at in found.items() if not _never_spoke(here.partitions[n], at)]
        slowest_us = min(spoken, default=None)
        unreported = self._learn(numbers, here, found, slowest_us, asked_us)
        rising = [(number, ends[number], here.partitions[number].frontier_us + 1) for number in unreported]
        for number in numbers:
            at, known = here.partitions[number], found.get(number)
            raised_us = self._silences.estimate(("raw", number), asked_us)
            if slowest_us is not None and _never_spoke(at, known):
                raised_us = max(raised_us or 0, slowest_us - world.settings.margin_us)
            if elsewhere_us is not None:
                raised_us = max(raised_us or 0, elsewhere_us)
            if raised_us is None or raised_us <= at.frontier_us:
                continue
            if known is None or known.next_offset != at.next_offset or raised_us - late_us > known.complete_us:
                rising.append((number, ends[number], raised_us))
        held = any(each.held for each in found.values())
        self._silences.schedule_next(asked_us, is_quiet=not held and len(numbers) == len(here.partitions))
        agreed = self._agree("estimate", rising)
        self._nudged |= {number: here.partitions[number].next_offset for number in unreported}
        if rising:
            yield "estimates journaled"
        for (number, _, _), frontier_us in zip(rising, agreed, strict=True):
            if frontier_us is not None and frontier_us > here.partitions[number].frontier_us:
                at = here.partitions[number]
                planned[number] = Planned(at.next_offset, frontier_us, import_us=at.import_us)

    def _import(self, here: Offset, there: Offset, planned: dict[int, Planned]) -> Steps:
        """Raise the partitions that were read to their end to the other input's time, each raise journaled first."""
        world, now_us = self._world, self._clock()
        c_us = world.imported_us()
        if c_us is None or now_us < self._imports_due_us:
            return
        self._imports_due_us = now_us + world.settings.cadence_us
        self._reach_journal(here)
        if self._journal_life is None:
            return
        yield "other input seen"
        # The ends are asked for after the look: what was there by then is judged before the imported time counts.
        numbers = [n for n, at in enumerate(there.partitions) if world.raw[n].visible_end(committed=False) == at.next_offset]
        agreed = self._agree("import", [(number, there.partitions[number].next_offset, c_us) for number in numbers])
        yield "imports journaled"
        for number, agreed_us in zip(numbers, agreed, strict=True):
            at = there.partitions[number]
            if agreed_us is not None and agreed_us > at.import_us:
                at = planned.get(number, Planned(at.next_offset, at.frontier_us))
                planned[number] = replace(at, import_us=agreed_us)

    def _agree(self, kind: str, rising: list[tuple[int, int, int]]) -> list[int | None]:
        """Journal estimates or imports; return those in force. If no answer comes they may be in force or not."""
        if kind == "estimate" and "estimates are not journaled" in self._broken:
            return [raised for _, _, raised in rising]
        before = set(self._unsure)
        self._unsure |= {number for number, _, _ in rising}
        asked = [(journal_key(number), end, raised) for number, end, raised in rising]
        agreed: list[int | None]
        agreed = self._ask(lambda journal: estimate_many(journal, asked) if kind == "estimate" else import_many(journal, asked))
        self._unsure = before
        self._world.happened[f"{kind} refused"] += agreed.count(None)
        return agreed

    def _learn(self, silent: list[int], here: Offset, found: dict[int, StageProgress], slowest_us: int | None, asked_us: int) -> list[int]:
        """Tell the silences from which arrival they count; return the partitions whose report was lost."""
        unreported, own = [], {}
        for number in silent:
            partition, at, known = ("raw", number), here.partitions[number], found.get(number)
            if not self._silences.needs_last_arrival(partition):
                continue
            if at.frontier_us >= TICK_MIN:
                self._silences.count_from(partition, at.frontier_us, asked_us)
            elif _never_spoke(at, known):
                if slowest_us is None:
                    continue
                key = journal_key(number)
                base_us = self._ask(lambda journal, key=key: settle_base(journal, key, slowest_us))  # type: ignore[misc]
                self._silences.count_from(partition, base_us, asked_us)
            elif known is not None and known.next_offset == at.next_offset:
                self._silences.set_last_arrival(partition, self._last_arrival(number, known))
            else:
                if self._nudged.get(number) != at.next_offset:
                    unreported.append(number)
                    self._world.happened["asked for a lost report"] += 1
                continue
            position, since_us = self._silences.silent_since(partition)
            own[number] = Silence(position, self._clock.boot, since_us, self._silences.known_arrival(partition))
        self._remember(own)
        return unreported

    def _remember(self, own: dict[int, Silence]) -> None:
        """Say since when partitions are silent, and go on from what an earlier driver of this boot had measured."""
        answers = self._ask(
            lambda journal: journal.execute([RecordSilence(journal_key(number), silence) for number, silence in own.items()])
        )
        for (number, mine), known in zip(own.items(), answers, strict=True):
            if known[:2] == mine[:2] and known.arrival_us - known.since_us > mine.arrival_us - mine.since_us:
                self._silences.count_from(("raw", number), known.arrival_us, known.since_us)
                self._world.happened["a silence outlived its driver"] += 1

    def _last_arrival(self, number: int, known: StageProgress) -> int:
        if "absurd arrivals are believed" not in self._broken:
            return known.arrival_us
        newest = self._world.raw[number].newest(INFINITY)
        return known.arrival_us if newest is None else newest.stamp_us

    def _reach_journal(self, here: Offset) -> None:
        """Connect if there is no connection; learn what is in force, and give back what the journal has lost."""
        if self._journal_life is not None:
            return
        self._journal_life = self._world.journal.lives
        try:
            self._closed = {
                number: self._ask(lambda journal, n=number: journal.first_open(journal_key(n))) for number in range(len(here.partitions))
            }  # type: ignore[misc]
            if "a lost journal stays lost" not in self._broken:
                self._give_back(here)
            wanted = [(journal_key(number), at.next_offset, INFINITY) for number, at in enumerate(here.partitions)]
            estimates = self._ask(lambda journal: read_many(journal, FactKind.ESTIMATE, wanted))
            imports = self._ask(lambda journal: read_many(journal, FactKind.IMPORT, wanted))
            self._known = dict(enumerate(estimates)), dict(enumerate(imports))
        except UnreachableError:
            self._world.happened["journal not reached"] += 1

    def _give_back(self, here: Offset) -> None:
        """
        Journal again what batches have applied at open positions, and close those that were judged.

        Judged positions are open if the journal has lost facts, and if it was away and the driver died before it came back.
        """
        applied: dict[str, list[tuple[Any, int, int]]] = {"estimate": [], "import": []}
        for checkpoint in self._checkpoints:
            for kind, number, position, us in checkpoint.facts():
                if position >= self._closed.get(number, 0):
                    applied[kind].append((journal_key(number), position, us))
        self._ask(lambda journal: estimate_many(journal, applied["estimate"]))
        self._ask(lambda journal: import_many(journal, applied["import"]))
        judged = {number: at.next_offset for number, at in enumerate(here.partitions) if at.next_offset > self._closed[number]}
        self._ask(lambda journal: close_many(journal, [(journal_key(number), end) for number, end in judged.items()]))
        if judged:
            self._world.happened["facts given back to the journal"] += 1
            self._world.tell(f"the journal is told again what was judged below {judged}")

    def _ask(self, call: Callable[[MemoryJournal], Any]) -> Any:
        assert self._journal_life is not None, "asked only where connected"
        try:
            return self._world.journal.answer(self._journal_life, call)
        except UnreachableError:
            self._journal_life = None
            raise


def _never_spoke(at: Planned, found: StageProgress | None) -> bool:
    """Return whether nothing has ever arrived in a partition, as far as is known."""
    if at.next_offset == 0:
        return True
    return found is not None and found.next_offset == at.next_offset and not found.has_arrived
