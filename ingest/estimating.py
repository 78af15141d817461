"""
Raising the arrival frontier of silent partitions: when, from which last arrival, and never above what may still come.

Law (spec section 3): an estimate is journaled before it is used, at a position below which everything has been read, and
only where nothing stands above it, records of an open transaction included. The clock is read before the end is asked
for. What an estimate says is the business of :mod:`ingest.idle`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingest.config import IngestPlan, Partition
from ingest.facts import FactDesk
from ingest.idle import Silences
from ingest.offsets import Planned
from ordering.ticks import MILLISECOND_US
from tidegate.runtime.kafka.admin import MAX_TIMESTAMP, Admin


class Estimating:
    """
    Estimates for the silent partitions of one job.

    Args:
        plan: The job.
        admin: For the partitions' ends and last arrivals.
        desk: Where estimates are journaled.
    """

    def __init__(self, plan: IngestPlan, admin: Admin, desk: FactDesk) -> None:
        self._plan, self._admin, self._desk = plan, admin, desk
        self._silences = Silences(plan.settings.idle_cadence_us, plan.settings.idle_margin_us)
        self._topics = {topic: topic in plan.estimates for topic in plan.topic_ids}

    def observe(self, ends: Mapping[Partition, int], seen_us: int) -> None:
        """Take the partitions' ends as they were at *seen_us* (monotonic clock, read after the answer came)."""
        self._silences.observe(ends, seen_us)

    def raised(self, here: Mapping[Partition, Planned], asked_us: int) -> dict[Partition, Planned]:
        """
        Return the silent partitions at raised frontiers, each raise journaled first.

        Args:
            here: How far each partition is planned.
            asked_us: Monotonic clock, read before anything was asked.
        """
        due = self._silences.due({partition: at.next_offset for partition, at in here.items() if self._allowed(partition[0])}, asked_us)
        if not due or not self._desk.reach():
            return {}
        # Below an open transaction nothing has been read yet: the end must be the same with and without.
        ends = self._admin.ends(due, committed=False)
        due = [partition for partition in due if ends[partition] == here[partition].next_offset]
        self._learn_last_arrivals(due, here, asked_us)
        wanted = [(partition, raised) for partition in due if (raised := self._silences.estimate(partition, asked_us)) is not None]
        rising = [(partition, ends[partition], raised) for partition, raised in wanted if raised > here[partition].frontier_us]
        return {
            partition: here[partition].silent(frontier_us=frontier_us)
            for partition, frontier_us in self._desk.estimate(rising).items()
            if frontier_us > here[partition].frontier_us
        }

    def _allowed(self, topic: str) -> bool:
        """Return whether silence advances time in a topic; one that was made while the job runs is asked for its clock once."""
        if topic not in self._topics:
            idle, found = self._plan.settings.idle, self._admin.find(topic)
            self._topics[topic] = idle == "on" or (idle == "auto" and found is not None and found.log_append_time)
        return self._topics[topic]

    def _learn_last_arrivals(self, due: list[Partition], here: Mapping[Partition, Planned], asked_us: int) -> None:
        """Tell the silences from which arrival they count; a partition without any record follows the slowest of the others."""
        empty = [partition for partition in due if here[partition].next_offset == 0]
        unknown = [partition for partition in due if self._silences.needs_last_arrival(partition)]
        if not unknown and not empty:
            return
        found = self._admin.offsets(here, MAX_TIMESTAMP)
        known = {
            partition: max(at.timestamp * MILLISECOND_US, here[partition].frontier_us)
            for partition, at in found.items()
            if 0 <= at.offset < here[partition].next_offset and at.timestamp > 0
        }
        # A frontier already in force was sound when it was asked for; counting on from it after a restart is sound too.
        for partition in unknown:
            if partition in known:
                self._silences.last_arrival(partition, known[partition])
        slowest = min(known.values(), default=0)
        for partition in empty if slowest else ():
            # Its first base is journaled. Later ones only raise estimates, which are journaled themselves.
            base = self._desk.base(partition, slowest) if self._silences.needs_last_arrival(partition) else slowest
            if base is not None:
                self._silences.count_from(partition, max(base, here[partition].frontier_us), asked_us)
