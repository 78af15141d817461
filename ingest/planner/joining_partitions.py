"""
Input partitions added while the ordered topic is being written: more partitions of a topic, or a new topic that the pattern matches.

Law (PROTOCOL.md): a partition joins at a time that no channel has passed: the largest ``c`` of all channels, by the ordered topic's CTIs
while no batch runs. The join is a batch of its own: its CTI with that ``c`` is acknowledged in every output partition it writes to before
anything else is planned. Spark's offset, logged before that batch, makes the join time final; it is journaled afterwards. So a job that
starts from an older checkpoint finds the time in the journal, and lets the partition join there again. If the job died before it was
journaled, a job without a checkpoint finds it in the ordered topic (:mod:`ingest.start.resume`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.client import JournalClient
from ingest.journal.redis_journal import impossible_error
from ingest.journal.topic_fingerprint import WAYS_OUT
from ingest.offsets import IngestOffset, PartitionJoin, PlannedPosition, partition_name, sort_by_roster
from ordering.errors import RefusedError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Journal
from ordering.ticks import NEVER, SECOND_US, TICK_MIN, format_tick
from tidegate.ordered_topic.promises import Promises, last_promises
from tidegate.platform.checkpoint.between_batches import all_have_ended
from tidegate.platform.checkpoint.binding import check_same_topics
from tidegate.platform.checkpoint.offset_log import last_batches, read_offset
from tidegate.platform.checkpoint.open_batches import request_end
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.input_topics import match_topics

# How long the brokers may not know of a topic before it counts as deleted.
_MISSING_US = 10 * SECOND_US
_NEWER_CHECKPOINT = "bring back a newer copy of the checkpoint, or delete it: the job then resumes from the ordered topic's CTIs"


def read_planned_offset(folder: Path) -> IngestOffset | None:
    """Return the offset at the end of the last batch planned from a checkpoint's folder; None if there is none."""
    stored = read_offset(folder, last_batches(folder)[0])
    return None if stored is None else IngestOffset.from_json(stored)


def with_roster(plan: IngestPlan, partitions: Iterable[Partition], joins: Mapping[Partition, PartitionJoin]) -> IngestPlan:
    """Return the plan of a job that continues with these *partitions*."""
    return replace(plan, partitions=sort_by_roster(partitions, joins), joins=joins)


