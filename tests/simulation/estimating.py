"""
Estimates for silent partitions: the rules of ``ingest/planner/idle_estimates.py``, step by step, for the planner and for open batches.

Law: the clock is read before the ends are asked for, and an estimate is journaled before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from simulation.checkpoint import Checkpoint, Planned
from simulation.clock import MonotonicClock
from simulation.journaling import JournalClient
from simulation.world import World, journal_key
from support.journals import settle_base

from ingest.planner.silences import Silences
from ingest.planner.stage_progress import StageProgress
from ordering.protocol.journal import RecordSilence, Silence
from ordering.ticks import INFINITY, TICK_MIN

Steps = Iterator[str]
Reports = Mapping[int, StageProgress]


class Estimates:
    """
    The estimates of one planner, for all partitions, or of an open batch, for its own.

    Args:
        read_reports: Returns how far all partitions have come.
        by: Who makes them, for the names of the steps: the planner, or ``open``.
    """

    def __init__(
        self,
        world: World,
        clock: MonotonicClock,
        journal: JournalClient,
        read_reports: Callable[[], Reports],
        broken: frozenset[str],
        by: str = "",
    ) -> None:
        self._world, self._clock, self._journal, self._read_reports, self._broken, self._by = (
            world,
            clock,
            journal,
            read_reports,
            broken,
            by,
        )
        self._silences = Silences(world.settings.cadence_us, world.settings.margin_us, (world.settings.policies.late_us or 0) // 2)
        self._nudged: dict[int, int] = {}
        self._one_clock = all(message.stamp_us is None for message in world.scenario.messages)
        self.raised: dict[int, Planned] = {}
        """What the last pass raised."""
        self.use_first: Callable[[Planned], None] | None = None
        """Uses an estimate before it is journaled (a breakage)."""

    def observe_ends(self, ends: Mapping[int, int], seen_us: int) -> None:
        """Note where partitions end; the clock was read afterwards."""
        self._silences.observe_ends({("raw", number): end for number, end in ends.items()}, seen_us)

    def raise_silent(
        self, positions: Mapping[int, Planned], asked_us: int, reach: Callable[[], None], busy: Mapping[int, Planned]
    ) -> Steps:
        """Raise the silent partitions, each raise journaled first; those that are *busy* have been planned further."""
        self.raised = {}
        world = self._world
        late_us = world.settings.policies.late_us
        due = self._silences.select_due({("raw", number): at.next_offset for number, at in positions.items()}, asked_us)
        numbers = [number for _, number in due if number not in busy]
        if not numbers or late_us is None:
            return
        reach()
        if not self._journal.is_connected:
            return
        if self._by:
            world.check_broker()
        found = dict(self._read_reports())
        # Below an open transaction nothing has been read yet: the end must be the same with and without.
        below = "estimates pass over open transactions" in self._broken
        ends = {number: world.raw[number].visible_end(committed=below) for number in numbers}
        numbers = [number for number in numbers if ends[number] == positions[number].next_offset]
        yield f"{self._by}silence seen"
        if "the clock is read last" in self._broken:
            asked_us = self._clock()
        if self._one_clock:
            self._observe_arrivals(positions, found)
        elsewhere_us = self._silences.time_elsewhere(asked_us) if self._one_clock else None
        spoken = [max(at.arrival_us, _frontier(positions, n)) for n, at in found.items() if not _never_spoke(positions.get(n), at)]
        slowest_us = min(spoken, default=None)
        unreported = self._learn(numbers, positions, found, slowest_us, asked_us)
        rising = [(number, ends[number], positions[number].frontier_us + 1) for number in unreported]
        for number in numbers:
            at, known = positions[number], found.get(number)
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
        self._silences.schedule_next(asked_us, is_quiet=not held and len(numbers) == len(positions))
        if self.use_first is not None:
            for _, end, raised_us in rising:
                self.use_first(Planned(end, raised_us))
                yield f"{self._by}estimates used"
        agreed = self._journal.agree("estimate", rising)
        self._nudged |= {number: positions[number].next_offset for number in unreported}
        if rising:
            yield f"{self._by}estimates journaled"
        for (number, _, _), frontier_us in zip(rising, agreed, strict=True):
            if frontier_us is not None and frontier_us > positions[number].frontier_us:
                at = positions[number]
                self.raised[number] = Planned(at.next_offset, frontier_us, import_us=at.import_us)

    def _observe_arrivals(self, positions: Mapping[int, Planned], found: Reports) -> None:
        for number, known in found.items():
            # An open batch reads ends that the planner has not seen.
            if known.seen_us:
                self._silences.observe_tick(("raw", number), known.arrival_us, known.seen_us)
        for number, at in positions.items():
            known_here = found.get(number)
            is_current = known_here is not None and known_here.next_offset == at.next_offset
            if known_here is None or not is_current or known_here.estimated_us:
                continue
            if known_here.has_arrived and at.frontier_us < TICK_MIN:
                self._silences.observe_arrival(("raw", number), known_here.next_offset, known_here.arrival_us)

    def _learn(
        self, silent: list[int], positions: Mapping[int, Planned], found: Reports, slowest_us: int | None, asked_us: int
    ) -> list[int]:
        """Tell the silences from which arrival they count; return the partitions whose report was lost."""
        unreported, own = [], {}
        for number in silent:
            partition, at, known = ("raw", number), positions[number], found.get(number)
            is_current = known is not None and known.next_offset == at.next_offset
            if not self._silences.needs_last_arrival(partition):
                continue
            if at.frontier_us >= TICK_MIN:
                self._silences.count_from(partition, at.frontier_us, asked_us)
            elif known is not None and is_current and known.estimated_us:
                self._silences.count_from(partition, known.arrival_us, known.estimated_us)
                self._world.happened["counted from an estimate of an open batch"] += not self._by
            elif _never_spoke(at, known):
                if slowest_us is None:
                    continue
                key = journal_key(number)
                base_us = self._journal.ask(lambda journal, key=key: settle_base(journal, key, slowest_us))  # type: ignore[misc]
                self._silences.count_from(partition, base_us, asked_us)
            elif known is not None and is_current:
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
        answers = self._journal.ask(
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


def own_reports(checkpoint: Checkpoint, boot: str, broken: frozenset[str]) -> Reports:
    """Return how far partitions have come, without the readings of another machine's clock, or of an earlier boot's."""
    if "clocks of other machines are believed" in broken:
        return checkpoint.reached
    return {
        number: report if checkpoint.boots[number] == boot else replace(report, seen_us=0, estimated_us=0)
        for number, report in checkpoint.reached.items()
    }


def _frontier(positions: Mapping[int, Planned], number: int) -> int:
    return positions[number].frontier_us if number in positions else 0


def _never_spoke(at: Planned | None, found: StageProgress | None) -> bool:
    """Return whether nothing has ever arrived in a partition, as far as is known."""
    if at is None:
        return found is None or not found.has_arrived
    if at.next_offset == 0:
        return True
    return found is not None and found.next_offset == at.next_offset and not found.has_arrived
