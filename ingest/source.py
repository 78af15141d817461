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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.idle import Silences
from ingest.imports import ForeignTime
from ingest.journal_redis import RedisJournal
from ingest.offsets import Marks, Offset, Planned
from ordering.errors import TidegateError
from ordering.journal import JournalKey
from ordering.ticks import INFINITY, MILLISECOND_US
from tidegate.runtime.kafka.admin import MAX_TIMESTAMP, Admin
from tidegate.runtime.logs import get_logger, quiet_worker
from tidegate.runtime.planning import RangePlanner, Ranges

_RETRY_S = 1.0
_ANSWER_S = 5.0


class Planner(RangePlanner):
    """The planner of one ingest job, in the words of Spark's data source interface."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        self._frozen: dict[Partition, int] | None = None
        self._unclosed: dict[Partition, int] = {}
        self._closed: dict[Partition, int] = {}
        self._journal: RedisJournal | None = None
        self._journal_lost = False
        self._journal_retry_s = 0.0
        settings = plan.settings
        self._silences = Silences(settings.idle_cadence_us, settings.idle_margin_us)
        self._keys = {partition: plan.journal_key(partition) for partition in plan.partitions}
        self._import_keys = {partition: plan.import_key(partition) for partition in plan.partitions} if plan.imported else {}
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
    def _foreign(self) -> ForeignTime:
        assert self._plan.imported is not None, "only asked for where CTIs are imported"
        return ForeignTime(self._plan.kafka, self._admin, self._plan.imported)

    def initialOffset(self) -> dict[str, Any]:
        return Offset(self._plan.starts).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._admin.ends(self._plan.partitions)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        here = Offset.from_json(start)
        if here.final:
            return start
        while True:
            there = self._try_to_advance(here)
            # Where nothing is planned Spark asks again, but a run to the present end would take it for the end.
            if there != here or not self._plan.until_end:
                return there.to_json()
            time.sleep(_RETRY_S)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        here, there = Offset.from_json(start), Offset.from_json(end)
        rows = []
        for partition, planned, until in here.ranges(there):
            number = self._plan.partitions.index(partition)
            marks, imports = ([value for mark in given for value in mark] for given in (until.all_marks(), until.all_imports()))
            span = planned.next_offset, until.next_offset, marks, imports
            rows.append((self._plan.labels[number], number, *partition, *span, until.planned_ms, there.final))
        return [Ranges(rows)]

    def _try_to_advance(self, here: Offset) -> Offset:
        try:
            return self._advance(here)
        except (KafkaException, TidegateError) as error:
            self._log.warning("nothing planned", reason=str(error))
            time.sleep(_RETRY_S)
            return here

    def _advance(self, here: Offset) -> Offset:
        asked_us = time.monotonic_ns() // 1000
        ends = self._frozen or self._admin.ends(self._plan.partitions)
        self._silences.observe(ends, time.monotonic_ns() // 1000)
        planned = self._plan_ranges(here, ends)
        if not planned and self._plan.until_end and self._frozen is not None:
            # Without its journal a replay waits; it has not reached the end then.
            reached = all(at.next_offset >= ends[partition] for partition, at in here.partitions.items())
            return Offset(here.partitions, final=reached)
        # Also beside partitions that have records: those must not wait for a silent one.
        raised = self._estimate(here, asked_us) if self._plan.estimates and self._frozen is None else {}
        return Offset(self._import({**here.partitions, **raised, **planned}))

    def _plan_ranges(self, here: Offset, ends: dict[Partition, int]) -> dict[Partition, Planned]:
        behind = {partition: at for partition, at in here.partitions.items() if ends[partition] > at.next_offset}
        if not behind:
            return {}
        if self._reach_journal() is None:
            # What nobody has judged yet has no estimates; what was judged before (a replay) may have some, and must wait.
            behind = {partition: at for partition, at in behind.items() if at.next_offset >= self._closed.get(partition, INFINITY)}
        if not behind:
            return {}
        share = max(self._plan.settings.max_events_per_batch // len(behind), 1)
        until = {partition: min(ends[partition], at.next_offset + share) for partition, at in behind.items()}
        found = self._close(behind, until)
        now_ms = time.time_ns() // 1_000_000
        nothing: tuple[Marks, Marks] = (), ()
        return {
            partition: Planned(end, 0, marks, now_ms, 0, imports)
            for partition, end in until.items()
            for marks, imports in [found.get(partition, nothing)]
        }

    def _close(self, here: dict[Partition, Planned], until: dict[Partition, int]) -> dict[Partition, tuple[Marks, Marks]]:
        """Close the positions about to be judged; return the journaled estimates and imports among them, while the journal answers."""
        self._unclosed |= until
        # What is in force where a range starts was applied when it was planned, except after a start in the middle.
        known = {partition: (at.silent().all_marks(), at.silent().all_imports()) for partition, at in here.items()}
        journal = self._reach_journal()
        if journal is None:
            return known
        try:
            estimates = self._close_and_read(journal, self._keys, journal.estimates_many, here, until)
            imports = self._close_and_read(journal, self._import_keys, journal.imports_many, here, until)
            self._unclosed.clear()
        except TidegateError as error:
            self._lose_journal(error)
            return known
        return {
            partition: (at_start + estimates.get(partition, ()), imported + imports.get(partition, ()))
            for partition, (at_start, imported) in known.items()
        }

    def _close_and_read(
        self,
        journal: RedisJournal,
        keys: dict[Partition, JournalKey],
        read: Callable[[list[tuple[JournalKey, int, int]]], list[list[tuple[int, int]]]],
        here: dict[Partition, Planned],
        until: dict[Partition, int],
    ) -> dict[Partition, Marks]:
        """Close under *keys*, if there are any, and return what stands between *here* and *until*."""
        if not keys:
            return {}
        journal.close_many([(keys[partition], below) for partition, below in self._unclosed.items()])
        found = read([(keys[partition], at.next_offset, until[partition] - 1) for partition, at in here.items()])
        return {partition: tuple(marks) for partition, marks in zip(here, found, strict=True)}

    def _import(self, there: dict[Partition, Planned]) -> dict[Partition, Planned]:
        """Raise the partitions that were read to their end to the other input's time, each raise journaled first."""
        now_us = time.monotonic_ns() // 1000
        if self._plan.imported is None or self._plan.until_end or now_us < self._imports_due_us:
            return there
        self._imports_due_us = now_us + self._plan.settings.idle_cadence_us
        c_us = self._look_at_imported()
        journal = self._reach_journal()
        behind = [partition for partition in there if c_us is not None and self._imported_us.get(partition, 0) < c_us]
        if journal is None or c_us is None or not behind:
            return there
        # The ends are asked for after the look: what was there by then is judged before the imported time counts.
        ends = self._admin.ends(behind, committed=False)
        behind = [partition for partition in behind if ends[partition] == there[partition].next_offset]
        try:
            agreed = journal.import_many([(self._import_keys[partition], ends[partition], c_us) for partition in behind])
        except TidegateError as error:
            self._lose_journal(error)
            return there
        raised = {partition: agreed_us for partition, agreed_us in zip(behind, agreed, strict=True) if agreed_us is not None}
        self._imported_us |= raised
        return {**there, **{partition: replace(there[partition], import_us=agreed_us) for partition, agreed_us in raised.items()}}

    def _look_at_imported(self) -> int | None:
        """Return the time of the other input; this one is ordered on without it where it cannot be told."""
        try:
            c_us = self._foreign.look()
        except (KafkaException, TidegateError) as error:
            if not self._imports_lost:
                self._log.warning("no CTI is imported until the other input's topic can be read", reason=str(error))
            self._foreign.forget()
            self._imports_lost = True
            return None
        self._imports_lost = False
        return c_us

    def _estimate(self, here: Offset, asked_us: int) -> dict[Partition, Planned]:
        """Return the silent partitions at raised frontiers, each raise journaled first."""
        due = self._silences.due({partition: at.next_offset for partition, at in here.partitions.items()}, asked_us)
        journal = self._reach_journal() if due else None
        if journal is None:
            return {}
        try:
            # Below an open transaction nothing has been read yet: the end must be the same with and without.
            ends = self._admin.ends(due, committed=False)
            due = [partition for partition in due if ends[partition] == here.partitions[partition].next_offset]
            self._learn_last_arrivals(journal, due, here, asked_us)
            wanted = [(partition, raised) for partition in due if (raised := self._silences.estimate(partition, asked_us)) is not None]
            rising = [(partition, raised) for partition, raised in wanted if raised > here.partitions[partition].frontier_us]
            agreed = journal.estimate_many([(self._keys[partition], ends[partition], raised) for partition, raised in rising])
        except TidegateError as error:
            self._lose_journal(error)
            return {}
        return {
            partition: here.partitions[partition].silent(frontier_us=frontier_us)
            for (partition, _), frontier_us in zip(rising, agreed, strict=True)
            if frontier_us is not None and frontier_us > here.partitions[partition].frontier_us
        }

    def _learn_last_arrivals(self, journal: RedisJournal, due: list[Partition], here: Offset, asked_us: int) -> None:
        """Tell the silences from which arrival they count; a partition without any record follows the slowest of the others."""
        empty = [partition for partition in due if here.partitions[partition].next_offset == 0]
        unknown = [partition for partition in due if self._silences.needs_last_arrival(partition)]
        if not unknown and not empty:
            return
        found = self._admin.offsets(self._plan.partitions, MAX_TIMESTAMP)
        known = {
            partition: max(at.timestamp * MILLISECOND_US, here.partitions[partition].frontier_us)
            for partition, at in found.items()
            if 0 <= at.offset < here.partitions[partition].next_offset and at.timestamp > 0
        }
        # A frontier already in force was sound when it was asked for; counting on from it after a restart is sound too.
        for partition in unknown:
            if partition in known:
                self._silences.last_arrival(partition, known[partition])
        slowest = min(known.values(), default=0)
        for partition in empty if slowest else ():
            # Its first base is journaled. Later ones only raise estimates, which are journaled themselves.
            base = journal.base(self._keys[partition], slowest) if self._silences.needs_last_arrival(partition) else slowest
            self._silences.count_from(partition, max(base, here.partitions[partition].frontier_us), asked_us)

    def _reach_journal(self) -> RedisJournal | None:
        if self._journal is None and time.monotonic() >= self._journal_retry_s:
            try:
                self._journal = RedisJournal.open(self._plan.redis)
                self._closed = {partition: self._journal.closed(key) for partition, key in self._keys.items()}
            except TidegateError as error:
                self._lose_journal(error)
            else:
                if self._journal_lost:
                    self._log.info("the journal answers again", redis=self._plan.redis.address)
                self._journal_lost = False
        return self._journal

    def _lose_journal(self, error: TidegateError) -> None:
        if not self._journal_lost:
            self._log.warning(
                "the journal does not answer: no idle estimates until it does", redis=self._plan.redis.address, reason=error.what
            )
        self._journal, self._journal_lost, self._journal_retry_s = None, True, time.monotonic() + _RETRY_S
