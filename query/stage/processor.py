"""
The stateful stage: it reads one bucket's ranges, computes and writes the results, and saves the bucket's state. It is a thin adapter
between Kafka, :mod:`query.buckets.bucket` and Spark's state store.
Law: a repeated batch writes the same bytes with the same numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ordering.errors import RefusedError
from ordering.model.step import Released
from ordering.protocol.facts import SPLIT, Fact
from ordering.ticks import format_tick
from query.buckets.bucket import BadRow, Bucket
from query.buckets.make import new_bucket, read_in_time_order
from query.columns.decoded_range import DecodedRange
from query.config import QueryPlan
from query.stage.memory import JobMemory
from query.stage.open_batch import OpenBatch
from query.stage.planned_range import QueryRange
from tidegate.basics.budget import BUDGET
from tidegate.basics.fault_points import pause_at
from tidegate.ordered_topic.decode import decode
from tidegate.platform.checkpoint.between_batches import LeftWork
from tidegate.platform.checkpoint.open_batches import write_report
from tidegate.platform.kafka.dead_letters import DeadLetter
from tidegate.platform.kafka.unreadable import error_of_ordered_topic
from tidegate.platform.kafka.worker import WORKER
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer
from tidegate.platform.observe.detail_requests import DetailQuestion
from tidegate.platform.observe.logs import bind_fields, configure_worker
from tidegate.platform.observe.reports import BucketReport, Gap, LooksUpFrom
from tidegate.platform.observe.result_delays import count_delays
from tidegate.platform.spark.privates import batch_of_task
from tidegate.platform.spark.range_rows import read_row
from tidegate.platform.spark.shuffle_keys import same_task
from tidegate.platform.spark.state_store import StateStore, forget_value

# Most records read and decoded at once.
CHUNK_EVENTS = 100_000
# After this many bytes read, final results are written: that frees memory, and the processor's caches, for more.
_UNSETTLED_BYTES = BUDGET.evaluated_bytes
# The buckets of one task keep pieces for each other, up to this many times the planned bytes of a batch; each reads the rest itself.
_SHARED_BATCHES = 2


class QueryStage:
    """The stateful stage of one query job."""

    def __init__(self, plan: QueryPlan) -> None:
        self._plan = plan
        # The buckets of an open batch that have read their ranges so far; once all have, the batch.
        self._opened: list[BucketRun] = []
        self._batch: OpenBatch | None = None
        self._question = DetailQuestion(Path(plan.checkpoint))
        self._left = WORKER.memory(plan.checkpoint, LeftWork[BucketRun])
        self._left.end()
        configure_worker()

    def reports(self, rows: list[Any], store: StateStore[Bucket]) -> Iterator[str]:
        """Yield the report of a bucket; of a batch that stays open the last bucket yields all."""
        # Rows come in any order; results must not depend on it.
        ranges = sorted((read_row(QueryRange, row) for row in rows), key=lambda planned: planned.log)
        partitions = [self._plan.partitions[planned.log] for planned in ranges]
        topics = ", ".join(dict.fromkeys(topic for topic, _ in partitions))
        place = {"topic": topics, "bucket": ranges[0].bucket, "partition": [number for _, number in partitions]}
        offsets = {"offset": [planned.start for planned in ranges], "until": [planned.end for planned in ranges]}
        with bind_fields(output=self._plan.name, **place, **offsets, **batch_of_task()):
            run = self._run(ranges, store)
        if not ranges[0].open_buckets:
            yield run.report().to_json()
            return
        self._opened.append(run)
        if len(self._opened) == ranges[0].open_buckets:
            with bind_fields(output=self._plan.name, topic=topics, **batch_of_task()):
                reports = self._stay_open(ranges[0].end_request)
            yield from (report.to_json() for report in reports)

    def _run(self, ranges: list[QueryRange], store: StateStore[Bucket]) -> BucketRun:
        """Read the planned ranges and write what is final; save the bucket, unless the batch stays open."""
        plan, number = self._plan, ranges[0].bucket
        gone_on = self._left.pop(number)
        bucket = store.load(number, lambda: new_bucket(plan, number), lambda head, chunks: restore_bucket(plan, number, head, chunks))

        def save() -> None:
            if ranges[0].open_buckets > 1:
                store.select()
            store.save(number, bucket, bucket.save())

        if gone_on is not None and gone_on.is_of(bucket):
            run, run.save = gone_on, save
        else:
            run = BucketRun(plan, bucket, number, WORKER.producer(plan.kafka), save)
        with self._forgotten_on_failure([planned.log for planned in ranges]):
            run.run(ranges)
        if not ranges[0].open_buckets:
            save()
        return run

    def _stay_open(self, end_request: str) -> list[BucketReport]:
        """Keep the buckets of this task open; return their reports."""
        runs, folder = self._opened, Path(self._plan.checkpoint)
        batch = batch_of_task().get("batch", 0)

        def tell() -> None:
            # The times of the steps are those of a whole batch: the report at its end has them. And only then has a run ended.
            with suppress(OSError):
                for run in runs:
                    write_report(folder, run.number, run.report(batch, seconds={}, is_final=False).to_json())

        self._batch = OpenBatch(self._plan, runs, WORKER, end_request, tell, self._question.is_watched)
        with self._forgotten_on_failure({log for run in runs for log in run.logs}):
            self._batch.run()
        for run in runs:
            run.save()
        return [run.report(batch) for run in runs]

    @contextmanager
    def _forgotten_on_failure(self, logs: Iterable[int]) -> Iterator[None]:
        plan = self._plan
        try:
            yield
        except BaseException:
            # What the producer still holds and where readers stand is unknown: none may be used again.
            WORKER.drop_producer(plan.kafka)
            WORKER.drop_dead_letters(plan.kafka, plan.dead_letter_topic, plan.letter_bytes_max)
            JobMemory.of(plan).shared_reads.forget()
            for log in logs:
                framed = plan.feed_of(log).payloads.headers
                WORKER.drop_reader(plan.kafka, *plan.partitions[log], headers=True, framed=framed)
            raise

    def complete(self) -> None:
        """Let a batch that has stayed open go on until the next one begins. Each bucket has waited for its own results."""
        # A batch takes up new versions of reference data at its beginning; and an engine of JavaScript belongs to its thread.
        if self._batch is not None and not self._plan.references and not self._plan.functions:
            runs, job = {run.number: run for run in self._opened}, self._plan.checkpoint
            self._left.go_on(Path(job), runs, partial(self._go_on, self._batch), partial(forget_value, job))

    def _go_on(self, batch: OpenBatch, is_over: Callable[[], bool]) -> None:
        for run in self._opened:
            run.count_anew()
        with bind_fields(output=self._plan.name), self._forgotten_on_failure({log for run in self._opened for log in run.logs}):
            batch.go_on(is_over)


def restore_bucket(plan: QueryPlan, number: int, head: bytes, chunks: dict[int, bytes]) -> Bucket:
    """Return the bucket that was saved as *head* and *chunks*."""
    bucket = new_bucket(plan, number)
    bucket.restore(head, chunks)
    return bucket


class BucketRun:
    """One batch of one bucket, from Kafka to Kafka and files; *save* saves the bucket's state."""

    def __init__(self, plan: QueryPlan, bucket: Bucket, number: int, producer: GaplessProducer, save: Callable[[], None]) -> None:
        self._plan, self._bucket, self.number, self._producer, self.save = plan, bucket, number, producer, save
        self._writers = [ChannelWriter(producer, output.topic) if output.topic else None for output in plan.outputs]
        self._letters = WORKER.dead_letters(plan.kafka, plan.dead_letter_topic, plan.letter_bytes_max)
        self._memory = JobMemory.of(plan)
        self._first_records, self._nulls = self._memory.first_records(plan, number), self._memory.null_counts(plan, number)
        # By output: results written and not acknowledged yet, by the arrival frontier that each follows from.
        self._unacknowledged = [Counter[int]() for _ in plan.outputs]
        self.count_anew()
        # Whether results were queued since the last wait for acknowledgements.
        self._has_queued = False
        # By log: the end of the planned range that was read.
        self._read_until: dict[int, int] = {}

    def count_anew(self) -> None:
        """Begin to count for the report of another batch."""
        self._seconds: dict[str, float] = dict.fromkeys(("read", "compute", "write", "acknowledge"), 0.0)
        self._clock = time.perf_counter()
        # By output: the delays of results.
        self._delays = [Counter[int]() for _ in self._plan.outputs]
        # What the batch has read.
        self._events = self.bytes = 0

    def is_of(self, bucket: Bucket) -> bool:
        """Return whether this is a run of that very *bucket*."""
        return self._bucket is bucket

    @property
    def logs(self) -> Sequence[int]:
        """The logs that the bucket reads."""
        return list(self._bucket.readers)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do: the input has ended, or the instant is reached at which the job stops."""
        return self._bucket.is_finished

    def next_offset(self, log: int) -> int:
        """Return up to where the bucket has read a log."""
        return max(self._bucket.next_offset(log), self._read_until.get(log, 0))

    def run(self, ranges: list[QueryRange]) -> None:
        """Read planned ranges, write what is final and the CTIs above it, and wait for these."""
        if ranges[0].references:
            self._bucket.update_references(self._memory.references(self._plan, ranges[0].references))
        unsettled_bytes = unfinished_bytes = 0
        # An open batch has read beyond the end that was planned for it.
        starts = {planned.log: max(planned.start, self._bucket.next_offset(planned.log)) for planned in ranges}
        for piece_bytes in self._accept_pieces({planned.log: (starts[planned.log], planned.end) for planned in ranges}):
            unsettled_bytes += piece_bytes
            unfinished_bytes += piece_bytes
            if unfinished_bytes >= self._plan.bytes_per_task:
                # Records were larger than planned for: final results are written before more is read, so memory stays bounded.
                self._finish(self._bucket.settle())
                unsettled_bytes = unfinished_bytes = 0
            elif unsettled_bytes >= _UNSETTLED_BYTES:
                self._write_settled(self._bucket.settle())
                unsettled_bytes = 0
        self._read_until = {planned.log: planned.end for planned in ranges}
        self._finish(self._bucket.settle(), is_end=ranges[0].is_final)
        self.queue_ctis()
        pause_at("ctis sent")
        self._flush()
        pause_at("walked")
        self._spend("acknowledge")

    def route(self, log: int, piece: DecodedRange) -> DecodedRange:
        """Return a piece with what all buckets of an exchange need of it."""
        return self._bucket.route(log, piece)

    def accept(self, log: int, piece: DecodedRange) -> None:
        """Accept the next records of a log, and write results that are final with them."""
        feed = self._plan.feed_of(log)
        self._first_records.look_at(feed.input, piece.events["value"], feed.payloads)
        self._nulls.look_at(feed.input, piece.events["value"], feed.payloads)
        for released in self._bucket.accept_in_parts(log, piece):
            self._write(released)
        self._spend("compute")
        pause_at("piece written")
        self._events += piece.events.num_rows
        self.bytes += piece.nbytes

    def queue_results(self) -> bool:
        """Queue all results that are final; return whether any wait for acknowledgement."""
        self._write_settled(self._bucket.settle())
        return self._has_queued

    def publish_acknowledged(self) -> None:
        """Count results, which have been acknowledged now, and publish their files."""
        self._spend("acknowledge")
        self._has_queued = False
        self._count_delays()
        self._letters.flush()
        pause_at("events acknowledged")
        # Files come before CTIs: a run that has lost its checkpoint resumes at a CTI and takes everything before it as written.
        self._publish()

    def queue_ctis(self) -> bool:
        """Queue the CTIs that have something new to state; return whether there were any."""
        found = [
            (writer, replace(cti, facts=(Fact(SPLIT, 0, self._plan.split),)))
            for writer, cti in zip(self._writers, self._bucket.next_ctis(), strict=True)
            if cti is not None and writer is not None
        ]
        for writer, cti in found:
            writer.write_ctis([cti])
        return bool(found)

    def _finish(self, released: list[Released], *, is_end: bool = False) -> None:
        """Write final results, wait until they are acknowledged, and publish their files."""
        self._write_settled(released)
        if is_end:
            self._write_settled(self._bucket.end())
        self._flush()
        self.publish_acknowledged()

    def _count_delays(self) -> None:
        """Count the delays of results, which have been acknowledged now."""
        now_us = time.time_ns() // 1_000
        for by_arrival, delays in zip(self._unacknowledged, self._delays, strict=True):
            delays.update(count_delays(by_arrival, now_us))
            by_arrival.clear()

    def _flush(self) -> None:
        topic = next((output.topic for output in self._plan.outputs if output.topic), None)
        if topic is not None:
            self._producer.flush(topic)

    def _accept_pieces(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[int]:
        """Accept ranges - by log its first offset and the one after its last - piece by piece; yield the bytes of each."""
        unread = {log: self._pieces(log, start, end) for log, (start, end) in ranges.items() if end > start}
        for log, piece in read_in_time_order(unread):
            self.accept(log, piece)
            yield piece.nbytes

    def _pieces(self, log: int, start: int, end: int) -> Iterator[DecodedRange]:
        plan = self._plan
        read = partial(self._read_pieces, log, start, end)
        if plan.exchange is None:
            return read()
        siblings = same_task(self.number, plan.buckets, plan.shuffle_partitions)
        return self._memory.shared_reads.share(log, start, end, self.number, siblings, _SHARED_BATCHES * plan.bytes_per_task, read)

    def _read_pieces(self, log: int, start: int, end: int) -> Iterator[DecodedRange]:
        topic, partition = self._plan.partitions[log]
        reader = WORKER.reader(self._plan.kafka, topic, partition, headers=True, framed=self._plan.feed_of(log).payloads.headers)
        pieces = reader.read(start, end, CHUNK_EVENTS)
        while True:
            try:
                records = next(pieces, None)
            except RefusedError as error:
                raise error_of_ordered_topic(error) from error
            if records is None:
                return
            self._spend("read")
            pause_at("piece read")
            yield self._bucket.route(log, DecodedRange.of(decode(records, topic, partition)))

    def _write_settled(self, released: list[Released]) -> None:
        self._write(released)
        while not self._bucket.is_settled:
            self._write(self._bucket.settle())

    def _write(self, released: list[Released]) -> None:
        self._spend("compute")
        for output, (writer, results) in enumerate(zip(self._writers, released, strict=True)):
            if writer is not None and len(results):
                writer.write_events(results)
                self._has_queued = True
            for arrival_us, count in self._bucket.count_by_arrival(output, results):
                self._unacknowledged[output][arrival_us] += count
        for row in self._bucket.pop_bad_rows():
            self._letters.send(DeadLetter(row.reason, self._origin(row), row.key, row.value))
        self._spend("write")

    def _origin(self, row: BadRow) -> str:
        if row.source is not None:
            # By the event's header: the roster number of its input partition, and its offset there.
            return f"{self._plan.feeds[row.source].topic}:{row.partition_id}@{row.offset}"
        if row.result is None:
            return "a row between two steps"
        output, system_us = row.result
        return f"a result of {self._plan.outputs[output].name} at {format_tick(system_us)}"

    def _publish(self) -> None:
        for number, output in enumerate(self._plan.outputs):
            for sheet in self._bucket.pop_sheets(number) if output.writes_sheets else []:
                for sink in self._memory.sinks(self._plan, number):
                    sink.publish(sheet.start_us, self.number, sheet.rows)

    def _spend(self, on: str) -> None:
        now_s = time.perf_counter()
        self._seconds[on] += now_s - self._clock
        self._clock = now_s

    def report(self, open_batch: int = -1, **changed: Any) -> BucketReport:
        """Return the report of this batch so far; *open_batch*: its number, if it stays open. Members in *changed* differ."""
        bucket = self._bucket
        report = BucketReport(
            bucket=self.number,
            read=self._events,
            bytes=self.bytes,
            complete_us=bucket.frontier_us,
            is_final=bucket.is_finished,
            # The next batch adds to the bucket's own counts.
            totals=dict(bucket.totals),
            duplicates=bucket.duplicates,
            waiting=tuple(
                Gap(*self._plan.partitions[log], channel, promised_seq, last_seq)
                for log, reader in bucket.readers.items()
                for channel, promised_seq, last_seq in reader.blocked_channels()
            ),
            nulls=self._nulls.report(),
            absent=self._first_records.report(is_finished=bucket.is_finished),
            seconds={name: round(spent, 4) for name, spent in self._seconds.items()},
            looks_up_from=LooksUpFrom(*bucket.looks_up_from) if self._plan.references else None,
            delays={output.name: delays for output, delays in zip(self._plan.outputs, self._delays, strict=True) if delays},
            open_batch=open_batch,
            next_offsets={log: self.next_offset(log) for log in bucket.readers} if open_batch >= 0 else {},
        )
        return replace(report, **changed)
