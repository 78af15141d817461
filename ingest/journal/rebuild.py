"""
Rebuilding the journal from the ordered topic that was written with it.
Law: the ``tf`` headers of CTIs hold the facts that took effect in the topic's events (PROTOCOL.md). So a rebuilt journal equals the lost
one, except for facts below what the raw topic still holds, and facts at positions beyond the last record judged for this topic. If
retention has deleted CTIs, no fact is missing from the position of the first remaining CTI on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.config import IngestPlan, Partition
from ingest.journal.known_facts import FactMemory
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.stage_notes import NoteReader
from ordering.errors import RefusedError
from ordering.protocol.facts import ORIGIN, Fact, FactKind, FactMerger, decode_facts, text_digest
from ordering.protocol.journal import Journal, JournalKey
from ordering.protocol.punctuation import Cti
from ordering.ticks import INFINITY
from tidegate.ordered_topic.decode import decode_ctis
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader, Records
from tidegate.platform.observe.logs import get_logger

# The kinds of which the largest value at a position counts.
_RAISED = (FactKind.ESTIMATE, FactKind.IMPORT, FactKind.SKIP)

_log = get_logger("ingest.journal")


@dataclass(slots=True)
class TopicFacts:
    """The facts of one input partition that an ordered topic holds."""

    merged: FactMerger = field(default_factory=FactMerger)
    # Kafka partition and digest of its topic's name.
    origin: tuple[int, int] | None = None
    # By output partition whose beginning is gone: the position in its first remaining CTI.
    first_positions: dict[int, int] = field(default_factory=dict)

    @property
    def complete_from(self) -> int:
        return max(self.first_positions.values(), default=0)

    def accept_cti(self, cti: Cti, facts: bytes | None, beginning_gone: bool, where: str) -> None:
        """Accept one CTI, in the order of its output partition's log; only its last part carries facts."""
        if beginning_gone:
            self.first_positions.setdefault(cti.output_partition, cti.next_offset)
        self.merged.add([Fact(FactKind.CLOSED, cti.next_offset, 0)])
        decoded = decode_facts(facts, where) if facts is not None else []
        self.merged.add(decoded)
        for fact in decoded:
            if fact.kind == ORIGIN:
                self.origin = fact.position, fact.value


def read_topic_facts(plan: IngestPlan, admin: Admin) -> dict[int, TopicFacts]:
    """Read the whole ordered topic; return its facts by roster number."""
    starts, ends = admin.starts(plan.outputs), admin.ends(plan.outputs)
    facts_by_number: dict[int, TopicFacts] = {}
    for output in plan.outputs:
        with RangeReader(plan.kafka, *output, headers=True) as reader:
            for records in reader.read(starts[output], ends[output]):
                _accept_records(facts_by_number, records, *output, beginning_gone=starts[output] > 0)
    for number, topic_facts in facts_by_number.items():
        for (_, partition), start in starts.items():
            if start > 0 and partition in plan.outputs_of(number):
                # A channel without any CTI left may have had some that are gone.
                topic_facts.first_positions.setdefault(partition, INFINITY)
    return facts_by_number


def _accept_records(facts_by_number: dict[int, TopicFacts], records: Records, topic: str, partition: int, beginning_gone: bool) -> None:
    for offset, cti, facts in decode_ctis(records, topic, partition):
        facts_by_number.setdefault(cti.number, TopicFacts()).accept_cti(cti, facts, beginning_gone, f"{topic}-{partition}@{offset}")


def roster_members(partitions: Sequence[Partition], facts_by_number: Mapping[int, TopicFacts]) -> tuple[Partition, ...]:
    """Return *partitions* in the topic's roster order; a roster number that the topic does not identify gets one of the others."""
    by_digest = {(partition, text_digest(topic)): (topic, partition) for topic, partition in partitions}
    known = {number: by_digest[topic_facts.origin] for number, topic_facts in facts_by_number.items() if topic_facts.origin in by_digest}
    others = iter(sorted(set(partitions) - set(known.values())))
    ordered = (known[number] if number in known else next(others, None) for number in range(max(facts_by_number, default=-1) + 1))
    return tuple(partition for partition in ordered if partition is not None)


def journal_keys(plan: IngestPlan, partition: Partition) -> dict[JournalKey, tuple[FactKind, ...]]:
    """Return the journal keys of an input partition, and which kinds of facts each holds."""
    shared = tuple(kind for kind in FactKind if kind not in (FactKind.IMPORT, FactKind.JOIN, FactKind.SKIP))
    keys = {plan.journal_key(partition): shared, plan.own_key(partition): (FactKind.JOIN, FactKind.SKIP)}
    return keys | ({plan.import_key(partition): (FactKind.IMPORT, FactKind.CLOSED)} if plan.imported is not None else {})


def read_journal_facts(plan: IngestPlan, journal: RedisJournal, partition: Partition) -> list[Fact]:
    """Return the facts that the journal holds of an input partition."""
    return [
        fact
        for key, kinds in journal_keys(plan, partition).items()
        if journal.has_facts(key)
        for fact in journal.dump(key)
        if fact.kind in kinds
    ]


