"""
Metrics of a job for Prometheus; docs/operate/metrics.md lists them.

Law: a counter counts from the beginning of the ordered topic and is kept with the state, so it only rises and survives a restart.
A gauge is computed when it is fetched: a delay grows while nothing happens. Every name begins with ``tidegate_``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from platform import python_version
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ordering.errors import SettingError
from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.basics.visible_text import visible
from tidegate.platform.metrics.event_fates import DEAD_LETTER
from tidegate.platform.metrics.health import STATES, Health
from tidegate.platform.metrics.null_shares import NullShare, sum_null_shares
from tidegate.platform.metrics.server import serve
from tidegate.platform.metrics.watermark_delay import Tolerances, delay_causes, query_delay_causes
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.platform.observe.result_delays import Delays, histogram

Partition = tuple[str, int]
# What a stage walks: an input partition, or a bucket.
Walker = TypeVar("Walker")

_LABELS = ("input", "topic", "partition")


def _actions(policy: str) -> dict[str, str]:
    return {f"{policy}_adjusted": "adjusted", f"{policy}_dropped": "dropped"}


_COUNTERS: tuple[tuple[str, str, str, Mapping[str, str]], ...] = (
    ("events_in", "Records read and judged, unreadable ones included.", "", {"events_in": ""}),
    ("early_input_events", "Events too far ahead of their arrival.", "action", {"early_adjusted": "adjusted", "early": "dropped"}),
    ("late_input_events", "Events too old at their arrival.", "action", _actions("late")),
    ("out_of_order_events", "Events below the watermark of their timeline.", "action", _actions("out_of_order")),
    ("cti_violation_events", "Events before a CTI of their source, or an imported one.", "action", _actions("cti_violation")),
    ("released_events", "Events written to the ordered topic.", "", {"released": ""}),
    ("arrival_clamps", "Records whose arrival was raised to that of an earlier record, or to an estimate.", "", {"arrival_clamps": ""}),
    (
        "time_jumps",
        "Records that moved time further than watermark_jump_warn.",
        "cause",
        {f"time_jumps_{cause}": cause for cause in ("event_time", "arrival", "arrival_behind")},
    ),
    ("estimates_used", "Idle estimates that moved the arrival frontier.", "", {"estimates_used": ""}),
    ("source_ctis", "CTIs that the source wrote among its records.", "", {"source_ctis": ""}),
    ("journal_conflicts", "Facts of the journal that came too late to count.", "", {"journal_conflicts": ""}),
    ("journal_losses", "How often the journal had lost facts, which the job gave back.", "", {"journal_losses": ""}),
    ("skipped_offsets", "Offsets that were not read: skipped by a user, or lost by Kafka before they were read.", "", {"skipped": ""}),
    ("planning_times_clamped", "Arrival stamps lifted because the clock had gone back.", "", {"planning_times_clamped": ""}),
)
_QUERY_COUNTERS = (
    ("query_events", "Events of the ordered topic accepted by the query.", "events"),
    ("query_results", "Results written.", "results"),
    ("query_bad_rows", "Events on which the query failed, written to its dead-letter topic.", "bad_rows"),
    ("query_results_too_large", "Results that their topic does not take, written to the dead-letter topic.", "results_too_large"),
    ("query_foreign_records", "Records of another writer in the topics read, passed over.", "foreign_records"),
    ("query_late_reference_versions", "Versions of reference data that came when their time was finished.", "late_reference_versions"),
)


_SINK_COUNTERS = (
    ("sink_results", "Results that a store has got.", "rows"),
    ("sink_batches", "Batches of results that a store has got.", "batches"),
    ("sink_refused_results", "Results that a store does not take, written to the dead-letter topic.", "refused"),
    ("sink_retries", "How often a store or the brokers did not answer and were tried again.", "retries"),
)


def add_seconds(total: Mapping[tuple[Walker, str], float], walker: Walker, spent: Mapping[str, float]) -> dict[tuple[Walker, str], float]:
    """Return the *total* seconds by walker and step, with those that *walker* has *spent* by step."""
    return {**total, **{(walker, step): total.get((walker, step), 0.0) + seconds for step, seconds in spent.items()}}


@dataclass(slots=True)
class _Input:
    name: str
    tolerances: Tolerances
    reports: dict[Partition, IngestReport] = field(default_factory=dict)
    ends: Mapping[Partition, int] = field(default_factory=dict)
    seconds: dict[tuple[Partition, str], float] = field(default_factory=dict)
    has_failed: bool = False

    def accept_reports(self, reports: Iterable[IngestReport]) -> None:
        for report in reports:
            # Prometheus iterates in a thread of its own: mappings are replaced, never changed.
            self.reports = {**self.reports, report.place: report}
            self.seconds = add_seconds(self.seconds, report.place, report.seconds)

    def lag(self, partition: Partition) -> int:
        return max(self.ends.get(partition, 0) - self.reports[partition].next_offset, 0)


@dataclass(slots=True)
class _Query:
    name: str
    reports: dict[int, BucketReport] = field(default_factory=dict)
    lags: Mapping[Partition, int] = field(default_factory=dict)
    seconds: dict[tuple[int, str], float] = field(default_factory=dict)
    null_columns: Sequence[NullShare] = ()
    # By output: how many results had each delay, milliseconds, since the process began.
    delays: Mapping[str, Delays] = field(default_factory=dict)

    def accept_reports(self, reports: Iterable[BucketReport]) -> None:
        for report in reports:
            self.reports = {**self.reports, report.bucket: report}
            self.seconds = add_seconds(self.seconds, report.bucket, report.seconds)
            if report.delays:
                added = {output: dict(Counter(self.delays.get(output, {})) + Counter(delays)) for output, delays in report.delays.items()}
                self.delays = {**self.delays, **added}


# What a sink may wait for; each is published with 0 too, so that Prometheus sees it begin.
WAIT_REASONS = ("locked", "full", "unreachable", "kafka")


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of one store of an output."""

    # Since the process began: ``rows`` that the store has got, ``batches``, ``refused`` results, ``retries``.
    counts: Mapping[str, int]
    # How many records of each partition of the result topic the store lacks.
    lags: Mapping[Partition, int]
    # For how long the oldest result that it lacks has been seen in the topic, seconds.
    oldest_waiting_s: float = 0.0
    # One of :data:`WAIT_REASONS`; empty if the store takes results.
    waits_for: str = ""
    # How long that wait has lasted, seconds.
    waiting_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        wait = {"waits_for": self.waits_for, "waiting_s": round(self.waiting_s, 1)} if self.waits_for else {}
        counts = {name: self.counts.get(name, 0) for name in ("rows", "batches", "refused", "retries")}
        return {**counts, "oldest_waiting_s": round(self.oldest_waiting_s, 1), **wait}


