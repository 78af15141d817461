"""
The stateful stage: it reads one bucket's ranges, computes and writes the results, and saves the bucket's state. It is a thin adapter
between Kafka, :mod:`query.buckets.bucket` and Spark's state store.
Law: a repeated batch writes the same bytes with the same numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
from query.stage.planned_range import QueryRange
from tidegate.basics.budget import BUDGET
from tidegate.basics.fault_points import pause_at
from tidegate.ordered_topic.decode import decode
from tidegate.platform.kafka.dead_letters import DeadLetter
from tidegate.platform.kafka.unreadable import error_of_ordered_topic
from tidegate.platform.kafka.worker import WORKER
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer
from tidegate.platform.observe.logs import bind_fields, configure_worker
from tidegate.platform.observe.reports import BucketReport, Gap, LooksUpFrom
from tidegate.platform.observe.result_delays import count_delays
from tidegate.platform.spark.privates import batch_of_task
from tidegate.platform.spark.range_rows import read_row
from tidegate.platform.spark.shuffle_keys import same_task
from tidegate.platform.spark.state_store import StateStore

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
        configure_worker()

    def reports(self, rows: list[Any], store: StateStore[Bucket]) -> Iterator[str]:
        # Rows come in any order; results must not depend on it.
        ranges = sorted((read_row(QueryRange, row) for row in rows), key=lambda planned: planned.log)
        partitions = [self._plan.partitions[planned.log] for planned in ranges]
        topics = ", ".join(dict.fromkeys(topic for topic, _ in partitions))
        place = {"topic": topics, "bucket": ranges[0].bucket, "partition": [number for _, number in partitions]}
        offsets = {"offset": [planned.start for planned in ranges], "until": [planned.end for planned in ranges]}
        with bind_fields(output=self._plan.name, **place, **offsets, **batch_of_task()):
            report = self._run(ranges, store)
        yield report.to_json()

    def _run(self, ranges: list[QueryRange], store: StateStore[Bucket]) -> BucketReport:
        plan, number = self._plan, ranges[0].bucket
        bucket = store.load(number, lambda: new_bucket(plan, number), lambda head, chunks: restore_bucket(plan, number, head, chunks))
        try:
            report = BucketRun(self._plan, bucket, number, WORKER.producer(self._plan.kafka)).run(ranges)
        except BaseException:
            # What the producer still holds and where readers stand is unknown: none may be used again.
            WORKER.drop_producer(plan.kafka)
            WORKER.drop_dead_letters(plan.kafka, plan.dead_letter_topic, plan.letter_bytes_max)
            JobMemory.of(plan).shared_reads.forget()
            for planned in ranges:
                framed = plan.feed_of(planned.log).payloads.headers
                WORKER.drop_reader(plan.kafka, *plan.partitions[planned.log], headers=True, framed=framed)
            raise
        store.save(number, bucket, bucket.save())
        return report

    def complete(self) -> None:
        """Do nothing: each bucket has waited for its own results."""


def restore_bucket(plan: QueryPlan, number: int, head: bytes, chunks: dict[int, bytes]) -> Bucket:
    """Return the bucket that was saved as *head* and *chunks*."""
    bucket = new_bucket(plan, number)
    bucket.restore(head, chunks)
    return bucket


class BucketRun:
    """One batch of one bucket, from Kafka to Kafka and files."""

    def __init__(self, plan: QueryPlan, bucket: Bucket, number: int, producer: GaplessProducer) -> None:
        self._plan, self._bucket, self._number, self._producer = plan, bucket, number, producer
        self._writers = [ChannelWriter(producer, output.topic) if output.topic else None for output in plan.outputs]
        self._letters = WORKER.dead_letters(plan.kafka, plan.dead_letter_topic, plan.letter_bytes_max)
        self._memory = JobMemory.of(plan)
        self._first_records, self._nulls = self._memory.first_records(plan, number), self._memory.null_counts(plan, number)
        self._seconds: dict[str, float] = dict.fromkeys(("read", "compute", "write", "acknowledge"), 0.0)
        self._clock = time.perf_counter()
        # By output: results written and not acknowledged yet, by the arrival frontier that each follows from; and the delays of the others.
        self._unacknowledged = [Counter[int]() for _ in plan.outputs]
        self._delays = [Counter[int]() for _ in plan.outputs]
        # What this batch has read.
        self._events = self._bytes = 0

    def run(self, ranges: list[QueryRange]) -> BucketReport:
        if ranges[0].references:
            self._bucket.update_references(self._memory.references(self._plan, ranges[0].references))
        unsettled_bytes = unfinished_bytes = 0
        for piece_bytes in self._accept_pieces(ranges):
            self._bytes += piece_bytes
            unsettled_bytes += piece_bytes
            unfinished_bytes += piece_bytes
            if unfinished_bytes >= self._plan.bytes_per_task:
                # Records were larger than planned for: final results are written before more is read, so memory stays bounded.
                self._finish(self._bucket.settle())
                unsettled_bytes = unfinished_bytes = 0
            elif unsettled_bytes >= _UNSETTLED_BYTES:
                self._write_settled(self._bucket.settle())
                unsettled_bytes = 0
        self._finish(self._bucket.settle(), is_end=ranges[0].is_final)
        for writer, cti in zip(self._writers, self._bucket.next_ctis(), strict=True):
            if cti is not None and writer is not None:
                writer.write_ctis([replace(cti, facts=(Fact(SPLIT, 0, self._plan.split),))])
        pause_at("ctis sent")
        self._flush()
        pause_at("walked")
        self._spend("acknowledge")
        return self._report()

    def _finish(self, released: list[Released], *, is_end: bool = False) -> None:
        """Write final results, wait until they are acknowledged, and publish their files."""
        self._write_settled(released)
        if is_end:
            self._write_settled(self._bucket.end())
        self._flush()
        self._count_delays()
        self._letters.flush()
        pause_at("events acknowledged")
        # Files come before CTIs: a run that has lost its checkpoint resumes at a CTI and takes everything before it as written.
        self._publish()

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

    def _accept_pieces(self, ranges: list[QueryRange]) -> Iterator[int]:
        """Accept the ranges piece by piece; yield the bytes of each."""
        unread = {planned.log: self._pieces(planned.log, planned.start, planned.end) for planned in ranges if planned.end > planned.start}
        for log, piece in read_in_time_order(unread):
            feed = self._plan.feed_of(log)
            self._first_records.look_at(feed.input, piece.events["value"], feed.payloads)
            self._nulls.look_at(feed.input, piece.events["value"], feed.payloads)
            for released in self._bucket.accept_in_parts(log, piece):
                self._write(released)
            self._spend("compute")
            pause_at("piece written")
            self._events += piece.events.num_rows
            yield piece.nbytes

    def _pieces(self, log: int, start: int, end: int) -> Iterator[DecodedRange]:
        plan = self._plan
        read = partial(self._read_pieces, log, start, end)
        if plan.exchange is None:
            return read()
        siblings = same_task(self._number, plan.buckets, plan.shuffle_partitions)
        return self._memory.shared_reads.share(log, start, end, self._number, siblings, _SHARED_BATCHES * plan.bytes_per_task, read)

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
            if writer is not None:
                writer.write_events(results)
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
                    sink.publish(sheet.start_us, self._number, sheet.rows)

    def _spend(self, on: str) -> None:
        now_s = time.perf_counter()
        self._seconds[on] += now_s - self._clock
        self._clock = now_s

    def _report(self) -> BucketReport:
        bucket = self._bucket
        return BucketReport(
            bucket=self._number,
            read=self._events,
            bytes=self._bytes,
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
        )