class NewPartitions:
    """The driver's look for new partitions while a batch is open: the planner finds them between two batches only."""

    def __init__(self, plan: IngestPlan, admin: Admin) -> None:
        self._plan, self._admin = plan, admin
        self._due_s = 0.0

    def end_batch_if_new(self, now_s: float) -> None:
        """Ask for the end of the open batch if there are partitions that have not joined; *now_s*: a monotonic clock."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._plan.settings.discovery_cadence_us / SECOND_US
        folder = Path(self._plan.checkpoint)
        planned = read_planned_offset(folder)
        if planned is not None and set(_present_partitions(self._plan, self._admin)) - planned.partitions.keys():
            request_end(folder)


def _present_partitions(plan: IngestPlan, admin: Admin) -> list[Partition]:
    counts = admin.partition_counts()
    topics = match_topics(plan.settings, counts, plan.excluded)
    return [(topic, number) for topic in topics for number in range(counts.get(topic, 0))]


class PartitionJoins:
    """Finds new input partitions and lets them join."""

    def __init__(self, plan: IngestPlan, admin: Admin, journal: JournalClient, log: FilteringBoundLogger) -> None:
        self._plan, self._admin, self._journal, self._log = plan, admin, journal, log
        self._topic_ids = dict(plan.topic_ids)
        self._due_us = NEVER
        self._journaled: set[Partition] = set()
        self._postponed_because = ""
        self._missing_us: int | None = None

    def present_partitions(self) -> list[Partition]:
        return _present_partitions(self._plan, self._admin)

    def join_new(self, offset: IngestOffset, now_us: int, candidates: Iterable[Partition] | None) -> IngestOffset | None:
        """
        Return the offset with new partitions joined (of *candidates*, unless None); None if there are none, or if a search for them is not
        due at *now_us*, a monotonic clock. No batch may run meanwhile, and nothing go on after the last one: it would promise more.
        """
        self._journal_joins(offset)
        if now_us < self._due_us:
            return None
        new = set(self.present_partitions() if candidates is None else candidates) - offset.partitions.keys()
        if new and not all_have_ended(Path(self._plan.checkpoint)):
            return None
        self._due_us = now_us + self._plan.settings.discovery_cadence_us
        return self._plan_joins(offset, sorted(new)) if new else None

    def check_topics(self, now_us: int) -> None:
        """Raise RefusedError (TG-TOPIC-RECREATED) if a topic that joined while the job runs is replaced or gone; *now_us*: monotonic."""
        expected_ids = {topic: topic_id for topic, topic_id in self._topic_ids.items() if topic_id and topic not in self._plan.topic_ids}
        present_ids = self._admin.topic_ids(expected_ids) if expected_ids else {}
        if all(present_ids.values()):
            self._missing_us = None
        elif self._missing_us is None:
            self._missing_us = now_us
        # A broker that has just started may know of no topic for a moment.
        is_patient = self._missing_us is not None and now_us - self._missing_us < _MISSING_US
        checked_ids = {topic: topic_id for topic, topic_id in present_ids.items() if topic_id or not is_patient}
        check_same_topics(expected_ids, checked_ids, self._plan.checkpoint, WAYS_OUT)

    def _journal_joins(self, offset: IngestOffset) -> None:
        for partition, join in offset.joins.items():
            if partition not in self._journaled and self._journal.journal_join(partition, self._topic_id(partition), join):
                self._journaled.add(partition)

    def _plan_joins(self, offset: IngestOffset, new: list[Partition]) -> IngestOffset | None:
        ids = {partition: self._topic_id(partition) for partition in new}
        if not all(ids.values()):
            self._postpone(new, "not every broker knows of the topic yet")
            return None
        known_joins = self._journal.read_joins(ids)
        if known_joins is None:
            self._postpone(new, "the journal does not answer")
            return None
        joins = self._rejoin(offset, known_joins) or self._join_first_time(offset, new)
        if joins is None or (known_joins and not self._is_believed(joins, new)):
            return None
        starts = self._admin.starts(joins.keys())
        for partition, (number, at_us) in joins.items():
            self._log.info("partition joins", topic=partition[0], partition=partition[1], number=number, at=format_tick(at_us))
        self._postponed_because = ""
        planned = {partition: PlannedPosition(starts[partition]) for partition in joins}
        return replace(offset, partitions={**offset.partitions, **planned}, joins={**offset.joins, **joins})

    def _rejoin(self, offset: IngestOffset, known_joins: Mapping[Partition, PartitionJoin]) -> dict[Partition, PartitionJoin]:
        """Return the joins that the journal knows; RefusedError if they do not have the next roster numbers."""
        ordered_joins = sorted(known_joins.items(), key=lambda item: item[1].number)
        expected = range(len(offset.partitions), len(offset.partitions) + len(ordered_joins))
        if [join.number for _, join in ordered_joins] != list(expected):
            raise RefusedError(
                f"the checkpoint knows {len(offset.partitions)} input partitions, and the journal of later ones "
                + ", ".join(f"{partition_name(partition)} as number {joined.number}" for partition, joined in ordered_joins),
                code="TG-ROSTER",
                where=self._plan.checkpoint,
                fix=_NEWER_CHECKPOINT,
            )
        return dict(ordered_joins)

    def _is_believed(self, joins: Mapping[Partition, PartitionJoin], new: list[Partition]) -> bool:
        """Return whether the moments of joins that the journal knows can be: each was the largest c of all channels, which only rises."""
        promises = self._read_promises(new)
        if promises is None:
            return True
        latest_us = self._latest_us(promises)
        for partition, join in joins.items():
            if not TICK_MIN <= join.joined_us <= latest_us:
                reason = f"it joined at {join.joined_us} us, and no channel of the ordered topic has come that far"
                error = impossible_error(partition_name(partition), reason, self._plan.settings.name)
                self._log.error(error.what, code=error.code, where=error.where, fix=error.fix, example=error.example)
                self._postpone(new, error.what)
                return False
        return True

    def _latest_us(self, promises: Promises) -> int:
        return max([TICK_MIN, self._plan.start_us, *(cti.c for channels in promises.values() for cti in channels.values())])

    def _join_first_time(self, offset: IngestOffset, new: list[Partition]) -> dict[Partition, PartitionJoin] | None:
        """Return joins at the largest ``c`` that any channel has promised; None if the promises cannot be read yet."""
        promises = self._read_promises(new)
        if promises is None:
            return None
        if (inputs := max(promises, default=-1) + 1) > len(offset.partitions):
            raise RefusedError(
                f"the checkpoint knows {len(offset.partitions)} input partitions, the ordered topic {inputs}, the journal no more of them",
                code="TG-ROSTER",
                where=self._plan.checkpoint,
                fix=_NEWER_CHECKPOINT,
            )
        moment_us = self._latest_us(promises)
        return {partition: PartitionJoin(number, moment_us) for number, partition in enumerate(new, start=len(offset.partitions))}

    def _read_promises(self, new: list[Partition]) -> Promises | None:
        outputs = self._plan.outputs
        try:
            return last_promises(self._plan.kafka, self._admin.starts(outputs), self._admin.ends(outputs))
        except RefusedError as error:
            if error.code != "TG-RETENTION":
                raise
            self._postpone(new, error.what)
            return None

    def _postpone(self, new: list[Partition], reason: str) -> None:
        if self._postponed_because != reason:
            self._log.warning("new partitions cannot join yet", partitions=", ".join(map(partition_name, new)), reason=reason)
        self._postponed_because = reason

    def _topic_id(self, partition: Partition) -> str:
        topic = partition[0]
        if not self._topic_ids.get(topic):
            self._topic_ids |= self._admin.topic_ids([topic])
        return self._topic_ids[topic]


def read_joins(plan: IngestPlan, journal: Journal, founders: Collection[Partition]) -> dict[Partition, PartitionJoin]:
    """Return the partitions that joined after the ordered topic was begun from *founders*, by the journal."""
    joins: dict[Partition, PartitionJoin] = {}
    for partition in plan.partitions:
        facts = journal.dump(plan.own_key(partition, plan.topic_ids[partition[0]])) if partition not in founders else []
        joins.update((partition, PartitionJoin(fact.position, fact.value)) for fact in facts if fact.kind == FactKind.JOIN)
    return joins
