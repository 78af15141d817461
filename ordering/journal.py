"""
The journal: facts that no log holds, so that every replay of a log finds them again.

While an input partition is silent its arrival frontier is estimated from a clock; nobody could compute that value a
second time. So an estimate is a *fact of the journal* before it is used: (input partition, next offset, frontier), and
replay applies it just before it judges the record at that offset (spec section 3). Where another input's CTIs drive a
partition, each one *imported* is such a fact too: (input partition, next offset, c), and one more of its log (section 4).

Law: at each position the estimate and the import in force only rise, and never again change once the position is closed;
a partition's base is what its first writer wrote; a closed position stays closed. What a call returned is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class JournalKey(NamedTuple):
    """
    One input partition; its facts are shared by all jobs that read it, so that they agree.

    Args:
        job: What the keys are grouped by: the input topic.
        topic_id: Kafka's id of the input topic: a topic deleted and made again is another one.
        partition: The Kafka partition.
    """

    job: str
    topic_id: str
    partition: int


class Journal(Protocol):
    """
    What an ingest job may ask of its journal. Calls are atomic, also against another process that calls at the same time.

    Every method raises :class:`~ordering.errors.UnreachableError` when the journal does not answer; nothing is then known to have
    been written, and the same call may be repeated.
    """

    def estimate(self, key: JournalKey, next_offset: int, frontier_us: int) -> int | None:
        """
        Raise the estimate at the position *next_offset* to *frontier_us* at least.

        Returns:
            The estimate in force there, in microseconds, or None if the position is closed: then no estimate may be used.
        """

    def estimate_many(self, estimates: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """Do :meth:`estimate` for each (key, next offset, frontier in microseconds), in one round trip."""

    def import_cti(self, key: JournalKey, next_offset: int, c_us: int) -> int | None:
        """
        Raise the import at the position *next_offset* to *c_us* at least: a CTI of another input counts from there on.

        Returns:
            The c in force there, in microseconds, or None if the position is closed: then it may not be imported there.
        """

    def import_many(self, imports: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """Do :meth:`import_cti` for each (key, next offset, c in microseconds), in one round trip."""

    def close(self, key: JournalKey, below: int) -> None:
        """Close all positions < *below*, for estimates and imports: call it before the records below are judged, for good."""

    def close_many(self, positions: Sequence[tuple[JournalKey, int]]) -> None:
        """Do :meth:`close` for each (key, below), in one round trip."""

    def closed(self, key: JournalKey) -> int:
        """Return the first open position, 0 if none was ever closed. Lower than what was judged: the journal lost facts."""

    def estimates(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the (position, frontier in microseconds) with start <= position <= end, positions rising."""

    def estimates_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """Do :meth:`estimates` for each (key, start, end), in one round trip."""

    def imports(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the imported (position, c in microseconds) with start <= position <= end, positions rising."""

    def imports_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """Do :meth:`imports` for each (key, start, end), in one round trip."""

    def base(self, key: JournalKey, frontier_us: int) -> int:
        """Propose the frontier from which a partition without any record starts; return the first one ever proposed."""


@dataclass
class _Facts:
    estimates: dict[int, int] = field(default_factory=dict)
    imports: dict[int, int] = field(default_factory=dict)
    closed: int = 0
    base: int | None = None

    def raise_to(self, values: dict[int, int], position: int, value: int) -> int | None:
        if position < self.closed:
            return None
        values[position] = max(value, values.get(position, value))
        return values[position]


@dataclass
class MemoryJournal:
    """A journal that lives as long as this value: the model of all others, and enough for a run that is never resumed."""

    _facts: dict[JournalKey, _Facts] = field(default_factory=dict)

    def _of(self, key: JournalKey) -> _Facts:
        return self._facts.setdefault(key, _Facts())

    def estimate(self, key: JournalKey, next_offset: int, frontier_us: int) -> int | None:
        """See :meth:`Journal.estimate`."""
        facts = self._of(key)
        return facts.raise_to(facts.estimates, next_offset, frontier_us)

    def estimate_many(self, estimates: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """See :meth:`Journal.estimate_many`."""
        return [self.estimate(*estimate) for estimate in estimates]

    def import_cti(self, key: JournalKey, next_offset: int, c_us: int) -> int | None:
        """See :meth:`Journal.import_cti`."""
        facts = self._of(key)
        return facts.raise_to(facts.imports, next_offset, c_us)

    def import_many(self, imports: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """See :meth:`Journal.import_many`."""
        return [self.import_cti(*imported) for imported in imports]

    def close(self, key: JournalKey, below: int) -> None:
        """See :meth:`Journal.close`."""
        facts = self._of(key)
        facts.closed = max(facts.closed, below)

    def close_many(self, positions: Sequence[tuple[JournalKey, int]]) -> None:
        """See :meth:`Journal.close_many`."""
        for key, below in positions:
            self.close(key, below)

    def closed(self, key: JournalKey) -> int:
        """See :meth:`Journal.closed`."""
        return self._of(key).closed

    def estimates(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """See :meth:`Journal.estimates`."""
        return _between(self._of(key).estimates, start, end)

    def estimates_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """See :meth:`Journal.estimates_many`."""
        return [self.estimates(*wanted) for wanted in ranges]

    def imports(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """See :meth:`Journal.imports`."""
        return _between(self._of(key).imports, start, end)

    def imports_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """See :meth:`Journal.imports_many`."""
        return [self.imports(*wanted) for wanted in ranges]

    def base(self, key: JournalKey, frontier_us: int) -> int:
        """See :meth:`Journal.base`."""
        facts = self._of(key)
        facts.base = frontier_us if facts.base is None else facts.base
        return facts.base


def _between(values: dict[int, int], start: int, end: int) -> list[tuple[int, int]]:
    return sorted((position, value) for position, value in values.items() if start <= position <= end)
