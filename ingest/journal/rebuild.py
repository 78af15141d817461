"""
The journal made again from the ordered topic that was written with it.

Law: what took effect in the topic's events stands in the headers ``tf`` of its CTIs (PROTOCOL.md). So a journal that
was lost and is given all of it back equals the one that was lost: facts below what the raw topic still holds excepted,
and those at positions from which on no record was judged yet by anybody who wrote to this topic. Where retention has
deleted CTIs, nothing is missing from the position that the first of those left tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest.config import IngestPlan, Partition
from ordering.errors import RefusedError
from ordering.protocol.facts import ORIGIN, Fact, FactKind, FactMerger, decode_facts, topic_mark
from ordering.protocol.journal import Journal, JournalKey
from ordering.protocol.punctuation import Cti
from ordering.ticks import INFINITY
from tidegate.kafka.admin import Admin
from tidegate.kafka.ranges import RangeReader, Records
from tidegate.kafka.tails import ctis_of
from tidegate.observe.logs import get_logger

_log = get_logger("ingest.journal")


@dataclass(slots=True)
class TopicFacts:
    """
    What an ordered topic tells of the facts of one input partition.

    Args:
        merged: What was told.
        origin: Kafka partition and mark of the topic.
        firsts: Of each output partition whose beginning is gone: the position in its first CTI left.
        carried: Whether each CTI carried facts: those of earlier versions did not.
        last: The last CTI that did not.
    """

    merged: FactMerger = field(default_factory=FactMerger)
    origin: tuple[int, int] | None = None
    first_positions: dict[int, int] = field(default_factory=dict)
    carried: bool = True
    last: Cti | None = None

    @property
    def facts(self) -> list[Fact]:
        """Return all facts; of an earlier version's CTIs at least how far arrival time had come at the last of them."""
        if self.last is not None and self.last.arrival_us >= 0:
            self.merged.add([Fact(FactKind.ESTIMATE, self.last.next_offset, self.last.arrival_us)])
        return self.merged.facts

    @property
    def complete_from(self) -> int:
        """The position from which on no fact is missing."""
        return max(self.first_positions.values(), default=0)

    def accept_cti(self, cti: Cti, facts: bytes | None, beginning_gone: bool, where: str) -> None:
        """Take one CTI, in the order of its output partition's log."""
        if beginning_gone:
            self.first_positions.setdefault(cti.output_partition, cti.next_offset)
        self.merged.add([Fact(FactKind.CLOSED, cti.next_offset, 0)])
        if facts is None:
            # Only the last part of a CTI carries facts.
            if cti.part == cti.parts - 1:
                self.carried, self.last = False, cti
            return
        decoded = decode_facts(facts, where)
        self.merged.add(decoded)
        for fact in decoded:
            if fact.kind == ORIGIN:
                self.origin = fact.position, fact.value


def read_topic_facts(plan: IngestPlan, admin: Admin) -> dict[int, TopicFacts]:
    """
    Walk the whole ordered topic; return what it tells, by roster number.

    Raises:
        ProtocolError: A CTI there cannot be read.
        TidegateError: The brokers do not answer.
    """
    topic = plan.settings.ordered_topic
    outputs = [(topic, number) for number in range(plan.output_partitions)]
    starts, ends = admin.starts(outputs), admin.ends(outputs)
    facts_by_number: dict[int, TopicFacts] = {}
    for output in outputs:
        reader = RangeReader(plan.kafka, *output, headers=True)
        try:
            for records in reader.read(starts[output], ends[output]) if starts[output] < ends[output] else ():
                _accept_records(facts_by_number, records, topic, output[1], beginning_gone=starts[output] > 0)
        finally:
            reader.close()
    for number, topic_facts in facts_by_number.items():
        for _, partition in outputs:
            if starts[topic, partition] > 0 and partition in plan.outputs_of(number):
                # A channel without any CTI left may have had some that are gone.
                topic_facts.first_positions.setdefault(partition, INFINITY)
    return facts_by_number


def _accept_records(facts_by_number: dict[int, TopicFacts], records: Records, topic: str, partition: int, beginning_gone: bool) -> None:
    assert records.facts is not None, "read with headers"
    row_of = {offset: row for row, offset in enumerate(records.offset.tolist())}
    for offset, cti in ctis_of(records, topic, partition):
        facts = records.facts[row_of[offset]].as_py()
        facts_by_number.setdefault(cti.number, TopicFacts()).accept_cti(cti, facts, beginning_gone, f"{topic}-{partition}@{offset}")


