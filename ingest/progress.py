"""The progress line of a running ingest job, and its summary at the end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ordering.ticks import INFINITY, NEVER, format_duration, format_tick
from tidegate.platform.metrics.event_fates import count_dead_letters, count_dropped, count_records, describe_fates, fates_as_dict
from tidegate.platform.observe.job_lag import EventRate
from tidegate.platform.observe.reports import IngestReport

_DROP_COUNTS = ("early", "cti_violation_dropped", "late_dropped", "out_of_order_dropped")
_SHOWN_COUNTS = ("events_in", "released", "early_adjusted", "late_adjusted", "out_of_order_adjusted", "unreadable", *_DROP_COUNTS)


class IngestProgress:
    """Collects the reports of all input partitions; *total*: events up to the present end, 0 if the job does not stop there."""

    def __init__(self, total: int) -> None:
        self.total = total or None
        self._partitions: dict[int, IngestReport] = {}
        self._rate = EventRate()
        # What the last call of pop_news has seen.
        self._known: tuple[object, ...] = ()
        self._seconds: Counter[str] = Counter()
        self.batches = 0

    def accept_reports(self, reports: list[IngestReport]) -> None:
        self.batches += 1
        self.accept_open(reports)
        for report in reports:
            self._seconds.update(report.seconds)

    def accept_open(self, reports: list[IngestReport]) -> None:
        """Take the reports of a batch that is still open."""
        # Another thread may be iterating over the dictionary, so it is replaced, never changed.
        self._partitions = {**self._partitions, **{report.number: report for report in reports}}
        self._rate.accept({report.number: report.totals.get("events_in", 0) for report in reports})

    @property
    def has_begun(self) -> bool:
        """Whether there was a report."""
        return bool(self._partitions)

    def totals(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for report in self._partitions.values():
            totals.update(report.totals)
        return totals

    def rate(self) -> float | None:
        """Return events per second since the first reports, which include the start of workers; None before the second ones."""
        return self._rate.per_second(self.totals()["events_in"])

    def pop_news(self) -> bool:
        """Return whether counts or times are others than at the last call."""
        known, self._known = self._known, (self.totals(), self.frontier_us, sum(report.held for report in self._partitions.values()))
        return known != self._known

    @property
    def frontier_us(self) -> int:
        """The instant, microseconds, below which all partitions are complete; NEVER before the first record, INFINITY at the end."""
        return min((report.complete_us for report in self._partitions.values()), default=NEVER)

    def summary(self) -> dict[str, Any]:
        totals = self.totals()
        partitions = self._partitions.values()
        frontier_us = self.frontier_us
        return {
            **{name: totals[name] for name in sorted({*totals, *_SHOWN_COUNTS})},
            "fates": fates_as_dict(totals),
            "held": sum(report.held for report in partitions),
            "substreams": sum(report.substreams for report in partitions),
            "watermark_delay": self._delay(),
            "watermark": None if frontier_us == NEVER else format_tick(frontier_us),
            "finished": bool(self._partitions) and all(report.is_final for report in partitions),
            "batches": self.batches,
            "events_per_second": None if (rate := self.rate()) is None else round(rate),
            "seconds": {name: round(spent, 2) for name, spent in self._seconds.items()},
        }

    def _delay(self) -> str | None:
        reports = self._partitions.values()
        delays = [report.arrival_us - report.complete_us for report in reports if NEVER < report.complete_us < INFINITY]
        return format_duration(max(delays)) if delays else None

    def line(self) -> str:
        totals = self.totals()
        dropped, unreadable = sum(count_dropped(totals).values()), sum(count_dead_letters(totals).values())
        return f"{self._amounts(totals)}  dropped {dropped:,}  unreadable {unreadable:,}"

    def end_line(self) -> str:
        """Return what came in and went out, and what was moved, dropped and unreadable, with shares and causes."""
        totals = self.totals()
        return "; ".join(part for part in (self._amounts(totals), describe_fates(totals)) if part)

    def _amounts(self, totals: Counter[str]) -> str:
        held = sum(report.held for report in self._partitions.values())
        return f"in {count_records(totals):,}  ordered {totals['released']:,}  held {held:,}"
