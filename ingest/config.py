"""
The plan of an ingest job: everything planner and workers need, settled before the job starts.

It travels pickled inside the job, never through Spark's options: those show up in query plans, and the plan holds secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.cti_imports import ImportedInput
from ingest.offsets import Join, PlannedPosition
from ordering.model.state import State
from ordering.model.step import Model
from ordering.protocol.journal import JournalKey
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.ticks import NEVER
from tidegate.kafka.ranges import PREFETCH_BYTES_ALL
from tidegate.payloads.formats import PayloadFormat
from tidegate.settings.tables.inputs import InputSettings
from tidegate.settings.tables.redis import RedisSettings

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """One ingest job."""

    settings: InputSettings
    # Librdkafka properties, secrets included (so they are kept out of the repr).
    kafka: Mapping[str, str] = field(repr=False)
    redis: RedisSettings
    # Input partitions in roster order: their place is their roster number.
    partitions: tuple[Partition, ...]
    topic_ids: Mapping[str, str]
    tasks: int
    # Where each partition is read from, and the estimate and import in force there.
    starts: Mapping[Partition, PlannedPosition]
    output_partitions: int
    # Topics in which silence advances time.
    estimates: frozenset[str]
    # Whether the job reads to the present end, writes the final CTI and stops.
    until_end: bool
    # Name under which workers keep this job's state in memory.
    checkpoint: str
    # The input whose CTIs count here too.
    imported: ImportedInput | None = None
    # What the channels of each roster number, by output partition, promised in an earlier life of the ordered topic whose checkpoint is
    # lost; none in a topic that this job began.
    promises: Mapping[int, Mapping[int, Cti]] = field(default_factory=dict)
    # Output start time of the ordered topic: events below are left out; by default nothing is.
    start_us: int = NEVER
    ordered_topic_id: str = ""
    # Which of the partitions joined after the ordered topic was begun, and when.
    joins: Mapping[Partition, Join] = field(default_factory=dict)
    # Topics that never belong to the input, though they match its pattern: those that Tidegate writes.
    excluded: frozenset[str] = frozenset()
    payloads: PayloadFormat = field(default_factory=PayloadFormat)
    # Key and value of an event may have so many bytes together; larger ones are dead letters.
    record_bytes_max: int = 1_048_588

    @property
    def roster(self) -> Roster:
        """Who writes into the ordered topic when the job starts."""
        return self.roster_of(len(self.partitions), len(self.joins))

    @property
    def prefetch_bytes(self) -> int:
        """How much is fetched ahead of the reader of each partition: less if there are many partitions, for the worker's memory."""
        share_bytes = PREFETCH_BYTES_ALL * self.tasks // len(self.partitions)
        return min(self.settings.prefetch_bytes, max(share_bytes, 2**20))

    def roster_of(self, inputs: int, joins: int) -> Roster:
        """Return the roster of *inputs* input partitions, of which so many (*joins*) have joined since the ordered topic was begun."""
        over = self.settings.over is not None
        return Roster(1 + joins, inputs, Spread.ALL if over else Spread.ONE, over)

    def outputs_of(self, number: int) -> range:
        """Return the output partitions into which the input partition with roster number *number* writes."""
        first = number % self.output_partitions
        return range(self.output_partitions) if self.settings.over is not None else range(first, first + 1)

    def journal_key(self, partition: Partition, topic_id: str | None = None) -> JournalKey:
        """
        Return the journal's key of a partition, shared by all jobs that read it with the same arrival times.

        *topic_id* is needed for a topic that the job did not begin with.
        """
        topic, number = partition
        job = topic if self.settings.arrival == "broker" else f"{topic}@{self.settings.arrival}"
        return JournalKey(job, topic_id or self.topic_ids[topic], number)

    def import_key(self, partition: Partition, topic_id: str | None = None) -> JournalKey:
        """Return the key of the imports of a partition, shared by all jobs that import from the same input."""
        assert self.imported is not None, "only asked for where CTIs are imported"
        topic, number = partition
        return JournalKey(f"{topic}<{self.imported.topic}", topic_id or self.topic_ids[topic], number)

    def join_key(self, partition: Partition, topic_id: str) -> JournalKey:
        """Return the key of when a partition joined this ordered topic."""
        topic, number = partition
        return JournalKey(f"{topic}>{self.settings.ordered_topic}", topic_id, number)

    def model(self, number: int, roster: Roster | None = None, joined_us: int | None = None) -> Model:
        """Return the time model of the partition with roster number *number*; the other arguments are by default as when the job starts."""
        settings = self.settings
        if joined_us is None:
            joined = self.joins.get(self.partitions[number])
            joined_us = NEVER if joined is None else joined.joined_us
        return Model(
            settings.policies(),
            settings.over is not None,
            self.output_partitions,
            number,
            roster or self.roster,
            shape=settings.event_shape,
            generation=settings.generation(),
            joined_us=joined_us,
        )

    def first_state(self, model: Model) -> State:
        """Return the state before the first record of the partition of *model*."""
        number = model.number
        # Nothing of one that joins lies below the start of the run.
        if number not in self.promises and (self.start_us == NEVER or model.joined_us > NEVER):
            return model.new_state()
        next_offset = self.starts[self.partitions[number]].next_offset
        return model.resume(self.promises.get(number, {}), next_offset, self.start_us)
