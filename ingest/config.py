"""
What one ingest job is set to do, settled before it starts: everything planner and workers need, and nothing that
changes while it runs. It travels pickled inside the job, never through Spark's options, which show up in plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.imports import ImportedInput
from ingest.offsets import Planned
from ordering.journal import JournalKey
from ordering.punctuation import Cti, Roster, Spread
from ordering.state import State
from ordering.step import Model
from ordering.ticks import NEVER
from tidegate.runtime.setting_inputs import InputSettings
from tidegate.runtime.setting_tables import RedisSettings

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """
    One ingest job.

    Args:
        settings: The input's settings.
        kafka: librdkafka properties, secrets included (so they are kept out of the repr).
        redis: Where the journal is.
        partitions: Input partitions in roster order: their place is their roster number.
        topic_ids: Topic id of each topic, part of the journal's keys.
        labels: Spark key of each roster number.
        starts: Where each partition is read from, and the estimate and import in force there.
        output_partitions: N of the ordered topic.
        estimates: Whether silence advances time.
        until_end: Whether the job reads to the present end, writes the final CTI and stops.
        checkpoint: Name under which workers keep this job's state in memory.
        imported: The input whose CTIs count here too.
        promises: What the channels of each roster number, by output partition, promised in an earlier life of the ordered
            topic whose checkpoint is lost; none in a topic that this job began.
        start_us: Output start time of the ordered topic: events below are left out; by default nothing is.
    """

    settings: InputSettings
    kafka: Mapping[str, str] = field(repr=False)
    redis: RedisSettings
    partitions: tuple[Partition, ...]
    topic_ids: Mapping[str, str]
    labels: tuple[int, ...]
    starts: Mapping[Partition, Planned]
    output_partitions: int
    estimates: bool
    until_end: bool
    checkpoint: str
    imported: ImportedInput | None = None
    promises: Mapping[int, Mapping[int, Cti]] = field(default_factory=dict)
    start_us: int = NEVER

    @property
    def roster(self) -> Roster:
        """Who writes into the ordered topic."""
        over = self.settings.over is not None
        return Roster(1, len(self.partitions), Spread.ALL if over else Spread.ONE, over)

    def outputs_of(self, number: int) -> range:
        """Return the output partitions into which the input partition with roster number *number* writes."""
        first = number % self.output_partitions
        return range(self.output_partitions) if self.settings.over is not None else range(first, first + 1)

    def journal_key(self, partition: Partition) -> JournalKey:
        """Return the key of what is journaled of an input partition: shared by all jobs that read it."""
        topic, number = partition
        return JournalKey(topic, self.topic_ids[topic], number)

    def import_key(self, partition: Partition) -> JournalKey:
        """Return the key of what is imported into an input partition: shared by all jobs that import from the same input."""
        assert self.imported is not None, "only asked for where CTIs are imported"
        topic, number = partition
        return JournalKey(f"{topic}<{self.imported.topic}", self.topic_ids[topic], number)

    def model(self, number: int) -> Model:
        """Return the time model of the input partition with roster number *number*."""
        settings = self.settings
        return Model(
            settings.policies(),
            settings.over is not None,
            self.output_partitions,
            number,
            self.roster,
            shape=settings.event_shape,
            generation=settings.generation(),
        )

    def first_state(self, model: Model) -> State:
        """Return the state in which the input partition of *model* is walked from its start."""
        number = model.number
        if number not in self.promises and self.start_us == NEVER:
            return model.new_state()
        next_offset = self.starts[self.partitions[number]].next_offset
        return model.resume(self.promises.get(number, {}), next_offset, self.start_us)
