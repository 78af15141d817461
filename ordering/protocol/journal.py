"""
The journal: facts that no log holds, so that every replay of a log finds them again.

- While an input partition is silent, its arrival frontier is estimated from a clock, which gives another value at every try. So an estimate
  is journaled before it is used: (input partition, next offset, frontier). A replay applies it just before it judges the record at that
  offset (spec section 3).
- If another input's CTIs drive a partition, each import is a fact too: (input partition, next offset, c) (section 4).
- The time at which a range of records was first planned is a fact: the records' arrival if ingest stamps them, else the clock that absurd
  timestamps are compared with (section 1).

Law: at each position the estimate and the import in force only rise, and never change again once the position is closed. A closed position
stays closed, with the planning time of its closing, which never falls along the partition. A partition's base and its joining are those of
their first writer. The effect of an answered call is durable. Calls given together happen together: no reader sees some of them done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from ordering.errors import TidegateError
from ordering.protocol.facts import Fact, FactKind

# The kinds of which a partition has many facts; of each other kind it has one.
KINDS_BY_POSITION = (FactKind.ESTIMATE, FactKind.IMPORT, FactKind.STAMP, FactKind.VERDICT)


class JournalKey(NamedTuple):
    """
    One input partition; its facts are shared by all jobs that read it, so that they agree.

    Args:
        job: The group of the keys: the input topic.
        topic_id: Kafka's id of the input topic: a topic deleted and made again is another one.
        partition: The Kafka partition.
    """

    job: str
    topic_id: str
    partition: int


class Silence(NamedTuple):
    """
    Since when a partition is silent. Not a fact: it only lets the measured elapsed time survive a restart of the job.

    Args:
        position: The end of the partition.
        boot_id: Which run of which machine's boot-time clock *since_us* was read from.
        since_us: When the end was first seen there, microseconds of that clock.
        arrival_us: The last arrival below the position, microseconds.
    """

    position: int
    boot_id: str
    since_us: int
    arrival_us: int


class JournalWipedError(TidegateError):
    """
    The journal has lost facts it had confirmed: it was emptied, or brought back from an older copy.

    Nothing of the call was done. A caller that knows lost facts gives them back by :meth:`Journal.restore` and calls again.
    """

    default_code = "TG-JOURNAL-WIPED"


class Raise(NamedTuple):
    """Raise the ESTIMATE or IMPORT at a position to *value_us* at least. Answer: the value in force, None if the position is closed."""

    kind: FactKind
    key: JournalKey
    position: int
    value_us: int


class PlanningTime(NamedTuple):
    """
    When a range is planned: a STAMP or VERDICT for the positions that a :class:`Close` closes, from the first of them on.

    It is lifted to the last one and to the estimates at these positions, as a clock may have been set back.

    Args:
        kind: STAMP or VERDICT.
        value_us: The wall clock, microseconds.
        slack_us: If the last planning time is no older than this, it holds on and no new one is added.
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
    Read the facts of a kind that bear on start <= position <= end. Answer: (position, value) each, positions rising.

    Of stamps and verdicts the one in force at *start* is among them, at its own position; of BASE and JOIN there is one at most.
    """

    kind: FactKind
    key: JournalKey
    start: int
    end: int


class Propose(NamedTuple):
    """Propose the BASE or JOIN of a partition. Answer: the (position, value) that was proposed first ever."""

    kind: FactKind
    key: JournalKey
    position: int
    value: int


class ReadClosed(NamedTuple):
    """Answer: the first open position, 0 if none was ever closed. If lower than the position judged, the journal has lost facts."""

    key: JournalKey


class RecordSilence(NamedTuple):
    """
    Record since when a partition is silent. Answer: the :class:`Silence` in force.

    The known one stays if its position is higher, or the same and of the same boot; else the new one replaces it.
    """

    key: JournalKey
    silence: Silence


class Forget(NamedTuple):
    """Forget facts below a position that no replay can need; the span in force there stays. Answer: how many were forgotten."""

    key: JournalKey
    below: int


Call = Raise | Close | Read | Propose | ReadClosed | RecordSilence | Forget


class Journal(ABC):
    """
    The journal of an ingest job. Calls are atomic, also against another process that calls at the same time.

    Every method raises :class:`~ordering.errors.UnreachableError` when the journal does not answer: the calls may or may not have been
    done, and may be repeated. It raises :class:`JournalWipedError` when it finds that it has lost facts.
    """

    @abstractmethod
    def execute(self, calls: Sequence[Call]) -> list[Any]:
        """Do *calls* in their order, all at once; return the answer of each."""

    @abstractmethod
    def restore(self, key: JournalKey, facts: Sequence[Fact]) -> int:
        """
        Give back facts that were in force once, closed positions included; CLOSED is applied last.

        Returns:
            How many of them contradict facts that the journal holds: those stay as they are.
        """

    @abstractmethod
    def dump(self, key: JournalKey) -> list[Fact]:
        """Return all facts of a partition, by position and kind; :meth:`restore` makes an empty journal equal to this one by them."""

    def first_open(self, key: JournalKey) -> int:
        """Return the first open position, 0 if none was ever closed. If lower than the position judged, the journal has lost facts."""
        position: int = self.execute([ReadClosed(key)])[0]
        return position

    def estimates(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the (position, frontier in microseconds) with start <= position <= end, positions rising."""
        return self._read(FactKind.ESTIMATE, key, start, end)

    def imports(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the imported (position, c in microseconds) with start <= position <= end, positions rising."""
        return self._read(FactKind.IMPORT, key, start, end)

    def stamps(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stamps (first offset, arrival in microseconds) in force somewhere from *start* to *end*, positions rising."""
        return self._read(FactKind.STAMP, key, start, end)

    def first_stamped(self, key: JournalKey, from_us: int) -> int:
        """Return the first offset whose stamp is *from_us* or later; the first one not stamped yet if none is."""
        low, high = 0, self.first_open(key)
        while low < high:
            middle = (low + high) // 2
            stamps = self.stamps(key, middle, middle)
            # Without a stamp it was forgotten: those lie below all that can still be read.
            if stamps and stamps[-1][1] >= from_us:
                high = middle
            else:
                low = middle + 1
        return low

    def _read(self, kind: FactKind, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        facts: list[tuple[int, int]] = self.execute([Read(kind, key, start, end)])[0]
        return facts
