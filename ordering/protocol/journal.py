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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ordering.errors import TidegateError
from ordering.protocol.facts import Fact, FactKind, sort_facts

KINDS_BY_POSITION = (FactKind.ESTIMATE, FactKind.IMPORT, FactKind.STAMP, FactKind.VERDICT)
"""The kinds of which a partition has many facts; of the others it has one."""


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

    def estimate(self, key: JournalKey, next_offset: int, frontier_us: int) -> int | None:
        """
        Raise the estimate at the position *next_offset* to *frontier_us* at least.

        Returns:
            The estimate in force there, in microseconds, or None if the position is closed: then no estimate may be used.
        """
        return self.estimate_many([(key, next_offset, frontier_us)])[0]

    def estimate_many(self, estimates: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """Do :meth:`estimate` for each (key, next offset, frontier in microseconds), at once."""
        return self.execute([Raise(FactKind.ESTIMATE, *wanted) for wanted in estimates])

    def import_cti(self, key: JournalKey, next_offset: int, c_us: int) -> int | None:
        """
        Raise the import at the position *next_offset* to *c_us* at least: a CTI of another input counts from there on.

        Returns:
            The c in force there, in microseconds, or None if the position is closed: then it may not be imported there.
        """
        return self.import_many([(key, next_offset, c_us)])[0]

    def import_many(self, imports: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """Do :meth:`import_cti` for each (key, next offset, c in microseconds), at once."""
        return self.execute([Raise(FactKind.IMPORT, *wanted) for wanted in imports])

    def close(self, key: JournalKey, below: int) -> None:
        """Close all positions < *below*, for estimates and imports: call it before the records below are judged, for good."""
        self.execute([Close(key, below)])

    def close_many(self, positions: Sequence[tuple[JournalKey, int]]) -> None:
        """Do :meth:`close` for each (key, below), at once."""
        self.execute([Close(key, below) for key, below in positions])

    def first_open(self, key: JournalKey) -> int:
        """Return the first open position, 0 if none was ever closed. Lower than what was judged: the journal lost facts."""
        position: int = self.execute([ReadClosed(key)])[0]
        return position

    def estimates(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the (position, frontier in microseconds) with start <= position <= end, positions rising."""
        return self.estimates_many([(key, start, end)])[0]

    def estimates_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """Do :meth:`estimates` for each (key, start, end), at once."""
        return self.execute([Read(FactKind.ESTIMATE, *wanted) for wanted in ranges])

    def imports(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the imported (position, c in microseconds) with start <= position <= end, positions rising."""
        return self.imports_many([(key, start, end)])[0]

    def imports_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """Do :meth:`imports` for each (key, start, end), at once."""
        return self.execute([Read(FactKind.IMPORT, *wanted) for wanted in ranges])

    def stamps(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stamps (first offset, arrival in microseconds) in force somewhere from *start* to *end*, positions rising."""
        found: list[tuple[int, int]] = self.execute([Read(FactKind.STAMP, key, start, end)])[0]
        return found

    def first_stamped(self, key: JournalKey, from_us: int) -> int:
        """Return the first offset whose stamp is *from_us* or later; the first one not stamped yet if none is."""
        low, high = 0, self.first_open(key)
        while low < high:
            middle = (low + high) // 2
            found = self.stamps(key, middle, middle)
            # What was forgotten lies below all that can still be read.
            if found and found[-1][1] >= from_us:
                high = middle
            else:
                low = middle + 1
        return low

    def settle_base(self, key: JournalKey, frontier_us: int) -> int:
        """Propose the frontier from which a partition without any record starts; return the first one ever proposed."""
        settled: tuple[int, int] = self.execute([Propose(FactKind.BASE, key, 0, frontier_us)])[0]
        return settled[1]


@dataclass
class _Facts:
    values: dict[FactKind, dict[int, int]] = field(default_factory=lambda: {kind: {} for kind in KINDS_BY_POSITION})
    closed: int = 0
    settled: dict[FactKind, tuple[int, int]] = field(default_factory=dict)
    silence: Silence | None = None


@dataclass
class MemoryJournal(Journal):
    """A journal that lives as long as this value: the model of all others, and enough for a run that is never resumed."""

    _facts: dict[JournalKey, _Facts] = field(default_factory=dict)

    def execute(self, calls: Sequence[Call]) -> list[Any]:
        """See :meth:`Journal.execute`."""
        return [self._answer(call) for call in calls]

    def restore(self, key: JournalKey, facts: Sequence[Fact]) -> int:
        """See :meth:`Journal.restore`."""
        held = self._of(key)
        closing = [fact for fact in facts if fact.kind == FactKind.CLOSED]
        wrong = sum(not _fill(held, fact) for fact in facts if fact.kind != FactKind.CLOSED)
        held.closed = max(held.closed, *(fact.position for fact in closing), 0)
        return wrong

    def dump(self, key: JournalKey) -> list[Fact]:
        """See :meth:`Journal.dump`."""
        held = self._of(key)
        facts = [Fact(kind, *mark) for kind, values in held.values.items() for mark in values.items()]
        facts += [Fact(kind, *settled) for kind, settled in held.settled.items()]
        facts += [Fact(FactKind.CLOSED, held.closed, 0)] if held.closed else []
        return sort_facts(facts)

    def _of(self, key: JournalKey) -> _Facts:
        return self._facts.setdefault(key, _Facts())

    def _answer(self, call: Call) -> Any:
        held = self._of(call.key)
        match call:
            case Raise():
                return _raise(held, call)
            case Close():
                _close(held, call)
                return None
            case Read():
                return _read(held, call)
            case Propose():
                return held.settled.setdefault(call.kind, (call.position, call.value))
            case ReadClosed():
                return held.closed
            case RecordSilence():
                held.silence = call.silence if supersedes(call.silence, held.silence) else held.silence
                return held.silence
            case Forget():
                return sum(_forget(held.values[kind], call.below, kind.is_span) for kind in KINDS_BY_POSITION)


def supersedes(new: Silence, known: Silence | None) -> bool:
    """Return whether *new* takes the place of the silence that is *known*: see :class:`Hush`."""
    if known is None or new.position > known.position:
        return True
    return new.position == known.position and new.boot_id != known.boot_id


def _raise(held: _Facts, call: Raise) -> int | None:
    if call.position < held.closed:
        return None
    values = held.values[call.kind]
    values[call.position] = max(call.value_us, values.get(call.position, call.value_us))
    return values[call.position]


def _close(held: _Facts, call: Close) -> None:
    if call.below <= held.closed:
        return
    if call.planning_time is not None:
        _cover(held, call.planning_time, call.below)
    held.closed = call.below


def _cover(held: _Facts, moment: PlanningTime, below: int) -> None:
    """Say the moment for the positions from the first open one on, unless the last one is as good."""
    spans = held.values[moment.kind]
    last_us = spans[max(spans)] if spans else 0
    estimated_us = [us for at, us in held.values[FactKind.ESTIMATE].items() if held.closed <= at < below]
    lifted_us = max(estimated_us, default=0) if moment.kind is FactKind.STAMP else 0
    if spans and last_us >= max(moment.value_us - moment.slack_us, lifted_us):
        return
    spans[held.closed] = max(moment.value_us, last_us, lifted_us)


def _read(held: _Facts, call: Read) -> list[tuple[int, int]]:
    values, start = held.values.get(call.kind, dict([held.settled[call.kind]] if call.kind in held.settled else [])), call.start
    if call.kind.is_span:
        start = max((position for position in values if position <= start), default=start)
    return sorted((position, value) for position, value in values.items() if start <= position <= call.end)


def _forget(values: dict[int, int], below: int, is_span: bool) -> int:
    if is_span:
        below = max((position for position in values if position <= below), default=0)
    gone = [position for position in values if position < below]
    for position in gone:
        del values[position]
    return len(gone)


def _fill(held: _Facts, fact: Fact) -> bool:
    """Take a fact back; return whether it stands now."""
    kind = FactKind(fact.kind)
    if kind not in KINDS_BY_POSITION:
        return held.settled.setdefault(kind, (fact.position, fact.value)) == (fact.position, fact.value)
    values = held.values[kind]
    known = values.get(fact.position)
    if known is not None and (kind.is_span or fact.position < held.closed):
        return known == fact.value
    if kind.is_span and not _fits(values, fact):
        return False
    values[fact.position] = max(fact.value, known or 0)
    return True


def _fits(spans: dict[int, int], fact: Fact) -> bool:
    """Return whether moments would still never fall with one more."""
    before = max((position for position in spans if position < fact.position), default=None)
    after = min((position for position in spans if position > fact.position), default=None)
    return (before is None or spans[before] <= fact.value) and (after is None or fact.value <= spans[after])
