"""
Watermark delay: how far a partition's watermark is behind the wall clock, divided into parts by cause.

Law: the parts are not negative and add up to the delay, or to 0 if the watermark is ahead of the clock. They are computed in this order;
each is as large as its cause allows, but at most the rest of the delay after the earlier parts:

- **sink**: the time in which the last batch waited for its destination to accept and acknowledge its output.
- **pipeline**: the time in which the batch was read, judged and computed.
- **reader_behind**: the time since the newest arrival that was read, if further records wait to be read.
- **silence**: the same time, if no record waits: nothing has arrived since.
- **reorder**, **late**: the tolerance by which the watermark stays behind on purpose; only the one that determines the watermark counts.
- **source**: the rest, which is how old the events were when they arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.platform.observe.reports import BucketReport, IngestReport, Report

CAUSES = ("sink", "pipeline", "reader_behind", "silence", "reorder", "late", "source")
_SINK = ("write", "acknowledge")


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The tolerances of an input's watermark, microseconds; ``late_us`` None: late is off."""

    reorder_us: int
    late_us: int | None


def delay_us(report: Report, now_us: int) -> int | None:
    """Return the watermark delay in a stage's report; None before the first record and at the end."""
    return None if report.watermark_us in (NEVER, INFINITY) else now_us - report.watermark_us


def _time_spent_us(report: Report) -> tuple[int, int]:
    """
    Return how long a stage wrote in its last batch, and how long it did everything else, microseconds; 0 of a batch that stayed open, since
    its records have waited for a round of it only.
    """
    if report.open_batch >= 0:
        return 0, 0
    spent = {name: round(seconds * SECOND_US) for name, seconds in report.seconds.items()}
    sink = sum(spent.get(name, 0) for name in _SINK)
    return sink, sum(spent.values()) - sink


def delay_causes(report: IngestReport, tolerances: Tolerances, lag: int, now_us: int) -> dict[str, int]:
    """
    Return the parts of the watermark delay, microseconds, by cause; empty before the first record and at the end.

    Args:
        report: The last report of an input partition's stage.
        lag: How many records wait to be read.
    """
    delay = delay_us(report, now_us)
    if delay is None:
        return {}
    sink, pipeline = _time_spent_us(report)
    since_arrival = max(now_us - report.arrival_us, 0)
    by_event = report.watermark.cause == "event"
    wanted = {
        "sink": min(sink, since_arrival),
        "pipeline": min(pipeline, max(since_arrival - sink, 0)),
        "reader_behind" if lag > 0 else "silence": since_arrival,
        "reorder": tolerances.reorder_us if by_event else 0,
        "late": 0 if by_event else tolerances.late_us or 0,
        "source": delay,
    }
    parts, left = dict.fromkeys(CAUSES, 0), max(delay, 0)
    for cause, most in wanted.items():
        # The time since the newest arrival includes the last batch, which counts as sink and pipeline already.
        within = most if cause not in ("reader_behind", "silence") else most - parts["sink"] - parts["pipeline"]
        parts[cause] = min(max(within, 0), left)
        left -= parts[cause]
    return parts


QUERY_CAUSES = ("sink", "pipeline", "reader_behind", "input")


def query_delay_causes(report: BucketReport, lag: int, now_us: int) -> dict[str, int]:
    """
    Return the parts of a query's watermark delay, microseconds, by cause; ``input`` is the delay of the ordered topic itself.

    Args:
        report: The last report of a bucket.
        lag: How many records of the ordered topic wait to be read; while any do, the rest counts as ``reader_behind``.
    """
    delay = delay_us(report, now_us)
    if delay is None:
        return {}
    sink, pipeline = _time_spent_us(report)
    parts, left = dict.fromkeys(QUERY_CAUSES, 0), max(delay, 0)
    for cause, most in (("sink", sink), ("pipeline", pipeline), ("reader_behind" if lag > 0 else "input", left)):
        parts[cause] = min(most, left)
        left -= parts[cause]
    return parts
