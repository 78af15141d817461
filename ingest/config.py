"""
The plan of an ingest job, made before the job starts. It is pickled into the job, never passed in Spark's options: options appear in query
plans, and the plan holds secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.cti_imports import ImportedInput
from ingest.offsets import PartitionJoin, Positions
from ingest.skips import Skip, Spans
from ordering.model.state import State
from ordering.model.step import Model
from ordering.protocol.journal import JournalKey
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.ticks import MINUTE_US, NEVER
from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX
from tidegate.platform.kafka.ranges import PREFETCH_BYTES_ALL
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.records.payloads.formats import PayloadFormat

Partition = tuple[str, int]

# A clock reading stays in force for this part of ``arrival_max_ahead``.
_CLOCK_SHARE = 10


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """The plan of one ingest job."""

    settings: InputSettings
    # Librdkafka properties, secrets included (so they are kept out of the repr).
    kafka: Mapping[str, str] = field(repr=False)
    redis: RedisSettings
    # Input partitions in roster order: their place is their roster number.
    partitions: tuple[Partition, ...]
    topic_ids: Mapping[str, str]
    tasks: int
    # Where each partition is read from, and the estimate and import in force there.
    starts: Positions
    output_partitions: int
    # Topics in which silence advances time.
    estimates: frozenset[str]
    # Whether the job reads to the present end, writes the final CTI and stops.
    until_end: bool
    # Name under which workers keep this job's state in memory.
    checkpoint: str
    # The input whose CTIs are imported.
    imported: ImportedInput | None = None
    # By roster number and output partition: the last CTI of each channel, if the job resumes without its checkpoint; else empty.
    promises: Mapping[int, Mapping[int, Cti]] = field(default_factory=dict)
    # Output start time of the ordered topic: events below it are left out.
    start_us: int = NEVER
    ordered_topic_id: str = ""
    # The ordered topic's fingerprint in the journal (:mod:`ingest.journal.topic_fingerprint`).
    fingerprint: str = ""
    # Which of the partitions joined after the ordered topic was begun, and when.
    joins: Mapping[Partition, PartitionJoin] = field(default_factory=dict)
    # Offsets that are not read, and places where they were read again after a skip was undone.
    skips: tuple[Skip, ...] = ()
    # By partition: the offsets [start, end) whose events are compared with those of earlier attempts. They begin at the first skip that is
    # not yet passed, and end where no attempt can have judged a record.
    compared: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    # Topics that Tidegate writes: they never belong to the input, even if its pattern matches them.
    excluded: frozenset[str] = frozenset()
    payloads: PayloadFormat = field(default_factory=PayloadFormat)
    # Largest size of an event's key and value together; larger records become dead letters.
    record_bytes_max: int = 1_048_588
    # A record stamped further ahead of its range's clock reading is a dead letter, microseconds.
    arrival_max_ahead_us: int = 2 * MINUTE_US
    # Most bytes of a substream's key; None: no limit.
    key_bytes_max: int | None = None
    # Whether batches stay open for ``batch_span``: the input can, and its tasks have a task slot each.
    stays_open: bool = False
    # Size that dead letters are cut to.
    letter_bytes_max: int = LETTER_BYTES_MAX
    # As above, in the topic of events that policies drop.
    dropped_bytes_max: int = LETTER_BYTES_MAX

    @property
    def clock_slack_us(self) -> int:
        """How old the clock reading in force may be, microseconds, so that most ranges need no new one; 0 if ingest stamps records."""
        return 0 if self.settings.arrival == "ingest" else self.arrival_max_ahead_us // _CLOCK_SHARE

    @property
    def roster(self) -> Roster:
        return self.roster_of(len(self.partitions), len(self.joins))

    @property
    def prefetch_bytes(self) -> int:
        """Bytes fetched ahead of each partition's reader: fewer if there are many partitions, to limit the worker's memory."""
        share_bytes = PREFETCH_BYTES_ALL * self.tasks // len(self.partitions)
        return min(self.settings.prefetch_bytes, max(share_bytes, 2**20))

    def roster_of(self, inputs: int, joins: int) -> Roster:
        """Return the roster of *inputs* input partitions, of which *joins* have joined since the ordered topic was begun."""
        over = self.settings.over is not None
        return Roster(1 + joins, inputs, Spread.ALL if over else Spread.ONE, over)

    def skipped_spans(self, partition: Partition) -> Spans:
        """Return the spans of a partition's offsets that are not read, sorted."""
        return tuple(sorted(skip.span for skip in self.skips if skip.input_partition == partition))

    @property
    def outputs(self) -> list[Partition]:
        """All partitions of the ordered topic."""
        return [(self.settings.ordered_topic, number) for number in range(self.output_partitions)]

    def outputs_of(self, number: int) -> range:
        """Return the output partitions that the input partition with roster number *number* writes to."""
        first = number % self.output_partitions
        return range(self.output_partitions) if self.settings.over is not None else range(first, first + 1)

    def journal_key(self, partition: Partition, topic_id: str | None = None) -> JournalKey:
        """Return a partition's journal key, shared by all jobs with the same arrival times; a topic that joined later needs *topic_id*."""
        topic, number = partition
        job = topic if self.settings.arrival == "broker" else f"{topic}@{self.settings.arrival}"
        return JournalKey(job, topic_id or self.topic_ids[topic], number)

    def import_key(self, partition: Partition, topic_id: str | None = None) -> JournalKey:
        """Return the journal key of a partition's imports, shared by all jobs that import from the same input."""
        assert self.imported is not None, "only asked for where CTIs are imported"
        topic, number = partition
        return JournalKey(f"{topic}<{self.imported.topic}", topic_id or self.topic_ids[topic], number)

    def own_key(self, partition: Partition, topic_id: str | None = None) -> JournalKey:
        """Return the journal key of a partition's facts that hold for this ordered topic only: when it joined, and skips."""
        return own_key(self.settings.ordered_topic, partition, topic_id or self.topic_ids[partition[0]])

    def model(self, number: int, roster: Roster | None = None, joined_us: int | None = None) -> Model:
        """Return the time model of the partition with roster number *number*; defaults: the roster and join time at the job's start."""
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
        number = model.number
        # A partition joins at or after the output start, and has no event below its join.
        if number not in self.promises and (self.start_us == NEVER or model.joined_us > NEVER):
            return model.new_state()
        next_offset = self.starts[self.partitions[number]].next_offset
        return model.resume(self.promises.get(number, {}), self.settings.places.place_of(next_offset), self.start_us)


def own_key(ordered_topic: str, partition: Partition, topic_id: str) -> JournalKey:
    """Return the journal key of a partition's facts that hold for one ordered topic only."""
    return JournalKey(f"{partition[0]}>{ordered_topic}", topic_id, partition[1])
