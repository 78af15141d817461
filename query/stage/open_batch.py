"""
An open batch of a query in one task: its buckets go on beyond their planned ranges.

Law: a round is a range like any other. What has come is accepted, what is final is written, and only once that is acknowledged do the
CTIs above it follow. No result depends on where a range ends, so the results are those of any other cut. Nothing has to be journaled: what
a query decides depends on its records alone. Versions of reference data do not change within a batch.

A round lasts twice as long as its work, within bounds: meanwhile more records come, and few large pieces cost less than many small ones. A
task with more work than the longest round does not wait at all.

The batch ends when its span is over (a span without records lasts longer), when its end is requested
(:mod:`tidegate.platform.checkpoint.open_batches`), when the task has read its share of what one batch may read, or when its buckets are
finished. A task that ends requests the end of the others, so none waits for another. While Spark commits it, the same rounds go on
(:mod:`tidegate.platform.checkpoint.between_batches`).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ordering.errors import RefusedError, TidegateError
from ordering.ticks import SECOND_US
from query.columns.decoded_range import DecodedRange
from query.config import QueryPlan
from query.stage.memory import JobMemory
from tidegate.basics.fault_points import pause_at
from tidegate.ordered_topic.decode import decode
from tidegate.platform.checkpoint.end_watch import EndWatch
from tidegate.platform.checkpoint.open_batches import is_stopping, read_request, request_end
from tidegate.platform.kafka.ranges import RangeReader, Records, wait_for_any
from tidegate.platform.kafka.unreadable import error_of_ordered_topic
from tidegate.platform.kafka.worker import Worker
from tidegate.platform.observe.detail_requests import WATCHED_EVERY_S
from tidegate.platform.spark.launch.allocator import freed_memory

# How long records are waited for, milliseconds; if a request to end the batch ends the wait too; and between two batches, where the next
# one waits for the end of the round.
_WAIT_MS, _WATCHED_WAIT_MS, _SHORT_WAIT_MS = 100, 500, 5
# How often requests are looked for, seconds.
_LOOK_EVERY_S = 0.02
# A round lasts so many times as long as its work, within these bounds, seconds.
_ROUND_OF_WORK, _ROUND_MIN_S, _ROUND_MAX_S = 2, 0.002, 0.05
_TELL_EVERY_S = 1.0


class OpenBucket(Protocol):
    """What an open batch needs of a bucket's batch (:class:`~query.stage.processor.BucketRun`)."""

    bytes: int

    @property
    def logs(self) -> Sequence[int]: ...
    @property
    def is_finished(self) -> bool: ...
    def next_offset(self, log: int) -> int: ...
    def route(self, log: int, piece: DecodedRange) -> DecodedRange: ...
    def accept(self, log: int, piece: DecodedRange) -> None: ...
    def queue_results(self) -> bool: ...
    def publish_acknowledged(self) -> None: ...
    def queue_ctis(self) -> bool: ...


