"""
The planner's desk for facts of the journal: all it asks of the journal, it asks here.

Law: what a call returns is in force and durable, so it may be planned; what the journal did not answer for is not in
force for this planner. A journal that fails is asked again after a while and never ends the job: until it answers no
estimate is made, and only positions are planned that nobody has judged before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal_redis import RedisJournal
from ingest.offsets import Joined, Marks, Planned
from ordering.errors import TidegateError
from ordering.facts import FactKind
from ordering.journal import JournalKey, Settle
from ordering.ticks import INFINITY

_RETRY_S = 1.0

Raise = tuple[Partition, int, int]
"""(partition, position, time in microseconds): what is to be in force just before the record at that position is judged."""


class FactDesk:
    """
    All a planner knows of the journal.

    Args:
        plan: The job.
        log: Where it is said that the journal does not answer, or does again.
    """

    def __init__(self, plan: IngestPlan, log: FilteringBoundLogger) -> None:
        self._plan, self._log = plan, log
        self._journal: RedisJournal | None = None
        self._lost = False
        self._retry_s = 0.0
        self._unclosed: dict[Partition, int] = {}
        self._closed: dict[Partition, int] = {}
        self._keys = {partition: plan.journal_key(partition) for partition in plan.partitions}
        self._import_keys = {partition: plan.import_key(partition) for partition in plan.partitions} if plan.imported else {}

    def reach(self) -> bool:
        """Return whether the journal answers; asked for again once a second while it does not."""
        return self._reach() is not None

    def plannable(self, here: Mapping[Partition, Planned]) -> dict[Partition, Planned]:
        """Return those of *here* that may be planned on: all of them, or without the journal those that nobody judged before."""
        if self.reach():
            return dict(here)
        # What nobody has judged yet has no estimates; what was judged before (a replay) may have some, and must wait.
        return {partition: at for partition, at in here.items() if at.next_offset >= self._closed.get(partition, INFINITY)}

    def close(self, here: Mapping[Partition, Planned], until: Mapping[Partition, int]) -> dict[Partition, tuple[Marks, Marks]]:
        """
        Close the positions about to be judged.

        Args:
            here: Where each range starts.
            until: Where it ends.

        Returns:
            The estimates and imports in force in each range, those where it starts included; while the journal does not answer
            only the latter.
        """
        self._unclosed |= until
        # What is in force where a range starts was applied when it was planned, except after a start in the middle.
        known = {partition: (at.silent().all_marks(), at.silent().all_imports()) for partition, at in here.items()}
        journal = self._reach()
        if journal is None:
            return known
        try:
            estimates = self._close_and_read(journal, self._keys, journal.estimates_many, here, until)
            imports = self._close_and_read(journal, self._import_keys, journal.imports_many, here, until)
            self._unclosed.clear()
        except TidegateError as error:
            self._lose(error)
            return known
        return {
            partition: (at_start + estimates.get(partition, ()), imported + imports.get(partition, ()))
            for partition, (at_start, imported) in known.items()
        }

    def estimate(self, wanted: Sequence[Raise]) -> dict[Partition, int]:
        """Journal estimates; return those in force. Where the position is closed, or no answer came, there is none."""
        return self._raise(wanted, self._keys, RedisJournal.estimate_many)

    def imported(self, wanted: Sequence[Raise]) -> dict[Partition, int]:
        """Journal imported CTIs; return those in force. Where the position is closed, or no answer came, there is none."""
        return self._raise(wanted, self._import_keys, RedisJournal.import_many)

    def base(self, partition: Partition, frontier_us: int) -> int | None:
        """Propose the frontier from which a partition without any record starts; return the one in force, None without an answer."""
        journal = self._reach()
        if journal is None:
            return None
        try:
            return journal.base(self._keys[partition], frontier_us)
        except TidegateError as error:
            self._lose(error)
            return None

    def known_joins(self, partitions: Mapping[Partition, str]) -> dict[Partition, Joined] | None:
        """Return which of *partitions* (with their topic's id) once joined this ordered topic, and when; None without an answer."""
        journal = self._reach()
        if journal is None:
            return None
        try:
            found = {partition: journal.dump(self._plan.join_key(partition, topic_id)) for partition, topic_id in partitions.items()}
        except TidegateError as error:
            self._lose(error)
            return None
        joins = {partition: [fact for fact in facts if fact.kind == FactKind.JOIN] for partition, facts in found.items()}
        return {partition: Joined(facts[0].position, facts[0].value) for partition, facts in joins.items() if facts}

    def joined(self, partition: Partition, topic_id: str, joined: Joined) -> bool:
        """
        Take a partition that joined into what is journaled, and journal when it did.

        Returns:
            Whether the journal has it; else call again.
        """
        self._know(partition, topic_id)
        journal = self._reach()
        if journal is None:
            return False
        try:
            journal.do([Settle(FactKind.JOIN, self._plan.join_key(partition, topic_id), *joined)])
        except TidegateError as error:
            self._lose(error)
            return False
        return True

    def _know(self, partition: Partition, topic_id: str) -> None:
        if partition in self._keys:
            return
        topic, number = partition
        self._keys[partition] = JournalKey(topic, topic_id, number)
        if self._plan.imported is not None:
            self._import_keys[partition] = JournalKey(f"{topic}<{self._plan.imported.topic}", topic_id, number)
        self._closed.pop(partition, None)

    def _close_and_read(
        self,
        journal: RedisJournal,
        keys: Mapping[Partition, JournalKey],
        read: Callable[[list[tuple[JournalKey, int, int]]], list[list[tuple[int, int]]]],
        here: Mapping[Partition, Planned],
        until: Mapping[Partition, int],
    ) -> dict[Partition, Marks]:
        """Close under *keys*, if there are any, and return what stands between *here* and *until*."""
        if not keys:
            return {}
        journal.close_many([(keys[partition], below) for partition, below in self._unclosed.items()])
        found = read([(keys[partition], at.next_offset, until[partition] - 1) for partition, at in here.items()])
        return {partition: tuple(marks) for partition, marks in zip(here, found, strict=True)}

    def _raise(
        self,
        wanted: Sequence[Raise],
        keys: Mapping[Partition, JournalKey],
        write: Callable[[RedisJournal, Sequence[tuple[JournalKey, int, int]]], list[int | None]],
    ) -> dict[Partition, int]:
        journal = self._reach() if wanted else None
        if journal is None:
            return {}
        try:
            agreed = write(journal, [(keys[partition], position, us) for partition, position, us in wanted])
        except TidegateError as error:
            self._lose(error)
            return {}
        return {partition: us for (partition, _, _), us in zip(wanted, agreed, strict=True) if us is not None}

    def _reach(self) -> RedisJournal | None:
        if self._journal is None and time.monotonic() >= self._retry_s:
            try:
                self._journal = RedisJournal.open(self._plan.redis)
                self._closed = {partition: self._journal.closed(key) for partition, key in self._keys.items()}
            except TidegateError as error:
                self._lose(error)
            else:
                if self._lost:
                    self._log.info("the journal answers again", redis=self._plan.redis.address)
                self._lost = False
        return self._journal

    def _lose(self, error: TidegateError) -> None:
        if not self._lost:
            self._log.warning(
                "the journal does not answer: no idle estimates until it does", redis=self._plan.redis.address, reason=error.what
            )
        self._journal, self._lost, self._retry_s = None, True, time.monotonic() + _RETRY_S
