"""
What a fact of the journal can say. Whoever may write to Redis can write anything there.

Law: a fact that cannot be is never a premise. It cannot be if it lies beyond the end of its input partition (positions are closed, and
estimates made, up to the end), if it is ahead of this machine's clock by more than ``arrival_max_ahead`` and later than all that this
job has used, or if it differs from what this job knows of it. A clock reading in force for records cannot be older than the moment at
which this job has seen that they were not there yet. What could be true is believed: it cannot be told from a fact.

Mending a journal that says what cannot be (:func:`mend_journal`): only what this job knows better, or what can never have been a fact, is
changed. A fact of which this job knows the value gets that value back; one beyond the end of its partition, or below the job's position, is
removed (the ordered topic carries what was judged). A fact that another job may have made stays, and the job goes on as without a journal,
until it has passed that position or somebody rebuilds the journal. The journal gets a new era, so that every job gives back what it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.known_facts import FactMemory, KnownFacts
from ingest.journal.redis_journal import Entries, RedisJournal, impossible_error, parse_number, parse_settled, parse_silence
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import ImpossibleFactError, JournalKey
from ordering.ticks import INFINITY, MINUTE_US, NEVER, TICK_MAX, format_tick

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


def _format_time(us: int) -> str:
    return format_tick(us) if us <= TICK_MAX else f"{us} us"


# An entry to remove: kind and position as it is written; of an entry without a position its name and an empty text.
Wrong = tuple[FactKind | str, str]


def mend_journal(journal: RedisJournal, known: KnownFacts, bounds: FactBounds, log: FilteringBoundLogger, now_us: int) -> None:
    """Mend the journal's entries about a job's partitions; facts that were removed are given back with the next call."""
    for partition in known.positions:
        for key in dict.fromkeys((known.key(partition), known.import_key(partition))):
            _mend(journal, known, bounds, partition, key, log, now_us)
        bounds.stale_from.pop(partition, None)
        bounds.suspects.pop(partition, None)


def _mend(
    journal: RedisJournal,
    known: KnownFacts,
    bounds: FactBounds,
    partition: Partition,
    key: JournalKey,
    log: FilteringBoundLogger,
    now_us: int,
) -> None:
    entries = journal.find_entries(key)
    judged = known.positions[partition].next_offset
    wrong = list(find_wrong(entries, bounds, partition, known.memory(partition), judged, now_us))
    # An estimate at the job's position is in nobody's results yet; whoever made one there gives it back.
    suspects = bounds.suspects.get(partition, ())
    wrong += [(kind, f"{position:019d}") for kind, position in suspects if position <= judged and not kind.is_planning_time]
    closed = find_closed(entries, bounds, partition)
    reopened = max(known.closed.get(partition, 0), judged) if closed is None else None
    stale_from = bounds.stale_from.get(partition)
    if closed is not None and stale_from is not None and closed > stale_from:
        reopened = stale_from
    if wrong or reopened is not None or entries.of_other_type:
        journal.mend(key, list(dict.fromkeys(wrong)), reopened)
        log.warning(
            "the journal was repaired: impossible entries were removed, and each job writes back the facts that it knows",
            code="TG-JOURNAL-IMPOSSIBLE",
            topic=partition[0],
            partition=partition[1],
            removed=[f"{name if isinstance(name, str) else name.name.lower()} {position}".strip() for name, position in wrong],
            closed=reopened,
        )


def find_closed(entries: Entries, bounds: FactBounds, partition: Partition) -> int | None:
    """Return the first open position, 0 if none was closed; None if it cannot be."""
    text = entries.single.get("closed")
    try:
        closed = 0 if text is None else parse_number(text)
    except ValueError:
        return None
    return None if bounds.is_beyond_end(partition, closed) else closed


def find_wrong(entries: Entries, bounds: FactBounds, partition: Partition, memory: FactMemory, judged: int, now_us: int) -> Iterator[Wrong]:
    """Yield the entries that cannot be and that nobody else can know better; *judged* is the job's position in the partition."""
    if not _is_possible_base(entries.single.get("base"), bounds, now_us):
        yield "base", ""
    if not _is_possible_silence(entries.single.get("silence"), bounds, now_us):
        yield "silence", ""
    for kind, values in entries.by_kind.items():
        before_us = NEVER
        for position_text, text in sorted(values.items()):
            try:
                position, value = parse_number(position_text), parse_number(text)
            except ValueError:
                yield kind, position_text
                continue
            if kind is FactKind.SKIP:
                # A skip passes over records that are there: nobody can know those to come.
                if value <= position or bounds.is_beyond_end(partition, value):
                    yield kind, position_text
                continue
            reason = bounds.why_impossible(partition, kind, position, value, memory, now_us)
            falls = kind.is_planning_time and value < before_us
            is_known = memory.value(kind, position) is not None or position < judged or bounds.is_beyond_end(partition, position)
            if (reason is not None or falls) and is_known:
                yield kind, position_text
            else:
                before_us = max(before_us, value)


def _is_possible_base(text: str | None, bounds: FactBounds, now_us: int) -> bool:
    try:
        return text is None or not bounds.is_ahead(parse_settled(text)[1], now_us)
    except ValueError:
        return False


def _is_possible_silence(text: str | None, bounds: FactBounds, now_us: int) -> bool:
    try:
        return text is None or not bounds.is_ahead(parse_silence(text).arrival_us, now_us)
    except ValueError:
        return False


def remove_impossible(
    plan: IngestPlan, journal: RedisJournal, bounds: FactBounds, now_us: int, *, dry_run: bool = False
) -> dict[Partition, int]:
    """
    Remove everything about a plan's partitions that cannot be, whoever may know it better, and a fingerprint that cannot be read; return
    how many entries of each partition that were, or would be. What the ordered topic carries is given back afterwards
    (:mod:`ingest.journal.rebuild`).
    """
    removed: dict[Partition, int] = {}
    for partition in plan.partitions:
        memory = FactMemory(plan.settings.planning_kind)
        keys = [plan.journal_key(partition), plan.own_key(partition), *([plan.import_key(partition)] if plan.imported is not None else [])]
        for key in keys:
            if not journal.has_facts(key):
                continue
            entries = journal.find_entries(key, deletes=not dry_run)
            wrong = list(find_wrong(entries, bounds, partition, memory, INFINITY, now_us))
            wrong += [("join", "")] if not _is_possible_join(entries.single.get("join")) else []
            reopened = 0 if find_closed(entries, bounds, partition) is None else None
            count = len(wrong) + (reopened is not None) + len(entries.of_other_type)
            removed[partition] = removed.get(partition, 0) + count
            if count and not dry_run:
                journal.mend(key, wrong, reopened)
                journal.forget_eras()
    if not dry_run:
        journal.delete_unreadable_fingerprint(plan.settings.ordered_topic, plan.ordered_topic_id)
    return removed


def _is_possible_join(text: str | None) -> bool:
    try:
        return text is None or parse_settled(text)[1] <= TICK_MAX
    except ValueError:
        return False
