"""
The planner: which ranges of which input partitions the next batch reads, and how far time has moved where nothing came.

It runs in a Python process beside the driver and is the only place where a clock, the brokers' ends and the journal
meet. What it decides is written into the offset, which Spark logs before the batch runs; so a batch that is run again
decides nothing again. An estimate changes the offset and thereby starts a batch without data: batches run exactly when
time moves. A broker or journal that does not answer never ends the job: the planner plans nothing until it does.

An imported CTI counts like an estimate: journaled first, at a position below which everything was read when it was
seen. What the other input's time could only be known to have passed afterwards is thereby judged by it, nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from pyspark.sql.datasource import InputPartition
from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedFrontier
from ingest.journal.client import JournalClient
from ingest.journal.topic_identity import TopicIdentity
from ingest.offsets import Offset, PlannedPosition
from ingest.planner.idle import boottime_us
from ingest.planner.idle_estimates import IdleEstimates
from ingest.planner.joining_partitions import PartitionJoins
from ingest.planner.limits import Limits
from ingest.planner.truncated_logs import TruncatedLogs
from ordering.errors import RefusedError, TidegateError
from ordering.ticks import NEVER
from tidegate.kafka.admin import Admin
from tidegate.kafka.failures import beyond_waiting
from tidegate.observe.logs import get_logger, quiet_worker
from tidegate.spark.planning import RangePlanner, Ranges
from tidegate.spark.shuffle_keys import even_labels

_RETRY_S = 1.0
_NO_WAY_ON = ("TG-JOURNAL-LOST", "TG-LOG-CUT", "TG-ROSTER", "TG-TOPIC-ENDED")
_ANSWER_S = 5.0


class Planner(RangePlanner):
    """The planner of one ingest job, in the words of Spark's data source interface."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        self._frozen: dict[Partition, int] | None = None
        self._cut_logs = TruncatedLogs()
        self._imports_due_us = 0
        self._imports_lost = False
        self._imported_us: dict[Partition, int] = {}

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self._plan.kafka, _ANSWER_S)

    @cached_property
    def _log(self) -> FilteringBoundLogger:
        quiet_worker()
        return get_logger(__name__).bind(input=self._plan.settings.name)

    @cached_property
    def _desk(self) -> JournalClient:
        return JournalClient(self._plan, self._log)

    @cached_property
    def _estimating(self) -> IdleEstimates:
        return IdleEstimates(self._plan, self._admin, self._desk, self._log)

    @cached_property
    def _joining(self) -> PartitionJoins:
        return PartitionJoins(self._plan, self._admin, self._desk, self._log)

    @cached_property
    def _limits(self) -> Limits:
        settings = self._plan.settings
        bounds = settings.max_events_per_batch, settings.max_bytes_per_batch, settings.target_batch_us
        return Limits(*bounds, self._plan.tasks, Path(self._plan.checkpoint))

    @cached_property
    def _identity(self) -> TopicIdentity:
        return TopicIdentity(self._plan)

    @cached_property
    def _foreign(self) -> ImportedFrontier:
        assert self._plan.imported is not None, "only asked for where CTIs are imported"
        return ImportedFrontier(self._plan.kafka, self._admin, self._plan.imported)

    def initialOffset(self) -> dict[str, Any]:
        starts = {partition: self._plan.starts[partition] for partition in self._plan.partitions}
        return Offset(starts, joins=self._plan.joins).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._admin.ends({*self._plan.partitions, *self._joining.present_partitions()})

    def advanced(self, start: dict[str, Any]) -> dict[str, Any]:
        here = Offset.from_json(start)
        if here.is_final:
            return start
        while True:
            there = self._try_to_advance(here)
            # Where nothing is planned Spark asks again, but a run to the present end would take it for the end.
            if there != here or not self._plan.until_end:
                return there.to_json()
            time.sleep(_RETRY_S)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        here, there = Offset.from_json(start), Offset.from_json(end)
        members = there.roster
        labels = even_labels(len(members), self._plan.tasks)
        roster = self._plan.roster_of(len(members), len(there.joins))
        rows = []
        for partition, planned, until in here.ranges_to(there):
            number = members.index(partition)
            marks, imports = ([value for mark in given for value in mark] for given in (until.marks_with_end(), until.imports_with_end()))
            span = planned.next_offset, until.next_offset, marks, imports
            joined_us = there.joins[partition].joined_us if partition in there.joins else NEVER
            membership = roster.version, roster.inputs, joined_us
            facts = [value for mark in until.spans for value in mark], until.base_us, [until.conflicts, until.clamped]
            rows.append((labels[number], number, *partition, *span, until.planned_ms, there.is_final, *membership, *facts))
        return [Ranges(rows)]

    def _try_to_advance(self, here: Offset) -> Offset:
        try:
            return self._advance(here)
        except (KafkaException, TidegateError) as error:
            if beyond_waiting(error):
                raise
            if isinstance(error, RefusedError) and error.code in _NO_WAY_ON:
                raise
            self._log.warning("nothing planned", reason=str(error))
            time.sleep(_RETRY_S)
        return self._checked(here)

    def _checked(self, here: Offset) -> Offset:
        """Return *here*, unless a topic that was made while the job runs is gone."""
        try:
            self._joining.check_topics(boottime_us())
        except RefusedError:
            raise
        except (KafkaException, TidegateError):
            pass
        return here

    def _advance(self, here: Offset) -> Offset:
        asked_us = boottime_us()
        self._desk.begin_pass(here.partitions, self._admin.starts)
        joined = self._joining.join_new(here, asked_us, self._frozen)
        if joined is not None:
            return joined
        ends = self._frozen or self._admin.ends(here.partitions)
        self._cut_logs.check(here.partitions, ends, boottime_us())
        self._estimating.observe_ends(ends, boottime_us())
        planned = self._plan_ranges(here, ends)
        if not planned and self._plan.until_end and self._frozen is not None:
            # Without its journal a replay waits, and so does a partition that would join; they have not reached the end then.
            at = here.partitions
            reached = all(partition in at and at[partition].next_offset >= end for partition, end in ends.items())
            return replace(here, is_final=reached)
        # Also beside partitions that have records: those must not wait for a silent one.
        raised = self._estimating.raise_silent(here.partitions, asked_us) if self._frozen is None else {}
        return here.advance(self._import({**here.partitions, **raised, **planned}))

    def _plan_ranges(self, here: Offset, ends: dict[Partition, int]) -> dict[Partition, PlannedPosition]:
        behind = {partition: at for partition, at in here.partitions.items() if ends[partition] > at.next_offset}
        behind = self._desk.select_plannable(behind) if behind else behind
        if not behind:
            return {}
        self._identity.check(self._admin)
        shares = self._limits.plan_shares({partition: ends[partition] - at.next_offset for partition, at in behind.items()})
        behind = {partition: at for partition, at in behind.items() if partition in shares}
        until = {partition: at.next_offset + shares[partition] for partition, at in behind.items()}
        found = self._desk.close_ranges(behind, until)
        self._estimating.observe_planned({partition: until[partition] for partition in found}, boottime_us())
        now_ms = time.time_ns() // 1_000_000
        return {
            partition: PlannedPosition(
                until[partition],
                0,
                known.marks,
                now_ms,
                0,
                known.imports,
                known.spans,
                known.unclosed,
                conflicts=self._desk.pop_conflicts(partition),
                clamped=known.clamped,
            )
            for partition, known in found.items()
        }

    def _import(self, there: dict[Partition, PlannedPosition]) -> dict[Partition, PlannedPosition]:
        """Raise the partitions that were read to their end to the other input's time, each raise journaled first."""
        now_us = time.monotonic_ns() // 1000
        if self._plan.imported is None or self._plan.until_end or now_us < self._imports_due_us:
            return there
        self._imports_due_us = now_us + self._plan.settings.idle_cadence_us
        c_us = self._look_at_imported()
        behind = [partition for partition in there if c_us is not None and self._imported_us.get(partition, 0) < c_us]
        if c_us is None or not behind or not self._desk.is_available():
            return there
        # The ends are asked for after the look: what was there by then is judged before the imported time counts.
        ends = self._admin.ends(behind, committed=False)
        behind = [partition for partition in behind if ends[partition] == there[partition].next_offset]
        raised = self._desk.journal_imports([(partition, ends[partition], c_us) for partition in behind])
        self._imported_us |= raised
        return {**there, **{partition: replace(there[partition], import_us=agreed_us) for partition, agreed_us in raised.items()}}

    def _look_at_imported(self) -> int | None:
        """Return the time of the other input; this one is ordered on without it where it cannot be told."""
        try:
            c_us = self._foreign.read_frontier()
        except (KafkaException, TidegateError) as error:
            if not self._imports_lost:
                self._log.warning("no CTI is imported until the other input's topic can be read", reason=str(error))
            self._foreign.forget_positions()
            self._imports_lost = True
            return None
        self._imports_lost = False
        return c_us
