"""What a running job shows: batches are told by one thread while another one asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from ingest.progress import IngestProgress
from ordering.errors import GapError
from query.progress import GAP_WAIT_S, QueryProgress
from tidegate.platform.observe.reports import BucketReport, Gap, IngestReport


class Interrupted(Mapping[str, int]):
    """The totals of a report at whose first reading the next batch is told."""

    def __init__(self, totals: dict[str, int], tell: Callable[[], None]) -> None:
        self._totals, self._tell, self._told = totals, tell, False

    def __getitem__(self, name: str) -> int:
        return self._totals[name]

    def __len__(self) -> int:
        return len(self._totals)

    def __iter__(self) -> Iterator[str]:
        if not self._told:
            self._told = True
            self._tell()
        return iter(self._totals)


def test_a_batch_of_a_new_partition_may_be_told_while_totals_are_counted() -> None:
    """The dictionary that is gone through is another one."""
    progress = IngestProgress(0)

    def report(number: int) -> IngestReport:
        return IngestReport("raw", number, number, totals={"events_in": 5})

    totals = Interrupted({"events_in": 5}, lambda: progress.accept_reports([report(1)]))
    progress.accept_reports([replace(report(0), totals=totals)])
    assert progress.totals()["events_in"] == 5, "told meanwhile"
    assert progress.totals()["events_in"] == 10


def test_a_batch_of_a_new_bucket_may_be_told_while_totals_are_counted() -> None:
    """As for partitions."""
    progress = QueryProgress(2)

    def report(bucket: int) -> BucketReport:
        return BucketReport(bucket, totals={"events": 5})

    totals = Interrupted({"events": 5}, lambda: progress.accept_reports([report(1)]))
    progress.accept_reports([report(2), replace(report(0), totals=totals)])
    assert progress.totals()["events"] == 10, "told meanwhile"
    assert progress.totals()["events"] == 15


def test_one_batch_has_no_rate_and_held_events_are_told() -> None:
    """A rate of 0 would be wrong, and what came in and is not ordered yet waits."""
    progress = IngestProgress(0)
    progress.accept_reports([IngestReport("raw", 0, totals={"events_in": 5}, held=5)])
    assert progress.summary()["events_per_second"] is None
    assert progress.line().startswith("in 5  ordered 0  held 5")


def test_a_rate_counts_what_came_after_the_first_report_of_each_partition() -> None:
    """Also while the first batch is still open; what earlier runs have counted is no part of it."""
    progress = IngestProgress(0)

    def told(number: int, events: int) -> None:
        progress.accept_open([IngestReport("raw", number, number, totals={"events_in": events})])

    told(0, 5_000_000)
    assert progress.rate() is None
    told(1, 7_000_000)
    assert progress.rate() == 0
    told(0, 5_000_001)
    assert (progress.rate() or 0) > 0


def test_news_are_told_once() -> None:
    """A report that says the same again is none; neither is a rate, which changes by itself."""
    progress = IngestProgress(0)
    assert progress.pop_news()
    progress.accept_open([IngestReport("raw", 0, totals={"events_in": 5})])
    assert (progress.pop_news(), progress.pop_news()) == (True, False)
    progress.accept_open([IngestReport("raw", 0, totals={"events_in": 5})])
    assert not progress.pop_news()
    progress.accept_open([IngestReport("raw", 0, totals={"events_in": 5}, complete_us=7)])
    assert progress.pop_news()
    query = QueryProgress(1)
    query.accept_open([BucketReport(0, totals={"events": 1})])
    assert (query.pop_news(), query.pop_news()) == (True, False)
    assert query.has_begun


PLACE = ("rides.ordered", 0)


def with_gaps(*gaps: tuple[int, int]) -> QueryProgress:
    """A job whose only bucket waits for the events of channels: (roster number, n)."""
    progress = QueryProgress(1)
    progress.accept_reports([BucketReport(0, waiting=tuple(Gap(*PLACE, number, n, 4) for number, n in gaps), totals={"events": 5})])
    return progress


def test_a_gap_ends_a_job_that_has_read_on_for_a_minute() -> None:
    """The error names the channel; a gap that was seen later has its own minute."""
    progress = with_gaps((7, 10))
    progress.check_gaps(2.0, {PLACE: 100}, {PLACE: 100})
    progress.check_gaps(2.0 + GAP_WAIT_S, {PLACE: 100}, {PLACE: 100})
    with pytest.raises(GapError, match="channel 7 promises the events numbered below 10, but after number 4"):
        progress.check_gaps(4.0 + GAP_WAIT_S, {PLACE: 100}, {PLACE: 100})


def test_time_in_which_brokers_do_not_answer_is_not_that_of_a_gap() -> None:
    """However long they are away: whoever fills the gap cannot write either."""
    progress = with_gaps((7, 10))
    for _ in range(1_000):
        progress.check_gaps(GAP_WAIT_S, {PLACE: 100}, {PLACE: 100})


def test_a_gap_waits_for_all_that_lay_in_its_partition_after_a_minute() -> None:
    """A batch that takes long may bring what is missing; what is written later need not be read."""
    progress = with_gaps((7, 10))
    progress.check_gaps(0.0, {PLACE: 100}, {PLACE: 100})
    progress.check_gaps(GAP_WAIT_S + 1, {PLACE: 500}, {PLACE: 100})
    progress.check_gaps(GAP_WAIT_S + 9, {PLACE: 900}, {PLACE: 499})
    with pytest.raises(GapError):
        progress.check_gaps(GAP_WAIT_S + 9, {PLACE: 900}, {PLACE: 500})
    progress.accept_reports([BucketReport(0, totals={"events": 9})])
    progress.check_gaps(GAP_WAIT_S + 9, {PLACE: 900}, {PLACE: 900})


def test_the_end_line_counts_records_without_a_plausible_arrival() -> None:
    """They never reach the model, but they came in and went to the dead-letter topic."""
    progress = IngestProgress(0)
    totals = {"events_in": 7, "released": 5, "early": 2, "dead_letter_arrival_ahead": 3}
    progress.accept_reports([IngestReport("raw", 0, totals=totals)])
    assert progress.line() == "in 10  ordered 5  held 0  dropped 2  unreadable 3"
    assert progress.end_line() == "in 10  ordered 5  held 0; dropped: 2 early (20 %); dead letters: 3 arrival ahead (30 %)"
