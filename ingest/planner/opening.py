"""
Which batches stay open.

Law: a batch stays open only if every fact that its stage may meet is in the journal when the stage closes a range, and if it has read what
there is. So none stays open while the job is behind, while a partition joins, or while offsets to skip or to compare lie ahead. If it does
not, the batch ends at its planned range, and the next one is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingest.config import IngestPlan, Partition
from ingest.offsets import IngestOffset
from tidegate.platform.spark.launch.task_slots import TASK_SLOTS, TaskSlots


def why_closed(plan: IngestPlan, master: str, kept_slots: TaskSlots = TASK_SLOTS) -> str:
    """
    Return why no batch of a job stays open although ``batch_span`` asks for it; empty if they may, and its tasks keep their slots then.
    *master*: that of the Spark session.
    """
    if plan.imported is not None:
        return "its time follows another input's, which only the planner reads (import_ctis_from)"
    return kept_slots.keep(f"ingest {plan.settings.name}", min(plan.tasks, len(plan.partitions)), master)


def may_stay_open(plan: IngestPlan, start: IngestOffset, end: IngestOffset, ends: Mapping[Partition, int]) -> bool:
    """Return whether a batch that is planned from *start* to *end* may stay open; *ends*: where the partitions end."""
    return all(
        position.next_offset >= ends[partition]
        and not position.is_unclosed
        and partition[0] in plan.topic_ids
        and all(until <= position.next_offset for _, until in plan.skipped_spans(partition))
        # What a batch that stays open has written beyond offsets to compare would be compared with after a kill.
        and plan.compared.get(partition, (0, 0))[1] <= start.partitions[partition].next_offset
        for partition, position in end.partitions.items()
    )
