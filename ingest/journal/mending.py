"""
Mending a journal that says what cannot be (:mod:`ingest.journal.fact_bounds`).

Law: only what this job knows better, or what can never have been a fact, is changed. A fact of which this job knows the value gets that
value back; one beyond the end of its partition, or below the job's position, is removed (the ordered topic carries what was judged). A fact
that another job may have made stays, and the job goes on as without a journal, until it has passed that position or somebody rebuilds the
journal. The journal gets a new era, so that every job gives back what it knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.fact_bounds import FactBounds
from ingest.journal.fact_memory import FactMemory
from ingest.journal.known_facts import KnownFacts
from ingest.journal.redis_journal import Entries, RedisJournal, parse_number, parse_settled, parse_silence
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import JournalKey
from ordering.ticks import INFINITY, NEVER, TICK_MAX

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