def has_lost(plan: IngestPlan, journal: Journal, judged: Mapping[Partition, int]) -> bool:
    """Return whether some position below those in *judged* is still open in the journal."""
    return any(journal.first_open(plan.journal_key(partition)) < position for partition, position in judged.items())


def rebuild_journal(plan: IngestPlan, admin: Admin, journal: Journal) -> dict[int, TopicFacts]:
    """Rebuild the journal from the ordered topic; the roster is the plan's if partitions have joined, else the topic's."""
    facts_by_number = read_topic_facts(plan, admin)
    plan = plan if plan.joins else replace(plan, partitions=roster_members(plan.partitions, facts_by_number))
    rebuilt = restore_facts(plan, journal, facts_by_number)
    missing = sum(sum(counted.values()) for counted in rebuilt.missing.values())
    if missing:
        _log.warning("the journal had lost facts: they were given back from the ordered topic", facts=missing, input=plan.settings.name)
    if contradicted := sum(rebuilt.contradicted.values()):
        _log.warning("another job journaled facts that differ from the ordered topic", code="TG-JOURNAL-CONFLICT", facts=contradicted)
    return facts_by_number


def restore_notes(plan: IngestPlan, journal: Journal) -> None:
    """Restore what the stage has noted of open batches (:mod:`ingest.journal.stage_notes`): no CTI may have carried it yet."""
    memories: dict[Partition, FactMemory] = {}
    closed: dict[Partition, int] = {}
    for partition, start, end in NoteReader(Path(plan.checkpoint)).read():
        memories.setdefault(partition, FactMemory(plan.settings.planning_kind)).remember_closed(start, end)
        # What went on after a batch may have come further than the task that followed in another process.
        closed[partition] = max(closed.get(partition, 0), end.next_offset)
    for partition, memory in memories.items():
        if partition[0] in plan.topic_ids:
            import_key = plan.import_key(partition) if plan.imported is not None else None
            memory.restore(journal, plan.journal_key(partition), import_key, closed[partition])


def check_complete(plan: IngestPlan, facts_by_number: Mapping[int, TopicFacts], needed: Mapping[Partition, int]) -> None:
    """Raise RefusedError (TG-JOURNAL-LOST) if facts from the positions *needed* on may be missing after a rebuild."""
    for number, partition in enumerate(plan.partitions):
        topic_facts = facts_by_number.get(number)
        if topic_facts is not None and topic_facts.complete_from > needed[partition]:
            raise RefusedError(
                f"the journal at {plan.redis.address} has lost facts by which {partition[0]}-{partition[1]} was judged, and retention has "
                f"deleted CTIs of {plan.settings.ordered_topic} that carried them; events would be judged anew",
                code="TG-JOURNAL-LOST",
                where=f"{partition[0]}-{partition[1]}@{needed[partition]}",
                fix="bring the data of Redis or the checkpoint back, or set ordered_topic to a topic that is not there yet",
            )


@dataclass(slots=True)
class RebuildReport:
    """The facts that a rebuild gave back, or would give back, counted."""

    # How many facts of each kind the journal lacked, by input partition.
    missing: dict[Partition, Counter[str]] = field(default_factory=dict)
    # How many facts it holds with another value, by input partition; those stay.
    contradicted: dict[Partition, int] = field(default_factory=dict)


def restore_facts(plan: IngestPlan, journal: Journal, facts_by_number: Mapping[int, TopicFacts], dry_run: bool = False) -> RebuildReport:
    """Restore the topic's facts in the journal; see :meth:`ordering.protocol.journal.Journal.restore`."""
    report = RebuildReport()
    for number, topic_facts in facts_by_number.items():
        if number >= len(plan.partitions):
            continue
        partition, facts = plan.partitions[number], topic_facts.merged.facts
        for key, kinds in journal_keys(plan, partition).items():
            _restore_partition(report, journal, partition, key, [fact for fact in facts if fact.kind in kinds], dry_run)
    return report


def _restore_partition(
    report: RebuildReport, journal: Journal, partition: Partition, key: JournalKey, facts: list[Fact], dry_run: bool
) -> None:
    known = {(fact.kind, fact.position): fact.value for fact in journal.dump(key)}
    closed = max((position for kind, position in known if kind == FactKind.CLOSED), default=0)
    missing = [fact for fact in facts if _is_missing(fact, known, closed)]
    report.missing.setdefault(partition, Counter()).update(FactKind(fact.kind).name.lower() for fact in missing)
    wrong = _contradictions(facts, known, closed) if dry_run else journal.restore(key, facts) if missing else 0
    report.contradicted[partition] = report.contradicted.get(partition, 0) + wrong


def _is_missing(fact: Fact, known: Mapping[tuple[int, int], int], closed: int) -> bool:
    if fact.kind == FactKind.CLOSED:
        return fact.position > closed
    return known.get((fact.kind, fact.position)) is None or (
        fact.kind in _RAISED and closed <= fact.position and known[fact.kind, fact.position] < fact.value
    )


def _contradictions(facts: Iterable[Fact], known: Mapping[tuple[int, int], int], closed: int) -> int:
    settled = (fact for fact in facts if fact.kind not in _RAISED or fact.position < closed)
    return sum(known.get((fact.kind, fact.position), fact.value) != fact.value for fact in settled)
