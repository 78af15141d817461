"""
Checks the topics of a running job by their ids.

Law: a topic that was deleted and made again under its name is refused at once. A topic may be missing for a moment, for example while
brokers restart: it counts as deleted only after several checks in a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ordering.errors import UnreachableError
from tidegate.platform.checkpoint.binding import check_same_topics
from tidegate.platform.kafka.admin import Admin

LOOKS_UNTIL_DELETED = 5  # a topic counts as deleted after this many checks in a row without it


class KnownTopics:
    """Topics by name with the *ids* they had when the job began; *where* and *fix* are for errors."""

    def __init__(self, ids: Mapping[str, str], where: str, fix: str) -> None:
        self._ids, self._where, self._fix = ids, where, fix
        self._missed = 0

    def check(self, admin: Admin) -> None:
        """Raise RefusedError if a topic was deleted or made again, UnreachableError if one is not found or no broker answers."""
        current = admin.topic_ids(self._ids)
        missing = sorted(name for name, topic_id in current.items() if not topic_id)
        self._missed = self._missed + 1 if missing else 0
        if 0 < self._missed < LOOKS_UNTIL_DELETED:
            check_same_topics(self._ids, {name: topic_id for name, topic_id in current.items() if topic_id}, self._where, self._fix)
            problem = f"topic {missing[0]} is not found: it was deleted, or its brokers are coming back"
            raise UnreachableError(problem, code="TG-TOPIC-MISSING", where=missing[0])
        check_same_topics(self._ids, current, self._where, self._fix)

    def find_ends(self, admin: Admin, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the end of each partition, after a :meth:`check`."""
        self.check(admin)
        return admin.ends(partitions)
