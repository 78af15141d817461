"""
What is known of a query before it runs: what it will keep, what retention may delete of it, and, with an output start, what it will read
and how long that takes.
Law: nothing is created, bound or written. The forecast is what a job started now would do; what would refuse that job is refused here too.
Sizes and durations are estimates and name their basis.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordering.errors import TidegateError
from ordering.ticks import MILLISECOND_US, format_duration, format_tick
from query import extensions, job
from query.absent_columns import absent_in_topics
from query.columns.events import events_table, for_operators
from query.config import Feed, Partition, QueryPlan
from query.plan.nodes import UNBOUNDED, Plan
from query.preview.glance import GLANCE_S, retention_warnings
from query.script_plans import read_plans
from query.start.apply import locate
from query.start.decide import decide, plan_layout
from query.start.survey import TopicSurvey, survey_run, survey_topics
from tidegate.ordered_topic.decode import decode
from tidegate.platform.checkpoint.binding import read_binding, with_bound_tasks
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.kafka.admin import MAX_TIMESTAMP, Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.observe.progress_store import ProgressStore
from tidegate.platform.observe.recovery_report import Recovery, ReplayReport, duration_in_words
from tidegate.platform.settings.load import Settings

SAMPLE_RECORDS = 1_000
# How fast a job catches up if no run of it was measured: 100,000 records a second, after ten seconds to start.
ASSUMED_REPLAY = ReplayReport(100_000, 1.0, 10.0)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What a query keeps of one input, at most: everything that its look-back reaches."""

    input: str
    # How far it looks back, microseconds; ``UNBOUNDED``: to the beginning.
    lookback_us: int
    # How many records the look-back before the newest one holds.
    rows: int
    # Bytes kept of a record, measured on the newest ones; None if there is none.
    row_bytes: float | None

    @property
    def bytes(self) -> int:
        return round(self.rows * (self.row_bytes or 0))

    def as_dict(self) -> dict[str, Any]:
        return {"input": self.input, "rows": self.rows, "bytes": self.bytes, "is_estimate": True}

    def in_words(self) -> str:
        if not self.lookback_us:
            return f"none of {self.input}: nothing is looked back on"
        span = "all events" if self.lookback_us == UNBOUNDED else f"the events of {format_duration(self.lookback_us)}"
        each = "" if self.row_bytes is None else f", {self.row_bytes:,.0f} B each"
        return f"at most {self.rows:,} rows, {_format_size(self.bytes)} of {self.input}: {span}{each} (an estimate from the newest records)"


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What a start will read."""

    # The start, in the words of ``--start``.
    start: str
    # Where it continues, and where the topics end.
    recovery: Recovery
    # Events from this instant on are needed, microseconds; None: all events, or those after the position of a checkpoint.
    read_from_us: int | None
    # The speed at which it catches up.
    replay: ReplayReport
    # Whether that speed was measured in an earlier run; else it is assumed.
    is_measured: bool

    @property
    def seconds(self) -> float:
        return self.replay.start_s + self.recovery.ahead / self.replay.rate

    def as_dict(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "how": self.recovery.kind.value,
            "goes_on_from": self.recovery.describe(),
            "read_from": None if self.read_from_us is None else format_tick(max(self.read_from_us, 0)),
            "partitions": [
                {"topic": topic, "partition": number, "from": start, "until": end, "records": max(end - start, 0)}
                for topic, number, start, end in self._spans()
            ],
            "records": self.recovery.ahead,
            "rate": round(self.replay.rate),
            "start_s": round(self.replay.start_s, 1),
            "rate_is_measured": self.is_measured,
            "catches_up_in_s": round(self.seconds, 1),
        }

    def lines(self) -> list[str]:
        since = "" if self.read_from_us is None else f", events from {format_tick(max(self.read_from_us, 0))} on"
        rests = "measured when a run of it last caught up" if self.is_measured else "assumed: no run of it has been measured"
        spans = [
            f"  {topic}-{number} from offset {start:,} to {end:,}: {max(end - start, 0):,} records"
            for topic, number, start, end in self._spans()
        ]
        return [
            f"reads, with --start {self.start}: {self.recovery.describe()}{since}",
            *spans,
            f"catches up in about {duration_in_words(self.seconds)}: {self.recovery.ahead:,} records at {self.replay.rate:,.0f}/s after "
            f"{duration_in_words(self.replay.start_s)} to start ({rests})",
        ]

    def _spans(self) -> list[tuple[str, int, int, int]]:
        starts = self.recovery.starts
        return [(topic, number, starts[topic, number], end) for (topic, number), end in sorted(self.recovery.ends.items())]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known of a query before it runs."""

    # Into how many buckets the work is split.
    buckets: int
    kept: tuple[KeptRows, ...]
    # Where retention may delete records that a start needs.
    warnings: tuple[str, ...]
    # What a start will read; None where none was asked for.
    reading: PlannedRead | None
    # (warning, fix) for each column without a value in the newest records.
    absent: tuple[tuple[str, str], ...] = ()


