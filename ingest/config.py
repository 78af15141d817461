"""
What one ingest job is set to do, settled before it starts: everything planner and workers need, and nothing that
changes while it runs. It travels pickled inside the job, never through Spark's options, which show up in plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ordering.punctuation import Roster, Spread
from ordering.step import Model
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
        starts: First offset to read of each partition.
        output_partitions: N of the ordered topic.
        estimates: Whether silence advances time.
        until_end: Whether the job reads to the present end, writes the final CTI and stops.
        checkpoint: Name under which workers keep this job's state in memory.
    """

    settings: InputSettings
    kafka: Mapping[str, str] = field(repr=False)
    redis: RedisSettings
    partitions: tuple[Partition, ...]
    topic_ids: Mapping[str, str]
    labels: tuple[int, ...]
    starts: Mapping[Partition, int]
    output_partitions: int
    estimates: bool
    until_end: bool
    checkpoint: str

    @property
    def roster(self) -> Roster:
        """Who writes into the ordered topic."""
        over = self.settings.over is not None
        return Roster(1, len(self.partitions), Spread.ALL if over else Spread.ONE, over)

    def model(self, number: int) -> Model:
        """Return the time model of the input partition with roster number *number*."""
        return Model(self.settings.policies(), self.settings.over is not None, self.output_partitions, number, self.roster)
