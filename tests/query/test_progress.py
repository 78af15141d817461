"""What a query job says of its progress."""

from __future__ import annotations

from query.progress import QueryProgress
from tidegate.platform.observe.reports import BucketReport


def test_the_delays_of_an_open_batch_count_once() -> None:
    """Its reports add up what it has written so far, and so does the one at its end; one may be lost on the way."""
    progress = QueryProgress(2)

    def told(report: BucketReport, *, is_end: bool = False) -> dict[str, dict[int, int]]:
        (accepted,) = progress.accept_reports([report]) if is_end else progress.accept_open([report])
        return {output: dict(delays) for output, delays in accepted.delays.items()}

    assert told(BucketReport(0, delays={"out": {10: 2}}), is_end=True) == {"out": {10: 2}}
    assert told(BucketReport(0, open_batch=4, delays={"out": {10: 1}})) == {"out": {10: 1}}
    assert told(BucketReport(1, open_batch=4, delays={"out": {10: 5}})) == {"out": {10: 5}}
    assert told(BucketReport(0, open_batch=4, delays={"out": {10: 3, 20: 1}})) == {"out": {10: 2, 20: 1}}
    assert told(BucketReport(0, open_batch=4, delays={"out": {10: 3, 20: 1}, "other": {7: 1}}), is_end=True) == {"other": {7: 1}}
    assert told(BucketReport(0, open_batch=5, delays={"out": {10: 3}})) == {"out": {10: 3}}, "another batch"
    assert {each["output"]: each["results"] for each in progress.recent_delays()} == {"out": 2 + 4 + 5 + 3, "other": 1}
    assert progress.batches == 2
