"""
A journal in memory, the model that the Redis journal is compared with; and single calls of any journal by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ordering.protocol.facts import Fact, FactKind, sort_facts
from ordering.protocol.journal import (
    KINDS_BY_POSITION,
    Call,
    Close,
    Forget,
    Journal,
    JournalKey,
    PlanningTime,
    Propose,
    Raise,
    Read,
    ReadClosed,
    RecordSilence,
    Silence,
)

Position = tuple[JournalKey, int, int]


def estimate(journal: Journal, key: JournalKey, next_offset: int, frontier_us: int) -> int | None:
    """Raise the estimate at a position; return the one in force, None if the position is closed."""
    return estimate_many(journal, [(key, next_offset, frontier_us)])[0]


def estimate_many(journal: Journal, estimates: Sequence[Position]) -> list[int | None]:
    """Raise several estimates at once."""
    return journal.execute([Raise(FactKind.ESTIMATE, *position) for position in estimates])


def import_cti(journal: Journal, key: JournalKey, next_offset: int, c_us: int) -> int | None:
    """Raise the import at a position; return the one in force, None if the position is closed."""
    return import_many(journal, [(key, next_offset, c_us)])[0]


def import_many(journal: Journal, imports: Sequence[Position]) -> list[int | None]:
    """Raise several imports at once."""
    return journal.execute([Raise(FactKind.IMPORT, *position) for position in imports])


def close(journal: Journal, key: JournalKey, below: int) -> None:
    """Close all positions below one."""
    close_many(journal, [(key, below)])


def close_many(journal: Journal, positions: Sequence[tuple[JournalKey, int]]) -> None:
    """Close positions of several partitions at once."""
    journal.execute([Close(key, below) for key, below in positions])


def read_many(journal: Journal, kind: FactKind, ranges: Sequence[Position]) -> list[list[tuple[int, int]]]:
    """Read the facts of several ranges (key, start, end) at once."""
    return journal.execute([Read(kind, *span) for span in ranges])


def settle_base(journal: Journal, key: JournalKey, frontier_us: int) -> int:
    """Propose the frontier from which a partition without any record starts; return the first one ever proposed."""
    base: tuple[int, int] = journal.execute([Propose(FactKind.BASE, key, 0, frontier_us)])[0]
    return base[1]


@dataclass
class _Facts:
    values: dict[FactKind, dict[int, int]] = field(default_factory=lambda: {kind: {} for kind in KINDS_BY_POSITION})
    closed: int = 0
    settled: dict[FactKind, tuple[int, int]] = field(default_factory=dict)
    silence: Silence | None = None


@dataclass
class MemoryJournal(Journal):
    """A journal that lives as long as this value: the model that the Redis journal is compared with."""

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

    def withdraw(self, key: JournalKey, fact: Fact) -> None:
        """Forget a fact, as ``tidegate skip --undo`` lets the Redis journal do."""
        self._of(key).values[fact.kind].pop(fact.position, None)

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
                return sum(_forget(held.values[kind], call.below, kind.is_planning_time) for kind in KINDS_BY_POSITION)


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
    if call.kind.is_planning_time:
        start = max((position for position in values if position <= start), default=start)
    return sorted((position, value) for position, value in values.items() if start <= position <= call.end)


def _forget(values: dict[int, int], below: int, is_planning_time: bool) -> int:
    if is_planning_time:
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
    if known is not None and (kind.is_planning_time or fact.position < held.closed):
        return known == fact.value
    if kind.is_planning_time and not _fits(values, fact):
        return False
    values[fact.position] = max(fact.value, known or 0)
    return True


def _fits(spans: dict[int, int], fact: Fact) -> bool:
    """Return whether moments would still never fall with one more."""
    before = max((position for position in spans if position < fact.position), default=None)
    after = min((position for position in spans if position > fact.position), default=None)
    return (before is None or spans[before] <= fact.value) and (after is None or fact.value <= spans[after])
