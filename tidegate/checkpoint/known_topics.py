"""
The very topics a running job works on, watched while it runs: a topic is its id, not its name.

Law: a topic that was made again under its name is refused at once. One that cannot be found may be hidden for a moment, as
while brokers come back: only after some more looks does it count as deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordering.errors import UnreachableError
from tidegate.checkpoint.binding import check_same_topics
from tidegate.kafka.admin import Admin

# A topic counts as deleted after so many looks in a row without it.
LOOKS_UNTIL_DELETED = 5


class KnownTopics:
    """
    Topics by name, with the id that each had when the job began.

    Args:
        ids: Their ids.
        where: What is bound to them.
        fix: The ways out if one is another by now.
    """

    def __init__(self, ids: Mapping[str, str], where: str, fix: str) -> None:
        self._ids, self._where, self._fix = ids, where, fix
        self._missed = 0

    def check(self, admin: Admin) -> None:
        """
        Compare the topics with what they were.

        Raises:
            RefusedError: One was made again, or deleted (TG-TOPIC-RECREATED).
            UnreachableError: One is not found, or the brokers do not answer.
        """
        current = admin.topic_ids(self._ids)
        missing = sorted(name for name, topic_id in current.items() if not topic_id)
        self._missed = self._missed + 1 if missing else 0
        if 0 < self._missed < LOOKS_UNTIL_DELETED:
            check_same_topics(self._ids, {name: topic_id for name, topic_id in current.items() if topic_id}, self._where, self._fix)
            problem = f"topic {missing[0]} is not found: it was deleted, or its brokers are coming back"
            raise UnreachableError(problem, code="TG-TOPIC-MISSING", where=missing[0])
        check_same_topics(self._ids, current, self._where, self._fix)