def forecast(settings: Settings, plans: tuple[Plan, ...], admin: Admin, start: Start | None) -> Forecast:
    """Ask the brokers about *plans* and an output *start*, if given; RefusedError if a job started like this would be refused."""
    extensions.load()
    topics = survey_topics(settings, plans, admin)
    settings = with_bound_tasks(settings, read_binding(topics.folder))
    layout = plan_layout(settings, plans, topics)
    kept = tuple(_estimate_kept(admin, layout, feed) for feed in layout.feeds)
    reading = None if start is None else _plan_read(settings, layout, topics, admin, start)
    return Forecast(
        layout.buckets,
        kept,
        tuple(retention_warnings(plans, _retentions_us(topics.ordered))),
        reading,
        tuple(absent_in_topics(layout, admin)),
    )


def newest_absent_columns(settings: Settings, script: Path, into: str | None = None) -> list[tuple[str, str]]:
    """
    Return (warning, fix) for each column of a script without a value in the newest records of the topics that it reads.

    TidegateError: the brokers do not answer soon, or a topic is missing.
    """
    plans = read_plans(settings, script, into)
    admin = Admin(settings.kafka.client_properties(), GLANCE_S)
    admin.check_reachable()
    return absent_in_topics(plan_layout(settings, plans, survey_topics(settings, plans, admin)), admin)


def _retentions_us(ordered: Mapping[str, Topic]) -> dict[str, int]:
    kept_ms = {name: int(topic.config.get("retention.ms", "-1")) for name, topic in ordered.items()}
    return {name: kept * MILLISECOND_US for name, kept in kept_ms.items() if kept >= 0}


def _plan_read(settings: Settings, layout: QueryPlan, topics: TopicSurvey, admin: Admin, start: Start) -> PlannedRead:
    decision = decide(layout, topics, survey_run(settings, layout, topics, admin, start), start)
    planned = locate(decision, admin)
    recovery = job.recovery(planned)
    replay = _measured_replay(settings, layout.outputs[0].topic or layout.name)
    read_from_us = planned.read_from_us if recovery.batch is None else None
    return PlannedRead(decision.start.text, recovery, read_from_us, replay or ASSUMED_REPLAY, replay is not None)


def _measured_replay(settings: Settings, published_as: str) -> ReplayReport | None:
    """Return how fast an earlier run caught up, by its report in Redis; None if it is not known."""
    # Redis is optional here: without it a rate is assumed.
    with suppress(TidegateError), ProgressStore(settings.redis) as store:
        stored = store.read(published_as)
        return None if stored is None else stored.replay
    return None


def _estimate_kept(admin: Admin, layout: QueryPlan, feed: Feed) -> KeptRows:
    lookback_us = max(plan.lookback_us for plan in layout.plans if feed.input in plan.inputs)
    if not lookback_us:
        return KeptRows(feed.input, 0, 0, None)
    partitions = [(feed.topic, number) for number in range(feed.partitions)]
    ends = admin.ends(partitions)
    newest_us = max(offset.timestamp for offset in admin.offsets(partitions, MAX_TIMESTAMP).values()) * MILLISECOND_US
    since_us = 0 if lookback_us == UNBOUNDED else max(newest_us - lookback_us, 0)
    starts = admin.offsets_from(partitions, since_us) if newest_us >= 0 else ends
    rows = {partition: end - starts[partition] for partition, end in ends.items()}
    fullest = max(partitions, key=lambda partition: rows[partition])
    return KeptRows(feed.input, lookback_us, sum(rows.values()), _measure_row_bytes(layout, feed, fullest, starts[fullest], ends[fullest]))


def _measure_row_bytes(layout: QueryPlan, feed: Feed, partition: Partition, start: int, end: int) -> float | None:
    """Return how many bytes operators keep of a record, measured on the newest ones; None if there is none."""
    start_offset, count, total_bytes, program = max(end - SAMPLE_RECORDS, start), 0, 0, layout.program()
    with RangeReader(layout.kafka, *partition, headers=True, framed=feed.payloads.headers) as reader:
        for records in reader.read(start_offset, end):
            count += len(records.offset)
            prepared, _ = program.prepare(feed.input, for_operators(events_table(decode(records, *partition).events)))
            total_bytes += sum(rows.nbytes for _, rows in prepared)
    return total_bytes / count if count else None


def _format_size(size_bytes: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000 or unit == "GB":
            break
        size_bytes = round(size_bytes / 1_000)
    return f"{size_bytes:,} {unit}"
