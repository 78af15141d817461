"""
The topics that a job reads and writes, by id: a topic that was deleted and made again under its name is another topic.
Law: positions, numbers and journal of one topic are never applied to another. A start compares the ids with those that the checkpoint is
bound to. While a job runs, the planner compares them before it plans a range, and the driver every few seconds.
"""

from __future__ import annotations

from ingest.config import IngestPlan
from tidegate.platform.checkpoint.known_topics import KnownTopics

WAYS_OUT = (
    "begin anew in a new ordered topic (set ordered_topic), or delete the ordered topic and its checkpoint folder: "
    "positions and numbers of the old topic mean nothing in the new one"
)


class TopicIdentity(KnownTopics):
    """The topics of *plan*: those that it reads when it starts, and the one that it writes."""

    def __init__(self, plan: IngestPlan) -> None:
        written = {plan.settings.ordered_topic: plan.ordered_topic_id} if plan.ordered_topic_id else {}
        super().__init__({**plan.topic_ids, **written}, plan.checkpoint, WAYS_OUT)
