"""
Raising the arrival frontier of silent partitions: when, from which last arrival, and never above what may still come.

Law (spec section 3): an estimate is journaled before it is used, at a position below which everything has been read, and
only where nothing stands above it, records of an open transaction included. The clock is read before the end is asked
for. What an estimate says is the business of :mod:`ingest.planner.idle`.

The last arrival is what the stage reported when it had judged everything below the end: A, which no absurd stamp moves.
Where that report was lost (the driver died before it left it) an estimate that says nothing makes the stage report again.
A partition in which nothing ever arrived follows the slowest of the others: whatever arrives there from now on arrives
later than what had arrived elsewhere before. So does one whose silence began before anybody looked, where no producer
stamps: it follows the slowest of those in which something is seen to arrive.

Estimates that change nothing are not made: with late off none does, and one below what the channels have promised does
not either. Where no event is held and the whole input is silent they come less and less often, but one is due as soon as
it can carry every channel past what was last heard, and a window that waits for time in some query gets it later by half
the late tolerance at most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.client import FactDesk
from ingest.offsets import Planned
from ingest.planner import stage_progress
from ingest.planner.idle import Silences, boot_id
from ingest.planner.stage_progress import Reached
from ordering.protocol.journal import Silence
from ordering.ticks import NEVER, TICK_MIN
from tidegate.kafka.admin import Admin


class Estimating:
    """
    Estimates for the silent partitions of one job.

    Args:
        plan: The job.
        admin: For the partitions' ends.
        desk: Where estimates are journaled.
        log: Where it is said that a silence is counted anew.
    """

    def __init__(self, plan: IngestPlan, admin: Admin, desk: FactDesk, log: FilteringBoundLogger) -> None:
        self._plan, self._admin, self._desk, self._log = plan, admin, desk, log
        settings = plan.settings
        self._late_us = settings.policies().late_us
        self._silences = Silences(settings.idle_cadence_us, settings.idle_margin_us, (self._late_us or 0) // 2)
        self._topics = {topic: topic in plan.estimates for topic in plan.topic_ids}
        self._stamped: dict[str, bool] = {}
        self._nudged: dict[Partition, int] = {}
        self._bases: dict[Partition, int] = {}
        self._newest_us = TICK_MIN

    def observe(self, ends: Mapping[Partition, int], seen_us: int) -> None:
        """Take the partitions' ends as they were at *seen_us* (clock for durations, read after the answer came)."""
        self._silences.observe(ends, seen_us)

    def planned(self, until: Mapping[Partition, int], now_us: int) -> None:
        """Take up to where records have been planned by *now_us* (clock for durations, read afterwards): ingest may have stamped them."""
        if self._plan.settings.arrival == "ingest":
            self._silences.stamped(until, now_us)

    def raised(self, here: Mapping[Partition, Planned], asked_us: int) -> dict[Partition, Planned]:
        """
        Return the silent partitions at raised frontiers, each raise journaled first.

        Args:
            here: How far each partition is planned.
            asked_us: Clock for durations, read before anything was asked.
        """
        if self._late_us is None:
            return {}
        due = self._silences.due({partition: at.next_offset for partition, at in here.items() if self._allowed(partition[0])}, asked_us)
        if not due or not self._desk.reach():
            return {}
        found = stage_progress.find(Path(self._plan.checkpoint))
        # Below an open transaction nothing has been read yet: the end must be the same with and without.
        ends = self._admin.ends(due, committed=False)
        silent = {partition: here[partition] for partition in due if ends[partition] == here[partition].next_offset}
        self._hear(here, found)
        slowest_us = _slowest(here, found)
        unreported = self._learn(silent, found, slowest_us, asked_us)
        # Below every time there is: such an estimate only makes the stage report.
        wanted = {partition: at.frontier_us + 1 for partition, at in silent.items() if partition in unreported}
        for partition, at in silent.items():
            raised_us = self._raised(partition, at, found.get(partition), slowest_us, asked_us)
            if raised_us is not None:
                wanted[partition] = raised_us
        held = any(each.held for each in found.values())
        passed_us = min(self._passed(at, found.get(partition), wanted.get(partition, 0)) for partition, at in here.items())
        behind_us = self._newest_us + 1 - passed_us
        self._silences.looked(asked_us, quiet=not held and len(silent) == len(here), behind_us=behind_us)
        agreed = self._desk.estimate([(partition, here[partition].next_offset, raised_us) for partition, raised_us in wanted.items()])
        self._nudged |= {partition: here[partition].next_offset for partition in unreported if partition in agreed}
        return {
            partition: replace(here[partition].silent(frontier_us=frontier_us), base_us=self._bases.pop(partition, 0))
            for partition, frontier_us in agreed.items()
            if frontier_us > here[partition].frontier_us
        }

    def _allowed(self, topic: str) -> bool:
        """Return whether silence advances time in a topic; one that was made while the job runs is asked for its clock once."""
        if topic not in self._topics:
            idle = self._plan.settings.idle
            self._topics[topic] = idle == "on" or (idle == "auto" and self._one_clock(topic))
        return self._topics[topic]

    def _hear(self, here: Mapping[Partition, Planned], found: Mapping[Partition, Reached]) -> None:
        for partition, at in here.items():
            known = found.get(partition)
            # Once there is an estimate A is no longer when something arrived.
            if known is None or known.next_offset != at.next_offset or not known.has_arrived or _estimated(at):
                continue
            self._newest_us = max(self._newest_us, known.arrival_us, known.c_us)
            if self._one_clock(partition[0]):
                self._silences.heard(partition, known.next_offset, known.arrival_us)

    def _one_clock(self, topic: str) -> bool:
        """Return whether the brokers, or ingest, stamp what arrives in a topic, and no producer does."""
        if topic not in self._stamped:
            found = self._admin.find(topic)
            self._stamped[topic] = self._plan.settings.arrival == "ingest" or (found is not None and found.log_append_time)
        return self._stamped[topic]

    def _passed(self, at: Planned, found: Reached | None, raised_us: int) -> int:
        """Return what a partition's channels will have promised once its frontier is raised."""
        assert self._late_us is not None, "without late no estimate counts"
        promised_us = found.c_us if found is not None and found.next_offset == at.next_offset else NEVER
        return max(promised_us, max(at.frontier_us, raised_us) - self._late_us)

    def _raised(self, partition: Partition, at: Planned, found: Reached | None, slowest_us: int | None, asked_us: int) -> int | None:
        """Return the estimate of a silent partition; None where it cannot be told, or would change nothing."""
        assert self._late_us is not None, "without late no estimate counts"
        raised_us = self._silences.estimate(partition, asked_us)
        if slowest_us is not None and _never_spoke(at, found):
            raised_us = max(raised_us or 0, slowest_us - self._plan.settings.idle_margin_us)
        elsewhere_us = self._silences.time_elsewhere(asked_us) if self._one_clock(partition[0]) else None
        if elsewhere_us is not None:
            raised_us = max(raised_us or 0, elsewhere_us)
        if raised_us is None or raised_us <= at.frontier_us:
            return None
        promised = found is not None and found.next_offset == at.next_offset and raised_us - self._late_us <= found.c_us
        return None if promised else raised_us

    def _learn(
        self, silent: Mapping[Partition, Planned], found: Mapping[Partition, Reached], slowest_us: int | None, asked_us: int
    ) -> Collection[Partition]:
        """Tell the silences from which arrival they count; return the partitions whose report was lost, and not asked for again yet."""
        learned, unreported = [], []
        for partition, at in silent.items():
            if not self._silences.needs_last_arrival(partition):
                continue
            known = found.get(partition)
            if _estimated(at):
                # What is in force was sound when it was asked for, and counting on from it is sound too.
                self._silences.count_from(partition, at.frontier_us, asked_us)
            elif _never_spoke(at, known):
                if not self._settle_base(partition, slowest_us, asked_us):
                    continue
            elif known is not None and known.next_offset == at.next_offset:
                self._silences.last_arrival(partition, known.arrival_us)
            else:
                if self._nudged.get(partition) != at.next_offset:
                    unreported.append(partition)
                continue
            learned.append(partition)
        self._remember(learned, silent)
        return unreported

    def _settle_base(self, partition: Partition, slowest_us: int | None, asked_us: int) -> bool:
        """Count from the base of a partition in which nothing ever arrived; return whether there is one."""
        base_us = None if slowest_us is None else self._desk.base(partition, slowest_us)
        if base_us is None:
            return False
        self._bases[partition] = base_us
        self._silences.count_from(partition, base_us, asked_us)
        return True

    def _remember(self, learned: list[Partition], silent: Mapping[Partition, Planned]) -> None:
        """Say since when the partitions are silent, and go on from what an earlier driver of this boot had measured."""
        own = {}
        for partition in learned:
            position, since_us = self._silences.silent_since(partition)
            own[partition] = Silence(position, boot_id(), since_us, self._silences.known_arrival(partition))
        for partition, known in self._desk.hush(own).items():
            mine = own[partition]
            if known[:2] == mine[:2] and known.arrival_us - known.since_us > mine.arrival_us - mine.since_us:
                self._silences.count_from(partition, known.arrival_us, known.since_us)
            elif _estimated(silent[partition]):
                self._log.info("silence is counted anew: nobody measured it on this boot", topic=partition[0], partition=partition[1])


def _estimated(at: Planned) -> bool:
    return at.frontier_us >= TICK_MIN


def _never_spoke(at: Planned, found: Reached | None) -> bool:
    """Return whether nothing has ever arrived in a partition, as far as is known."""
    if at.next_offset == 0:
        return True
    return found is not None and found.next_offset == at.next_offset and not found.has_arrived


def _slowest(here: Mapping[Partition, Planned], found: Mapping[Partition, Reached]) -> int | None:
    """Return the least arrival frontier of the partitions in which something has arrived; None if there is none."""
    spoken = {
        partition: found[partition].arrival_us
        for partition in here
        if partition in found and not _never_spoke(here[partition], found[partition])
    }
    return min((max(arrival_us, here[partition].frontier_us) for partition, arrival_us in spoken.items()), default=None)
