"""
What a fact of the journal can say. Whoever may write to Redis can write anything there.

Law: a fact that cannot be is never a premise. It cannot be if it lies beyond the end of its input partition (positions are closed, and
estimates made, up to the end), if it is ahead of this machine's clock by more than ``arrival_max_ahead`` and later than all that this
job has used, or if it differs from what this job knows of it. A clock reading in force for records cannot be older than the moment at
which this job has seen that they were not there yet. What could be true is believed: it cannot be told from a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ingest.config import IngestPlan, Partition
from ingest.journal.fact_memory import FactMemory
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import ImpossibleFactError
from ordering.ticks import MINUTE_US, NEVER, TICK_MAX, format_tick

ReadEnds = Callable[[Collection[Partition]], Mapping[Partition, int]]

# Clocks of several machines may differ by this much in any case.
_SKEW_US = 2 * MINUTE_US
# How many ends of a partition are remembered with the time at which they were seen.
_SEEN_MAX = 64


class FactBounds:
    """The bounds of one job; *read_ends* asks the brokers for the ends of partitions, open transactions included."""

    def __init__(self, plan: IngestPlan, read_ends: ReadEnds | None = None) -> None:
        self._read_ends = read_ends
        self._ahead_us = max(plan.arrival_max_ahead_us, _SKEW_US)
        # How old a clock reading may be when records are first planned by it.
        self._age_us = plan.clock_slack_us + self._ahead_us // 2
        self._name = plan.settings.name
        # Where nobody can have closed positions, because the clock reading in force there is older than the records.
        self.stale_from: dict[Partition, int] = {}
        # Facts that the journal has told and that cannot be, by kind and position.
        self.suspects: dict[Partition, set[tuple[FactKind, int]]] = {}
        self._ends: dict[Partition, int] = {}
        self._seen: dict[Partition, dict[int, int]] = {}

    def observe_ends(self, ends: Mapping[Partition, int], now_us: int) -> None:
        """Note the ends of partitions, seen at *now_us* (wall clock, read before they were asked for)."""
        for partition, end in ends.items():
            self._ends[partition] = max(end, self._ends.get(partition, 0))
            seen = self._seen.setdefault(partition, {})
            seen[end] = now_us
            if len(seen) > _SEEN_MAX:
                del seen[next(iter(seen))]

    def observe_records(self, ends: Mapping[Partition, int]) -> None:
        """Note that there are records up to these offsets, at least."""
        self._ends |= {partition: max(end, self._ends.get(partition, 0)) for partition, end in ends.items()}

    def is_beyond_end(self, partition: Partition, position: int) -> bool:
        """Return whether no record has ever been below *position*; asks the brokers if it was not seen before."""
        if self._read_ends is None or position <= self._ends.get(partition, 0):
            return False
        self._ends |= self._read_ends([partition])
        return position > self._ends[partition]

    def is_ahead(self, us: int, now_us: int) -> bool:
        return us > min(now_us + self._ahead_us, TICK_MAX)

    def check_closed(self, partition: Partition, closed: int) -> None:
        """Raise ImpossibleFactError if more is closed than there is."""
        if self.is_beyond_end(partition, closed):
            raise self._error(partition, f"it says that all records below offset {closed} were judged, and the partition ends before")

    def check_marks(self, partition: Partition, kind: FactKind, marks: Iterable[tuple[int, int]], memory: FactMemory, now_us: int) -> None:
        """Raise ImpossibleFactError if one of the facts that the journal has told cannot be."""
        before_us = NEVER
        for position, value in marks:
            if (reason := self.why_impossible(partition, kind, position, value, memory, now_us)) is not None:
                self.suspects.setdefault(partition, set()).add((kind, position))
                raise self._error(partition, reason)
            if kind.is_planning_time and value < before_us:
                raise self._error(partition, f"its {kind.name.lower()} at offset {position} is earlier than one before it")
            before_us = value

    def why_impossible(
        self, partition: Partition, kind: FactKind, position: int, value: int, memory: FactMemory, now_us: int
    ) -> str | None:
        """Return why a fact cannot be; None if it can."""
        name, known = kind.name.lower(), memory.value(kind, position)
        if value == known:
            return None
        if kind.is_planning_time and known is not None:
            return f"its {name} at offset {position} is not the one that this job knows"
        if self.is_beyond_end(partition, position):
            return f"it has a fact ({name}) at offset {position}, and the partition ends before"
        # This machine's clock may have been set back: what this job has used already is no news.
        if kind is not FactKind.IMPORT and self.is_ahead(value, now_us) and value > memory.latest_us():
            return f"its {name} at offset {position} says {_format_time(value)}, which this machine's clock has not reached"
        return None

    def check_age(self, partition: Partition, start: int, reading_us: int) -> None:
        """
        Raise ImpossibleFactError if the planning time in force from offset *start* on is older than the moment at which this job saw that
        the partition ended there or before: nobody can have planned these records then.
        """
        absent_us = max((us for end, us in self._seen.get(partition, {}).items() if end <= start), default=NEVER)
        if reading_us < absent_us - self._age_us:
            self.stale_from[partition] = start
            reason = (
                f"the records from offset {start} on are to be judged by a clock reading of {_format_time(reading_us)}, before they came"
            )
            raise self._error(partition, reason)

    def check_time(self, partition: Partition, what: str, us: int, now_us: int) -> None:
        """Raise ImpossibleFactError if a time that the journal has told is ahead of the clock."""
        if self.is_ahead(us, now_us):
            raise self._error(partition, f"its {what} says {_format_time(us)}, which this machine's clock has not reached")

    def _error(self, partition: Partition, reason: str) -> ImpossibleFactError:
        return impossible_error(f"{partition[0]}-{partition[1]}", reason, self._name)


def impossible_error(place: str, reason: str, input_name: str) -> ImpossibleFactError:
    """Return the error for a fact of the journal that cannot be."""
    fix = "a running job repairs entries that it knows; else rebuild the journal. Let nobody else write to tidegate:* in Redis"
    what = f"the journal of {place} says what cannot be: {reason}"
    return ImpossibleFactError(what, where=place, fix=fix, example=f"tidegate journal rebuild {input_name}")


def _format_time(us: int) -> str:
    return format_tick(us) if us <= TICK_MAX else f"{us} us"
