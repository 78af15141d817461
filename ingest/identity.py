"""
Which very topics a job reads and writes: a topic deleted and made again under its name is another one.

Law: positions, numbers and journal of one topic are never applied to another. At a start the ids are compared with those
the checkpoint is bound to; while a job runs, the planner compares before it plans a range, and the driver every few
seconds, which ends the job.
"""

from __future__ import annotations

from ingest.config import IngestPlan
from tidegate.runtime.binding import check_same_topics
from tidegate.runtime.kafka.admin import Admin

ANSWER_S = 5.0
"""How long a running job waits for the brokers' answers."""
WAYS_OUT = (
    "begin anew in a new ordered topic (set ordered_topic), or delete the ordered topic and its checkpoint folder: "
    "positions and numbers of the old topic mean nothing in the new one"
)


class TopicIdentity:
    """The ids of the topics of *plan*; *ordered* says whether that of the topic it writes is watched too."""

    def __init__(self, plan: IngestPlan, *, ordered: bool = True) -> None:
        self._ids = dict(plan.topic_ids)
        if ordered and plan.ordered_topic_id:
            self._ids[plan.settings.ordered_topic] = plan.ordered_topic_id
        self._checkpoint = plan.checkpoint

    def check(self, admin: Admin) -> None:
        """
        Compare the topics with what they were.

        Raises:
            RefusedError: One was deleted, or made again (TG-TOPIC-RECREATED).
            UnreachableError: The brokers do not answer.
        """
        check_same_topics(self._ids, admin.topic_ids(self._ids), self._checkpoint, WAYS_OUT)
