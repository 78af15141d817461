"""What a query job shows while it runs, its summary at the end, and the check for gaps that stay open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ordering.protocol.reader import gap_error
from ordering.ticks import INFINITY, NEVER, format_tick
from tidegate.platform.metrics.null_shares import NullShare, find_null_columns
from tidegate.platform.observe.job_lag import EventRate
from tidegate.platform.observe.recovery_report import Positions
from tidegate.platform.observe.reports import BucketReport, Gap
from tidegate.platform.observe.result_delays import Delays, RecentDelays

# How long a CTI may promise events that are not there, while the brokers answer (PROTOCOL.md).
GAP_WAIT_S = 60.0


class QueryProgress:
    """Collects the reports of all *buckets*."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._reports: dict[int, BucketReport] = {}
        # The gaps of the newest reports.
        self._gaps: set[Gap] = set()
        # By open gap: how long the brokers had answered when it was first seen, seconds; and the end of its partition a minute later.
        self._gaps_since_s: dict[Gap, float] = {}
        self._gap_ends: dict[Gap, int] = {}
        self._rate = EventRate()
        # What the last call of pop_news has seen.
        self._known: tuple[object, ...] = ()
        self._reported_absent: set[tuple[str, str]] = set()
        self._found_null: set[tuple[str, str]] = set()
        self._recent_delays = RecentDelays()
        self.batches = 0
        # By bucket: the number of the last open batch, and the delays of its newest report.
        self._reported_delays: dict[int, tuple[int, Mapping[str, Delays]]] = {}

    def accept_reports(self, reports: Sequence[BucketReport]) -> list[BucketReport]:
        """Take the reports of a batch; return them without the delays that reports of the batch had while it was open."""
        self.batches += 1
        return self.accept_open(reports)

    def accept_open(self, reports: Sequence[BucketReport]) -> list[BucketReport]:
        """Do the same with reports of an open batch, which goes on."""
        reports = [self._without_reported_delays(report) for report in reports]
        # Another thread may be iterating over the dictionary, so it is replaced, never changed.
        self._reports = {**self._reports, **{report.bucket: report for report in reports}}
        self._recent_delays.add(item for report in reports for item in report.delays.items())
        self._gaps = {gap for report in self._reports.values() for gap in report.waiting}
        self._rate.accept({report.bucket: report.totals.get("events", 0) for report in reports})
        return reports

    def _without_reported_delays(self, report: BucketReport) -> BucketReport:
        if report.open_batch < 0:
            return report
        batch, reported = self._reported_delays.get(report.bucket, (-1, {}))
        self._reported_delays[report.bucket] = report.open_batch, report.delays
        if batch != report.open_batch:
            return report
        new = {output: dict(Counter(delays) - Counter(reported.get(output, {}))) for output, delays in report.delays.items()}
        return replace(report, delays={output: delays for output, delays in new.items() if delays})

    def absent_columns(self) -> dict[str, list[str]]:
        """Return for each input the columns that no bucket has met in its first records; inputs of which too few are read are left out."""
        absent: dict[str, list[str]] = {}
        for report in self._reports.values():
            for input_name, columns in report.absent.items():
                absent[input_name] = [column for column in absent.get(input_name, columns) if column in columns]
        return absent

    def pop_absent_columns(self) -> list[tuple[str, str]]:
        """Return (input, column) of absent columns that no earlier call has returned."""
        absent = [(input_name, column) for input_name, columns in self.absent_columns().items() for column in columns]
        new = [pair for pair in absent if pair not in self._reported_absent]
        self._reported_absent.update(new)
        return new

    def null_columns(self, bound: float) -> list[NullShare]:
        """Return the columns of which more than *bound* of the recent records are NULL."""
        return find_null_columns(self._reports.values(), bound)

    def pop_null_columns(self, found: list[NullShare]) -> list[NullShare]:
        """Return the columns of *found* that the last call did not find, so that each is logged once while it is found."""
        names = {(each.input, each.column) for each in found}
        new = [each for each in found if (each.input, each.column) not in self._found_null]
        self._found_null = names
        return new

    def recent_delays(self) -> list[dict[str, Any]]:
        """Return the delays of the results of the last minutes, by output."""
        return self._recent_delays.as_dicts()

    def check_gaps(self, answered_s: float, ends: Positions, positions: Positions) -> None:
        """
        Raise GapError if a gap has stayed open for a minute, and in all records that lay in its partition then.

        Args:
            answered_s: How long the brokers have answered since the start: while they do not, no writer can fill a gap, and no job read it.
            ends: The newest ends of the partitions.
            positions: The next offsets after the last batch.
        """
        gaps = self._gaps
        self._gaps_since_s = {gap: self._gaps_since_s.get(gap, answered_s) for gap in gaps}
        overdue = [gap for gap, since_s in self._gaps_since_s.items() if answered_s - since_s > GAP_WAIT_S]
        # A batch may take longer than a minute, and bring what is missing.
        self._gap_ends = {gap: self._gap_ends.get(gap, ends[gap.place]) for gap in overdue}
        for gap, end in self._gap_ends.items():
            if positions[gap.place] >= end:
                raise gap_error(gap.topic, gap.partition, gap.channel, gap.promised_seq, gap.last_seq)

    @property
    def is_finished(self) -> bool:
        """Whether every bucket has read the final CTIs of its input, or has reached the instant at which the job stops."""
        return len(self._reports) == self._buckets and all(report.is_final for report in self._reports.values())

    def totals(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for report in self._reports.values():
            totals.update(report.totals)
        return totals

    @property
    def frontier_us(self) -> int:
        """The instant, microseconds, below which all buckets are complete; NEVER before the first CTI, INFINITY at the end."""
        return min((report.complete_us for report in self._reports.values()), default=NEVER)

    def rate(self) -> float | None:
        """Return events per second since the first reports; None before the second ones."""
        return self._rate.per_second(self.totals()["events"])

    @property
    def has_begun(self) -> bool:
        """Whether there was a report."""
        return bool(self._reports)

    def pop_news(self) -> bool:
        """Return whether counts or times are others than at the last call."""
        known, self._known = self._known, (self.totals(), self.frontier_us)
        return known != self._known

    def summary(self) -> dict[str, Any]:
        totals, frontier_us = self.totals(), self.frontier_us
        return {
            **{name: totals[name] for name in sorted({*totals, "events", "results", "bad_rows"})},
            "absent_columns": sum(map(len, self.absent_columns().values())),
            "duplicates": sum(report.duplicates for report in self._reports.values()),
            "watermark": None if frontier_us == NEVER else format_tick(frontier_us),
            "finished": self.is_finished,
            "batches": self.batches,
            "events_per_second": None if (rate := self.rate()) is None else round(rate),
        }

    def line(self) -> str:
        totals = self.totals()
        frontier_us = self.frontier_us
        until = "" if frontier_us == NEVER else "  until the end" if frontier_us == INFINITY else f"  until {format_tick(frontier_us)}"
        return f"events {totals['events']:,}  results {totals['results']:,}{until}"
