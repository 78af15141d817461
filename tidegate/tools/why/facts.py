"""
What is known of the stages before an output at one moment: states, promises, what waits to be read, and the policies in force.

Law: facts are what jobs have published and what brokers answer, unchanged; :mod:`tidegate.tools.why.holds` draws the conclusions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ordering.ticks import INFINITY, NEVER
from tidegate.platform.observe.reports import IngestReport, SubstreamReport

# A stage in one of these states works.
WORKING = ("starting", "replaying", "live")


@dataclass(frozen=True, slots=True)
class StageFacts:
    """
    A job: its *state* (those of ``tidegate status``), when it was last heard of, microseconds, what it waits for in words, and the command
    that *starts* it; empty if none is known.
    """

    name: str
    state: str
    heard_us: int | None = None
    waits_for: str = ""
    starts: str = ""

    @property
    def works(self) -> bool:
        return self.state in WORKING


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """An input partition."""

    place: str
    # Below this instant all its events are written.
    complete_us: int
    # The arrival frontier; NEVER before the first record.
    arrival_us: int
    # The largest system timestamp accepted.
    largest_us: int
    # Whether the arrival frontier is an estimate, made since nothing comes.
    is_estimated: bool
    # How many of its records wait to be read.
    lag: int
    held: int = 0
    # The substream that is asked for; None: none is, or it holds nothing here.
    substream: SubstreamReport | None = None
    # The last report of its stage; None: there is none.
    report: IngestReport | None = None

    @classmethod
    def of(cls, report: IngestReport, end: int, key: str | None = None) -> PartitionFacts:
        """Return the facts in a partition's report; *end* is the end of its raw partition, *key* the substream that is asked for."""
        found = None if report.held_events is None else next((each for each in report.held_events.top if each.key == key), None)
        return cls(
            place=f"{report.topic}-{report.partition}",
            complete_us=report.complete_us,
            arrival_us=report.arrival_us,
            largest_us=report.watermark.largest_us,
            is_estimated=report.watermark.cause == "estimate",
            lag=max(end - report.next_offset, 0),
            held=report.held,
            substream=found if key is not None else None,
            report=report,
        )


@dataclass(frozen=True, slots=True)
class InputFacts:
    """An input: its ingest job, its partitions, and the policies that hold its watermark back."""

    name: str
    stage: StageFacts
    partitions: Sequence[PartitionFacts]
    late_us: int | None
    reorder_us: int
    has_substreams: bool
    # Why silence moves no watermark; empty if it does.
    stands_still: str = ""

    @property
    def complete_us(self) -> int:
        return min((each.complete_us for each in self.partitions), default=NEVER)


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """An output: its query, and what the query reads: inputs, and outputs of other queries."""

    name: str
    stage: StageFacts
    # Results below this instant are published.
    complete_us: int
    # How many records of its input topics the query has not read.
    lag: int
    sources: Sequence[InputFacts | OutputFacts] = field(default_factory=tuple)
    # The time of the next results, microseconds.
    due_us: int = NEVER
    key: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.complete_us == INFINITY