@dataclass(slots=True)
class _Sink:
    name: str
    stores: Mapping[str, StoreState] = field(default_factory=dict)


class Metrics(Collector):
    """The metrics of a process on TCP *port* of *host*; port 0: none. *now_us*: the wall clock, microseconds. SettingError: port taken."""

    def __init__(self, port: int, host: str = "127.0.0.1", now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._now_us = now_us
        self.health = Health()
        self._executors: tuple[int, int] | None = None
        self._inputs: dict[str, _Input] = {}
        self._queries: dict[str, _Query] = {}
        self._sinks: dict[str, _Sink] = {}
        if port:
            registry = CollectorRegistry()
            registry.register(self)
            try:
                serve(port, host, registry, self.health)
            except OSError as error:
                what = f"port {port} of {host} for metrics cannot be opened: {error}"
                raise SettingError(what, code="TG-SETTING-PORT", where="metrics.port", fix="name a free one") from None

    def add_input(self, name: str, reorder_us: int, late_us: int | None) -> None:
        """Begin to publish an input, with the tolerances of its watermark, microseconds."""
        self._inputs[name] = _Input(visible(name), Tolerances(reorder_us, late_us))

    def accept_reports(self, name: str, reports: Iterable[IngestReport]) -> None:
        self._inputs[name].accept_reports(reports)

    def fail_input(self, name: str) -> None:
        """Publish that an input has failed while the process lives on."""
        self._inputs[name].has_failed = True

    def set_jobs(self, states: Mapping[str, tuple[str, str]]) -> None:
        """Set the state of each job and the reason for it; called about once a second, which shows that the process is live."""
        self.health.turn(states)

    def set_executors(self, wanted: int, held: int) -> None:
        """Set how many executors the process wants from its cluster and has."""
        self._executors = wanted, held

    def set_ends(self, name: str, ends: Mapping[Partition, int]) -> None:
        """Set the end of each partition of an input. One that has never had a record has no batch, so no stage reports it."""
        input_ = self._inputs[name]
        input_.ends = dict(ends)
        input_.reports = {place: IngestReport(*place) for place, end in ends.items() if end == 0} | input_.reports

    def accept_query_reports(self, name: str, reports: Iterable[BucketReport]) -> None:
        self._queries.setdefault(name, _Query(visible(name))).accept_reports(reports)

    def set_null_columns(self, name: str, found: Sequence[NullShare]) -> None:
        """Set the columns of a query that most recent records have no value in."""
        self._queries.setdefault(name, _Query(visible(name))).null_columns = found

    def set_query_lags(self, name: str, lags: Mapping[Partition, int]) -> None:
        """Set how many records of each partition a query has not read yet."""
        self._queries.setdefault(name, _Query(visible(name))).lags = dict(lags)

    def set_sink(self, output: str, stores: Mapping[str, StoreState]) -> None:
        """Set the state of each store of an output."""
        self._sinks[output] = _Sink(visible(output), stores)

    def collect(self) -> Iterator[Metric]:
        """Return all metrics that have a value, those of ingest, a query or a sink; called when Prometheus fetches them."""
        families = chain(self._job_metrics(), self._counters(), self._gauges(), self._query_metrics(), self._sink_metrics())
        return (family for family in families if family.samples)

    def _job_metrics(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("tidegate_build_info", "What runs; always 1.", labels=("version", "spark", "python"))
        build.add_metric([version("tidegate"), version("pyspark"), python_version()], 1)
        state = GaugeMetricFamily("tidegate_job_state", "1 for the state that a job is in, 0 for the others.", labels=("job_name", "state"))
        for job, current in sorted(self.health.states.items()):
            for state_name in STATES:
                state.add_metric([visible(job), state_name], int(state_name == current))
        yield from (build, state)
        for place, name in enumerate(("wanted", "held")):
            family = GaugeMetricFamily(f"tidegate_executors_{name}", f"Spark executors {name}; none with local[N].")
            if self._executors is not None:
                family.add_metric([], self._executors[place])
            yield family

    def _counters(self) -> Iterator[Metric]:
        for name, text, label, counts in _COUNTERS:
            family = CounterMetricFamily(f"tidegate_{name}", text, labels=[*_LABELS, label] if label else _LABELS)
            for labels, report in self._partition_reports():
                for count, value in counts.items():
                    family.add_metric([*labels, value] if label else labels, report.totals.get(count, 0))
            yield family
        text = "Records written to the dead-letter topic."
        unreadable = CounterMetricFamily("tidegate_unreadable_events", text, labels=[*_LABELS, "reason"])
        for labels, report in self._partition_reports():
            totals = report.totals.items()
            reason_counts = {count.removeprefix(DEAD_LETTER): value for count, value in totals if count.startswith(DEAD_LETTER)}
            # Reasons with a count of 0 are published too: Prometheus sees no increase in a number that appears for the first time.
            for reason, records in sorted(({str(reason): 0 for reason in IngestReason} | reason_counts).items()):
                unreadable.add_metric([*labels, reason], records)
        yield unreadable
        spent = CounterMetricFamily("tidegate_stage_seconds", "Time the stage spent since the process began.", labels=[*_LABELS, "step"])
        for input_ in list(self._inputs.values()):
            for ((topic, partition), step), seconds in sorted(input_.seconds.items()):
                spent.add_metric([input_.name, topic, str(partition), step], seconds)
        yield spent

    def _gauges(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("tidegate_input_up", "1 if the input runs, 0 if it has failed.", labels=("input",))
        held = GaugeMetricFamily("tidegate_held_events", "Events that wait for their watermark.", labels=_LABELS)
        substreams = GaugeMetricFamily("tidegate_substreams", "Timelines that must be remembered.", labels=_LABELS)
        lag = GaugeMetricFamily("tidegate_consumer_lag", "Offsets of the raw topic still to be read.", labels=_LABELS)
        text = "How far the watermark is behind the clock, by cause; the sum over all causes is the delay."
        delay = GaugeMetricFamily("tidegate_watermark_delay_seconds", text, labels=[*_LABELS, "cause"])
        watermark = GaugeMetricFamily("tidegate_watermark_timestamp_seconds", "The watermark, seconds since 1970.", labels=_LABELS)
        now_us = self._now_us()
        for input_ in list(self._inputs.values()):
            up.add_metric([input_.name], int(not input_.has_failed))
            for (topic, partition), report in sorted(input_.reports.items()):
                labels, behind = [input_.name, topic, str(partition)], input_.lag((topic, partition))
                held.add_metric(labels, report.held)
                substreams.add_metric(labels, report.substreams)
                lag.add_metric(labels, behind)
                for cause, part_us in delay_causes(report, input_.tolerances, behind, now_us).items():
                    delay.add_metric([*labels, cause], part_us / SECOND_US)
                if NEVER < report.watermark_us < INFINITY:
                    watermark.add_metric(labels, report.watermark_us / SECOND_US)
        yield from (up, held, substreams, lag, delay, watermark)

    def _query_metrics(self) -> Iterator[Metric]:
        labels = ("query", "bucket")
        for name, text, count in _QUERY_COUNTERS:
            family = CounterMetricFamily(f"tidegate_{name}", text, labels=labels)
            for query, bucket, report, _ in self._bucket_reports():
                family.add_metric([query, bucket], report.totals.get(count, 0))
            yield family
        duplicates = CounterMetricFamily("tidegate_query_duplicates", "Records skipped because they had been met before.", labels=labels)
        text = "How far the results' time is behind the clock, by cause; the sum over all causes is the delay."
        delay = GaugeMetricFamily("tidegate_query_watermark_delay_seconds", text, labels=[*labels, "cause"])
        text = "Time the stage of the query spent since the process began."
        spent = CounterMetricFamily("tidegate_query_stage_seconds", text, labels=(*labels, "step"))
        text = "Offsets of the ordered topic still to be read."
        lag = GaugeMetricFamily("tidegate_query_consumer_lag", text, labels=("query", *_LABELS[1:]))
        text = "Columns of the query without a value in the first records of an input that the bucket has read."
        absent = GaugeMetricFamily("tidegate_query_absent_columns", text, labels=(*labels, "input"))
        text = "Share of the recent records of an input without a value in a column that the query reads; absent: without such a field."
        null = GaugeMetricFamily("tidegate_query_null_share", text, labels=("query", "input", "column", "kind"))
        text = "Columns of the query of which more recent records are NULL than query.null_share_warn."
        mostly_null = GaugeMetricFamily("tidegate_query_null_columns", text, labels=("query",))
        text = "From the arrival of the raw records that made a result final to its acknowledgement, since the process began."
        result_delay = HistogramMetricFamily("tidegate_query_result_delay_seconds", text, labels=("query", "output"))
        now_us = self._now_us()
        for query, bucket, report, behind in self._bucket_reports():
            duplicates.add_metric([query, bucket], report.duplicates)
            for input_name, columns in sorted(report.absent.items()):
                absent.add_metric([query, bucket, input_name], len(columns))
            for cause, part_us in query_delay_causes(report, behind, now_us).items():
                delay.add_metric([query, bucket, cause], part_us / SECOND_US)
        for query_ in list(self._queries.values()):
            for (topic, partition), behind in sorted(query_.lags.items()):
                lag.add_metric([query_.name, topic, str(partition)], behind)
            for (number, step), seconds in sorted(query_.seconds.items()):
                spent.add_metric([query_.name, str(number), step], seconds)
            mostly_null.add_metric([query_.name], len(query_.null_columns))
            for output, delays in sorted(query_.delays.items()):
                buckets, sum_s = histogram(delays)
                result_delay.add_metric([query_.name, visible(output)], buckets, sum_s)
            for column in sum_null_shares(query_.reports.values()):
                labels_of_column = [query_.name, visible(column.input), visible(column.column)]
                null.add_metric([*labels_of_column, "null"], column.share)
                null.add_metric([*labels_of_column, "absent"], column.absent / column.records)
        yield from (duplicates, spent, delay, lag, absent, null, mostly_null, result_delay)

    def _sink_metrics(self) -> Iterator[Metric]:
        for name, text, count in _SINK_COUNTERS:
            family = CounterMetricFamily(f"tidegate_{name}", f"{text} Counted since the process began.", labels=("output", "store"))
            for labels, state in self._stores():
                family.add_metric(labels, state.counts[count])
            yield family
        text = "Offsets of the result topic that the store still lacks."
        lag = GaugeMetricFamily("tidegate_sink_consumer_lag", text, labels=("output", "store", *_LABELS[1:]))
        text = "For how long the oldest result that the store lacks has been seen in the topic."
        oldest = GaugeMetricFamily("tidegate_sink_oldest_waiting_seconds", text, labels=("output", "store"))
        text = "How long the store has taken no result, by reason: locked, full, unreachable, kafka; 0 if it takes them."
        waiting = GaugeMetricFamily("tidegate_sink_waiting_seconds", text, labels=("output", "store", "reason"))
        for labels, state in self._stores():
            for (topic, partition), behind in sorted(state.lags.items()):
                lag.add_metric([*labels, topic, str(partition)], behind)
            oldest.add_metric(labels, state.oldest_waiting_s)
            for reason in WAIT_REASONS:
                waiting.add_metric([*labels, reason], state.waiting_s if reason == state.waits_for else 0)
        yield from (lag, oldest, waiting)

    def _stores(self) -> Iterator[tuple[list[str], StoreState]]:
        for sink in list(self._sinks.values()):
            for store, state in sorted(sink.stores.items()):
                yield [sink.name, store], state

    def _partition_reports(self) -> Iterator[tuple[list[str], IngestReport]]:
        for input_ in list(self._inputs.values()):
            for (topic, partition), report in sorted(input_.reports.items()):
                yield [input_.name, topic, str(partition)], report

    def _bucket_reports(self) -> Iterator[tuple[str, str, BucketReport, int]]:
        for query in list(self._queries.values()):
            for bucket, report in sorted(query.reports.items()):
                yield query.name, str(bucket), report, sum(query.lags.values())
