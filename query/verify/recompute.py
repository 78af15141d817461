"""
Computes the results of a query again: the job's own buckets read the ordered topics in one process, without Spark.

Law: the results of a bucket, their order and their numbers are those that the job writes, wherever job and recomputation cut their
batches. Memory holds the buckets' state and the pieces since the last settlement, as in a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ordering.model.step import Released
from query.buckets.bucket import Bucket
from query.buckets.make import new_bucket, read_in_time_order
from query.buckets.result_channel import Sheet
from query.columns.decoded_range import DecodedRange
from query.start.recount import Recount
from tidegate.ordered_topic.decode import decode
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Records

# Called with a partition and the next records of it.
OnRead = Callable[[int, Records], None]
_PIECE_EVENTS = 100_000
# Events between two settlements, and settlements between two saves. Nobody reads the saved state, but saving drops rows that are no longer
# needed.
_SETTLE_EVENTS = 200_000
_SETTLEMENTS_PER_SAVE = 16


@dataclass(frozen=True, slots=True)
class Computed:
    """Results of one output that a bucket has computed: the next ones of its channel, and the sheets that are full."""

    bucket: int
    output: int
    results: Released | None = None
    sheets: Sequence[Sheet] = ()


class Recomputation:
    """
    One run of a recount. ``records_read`` counts the records read so far, ``left_out`` the rows that became dead letters. The records of a
    topic go to its entry of *readers* too, as they are read.
    """

    def __init__(self, recount: Recount, readers: Mapping[str, OnRead]) -> None:
        self._recount, self._plan, self._readers = recount, recount.plan, readers
        self.records_read = self.left_out = 0
        self._until_us: int | None = None

    def run(self, until_us: int | None) -> Iterator[Computed]:
        """Yield at least the results before *until_us*, microseconds (None: all), those of each bucket in the order of its channel."""
        plan, self._until_us = self._plan, until_us
        # The buckets of an exchange all read every partition, so one walk serves them all; otherwise each bucket has logs of its own.
        groups = [range(plan.buckets)] if plan.exchange is not None else [[bucket] for bucket in range(plan.buckets)]
        for numbers in groups:
            yield from self._run_buckets({number: new_bucket(plan, number) for number in numbers})

    def _run_buckets(self, buckets: dict[int, Bucket]) -> Iterator[Computed]:
        logs = self._plan.logs_of(next(iter(buckets)))
        for bucket in buckets.values():
            if self._recount.references is not None:
                bucket.update_references(self._recount.references)
        unsettled = settlements = 0
        for log, piece in read_in_time_order({log: self._pieces(log, buckets) for log in logs}):
            for number, bucket in buckets.items():
                for released in bucket.accept_in_parts(log, piece):
                    yield from _results(number, released)
            unsettled += len(piece.log)
            if unsettled >= _SETTLE_EVENTS:
                unsettled, settlements = 0, settlements + 1
                yield from self._settle(buckets, saves=settlements % _SETTLEMENTS_PER_SAVE == 0)
                if all(bucket.is_finished or self._has_passed(bucket) for bucket in buckets.values()):
                    return
        yield from self._settle(buckets, ends=self._recount.has_ended)

    def _has_passed(self, bucket: Bucket) -> bool:
        outputs = range(len(self._plan.outputs))
        return self._until_us is not None and min(map(bucket.output_frontier_us, outputs)) >= self._until_us

    def _pieces(self, log: int, buckets: dict[int, Bucket]) -> Iterator[DecodedRange]:
        topic, number = self._plan.partitions[log]
        start, end = self._plan.starts[topic, number], self._recount.ends[topic, number]
        router = next(iter(buckets.values()))
        framed = self._plan.feed_of(log).payloads.headers
        with RangeReader(self._plan.kafka, topic, number, headers=True, framed=framed) as reader:
            for records in reader.read(start, end, _PIECE_EVENTS):
                self.records_read += len(records)
                if topic in self._readers:
                    self._readers[topic](number, records)
                yield router.route(log, DecodedRange.of(decode(records, topic, number)))

    def _settle(self, buckets: dict[int, Bucket], *, saves: bool = False, ends: bool = False) -> Iterator[Computed]:
        for number, bucket in buckets.items():
            yield from _all_results(number, bucket, bucket.settle())
            if ends:
                yield from _all_results(number, bucket, bucket.end())
            for output, settings in enumerate(self._plan.outputs):
                sheets = bucket.pop_sheets(output) if settings.writes_sheets else []
                if sheets:
                    yield Computed(number, output, sheets=sheets)
            # Nobody needs the CTIs here, but the bucket keeps what they promise until they are taken.
            bucket.next_ctis()
            self.left_out += len(bucket.pop_bad_rows())
            if saves:
                bucket.save()


def _results(number: int, released: Sequence[Released]) -> Iterator[Computed]:
    for output, results in enumerate(released):
        if len(results):
            yield Computed(number, output, results)


def _all_results(number: int, bucket: Bucket, first: Sequence[Released]) -> Iterator[Computed]:
    """Yield the results of a bucket's first settlement, and of further ones until it is settled."""
    yield from _results(number, first)
    while not bucket.is_settled:
        yield from _results(number, bucket.settle())
