"""What ``verify`` and ``compare`` report of records that are not of the topic's writer: a stranger's, and contradicting copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # commands import this before they need Kafka
    from tidegate.ordered_topic.compare.topics import PartitionSummary


def strange_dict(summaries: Sequence[PartitionSummary]) -> dict[str, Any]:
    """Return the records that are not of the topic's writer: the first of each partition, and how many there are."""
    extra = [
        {"topic": each.topic, "partition": each.partition, "log_offset": each.offset, "reason": each.reason}
        for summary in summaries
        for each in summary.foreign.first
    ]
    copies = [copy.as_dict() for summary in summaries for copy in summary.copies]
    return {
        "foreign": sum(summary.foreign.count for summary in summaries),
        "extra_records": extra,
        "contradicting": sum(summary.contradicting for summary in summaries),
        "contradicting_copies": copies,
    }


def strange_lines(summaries: Sequence[PartitionSummary]) -> Iterator[str]:
    """Yield a line for each record that is not of the topic's writer, and one for those that are only counted."""
    for summary in summaries:
        first, copies = summary.foreign.first, summary.copies
        yield from (f"extra record at {each.where}, which readers pass over: {each.reason}" for each in first)
        if summary.foreign.count > len(first):
            yield f"{summary.foreign.count - len(first):,} more extra records in {first[0].topic}-{first[0].partition}"
        yield from (copy.text for copy in copies)
        if summary.contradicting > len(copies):
            yield f"{summary.contradicting - len(copies):,} more contradicting copies in {copies[0].topic}-{copies[0].partition}"
