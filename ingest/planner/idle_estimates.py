"""
Raises the arrival frontier of silent partitions; :mod:`ingest.planner.silences` measures silences and computes the estimates.

Law (docs/operate/time.md#idle-inputs): an estimate is journaled before it is used, at a position below which everything has been read, and
only if no record exists at or above that position, not even one of an open transaction. The clock is read before the end is asked for.

The last arrival is the arrival frontier in the stage's report after everything below the end was judged; implausible stamps do not move it.
If that report was lost (the driver died before writing it), an estimate too low to change anything makes the stage report again. A
partition without any record follows the slowest of the others: a record that comes there later arrives later than those that have arrived
elsewhere. So does a partition whose silence began before the job, if no producer stamps.

Estimates that change nothing are not made: none with late off, and none below the promises of the channels. If no event is held and the
whole input is silent, estimates become less frequent. But an estimate is due as soon as it can carry every channel past the last event. A
window that waits in a query gets its estimate at most half the late tolerance later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.client import JournalClient
from ingest.offsets import PlannedPosition, Positions
from ingest.planner.silences import Silences, boot_id
from ingest.planner.stage_progress import StageProgress, read_stage_progress
from ordering.protocol.journal import Silence
from ordering.ticks import INFINITY, NEVER, TICK_MIN
from tidegate.platform.kafka.admin import Admin


class _Stages:
    """
    The progress of the stages: their last *reports*, those *current* at their partition's position, and the slowest arrival. Reports of
    partitions without a position are another task's.
    """

    def __init__(self, positions: Positions, reports: Mapping[Partition, StageProgress]) -> None:
        self.positions, self.reports = positions, reports
        own = {partition: reports[partition] for partition in positions if partition in reports}
        self.current = {partition: report for partition, report in own.items() if report.next_offset == positions[partition].next_offset}
        filled = [partition for partition in reports if not self.is_empty_so_far(partition)]
        arrivals_us = (
            max(reports[partition].arrival_us, positions[partition].frontier_us if partition in positions else NEVER)
            for partition in filled
        )
        self.slowest_us = min(arrivals_us, default=None)

    def is_empty_so_far(self, partition: Partition) -> bool:
        if partition not in self.positions:
            return not self.reports[partition].has_arrived
        is_unarrived = partition in self.current and not self.current[partition].has_arrived
        return is_unarrived or self.positions[partition].next_offset == 0


class IdleEstimates:
    """
    Estimates for the silent partitions of one job: of all in its planner, of a task's own in an open batch. *read_progress* returns the
    progress of all stages; by default that of the last batch.
    """

    def __init__(
        self,
        plan: IngestPlan,
        admin: Admin,
        journal: JournalClient,
        log: FilteringBoundLogger,
        read_progress: Callable[[], Mapping[Partition, StageProgress]] | None = None,
    ) -> None:
        self._plan, self._admin, self._journal, self._log = plan, admin, journal, log
        self._read_progress = read_progress or partial(read_stage_progress, Path(plan.checkpoint))
        settings = plan.settings
        self._late_us = settings.policies().late_us
        self._silences = Silences(settings.idle_cadence_us, settings.idle_margin_us, (self._late_us or 0) // 2)
        self._topics = {topic: topic in plan.estimates for topic in plan.topic_ids}
        self._stamped: dict[str, bool] = {}
        self._asked_to_report: dict[Partition, int] = {}
        self._settled_bases: dict[Partition, int] = {}
        self._newest_us = TICK_MIN

    def observe_ends(self, ends: Mapping[Partition, int], seen_us: int) -> None:
        self._silences.observe_ends(ends, seen_us)

    def observe_planned(self, until: Mapping[Partition, int], now_us: int) -> None:
        """Note that the records below *until* have been planned by *now_us* (clock for durations, read afterwards), perhaps with stamps."""
        if self._plan.settings.arrival == "ingest":
            self._silences.observe_stamped(until, now_us)

    def raise_silent(self, positions: Positions, asked_us: int) -> dict[Partition, PlannedPosition]:
        """Return the silent partitions with raised, journaled frontiers; *asked_us*: clock for durations, read before all questions."""
        due = self._select_due(positions, asked_us)
        if not due:
            return {}
        known = {*positions, *self._plan.partitions}
        stages = _Stages(positions, {partition: report for partition, report in self._read_progress().items() if partition in known})
        # Records of an open transaction have not been read yet, so the end must include them.
        ends = self._admin.ends(due, committed=False)
        silent = {partition: positions[partition] for partition in due if ends[partition] == positions[partition].next_offset}
        self._observe_arrivals(stages)
        unreported = self._set_last_arrivals(silent, stages, asked_us)
        # Below every valid time: such an estimate only makes the stage report.
        wanted = {partition: silent[partition].frontier_us + 1 for partition in unreported}
        wanted |= {partition: us for partition in silent if (us := self._estimate(partition, stages, asked_us)) is not None}
        self._schedule_next(stages, wanted, asked_us, is_all_silent=len(silent) == len(positions))
        agreed = self._journal.journal_estimates([(partition, positions[partition].next_offset, us) for partition, us in wanted.items()])
        self._asked_to_report |= {partition: positions[partition].next_offset for partition in unreported if partition in agreed}
        return {
            partition: replace(positions[partition].raise_time(frontier_us=frontier_us), base_us=self._settled_bases.pop(partition, 0))
            for partition, frontier_us in agreed.items()
            if frontier_us > positions[partition].frontier_us
        }

    def next_due_us(self, positions: Positions) -> int:
        """Return before which instant (clock for durations) no silent partition gets an estimate; INFINITY if no silence here counts."""
        may_come_due = self._late_us is not None and any(self._silence_counts_in(topic) for topic, _ in positions)
        return self._silences.due_us if may_come_due else INFINITY

    def _select_due(self, positions: Positions, asked_us: int) -> list[Partition]:
        if self._late_us is None:
            return []
        counting = {partition: position.next_offset for partition, position in positions.items() if self._silence_counts_in(partition[0])}
        due = self._silences.select_due(counting, asked_us)
        return due if due and self._journal.is_available() else []

    def _schedule_next(self, stages: _Stages, wanted: Mapping[Partition, int], asked_us: int, *, is_all_silent: bool) -> None:
        has_held_events = any(report.held for report in stages.reports.values())
        passed_us = min(self._promise_after(partition, stages, wanted.get(partition, 0)) for partition in stages.positions)
        behind_us = self._newest_us + 1 - passed_us
        self._silences.schedule_next(asked_us, is_quiet=is_all_silent and not has_held_events, behind_us=behind_us)

    def _silence_counts_in(self, topic: str) -> bool:
        if topic not in self._topics:
            idle = self._plan.settings.idle
            self._topics[topic] = idle == "on" or (idle == "auto" and self._has_one_clock(topic))
        return self._topics[topic]

    def _observe_arrivals(self, stages: _Stages) -> None:
        for partition, report in stages.reports.items():
            # An open batch reads ends that the planner has not seen.
            if report.seen_us and report.boot_id == boot_id() and self._has_one_clock(partition[0]):
                self._silences.observe_tick(partition, report.arrival_us, report.seen_us)
        for partition, report in stages.current.items():
            # Once an estimate is in force, the arrival frontier is no longer the arrival of a record.
            if report.has_arrived and not report.estimated_us and not _has_estimate(stages.positions[partition]):
                self._newest_us = max(self._newest_us, report.arrival_us, report.complete_us)
                if self._has_one_clock(partition[0]):
                    self._silences.observe_arrival(partition, report.next_offset, report.arrival_us)

    def _has_one_clock(self, topic: str) -> bool:
        """Return whether the brokers or ingest, not producers, stamp a topic's records."""
        if topic not in self._stamped:
            topic_state = self._admin.find(topic)
            self._stamped[topic] = self._plan.settings.arrival == "ingest" or (topic_state is not None and topic_state.uses_log_append_time)
        return self._stamped[topic]

    def _promise_after(self, partition: Partition, stages: _Stages, raised_us: int) -> int:
        assert self._late_us is not None, "without late no estimate counts"
        promised_us = stages.current[partition].complete_us if partition in stages.current else NEVER
        return max(promised_us, max(stages.positions[partition].frontier_us, raised_us) - self._late_us)

    def _estimate(self, partition: Partition, stages: _Stages, asked_us: int) -> int | None:
        """Return the estimate for a silent partition; None if it is unknown or would change nothing."""
        assert self._late_us is not None, "without late no estimate counts"
        estimates_us = [self._silences.estimate(partition, asked_us)]
        if stages.slowest_us is not None and stages.is_empty_so_far(partition):
            estimates_us.append(stages.slowest_us - self._plan.settings.idle_margin_us)
        if self._has_one_clock(partition[0]):
            estimates_us.append(self._silences.time_elsewhere(asked_us))
        raised_us = max((us for us in estimates_us if us is not None), default=NEVER)
        report = stages.current.get(partition)
        is_promised = report is not None and raised_us - self._late_us <= report.complete_us
        return None if is_promised or raised_us <= stages.positions[partition].frontier_us else raised_us

    def _set_last_arrivals(self, silent: Positions, stages: _Stages, asked_us: int) -> Collection[Partition]:
        """Set the arrivals from which silences count. Return the partitions whose report was lost and must be asked for again."""
        counted, unreported = [], []
        for partition, position in silent.items():
            if not self._silences.needs_last_arrival(partition):
                continue
            if _has_estimate(position):
                # The estimate in force was sound at its time, so counting on from it is sound too.
                self._silences.count_from(partition, position.frontier_us, asked_us)
            elif partition in stages.current and stages.current[partition].estimated_us:
                # An open batch has made it: its time counts from then, not from when the end was first seen; by another machine's clock
                # nothing can be counted.
                stage = stages.current[partition]
                since_us = stage.estimated_us if stage.boot_id == boot_id() else asked_us
                self._silences.count_from(partition, stage.arrival_us, since_us)
            elif stages.is_empty_so_far(partition):
                if not self._settle_base(partition, stages.slowest_us, asked_us):
                    continue
            elif partition in stages.current:
                self._silences.set_last_arrival(partition, stages.current[partition].arrival_us)
            else:
                if self._asked_to_report.get(partition) != position.next_offset:
                    unreported.append(partition)
                continue
            counted.append(partition)
        self._share_silences(counted, silent)
        return unreported

    def _settle_base(self, partition: Partition, slowest_us: int | None, asked_us: int) -> bool:
        base_us = None if slowest_us is None else self._journal.settle_base(partition, slowest_us)
        if base_us is None:
            return False
        self._settled_bases[partition] = base_us
        self._silences.count_from(partition, base_us, asked_us)
        return True

    def _share_silences(self, counted: list[Partition], silent: Positions) -> None:
        """Journal since when the *counted* partitions are silent, and continue silences that an earlier driver of this boot measured."""
        measured = {}
        for partition in counted:
            position, since_us = self._silences.silent_since(partition)
            measured[partition] = Silence(position, boot_id(), since_us, self._silences.known_arrival(partition))
        for partition, known in self._journal.share_silences(measured).items():
            own = measured[partition]
            if known[:2] == own[:2] and known.arrival_us - known.since_us > own.arrival_us - own.since_us:
                self._silences.count_from(partition, known.arrival_us, known.since_us)
            elif _has_estimate(silent[partition]):
                self._log.info("silence is counted anew: nobody measured it on this boot", topic=partition[0], partition=partition[1])


def _has_estimate(position: PlannedPosition) -> bool:
    return position.frontier_us >= TICK_MIN
