"""
What the journal knows of a raw topic: the facts that the oracle must hear, too.

They are read through the journal's own adapter. What was seen once is remembered: a Redis that was wiped may forget, but no
event that was judged by a fact may be judged otherwise afterwards.
"""

from __future__ import annotations

from collections import defaultdict

from pydantic import SecretStr

from ingest.journal_redis import RedisJournal
from ordering.journal import JournalKey
from ordering.ticks import TICK_MAX
from tidegate.runtime.kafka.admin import Admin
from tidegate.runtime.setting_tables import RedisSettings


class KnownFacts:
    """The estimates of one raw topic: input partition -> position -> the largest frontier ever seen, microseconds."""

    def __init__(self, bootstrap: str, redis_url: str, topic: str, partitions: int) -> None:
        self._redis = RedisSettings(url=SecretStr(redis_url))
        topic_id = Admin({"bootstrap.servers": bootstrap}).require(topic).topic_id
        self._keys = [JournalKey(topic, topic_id, partition) for partition in range(partitions)]
        self.estimates: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def look(self) -> None:
        """Add what the journal holds now."""
        journal = RedisJournal.open(self._redis)
        try:
            found = journal.estimates_many([(key, 0, TICK_MAX) for key in self._keys])
        finally:
            journal.close_connection()
        for number, estimates in enumerate(found):
            known = self.estimates[number]
            for position, frontier_us in estimates:
                known[position] = max(frontier_us, known.get(position, frontier_us))

    @property
    def count(self) -> int:
        """How many estimates are known."""
        return sum(map(len, self.estimates.values()))
