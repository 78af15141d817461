"""
The journal: facts that are in no log, stored so that every replay of a log uses the same ones.

- While an input partition is silent, its arrival frontier is estimated from a clock. The estimate (input partition, next offset, frontier)
  is journaled before it is used. A replay applies it just before the record at that offset (docs/operate/journal.md).
- If another input's CTIs drive a partition, each import (input partition, next offset, c) is journaled too.
- The time at which a range of records was first planned is journaled. It is the records' arrival time if ingest stamps them, else the
  time with which absurd timestamps are compared.
- A range of records that is not read, because a user said so or because Kafka has lost them, is journaled as a skip (position, first offset
  read again).

Law: at each position the estimate and the import only rise, and never change after the position is closed. A closed position stays closed.
Planning times never fall along the partition. The base and the join of a partition are the first ones proposed. The effect of an answered
call is durable. Calls executed together are atomic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from ordering.errors import RefusedError, TidegateError
from ordering.protocol.facts import Fact, FactKind

# The kinds of which a partition has many facts; of each other kind it has one.
KINDS_BY_POSITION = (FactKind.ESTIMATE, FactKind.IMPORT, FactKind.STAMP, FactKind.CLOCK, FactKind.SKIP)


class JournalKey(NamedTuple):
    """One input partition: *job* is its topic, *topic_id* differs after the topic was deleted and made again. All jobs share its facts."""

    job: str
    topic_id: str
    partition: int


class Silence(NamedTuple):
    """
    Since when a partition is silent. Not a fact: it preserves the measured elapsed time over a restart of the job.

    Args:
        position: The end of the partition.
        boot_id: The boot of the machine whose boot-time clock *since_us* was read from.
        since_us: When that end was first seen, microseconds of that clock.
        arrival_us: The last arrival time below the position, microseconds.
    """

    position: int
    boot_id: str
    since_us: int
    arrival_us: int


class JournalWipedError(TidegateError):
    """
    The journal has lost confirmed facts: it was emptied, or restored from an older copy. The failed call had no effect. A caller that knows
    lost facts calls :meth:`Journal.restore` with them and then repeats its call.
    """

    default_code = "TG-JOURNAL-WIPED"


class ImpossibleFactError(RefusedError):
    """The journal says what cannot be: somebody else has written to it. Nothing of it is a premise until it is mended."""

    default_code = "TG-JOURNAL-IMPOSSIBLE"


class Raise(NamedTuple):
    """Raise the ESTIMATE, IMPORT or SKIP (an offset) at a position to *value_us* or more. Answer: the value in force; None: closed."""

    kind: FactKind
    key: JournalKey
    position: int
    value_us: int


class PlanningTime(NamedTuple):
    """
    The time at which a range is planned: a STAMP or CLOCK from the first of the positions that a :class:`Close` closes. It is raised to
    the last planning time and to the estimates at these positions, because a clock may be set back. If the last planning time is no older
    than *slack_us*, it is kept and no new one is added.
    """

    kind: FactKind
    value_us: int
    slack_us: int = 0


class Close(NamedTuple):
    """Close all positions < *below* for good, before the records below are judged. Answer: None."""

    key: JournalKey
    below: int
    planning_time: PlanningTime | None = None


class Read(NamedTuple):
    """
    Read the facts of a kind in force for start <= position <= end. Answer: a list of (position, value), positions rising. The stamp or
    clock reading in force at *start* is included with its own position; a partition has one BASE and one JOIN at most.
    """

    kind: FactKind
    key: JournalKey
    start: int
    end: int


class Propose(NamedTuple):
    """Propose the BASE or JOIN of a partition. Answer: the (position, value) of the first proposal."""

    kind: FactKind
    key: JournalKey
    position: int
    value: int


class ReadClosed(NamedTuple):
    """Answer: the first open position, 0 if none was closed. If it is below a judged position, the journal has lost facts."""

    key: JournalKey


class RecordSilence(NamedTuple):
    """
    Record since when a partition is silent. Answer: the :class:`Silence` in force. The stored one stays if its position is higher, or the
    same with the same boot; else the new one replaces it.
    """

    key: JournalKey
    silence: Silence


class Forget(NamedTuple):
    """Remove facts below a position that no replay needs; the planning time in force there stays. Answer: how many were removed."""

    key: JournalKey
    below: int


Call = Raise | Close | Read | Propose | ReadClosed | RecordSilence | Forget


class Journal(ABC):
    """
    The journal of an ingest job. Calls are atomic, also if several processes call. Every method raises
    :class:`~ordering.errors.UnreachableError` if the journal does not answer (the calls may have been executed or not, and may be
    repeated), and :class:`JournalWipedError` if the journal has lost facts.
    """

    @abstractmethod
    def execute(self, calls: Sequence[Call]) -> list[Any]:
        """Execute *calls* in order and atomically; return the answer of each."""

    @abstractmethod
    def restore(self, key: JournalKey, facts: Sequence[Fact]) -> int:
        """Restore facts in force before, closed positions (applied last) too; return how many contradict the journal, whose facts stay."""

    @abstractmethod
    def dump(self, key: JournalKey) -> list[Fact]:
        """Return all facts of a partition, by position and kind; :meth:`restore` copies them to an empty journal."""

    def first_open(self, key: JournalKey) -> int:
        """Return the first open position, 0 if none was closed. If it is below a judged position, the journal has lost facts."""
        position: int = self.execute([ReadClosed(key)])[0]
        return position

    def estimates(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the (position, frontier in microseconds) with start <= position <= end, positions rising."""
        return self._read(FactKind.ESTIMATE, key, start, end)

    def imports(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the imported (position, c in microseconds) with start <= position <= end, positions rising."""
        return self._read(FactKind.IMPORT, key, start, end)

    def stamps(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stamps (first offset, arrival time in microseconds) in force between *start* and *end*, positions rising."""
        return self._read(FactKind.STAMP, key, start, end)

    def first_stamped(self, key: JournalKey, from_us: int) -> int:
        """Return the first offset whose stamp is *from_us* or later; if there is none, the first offset without a stamp."""
        low, high = 0, self.first_open(key)
        while low < high:
            middle = (low + high) // 2
            stamps = self.stamps(key, middle, middle)
            # A missing stamp was forgotten, and forgotten ones are below all offsets that can still be read.
            if stamps and stamps[-1][1] >= from_us:
                high = middle
            else:
                low = middle + 1
        return low

    def _read(self, kind: FactKind, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        facts: list[tuple[int, int]] = self.execute([Read(kind, key, start, end)])[0]
        return facts
