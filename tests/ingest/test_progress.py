"""What a running job shows: batches are told by one thread while another one asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingest.progress import IngestProgress
from ordering.ticks import NEVER
from query.progress import QueryProgress


class Interrupted(dict[str, Any]):
    """A report at whose first reading the next batch is told."""

    def __init__(self, report: dict[str, Any], tell: Callable[[], None]) -> None:
        super().__init__(report)
        self._tell, self._told = tell, False

    def __getitem__(self, name: str) -> Any:
        if name == "totals" and not self._told:
            self._told = True
            self._tell()
        return super().__getitem__(name)


def test_a_batch_of_a_new_partition_may_be_told_while_totals_are_counted() -> None:
    """The dictionary that is gone through is another one."""
    progress = IngestProgress(0)

    def report(number: int) -> dict[str, Any]:
        return {"number": number, "seconds": {}, "totals": {"events_in": 5}}

    progress.accept_reports([Interrupted(report(0), lambda: progress.accept_reports([report(1)]))])
    assert progress.totals()["events_in"] == 10


def test_a_batch_of_a_new_bucket_may_be_told_while_totals_are_counted() -> None:
    """As for partitions."""
    progress = QueryProgress(2)

    def report(bucket: int) -> dict[str, Any]:
        return {"bucket": bucket, "waiting": [], "totals": {"events": 5}}

    progress.accept_reports([report(2), Interrupted(report(0), lambda: progress.accept_reports([report(1)]))])
    assert progress.totals()["events"] == 15


def test_one_batch_has_no_rate_and_held_events_are_told() -> None:
    """A rate of 0 would be wrong, and what came in and is not ordered yet waits."""
    progress = IngestProgress(0)
    report = {"number": 0, "seconds": {}, "totals": {"events_in": 5}, "held": 5, "substreams": 0, "c": NEVER, "arrival_us": NEVER}
    progress.accept_reports([report])
    assert progress.summary()["events_per_second"] is None
    assert progress.line().startswith("in 5  ordered 0  held 5")
