"""
The plan of a query job, settled before the job starts. It is pickled into the job, never passed in Spark's options: those appear in query
plans, and the plan holds secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ordering.protocol.punctuation import Roster, Spread
from query.plan.nodes import UNBOUNDED, Plan
from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX
from tidegate.language.expressions.tree import Expr
from tidegate.records.payloads.formats import JSON, PayloadFormat

if TYPE_CHECKING:  # `tidegate local` runs without settings, `tidegate plan` without operators
    from query.engine.exchange import Exchange
    from query.engine.program import Program
    from query.javascript.functions import ScriptFunction
    from query.reference.tables import ReferenceTable
    from tidegate.platform.settings.tables.outputs import OutputSettings
    from tidegate.platform.settings.tables.references import ReferenceSettings

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Feed:
    """One ordered topic that a query reads."""

    # The name the script gives it.
    input: str
    topic: str
    partitions: int
    payloads: PayloadFormat = JSON
    # Whether it holds the results of another query.
    is_result: bool = False


class Substream(NamedTuple):
    """The substream of a result; number 0 if the input partitions of a key are one substream."""

    number: int
    key: bytes

    @property
    def text(self) -> str:
        """It as the name of a JSON member."""
        return f"{self.number}:{self.key.hex()}"

    @classmethod
    def of_text(cls, text: str) -> Substream:
        """Read such a name; earlier ones have no number."""
        number, _, key = text.rpartition(":")
        return cls(int(number or 0), bytes.fromhex(key))


@dataclass(frozen=True, slots=True)
class Promise:
    """What the last CTI of a result channel says."""

    # No later result lies below it, microseconds.
    c: int
    # How many results there were.
    n: int
    # How many of them do not lie below that instant.
    ahead: int
    # The largest System.Timestamp of them, microseconds.
    largest_us: int
    # By substream, the System.Timestamps of its results ahead (:mod:`query.start.resumed_results`); None if some of them are deleted.
    by_substream: Mapping[Substream, Sequence[int]] | None = None

    def save(self) -> list[Any]:
        ahead = [] if self.by_substream is None else [{name.text: [*times] for name, times in self.by_substream.items()}]
        return [self.c, self.n, self.ahead, self.largest_us, *ahead]

    @classmethod
    def restore(cls, saved: Sequence[Any]) -> Promise:
        return cls(*saved[:4], *({Substream.of_text(name): times for name, times in ahead.items()} for ahead in saved[4:]))


class LogStart(NamedTuple):
    """Where a log is read from so that its records count as in a run from the beginning (:mod:`query.start.settling`)."""

    # The instant at which the reader starts in the middle, microseconds; None: the normal rule, from the first record ever.
    read_from_us: int | None
    # The first offset.
    offset: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One query job. Its *logs* are the ordered partitions of all feeds, numbered in the order of the script, then of the partition."""

    plans: tuple[Plan, ...]
    outputs: tuple[OutputSettings, ...]
    # Librdkafka properties, secrets included (so they are kept out of the repr).
    kafka: Mapping[str, str] = field(repr=False)
    # The ordered topics that are read, in the order in which the script names their inputs.
    feeds: tuple[Feed, ...]
    # Whether time advances substream by substream; each ordered partition is then a bucket of its own.
    over: bool
    # Without OVER: whether each ordered partition is a bucket (:mod:`query.plan.parallelism`); else one bucket merges them all by their
    # CTIs, unless there is an exchange.
    by_partition: bool
    # Spark's key of each bucket's task, chosen so that tasks are spread evenly.
    labels: tuple[int, ...]
    # First offset to read of each partition.
    starts: Mapping[Partition, int]
    # The output start: results from this instant on, microseconds; None: all of them.
    start_us: int | None
    # For each output, by bucket: the last promise of its channel, if the job resumes without its checkpoint.
    promises: tuple[Mapping[int, Promise], ...]
    # The output end: results below this instant, microseconds, and then the job stops; ``INFINITY``: all of them.
    until_us: int
    # Whether the job reads to the present end, closes everything and stops.
    until_end: bool
    # Most events one batch reads.
    events_per_batch: int
    # About the most bytes of keys and payloads that one batch reads.
    bytes_per_batch: int
    # Most pairs of one key that a join makes at one instant.
    join_pairs_max: int
    # How many tasks Spark makes of a batch: the buckets are spread over them.
    shuffle_partitions: int
    # Name under which workers keep this job's state in memory.
    checkpoint: str
    # For each output the largest result: key and value together; larger ones are dead letters. None: an output to files alone.
    result_bytes_max: tuple[int | None, ...] = ()
    # Size that dead letters are cut to.
    letter_bytes_max: int = LETTER_BYTES_MAX
    # The exchange of rows between buckets by key: each bucket then reads all partitions. None: no exchange.
    exchange: Exchange | None = None
    # With OVER, if results begin at an instant: where each log is read from.
    log_starts: Mapping[int, LogStart] = field(default_factory=dict)
    # The digest of how work is split between the buckets (:func:`query.start.bucket_layout.split_text`); each CTI carries it.
    split: int = 0
    # The tables of reference data that are looked up, by name, with the versions that the run was begun with.
    references: Mapping[str, ReferenceTable] = field(default_factory=dict, repr=False)
    # Where the files of these tables are.
    reference_settings: Mapping[str, ReferenceSettings] = field(default_factory=dict)

    # The functions in JavaScript that the plans call.
    functions: tuple[ScriptFunction, ...] = ()
    # How long a batch stays open that has read what there is, microseconds; 0: each ends where its ranges do.
    batch_span_us: int = 0

    @property
    def name(self) -> str:
        return self.outputs[0].name

    @property
    def tasks(self) -> int:
        """How many tasks have a bucket."""
        return min(self.buckets, self.shuffle_partitions)

    @property
    def bytes_per_task(self) -> int:
        """A task's share of the bytes of one batch: tasks run at the same time, and none knows how much the others have read."""
        return max(self.bytes_per_batch // self.tasks, 1)

    @property
    def logs(self) -> tuple[tuple[int, int], ...]:
        return tuple((number, partition) for number, feed in enumerate(self.feeds) for partition in range(feed.partitions))

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple((self.feeds[number].topic, partition) for number, partition in self.logs)

    @property
    def buckets(self) -> int:
        """Number of buckets, which is also that of the result topics' partitions."""
        if self.exchange is not None:
            return self.exchange.buckets
        return self.feeds[0].partitions if self.over or self.by_partition else 1

    def feed_of(self, log: int) -> Feed:
        return self.feeds[self.logs[log][0]]

    def readers_of(self, log: int) -> Sequence[int]:
        """Return the buckets that read a log."""
        if self.exchange is not None:
            return range(self.buckets)
        return (self.logs[log][1],) if self.over or self.by_partition else (0,)

    def logs_of(self, bucket: int) -> tuple[int, ...]:
        """Return the logs that a bucket reads."""
        return tuple(log for log in range(len(self.logs)) if bucket in self.readers_of(log))

    @property
    def result_keys(self) -> tuple[Expr | None, ...]:
        """For each feed of results of another query, the substream key by which it is read; else None."""
        overs = {scan.input: scan.over for plan in self.plans for scan in plan.scans}
        return tuple(overs[feed.input] if feed.is_result else None for feed in self.feeds)

    @property
    def roster(self) -> Roster:
        return Roster(1, self.buckets, Spread.ONE, self.over)

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, microseconds."""
        return max(plan.lookback_us for plan in self.plans)

    @property
    def read_from_us(self) -> int | None:
        """X: events from this instant on are needed for the first result of any bucket; None: all events."""
        firsts = [self.first_us(bucket) for bucket in range(self.buckets)]
        first_us = min((first_us for first_us in firsts if first_us is not None), default=None)
        return None if None in firsts or first_us is None or self.lookback_us == UNBOUNDED else first_us - self.lookback_us

    def first_us(self, bucket: int) -> int | None:
        """Return the instant of a bucket's first result, microseconds; None: all of them."""
        promised = [promises.get(bucket) for promises in self.promises]
        firsts = [_first_needed_us(output, promise, self.start_us) for output, promise in zip(self.outputs, promised, strict=True)]
        return None if None in firsts else min(first for first in firsts if first is not None)

    @property
    def dead_letter_topic(self) -> str:
        return self.outputs[0].dead_letter_topic

    def program(self) -> Program:
        payloads = {feed.input: feed.payloads for feed in self.feeds}
        from query.engine.program import Program

        return Program(self.plans, payloads, references=self.references, join_pairs_max=self.join_pairs_max)


def _first_needed_us(output: OutputSettings, promise: Promise | None, start_us: int | None) -> int | None:
    if promise is None:
        return start_us
    resumed_us = promise.c // output.file_span_us * output.file_span_us if output.writes_sheets else promise.c
    return resumed_us if start_us is None else max(resumed_us, start_us)
