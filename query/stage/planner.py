"""
The planner: which ranges of the ordered topics the next batch reads. It runs in a Python process beside the driver. Time comes from the
topics, so it only decides how much to read. Brokers that do not answer never end the job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from pyspark.sql.datasource import InputPartition

from ordering.errors import TidegateError
from query.config import Partition, QueryPlan
from query.operators.joins.reference_patterns import check_patterns
from query.reference.polling import Polling
from query.reference.watch import ReferenceWatch
from query.stage.batch_cuts import BatchCutter, even_shares
from query.stage.offsets import QueryOffset
from query.stage.open_positions import read_to
from query.stage.planned_range import QueryRange
from tidegate.platform.checkpoint.batch_cost import RECORD_BYTES, read_batch_cost
from tidegate.platform.checkpoint.open_batches import is_stopping, read_request
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.kafka.failures import is_hopeless
from tidegate.platform.observe.logs import configure_worker, get_logger
from tidegate.platform.spark.data_source import RangePlanner, Ranges
from tidegate.platform.spark.range_rows import write_row
from tidegate.platform.spark.shuffle_keys import same_task

_RETRY_S = 1.0


class QueryPlanner(RangePlanner):
    """The planner of one query job. Its parts are made on first use."""

    def __init__(self, plan: QueryPlan) -> None:
        self._plan = plan
        # With availableNow: the ends at the start, up to which the job reads.
        self._frozen_ends: dict[Partition, int] | None = None
        # Where the first batch since the start ends.
        self._first_end: dict[str, Any] | None = None
        # The end of the batch that stays open, and the last request to end one when it was planned.
        self._open_end: QueryOffset | None = None
        self._end_request = ""

    @cached_property
    def _admin(self) -> Admin:
        configure_worker()
        return Admin(self._plan.kafka, ANSWER_S)

    @cached_property
    def _cutter(self) -> BatchCutter | None:
        """None if no log waits for another."""
        if all(len(self._plan.logs_of(bucket)) == 1 for bucket in range(self._plan.buckets)):
            return None
        return BatchCutter(lambda ms: self._by_log(self._admin.offsets_at(self._plan.starts, ms)))

    @cached_property
    def _references(self) -> ReferenceWatch | None:
        if not self._plan.references:
            return None
        configure_worker()
        for table in self._plan.reference_settings.values():
            if table.polled is not None:
                Polling(table).start()
        return ReferenceWatch(
            Path(self._plan.checkpoint),
            self._plan.reference_settings,
            check=lambda table: check_patterns(self._plan.plans, {table.schema.name: table}),
        )

    def initialOffset(self) -> dict[str, Any]:
        return QueryOffset(self._by_log(self._plan.starts)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen_ends = self._admin.ends(self._plan.starts)

    def plan_end(self, start: dict[str, Any]) -> dict[str, Any]:
        offset = QueryOffset.from_json(start)
        if offset.is_final or (self._plan.batch_span_us and is_stopping(Path(self._plan.checkpoint))):
            return start
        while True:
            end = self._try_to_advance(offset)
            # If nothing is planned, Spark asks again; but in a run to the present end Spark would take that for the end and stop.
            if end != offset or self._frozen_ends is None:
                return end.to_json()

    def _try_to_advance(self, offset: QueryOffset) -> QueryOffset:
        """Return the end of the next batch; *offset* itself if nothing lies ahead, or the brokers do not answer."""
        self._open_end, folder = None, Path(self._plan.checkpoint)
        # A request that comes from here on ends the batch that is planned now.
        self._end_request = read_request(folder) if self._plan.batch_span_us else ""
        references = self._references.look() if self._references is not None else 0
        positions = read_to(folder, offset.positions, math.inf)
        try:
            ends = self._by_log(self._frozen_ends or self._admin.ends(self._plan.starts))
            behind = {log: end for log, end in ends.items() if end > positions[log]}
            until = self._cut(positions, behind)
        except (KafkaException, TidegateError) as error:
            if is_hopeless(error):
                raise
            get_logger("query.planner").warning("nothing planned", topic=[feed.topic for feed in self._plan.feeds], reason=str(error))
            time.sleep(_RETRY_S)
            return offset
        reached = {**positions, **until}
        if self._plan.batch_span_us and all(reached[log] >= end for log, end in ends.items()):
            self._open_end = QueryOffset(reached, references=references, opened=offset.opened + 1)
            return self._open_end
        if behind:
            return QueryOffset(reached, references=references, opened=offset.opened)
        return (
            offset
            if self._frozen_ends is None
            else QueryOffset(offset.positions, is_final=True, references=references, opened=offset.opened)
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._first_end = self._first_end or end
        return [Ranges([write_row(planned) for planned in self._ranges(QueryOffset.from_json(start), QueryOffset.from_json(end))])]

    def _ranges(self, start: QueryOffset, end: QueryOffset) -> list[QueryRange]:
        # The first batch after a start has every bucket, so that each reports its progress: a bucket that has read all would never report.
        is_open = end == self._open_end
        has_all = end.is_final or is_open or end.to_json() == self._first_end
        return [
            QueryRange(
                label=self._plan.labels[bucket],
                bucket=bucket,
                log=log,
                start=start.positions[log],
                end=until,
                is_final=end.is_final,
                references=end.references,
                open_buckets=len(same_task(bucket, self._plan.buckets, self._plan.shuffle_partitions)) if is_open else 0,
                end_request=self._end_request if is_open else "",
            )
            for log, until in sorted(end.positions.items())
            if until > start.positions[log] or has_all
            for bucket in self._plan.readers_of(log)
        ]

    def _cut(self, positions: Mapping[int, int], ends: Mapping[int, int]) -> Mapping[int, int]:
        records_max = self._records_max()
        return even_shares(positions, ends, records_max) if self._cutter is None else self._cutter.cut(positions, ends, records_max)

    def _records_max(self) -> int:
        """Return the most records of the next batch: its bytes are estimated by the records of the last one."""
        cost = read_batch_cost(Path(self._plan.checkpoint))
        record_bytes = RECORD_BYTES if cost is None else cost.record_bytes
        return max(min(self._plan.events_per_batch, int(self._plan.bytes_per_batch / record_bytes)), 1)

    def _by_log(self, offsets: Mapping[Partition, int]) -> dict[int, int]:
        return {log: offsets[partition] for log, partition in enumerate(self._plan.partitions) if partition in offsets}
