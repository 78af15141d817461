"""
What one query job is set to do, settled before it starts. It travels pickled inside the job, never through Spark's
options, which show up in plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ordering.punctuation import Roster, Spread
from query.plan import Plan
from query.program import Program
from tidegate.runtime.payloads.formats import JSON, PayloadFormat
from tidegate.runtime.setting_tables import OutputSettings

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """
    One query job.

    Args:
        plan: What is computed.
        output: Where results go.
        kafka: librdkafka properties, secrets included (so they are kept out of the repr).
        topic: The ordered topic that is read.
        partitions: How many partitions it has.
        over: Whether time advances substream by substream; each ordered partition is then a bucket of its own, else
            one bucket merges them all by their CTIs.
        labels: Spark key of each bucket.
        starts: First offset to read of each partition.
        start_us: S: results from this instant on, microseconds; None: all of them.
        until_end: Whether the job reads to the present end, closes everything and stops.
        events_per_batch: Most events one batch reads.
        checkpoint: Name under which workers keep this job's state in memory.
        payloads: How the payloads of the events are written.
    """

    plan: Plan
    output: OutputSettings
    kafka: Mapping[str, str] = field(repr=False)
    topic: str
    partitions: int
    over: bool
    labels: tuple[int, ...]
    starts: Mapping[Partition, int]
    start_us: int | None
    until_end: bool
    events_per_batch: int
    checkpoint: str
    payloads: PayloadFormat = JSON

    @property
    def buckets(self) -> int:
        """Number of buckets, which is the number of partitions of the result topic."""
        return self.partitions if self.over else 1

    def bucket_of(self, partition: int) -> int:
        """Return the bucket that reads an ordered partition."""
        return partition if self.over else 0

    def partitions_of(self, bucket: int) -> tuple[int, ...]:
        """Return the ordered partitions that a bucket reads."""
        return (bucket,) if self.over else tuple(range(self.partitions))

    @property
    def roster(self) -> Roster:
        """Who writes into the result topic: each bucket is an input of its own."""
        return Roster(1, self.buckets, Spread.ONE, self.over)

    @property
    def read_from_us(self) -> int | None:
        """X: events from this instant on are needed for results from S on."""
        return None if self.start_us is None else self.start_us - self.plan.lookback_us

    @property
    def dead_letter_topic(self) -> str:
        """Topic for rows that the query cannot evaluate."""
        return f"{self.output.topic or self.output.name}.dead"

    def program(self) -> Program:
        """Return the query ready to run."""
        return Program((self.plan,), {self.plan.input: self.payloads})
