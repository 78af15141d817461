"""
The planner: which ranges of which input partitions the next batch reads, and how far time has advanced in silent partitions. It runs in a
Python process beside the driver; only here do a clock, the brokers' ends and the journal meet.

Law: the planner's decisions are written into the offset, which Spark logs before the batch runs, so a repeated batch decides nothing again.
An estimate changes the offset and thereby starts a batch without data: batches run exactly when time advances. A broker or journal that
does not answer never ends the job; without the journal only the ranges that :mod:`ingest.journal.client` allows are planned.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from pyspark.sql.datasource import InputPartition
from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.client import JournalClient
from ingest.journal.known_facts import StageFacts
from ingest.journal.stage_notes import NoteReader
from ingest.journal.topic_fingerprint import TopicIdentity, check_not_begun_anew
from ingest.offsets import IngestOffset, PlannedPosition, Positions
from ingest.planned_range import IngestRange
from ingest.planner.idle_estimates import IdleEstimates
from ingest.planner.imports import Imports
from ingest.planner.joining_partitions import PartitionJoins
from ingest.planner.limits import Limits
from ingest.planner.opening import may_stay_open
from ingest.planner.silences import boottime_us
from ingest.planner.stage_progress import judged_positions, read_stage_progress, told_at
from ingest.planner.truncated_logs import TruncatedLogs
from ingest.skips import first_read, spans_within
from ordering.errors import RefusedError, TidegateError
from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.checkpoint.end_watch import EndWatch
from tidegate.platform.checkpoint.open_batches import is_stopping, read_request, request_end
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.kafka.failures import is_hopeless
from tidegate.platform.kafka.lookout import Lookout
from tidegate.platform.observe.logs import configure_worker, get_logger
from tidegate.platform.spark.data_source import NAP_S, RangePlanner, Ranges
from tidegate.platform.spark.range_rows import write_row
from tidegate.platform.spark.shuffle_keys import even_labels, same_task

_RETRY_S = 1.0
# How long a rest lasts that the next record ends, seconds, if a request to end the batch ends it too, and if none can: Spark cannot stop
# the job meanwhile.
_LONG_REST_S, _DEAF_REST_S = 1.0, 0.5
# Refusals that waiting does not cure; after any other the planner logs a warning and tries again.
_FINAL_REFUSALS = ("TG-JOURNAL-LOST", "TG-LOG-CUT", "TG-ROSTER", "TG-START-BOUND", "TG-TOPIC-ENDED", "TG-TOPIC-SETTINGS")


class IngestPlanner(RangePlanner):
    """The planner of one ingest job. Its parts are made on first use: Spark also makes planners that never plan."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        self._frozen_ends: dict[Partition, int] | None = None
        # The partitions whose frozen end a transaction may still hold back.
        self._held_back: frozenset[Partition] = frozenset()
        self._truncated = TruncatedLogs()
        # The end of the batch that stays open, and the last request to end one when it was planned.
        self._open_end: IngestOffset | None = None
        self._end_request = ""
        # Whether all that was there has been planned once. An open batch that was killed has promised more than its repetition at first
        # does, so a partition cannot join before.
        self._is_caught_up = False
        # The ends of all partitions if all was planned, and when the next estimate comes due: until then only a record ends the silence.
        self._awaited: dict[Partition, int] = {}
        self._estimate_due_us = NEVER

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self._plan.kafka, ANSWER_S)

    @cached_property
    def _log(self) -> FilteringBoundLogger:
        configure_worker()
        return get_logger("ingest.planner").bind(input=self._plan.settings.name)

    @cached_property
    def _journal(self) -> JournalClient:
        read_ends = partial(self._admin.ends, committed=False)
        return JournalClient(self._plan, self._log, read_ends, NoteReader(self._folder))

    @cached_property
    def _estimates(self) -> IdleEstimates:
        return IdleEstimates(self._plan, self._admin, self._journal, self._log)

    @cached_property
    def _lookout(self) -> Lookout:
        return Lookout(self._plan.kafka)

    @cached_property
    def _joins(self) -> PartitionJoins:
        return PartitionJoins(self._plan, self._admin, self._journal, self._log)

    @cached_property
    def _imports(self) -> Imports:
        return Imports(self._plan, self._admin, self._journal, self._log)

    @cached_property
    def _limits(self) -> Limits:
        settings = self._plan.settings
        bounds = settings.max_events_per_batch, settings.max_bytes_per_batch, settings.target_batch_us
        return Limits(*bounds, self._plan.tasks, Path(self._plan.checkpoint))

    @cached_property
    def _folder(self) -> Path:
        return Path(self._plan.checkpoint)

    @cached_property
    def _identity(self) -> TopicIdentity:
        return TopicIdentity(self._plan)

    def initialOffset(self) -> dict[str, Any]:
        starts = {partition: self._plan.starts[partition] for partition in self._plan.partitions}
        return IngestOffset(starts, joins=self._plan.joins).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        # What lies behind an open transaction has been produced, and perhaps acknowledged, so it belongs to the present.
        self._frozen_ends = self._admin.ends({*self._plan.partitions, *self._joins.present_partitions()}, committed=False)
        self._held_back = frozenset(self._frozen_ends)

    def plan_end(self, start: dict[str, Any]) -> dict[str, Any]:
        offset, self._awaited = IngestOffset.from_json(start), {}
        if offset.is_final or (self._plan.stays_open and is_stopping(self._folder)):
            return start
        while True:
            end = self._try_to_advance(offset)
            if end != offset:
                self._lookout.stop_fetching()
            # If nothing is planned, Spark asks again; but in a run to the present end Spark would take that for the end and stop.
            if end != offset or not self._plan.until_end:
                return end.to_json()
            time.sleep(_RETRY_S)

    def rest(self, nap_s: float) -> None:
        due_s = (self._estimate_due_us - boottime_us()) / SECOND_US
        if not self._awaited or min(nap_s, due_s) < NAP_S:
            super().rest(nap_s)
            return
        with EndWatch(self._folder) as watch:
            is_asked = self._plan.stays_open and (is_stopping(self._folder) or read_request(self._folder) != self._end_request)
            if not is_asked:
                longest_s = _DEAF_REST_S if watch.descriptor < 0 else _LONG_REST_S
                self._lookout.wait(self._awaited, min(longest_s, due_s), watch.descriptor)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Ranges([write_row(planned) for planned in self._ranges(IngestOffset.from_json(start), IngestOffset.from_json(end))])]

    def _ranges(self, start: IngestOffset, end: IngestOffset) -> list[IngestRange]:
        members, is_open = end.roster, end == self._open_end
        labels = even_labels(len(members), self._plan.tasks)
        roster = self._plan.roster_of(len(members), len(end.joins))
        return [
            IngestRange(
                label=labels[number],
                number=number,
                topic=partition[0],
                partition=partition[1],
                start=first.next_offset,
                planned_ms=last.planned_ms,
                is_final=end.is_final,
                roster_version=roster.version,
                inputs=roster.inputs,
                joined_us=end.joins[partition].joined_us if partition in end.joins else NEVER,
                skips=spans_within(self._plan.skipped_spans(partition), first.next_offset, last.next_offset),
                open_ranges=len(same_task(number, len(members), self._plan.tasks)) if is_open else 0,
                end_request=self._end_request if is_open else "",
                **last.range_fields(),
                **self._comparison(partition, first.next_offset, last.next_offset),
            )
            for partition, first, last in start.ranges_to(end, with_empty=is_open)
            for number in (members.index(partition),)
        ]

    def _pass_skips(self, partition: Partition, until: int, ends: Mapping[Partition, int]) -> int:
        """Return the end of a range that is planned to *until*: it also takes the skipped records that follow, since they cost nothing."""
        return min(first_read(until, self._plan.skipped_spans(partition)), ends[partition])

    def _comparison(self, partition: Partition, start: int, end: int) -> dict[str, Any]:
        compare_from, compare_until = self._plan.compared.get(partition, (0, 0))
        is_compared = compare_from < end and start < compare_until
        return {"compare_from": compare_from, "compare_until": compare_until} if is_compared else {}

    def _try_to_advance(self, offset: IngestOffset) -> IngestOffset:
        try:
            return self._advance(offset)
        except (KafkaException, TidegateError) as error:
            if is_hopeless(error) or (isinstance(error, RefusedError) and error.code in _FINAL_REFUSALS):
                raise
            self._log.warning("nothing planned", reason=str(error))
            time.sleep(_RETRY_S)
        self._check_new_topics()
        return offset

    def _check_new_topics(self) -> None:
        """Raise RefusedError if a topic that joined while the job runs is replaced or gone: the driver watches only the first topics."""
        try:
            self._joins.check_topics(boottime_us())
        except RefusedError:
            raise
        except (KafkaException, TidegateError):
            pass

    def _advance(self, offset: IngestOffset) -> IngestOffset:
        positions = judged = offset.partitions
        told: Mapping[Partition, StageFacts] = {}
        asked_us, self._open_end = boottime_us(), None
        if self._plan.stays_open:
            self._end_request, progress = read_request(self._folder), read_stage_progress(self._folder)
            judged = judged_positions(positions, progress)
            told = told_at(judged, progress)
        self._journal.begin_pass(judged, self._admin.starts, told)
        if self._is_caught_up or not read_request(self._folder):
            joined = self._joins.join_new(offset, asked_us, self._frozen_ends)
            if joined is not None:
                return joined
        seen_us = time.time_ns() // 1000
        ends = self._admin.ends(positions) if self._frozen_ends is None else self._readable_ends(self._frozen_ends)
        if self._frozen_ends is None:
            self._journal.observe_ends(ends, seen_us)
        self._truncated.check(judged, ends, boottime_us())
        self._estimates.observe_ends(ends, boottime_us())
        planned = self._plan_ranges(positions, judged, ends)
        reached = {**positions, **planned}
        self._is_caught_up = self._is_caught_up or all(reached[partition].next_offset >= ends[partition] for partition in positions)
        if self._frozen_ends is not None:
            # A run to the present end. Without the journal, replays and joining partitions wait: then the end is not reached.
            is_final = all(partition in reached and reached[partition].next_offset >= end for partition, end in self._frozen_ends.items())
            return replace(offset.advance(reached), is_final=is_final)
        # Silent partitions advance also while others have records, since the records must not wait for a silent partition.
        raised = self._estimates.raise_silent(positions, asked_us)
        end = offset.advance(self._imports.raise_read({**positions, **raised, **planned}))
        # An end below the position is no place to wait at: the log was cut, or a broker does not know its end yet.
        if end == offset and self._plan.imported is None and all(judged[each].next_offset == known for each, known in ends.items()):
            self._awaited, self._estimate_due_us = dict(ends), self._estimates.next_due_us(positions)
        if end != offset and self._plan.stays_open and may_stay_open(self._plan, offset, end, ends):
            if not self._end_request:
                # From now on the folder shows that batches have stayed open.
                request_end(self._folder)
                self._end_request = read_request(self._folder)
            self._open_end = end
        return end

    def _readable_ends(self, frozen: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the frozen ends, or what lies before the first open transaction; the run ends once there is none."""
        committed = self._admin.ends(self._held_back) if self._held_back else {}
        held_back = {partition: end for partition, end in committed.items() if end < frozen[partition]}
        if held_back and self._held_back != held_back.keys():
            names = [f"{topic}-{partition}@{end}" for (topic, partition), end in sorted(held_back.items())]
            self._log.warning("waits for the end of open transactions", held_back_at=names)
        self._held_back = frozenset(held_back)
        return {**frozen, **held_back}

    def _plan_ranges(self, positions: Positions, judged: Positions, ends: Mapping[Partition, int]) -> dict[Partition, PlannedPosition]:
        """Plan the records between *positions* and *ends*; those below *judged* were read by an open batch, and cost nothing."""
        behind = {partition: position for partition, position in positions.items() if ends[partition] > position.next_offset}
        behind = self._journal.select_plannable(behind) if behind else behind
        if not behind:
            return {}
        self._identity.check(self._admin)
        check_not_begun_anew(self._plan, self._journal.read_fingerprint())
        read_to = {partition: min(judged[partition].next_offset, ends[partition]) for partition in behind}
        shares = self._limits.plan_shares({partition: max(ends[partition] - start, 1) for partition, start in read_to.items()})
        starts = {partition: position.next_offset for partition, position in behind.items() if partition in shares}
        shared = {partition: min(read_to[partition] + shares[partition], ends[partition]) for partition in starts}
        until = {partition: self._pass_skips(partition, offset, ends) for partition, offset in shared.items()}
        closed = self._journal.close_ranges(starts, until)
        self._estimates.observe_planned({partition: until[partition] for partition in closed}, boottime_us())
        now_ms = time.time_ns() // 1_000_000
        return {
            partition: replace(
                end,
                planned_ms=now_ms,
                conflicts=self._journal.pop_conflicts(partition),
                losses=self._journal.pop_losses(partition),
            )
            for partition, end in closed.items()
        }