def roster_members(partitions: Sequence[Partition], facts_by_number: Mapping[int, TopicFacts]) -> tuple[Partition, ...]:
    """
    Return those of *partitions* that the topic knows, in the order of their roster numbers.

    Each channel's first CTI tells whose it is; of an earlier version's topics, which nobody joined, they stand as they sort.
    """
    by_mark = {(partition, topic_mark(topic)): (topic, partition) for topic, partition in partitions}
    known = {number: by_mark[topic_facts.origin] for number, topic_facts in facts_by_number.items() if topic_facts.origin in by_mark}
    others = iter(sorted(set(partitions) - set(known.values())))
    ordered = (known[number] if number in known else next(others, None) for number in range(max(facts_by_number, default=-1) + 1))
    return tuple(partition for partition in ordered if partition is not None)


def journal_keys(plan: IngestPlan, partition: Partition) -> dict[JournalKey, tuple[FactKind, ...]]:
    """Return the keys of the journal under which an input partition has facts, and which kinds each has."""
    own = tuple(kind for kind in FactKind if kind not in (FactKind.IMPORT, FactKind.JOIN))
    keys = {plan.journal_key(partition): own, plan.join_key(partition, plan.topic_ids[partition[0]]): (FactKind.JOIN,)}
    return keys | ({plan.import_key(partition): (FactKind.IMPORT, FactKind.CLOSED)} if plan.imported is not None else {})


def has_lost(plan: IngestPlan, journal: Journal, judged: Mapping[Partition, int]) -> bool:
    """Return whether the journal has not closed what was judged: the positions below those in *judged*."""
    return any(journal.first_open(plan.journal_key(partition)) < position for partition, position in judged.items())


def rebuild_journal(plan: IngestPlan, admin: Admin, journal: Journal) -> dict[int, TopicFacts]:
    """Rebuild the journal from the ordered topic, whose founders and later members are told by *plan* or else by the topic."""
    facts_by_number = read_topic_facts(plan, admin)
    plan = plan if plan.joins else replace(plan, partitions=roster_members(plan.partitions, facts_by_number))
    rebuilt = restore_facts(plan, journal, facts_by_number)
    missing = sum(sum(counted.values()) for counted in rebuilt.missing.values())
    if missing:
        _log.warning("the journal had lost facts: they were given back from the ordered topic", facts=missing, input=plan.settings.name)
    if contradicted := sum(rebuilt.contradicted.values()):
        _log.warning("another job journaled facts that differ from the ordered topic", code="TG-JOURNAL-CONFLICT", facts=contradicted)
    return facts_by_number


def check_complete(plan: IngestPlan, facts_by_number: Mapping[int, TopicFacts], needed: Mapping[Partition, int]) -> None:
    """
    Check that what was rebuilt is all that judging from the positions *needed* on rests on.

    Raises:
        RefusedError: The topic cannot tell (TG-JOURNAL-LOST).
    """
    settings = plan.settings
    for number, partition in enumerate(plan.partitions):
        topic_facts = facts_by_number.get(number)
        if topic_facts is None or (topic_facts.carried and topic_facts.complete_from <= needed[partition]):
            continue
        if topic_facts.carried or plan.imported is not None or settings.arrival == "ingest":
            why = (
                "its CTIs are of a version that told no facts"
                if not topic_facts.carried
                else "retention has deleted CTIs that told of them"
            )
            raise RefusedError(
                f"the journal at {plan.redis.address} has lost facts by which {partition[0]}-{partition[1]} was judged, and the ordered "
                f"topic {settings.ordered_topic} cannot tell them any more: {why}; events would be judged anew",
                code="TG-JOURNAL-LOST",
                where=f"{partition[0]}-{partition[1]}@{needed[partition]}",
                fix="bring the data of Redis or the checkpoint back, or set ordered_topic to a topic that is not there yet",
            )
        _log.warning(
            "the journal has lost estimates: an event that one of them made late may be judged differently now", redis=plan.redis.address
        )


@dataclass(slots=True)
class RebuildReport:
    """
    What was given back, or would be.

    Args:
        missing: How many facts of each kind the journal lacked, by input partition.
        contradicted: How many it had otherwise: those stay as they are.
    """

    missing: dict[Partition, Counter[str]] = field(default_factory=dict)
    contradicted: dict[Partition, int] = field(default_factory=dict)


def restore_facts(plan: IngestPlan, journal: Journal, facts_by_number: Mapping[int, TopicFacts], dry_run: bool = False) -> RebuildReport:
    """Give the journal what the topic tells of it; see :meth:`ordering.protocol.journal.Journal.restore`."""
    report = RebuildReport()
    for number, topic_facts in facts_by_number.items():
        if number >= len(plan.partitions):
            continue
        partition, facts = plan.partitions[number], topic_facts.facts
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
        fact.kind in (FactKind.ESTIMATE, FactKind.IMPORT) and closed <= fact.position and known[fact.kind, fact.position] < fact.value
    )


def _contradictions(facts: Iterable[Fact], known: Mapping[tuple[int, int], int], closed: int) -> int:
    settled = (fact for fact in facts if fact.kind not in (FactKind.ESTIMATE, FactKind.IMPORT) or fact.position < closed)
    return sum(known.get((fact.kind, fact.position), fact.value) != fact.value for fact in settled)
