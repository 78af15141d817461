"""
What the journal knows of a raw topic: the facts that the oracle must hear, too.

They are read through the journal's own adapter. What was seen once is remembered: a Redis that was wiped may forget, but no
event that was judged by a fact may be judged otherwise afterwards.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import replace

from pydantic import SecretStr
from support.journals import read_many
from support.law_breaches import demand
from support.stack.drawn_logs import Raw

from ingest.journal.redis_journal import RedisJournal
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import JournalKey
from ordering.ticks import TICK_MAX
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.tables.redis import RedisSettings


class KnownFacts:
    """
    The facts of one raw topic.

    Attributes:
        estimates: Input partition -> position -> the largest frontier ever seen, microseconds.
        stamps: Input partition -> first offset of a range -> its arrival, microseconds, where ingest stamps arrivals.
        closed: First offset of each input partition that nobody has planned to read yet.
    """

    def __init__(self, bootstrap: str, redis_url: str, topic: str, partitions: int, stamped: bool) -> None:
        self._redis = RedisSettings(url=SecretStr(redis_url))
        topic_id = Admin({"bootstrap.servers": bootstrap}).require(topic).topic_id
        # Jobs that mean another arrival have facts of their own.
        name = f"{topic}@ingest" if stamped else topic
        self._keys = [JournalKey(name, topic_id, partition) for partition in range(partitions)]
        self.estimates: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.stamps: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.closed = [0] * partitions

    def look(self) -> None:
        """Add what the journal holds now."""
        journal = RedisJournal.open(self._redis)
        try:
            found = read_many(journal, FactKind.ESTIMATE, [(key, 0, TICK_MAX) for key in self._keys])
            for number, key in enumerate(self._keys):
                self.closed[number] = max(self.closed[number], journal.first_open(key))
                for position, arrival_us in journal.stamps(key, 0, TICK_MAX):
                    known_us = self.stamps[number].setdefault(position, arrival_us)
                    demand(known_us == arrival_us, "facts stay", f"the stamp at {position} of {key} was {known_us}, is {arrival_us}")
        finally:
            journal.close_connection()
        for number, estimates in enumerate(found):
            known = self.estimates[number]
            for position, frontier_us in estimates:
                known[position] = max(frontier_us, known.get(position, frontier_us))

    def stamped(self, number: int, log: list[Raw]) -> list[Raw]:
        """Return what has an arrival of a log that ingest stamps, with it."""
        firsts = sorted(self.stamps[number])
        told = []
        for offset, raw in enumerate(log[: self.closed[number]]):
            place = bisect.bisect_right(firsts, offset) - 1
            demand(place >= 0, "facts stay", f"offset {offset} of partition {number} was read without a stamp")
            told.append(replace(raw, arrival_us=self.stamps[number][firsts[place]]))
        return told

    @property
    def count(self) -> int:
        """How many estimates are known."""
        return sum(map(len, self.estimates.values()))
