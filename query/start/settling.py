"""
Where a query with OVER begins to read a log such that its results come in the order of a run from the beginning.

The emission order follows the records at which events are accepted. A reader that starts in the middle, at some instant, accepts an event
at its own record only once a CTI that promises at least that instant has settled its channel; before that, at the next CTI. So a run that
needs all events from *needed_us* on starts its readers 1 s earlier, or 2 s, 4 s, ...: at the first such instant that a CTI of each channel
promises, between the first record of that instant and the first record of *needed_us*. Any such CTI serves, a stale writer's too: it is
true, and the reader's rule holds for it.

Law, level 2: every event from *needed_us* on is accepted at the same record as by a reader of the whole log. Without such an instant, the
log is read from its first record ever by the normal rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ordering.protocol.punctuation import Cti, Roster
from ordering.ticks import SECOND_US, TICK_MIN
from query.config import LogStart

# Yields (offset, CTI) of the records with first <= offset < end.
ReadCtis = Callable[[int, int], Iterable[tuple[int, Cti]]]


def settle_log(
    needed_us: int, first_offset: Callable[[int], int], read: ReadCtis, partition: int, partitions: int, *, step_us: int = SECOND_US
) -> LogStart:
    """
    Return the start of a log, one partition of *partitions*, of which all events from *needed_us* on are needed. *first_offset*
    returns the first offset whose timestamp is not below an instant.
    """
    read_to = first_offset(needed_us)
    ctis: list[tuple[int, Cti]] = []
    while needed_us - step_us > TICK_MIN:
        start_us = needed_us - step_us
        first = first_offset(start_us)
        if first == 0:
            break
        if first < read_to:
            ctis, read_to = [*read(first, read_to), *ctis], first
        if is_settled(ctis, start_us, partition, partitions):
            return LogStart(start_us, first)
        step_us *= 2
    return LogStart(None, 0)


def is_settled(ctis: Iterable[tuple[int, Cti]], start_us: int, partition: int, partitions: int) -> bool:
    """Return whether each channel of the newest roster among *ctis* has a whole CTI there that promises *start_us* or more."""
    begun, settled = set[int](), set[int]()
    roster: Roster | None = None
    for _, cti in ctis:
        roster = cti.roster if roster is None or cti.roster.version > roster.version else roster
        begun |= {cti.number} if cti.part == 0 else set()
        if cti.part == cti.parts - 1 and cti.number in begun and cti.c >= start_us:
            settled.add(cti.number)
    return roster is not None and settled.issuperset(roster.channels_of(partition, partitions))