class OpenBatch:
    """
    The open buckets of one task, which have read their planned ranges.

    Args:
        end_request: The last request to end an open batch when this one was planned.
        tell: Tells the driver how far the buckets have come; called about once a second, and four times while a client watches.
        is_watched: Returns whether one does.
    """

    def __init__(
        self,
        plan: QueryPlan,
        buckets: Sequence[OpenBucket],
        worker: Worker,
        end_request: str,
        tell: Callable[[], None],
        is_watched: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan, self._buckets, self._worker, self._end_request = plan, buckets, worker, end_request
        self._tell, self._is_watched = tell, is_watched
        self._folder = Path(plan.checkpoint)
        self._span = JobMemory.of(plan).spans.take(plan.batch_span_us / SECOND_US, time.monotonic())
        self._watch = EndWatch(self._folder)
        self._readers_of: dict[int, list[OpenBucket]] = {}
        for bucket in buckets:
            for log in bucket.logs:
                self._readers_of.setdefault(log, []).append(bucket)
        # The buckets of a task are saved together, so those that share a log stand at one offset of it.
        self._positions = {log: readers[0].next_offset(log) for log, readers in self._readers_of.items()}
        self._logs = sorted(self._readers_of)
        self._parent = os.getppid()
        self._looked_s, self._told_s, self._tell_every_s = 0.0, time.monotonic(), _TELL_EVERY_S
        self._is_asked = False
        # How many bytes this batch had read when the driver was told last.
        self._told_bytes = -1

    def run(self) -> None:
        """Go on until the batch ends. Raises TidegateError as a batch of planned ranges does."""
        with self._watch:
            self._run()

    def _run(self) -> None:
        try:
            while not self._is_over(time.monotonic()):
                # A client is told of the records of the round before without delay.
                longest_ms = _WAIT_MS if self._watch.descriptor < 0 else _WATCHED_WAIT_MS
                self._round(min(longest_ms, round(self._tell_every_s * 1_000)))
        finally:
            request_end(self._folder)

    def go_on(self, is_over: Callable[[], bool]) -> None:
        """Go on after the end of the batch until *is_over*, or until there is a reason why no batch would stay open."""
        self._looked_s = 0.0
        while not is_over() and not self._has_read_enough() and not self._is_stopped(time.monotonic()):
            self._round(_SHORT_WAIT_MS)

    def _round(self, wait_ms: int) -> None:
        pieces, read_s = self._read(wait_ms), time.monotonic()
        if not pieces:
            return
        for log, records in pieces:
            self._accept(log, records)
        self._write()
        now_s = time.monotonic()
        round_s = min(max(_ROUND_OF_WORK * (now_s - read_s), _ROUND_MIN_S), _ROUND_MAX_S)
        time.sleep(max(read_s + round_s - now_s, 0))

    @property
    def _read_bytes(self) -> int:
        return sum(bucket.bytes for bucket in self._buckets)

    def _has_read_enough(self) -> bool:
        return self._read_bytes >= self._plan.bytes_per_task

    def _is_stopped(self, now_s: float) -> bool:
        """Return whether the job is to stop or has nothing left to do; look for it from time to time."""
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            self._is_asked = is_stopping(self._folder) or all(bucket.is_finished for bucket in self._buckets)
            if os.getppid() != self._parent:
                raise TidegateError("Spark has gone: nobody would commit what this worker writes", code="TG-SPARK-GONE")
        return self._is_asked

    def _is_over(self, now_s: float) -> bool:
        if self._span.is_over(now_s, has_read=self._read_bytes > 0) or self._has_read_enough():
            return True
        if now_s - self._looked_s >= _LOOK_EVERY_S and not self._is_stopped(now_s):
            self._is_asked = read_request(self._folder) != self._end_request
            self._tell_every_s = WATCHED_EVERY_S if self._is_watched() else _TELL_EVERY_S
        if now_s - self._told_s >= self._tell_every_s:
            self._told_s = now_s
            if self._read_bytes != self._told_bytes:
                self._told_bytes = self._read_bytes
                self._tell()
                # The cycle collector is off while rows are handled.
                gc.collect(0)
            freed_memory().give_back_in_silence(now_s, time.process_time())
        return self._is_asked

    def _read(self, wait_ms: int) -> list[tuple[int, Records]]:
        """Return what has come; if nothing has, wait a while for some of it."""
        pieces = self._read_logs()
        if not pieces:
            wait_for_any([self._reader(log) for log in self._logs], wait_ms, self._watch.descriptor)
            if self._watch.forget():
                self._looked_s = 0.0
            pieces = self._read_logs()
        return pieces

    def _read_logs(self) -> list[tuple[int, Records]]:
        try:
            read = [(log, self._reader(log).read_on(self._positions[log], 0)) for log in self._logs]
        except RefusedError as error:
            raise error_of_ordered_topic(error) from error
        return [(log, records) for log, records in read if records is not None]

    def _reader(self, log: int) -> RangeReader:
        framed = self._plan.feed_of(log).payloads.headers
        return self._worker.reader(self._plan.kafka, *self._plan.partitions[log], headers=True, framed=framed)

    def _accept(self, log: int, records: Records) -> None:
        buckets = self._readers_of[log]
        # The buckets of an exchange need the same of it.
        piece = buckets[0].route(log, DecodedRange.of(decode(records, *self._plan.partitions[log])))
        for bucket in buckets:
            bucket.accept(log, piece)
        self._positions[log] = int(records.offset[-1]) + 1

    def _write(self) -> None:
        """Write what is final, and once that is acknowledged, the CTIs above it; all buckets wait together."""
        have_results = [bucket.queue_results() for bucket in self._buckets]
        if any(have_results):
            self._flush()
        for bucket in self._buckets:
            bucket.publish_acknowledged()
        have_ctis = [bucket.queue_ctis() for bucket in self._buckets]
        if any(have_ctis):
            pause_at("ctis sent")
            self._flush()
        pause_at("walked")

    def _flush(self) -> None:
        topic = next((output.topic for output in self._plan.outputs if output.topic), None)
        if topic is not None:
            self._worker.producer(self._plan.kafka).flush(topic)
