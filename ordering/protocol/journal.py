"""
The journal: facts that no log holds, so that every replay of a log finds them again.

While an input partition is silent its arrival frontier is estimated from a clock; nobody could compute that value a
second time. So an estimate is a *fact of the journal* before it is used: (input partition, next offset, frontier), and
replay applies it just before it judges the record at that offset (spec section 3). Where another input's CTIs drive a
partition, each one *imported* is such a fact too: (input partition, next offset, c), and one more of its log (section 4).
When a range of records was first planned is a fact as well: it is their arrival where ingest stamps them, and elsewhere
what an absurd timestamp is told by (section 1).

Law: at each position the estimate and the import in force only rise, and never again change once the position is closed;
a closed position stays closed, and what was said when it was closed - the moment, which never falls along the partition -
stays; a partition's base and its joining are what their first writer wrote. What a call returned is durable. Calls given
together happen together: nobody sees some of them done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from ordering.errors import TidegateError
from ordering.protocol.facts import Fact, FactKind

# The kinds of which a partition has many facts; of the others it has one.
KINDS_BY_POSITION = (FactKind.ESTIMATE, FactKind.IMPORT, FactKind.STAMP, FactKind.VERDICT)


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


class Silence(NamedTuple):
    """
    Since when a partition is silent: no fact, but what lets elapsed time survive a restart of whoever measured it.

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

    Nothing of the call was done. Who knows lost facts gives them back by :meth:`Journal.restore` and calls again.
    """

    default_code = "TG-JOURNAL-WIPED"


class Raise(NamedTuple):
    """Raise the ESTIMATE or IMPORT at a position to *value_us* at least. Answer: what is in force, None if it is closed."""

    kind: FactKind
    key: JournalKey
    position: int
    value_us: int


class PlanningTime(NamedTuple):
    """
    When a range is planned: a STAMP or VERDICT for the positions that a :class:`Close` closes, from the first of them on.

    It is lifted to the last one and to the estimates at these positions: a clock that was set back says nothing.

    Args:
        kind: STAMP or VERDICT.
        value_us: The wall clock, microseconds.
        slack_us: A last moment that is no older than this holds on, instead of a new one.
    """

    kind: FactKind
    value_us: int
    slack_us: int = 0


class Close(NamedTuple):
    """Close all positions < *below* for good: before the records below are judged. Answer: None."""

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
    """Answer: the first open position, 0 if none was ever closed. Lower than what was judged: the journal lost facts."""

    key: JournalKey


class RecordSilence(NamedTuple):
    """
    Say since when a partition is silent. Answer: the :class:`Silence` in force.

    That is the one known if its position is higher, or the same and it is of the same boot; else the new one.
    """

    key: JournalKey
    silence: Silence


class Forget(NamedTuple):
    """Forget facts below a position which no log can need again; the span in force there stays. Answer: how many were forgotten."""

    key: JournalKey
    below: int


Call = Raise | Close | Read | Propose | ReadClosed | RecordSilence | Forget


class Journal(ABC):
    """
    What an ingest job may ask of its journal. Calls are atomic, also against another process that calls at the same time.

    Every method raises :class:`~ordering.errors.UnreachableError` when the journal does not answer: the calls may or may not have
    been done, and may be repeated. It raises :class:`JournalWipedError` when it finds that it has lost facts.
    """

    @abstractmethod
    def execute(self, calls: Sequence[Call]) -> list[Any]:
        """Do *calls* in their order, all at once; return the answer of each."""

    @abstractmethod
    def restore(self, key: JournalKey, facts: Sequence[Fact]) -> int:
        """
        Give back facts that were in force once, closed positions included; CLOSED is applied last.

        Returns:
            How many of them contradict what the journal holds now: that stays as it is.
        """

    @abstractmethod
    def dump(self, key: JournalKey) -> list[Fact]:
        """Return all facts of a partition, by position and kind: what :meth:`restore` makes an empty journal equal to."""

    def first_open(self, key: JournalKey) -> int:
        """Return the first open position, 0 if none was ever closed. Lower than what was judged: the journal lost facts."""
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
