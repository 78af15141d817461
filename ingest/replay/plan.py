"""
The plan of a replay: the job that wrote an ordered topic, the records that it read, the facts of the journal, and the job's progress.

Law: nothing is created, bound or written. A replay under other settings than those of the topic is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ingest.config import IngestPlan, Partition
from ingest.journal.rebuild import read_journal_facts, read_topic_facts, roster_members
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.skip_book import SkipBook
from ingest.journal.topic_fingerprint import compare_settings, read_fingerprint
from ingest.offsets import PlannedPosition
from ingest.planner.joining_partitions import read_joins, with_roster
from ingest.start.decide import make_fingerprint, plan_input
from ingest.start.read_positions import find_start, largest_earliness_us
from ingest.start.survey import survey_start
from ordering.policies import Shape
from ordering.protocol.facts import Fact, FactKind
from ordering.ticks import MILLISECOND_US, NEVER
from tidegate.ordered_topic.decode import decode_ctis
from tidegate.ordered_topic.promises import Promises, last_ctis, read_end
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.settings.load import Settings


@dataclass(frozen=True)
class Replay:
    """The replay of an ordered topic."""

    # The plan of the job, with its roster, its skips and the positions where it began to read.
    plan: IngestPlan
    # The ordered topic.
    ordered: Topic
    # The journal's facts of each input partition.
    facts: Mapping[Partition, list[Fact]]
    # By input partition, the offset after the last record that was or may have been judged; after its end, that of its final CTI.
    ends: Mapping[Partition, int]
    # Whether the ordered topic ends in final CTIs.
    has_ended: bool
    # The last CTI of each channel, by roster number and output partition.
    promises: Promises
    # The settings that shape its events.
    fingerprint: Mapping[str, str]
    # Whether the journal knows the topic. If not, its settings are those of the configuration, its facts those in its CTIs.
    is_known: bool
    # The input partitions that have lost records from which the topic was made, with the first offset that is left.
    gone: Mapping[Partition, int]
    # The instant from which on no event needs a lost record, microseconds; None: not known, ``NEVER``: none was lost.
    complete_from_us: int | None

    def positions(self, admin: Admin, journal: RedisJournal, since_us: int | None) -> dict[Partition, PlannedPosition]:
        """Return the position from which each partition is read to get all events from *since_us* on (None: all events)."""
        if since_us is None:
            return {partition: self.plan.starts[partition] for partition in self.plan.partitions}
        starts = {}
        for partition in self.plan.partitions:
            position = find_start(self.plan, admin, journal, partition, since_us)
            starts[partition] = replace(position, next_offset=max(position.next_offset, self.plan.starts[partition].next_offset))
        return starts


def plan_replay(settings: Settings, name: str, admin: Admin, journal: RedisJournal) -> Replay:
    """Return the replay of the input *name*. Raises RefusedError: a topic is missing, or was made under other settings."""
    chosen = settings.input(name)
    ordered = admin.require(chosen.ordered_topic, f"start tidegate ingest {name} first: it makes the topic")
    survey = survey_start(settings, name, admin, journal)
    known = read_fingerprint(journal, ordered)
    survey = survey if survey.binding is not None or known is None else replace(survey, binding=known[0])
    plan = plan_input(settings, chosen, survey)
    fingerprint = make_fingerprint(plan, survey)
    if survey.binding is not None:
        compare_settings(ordered.name, {name: survey.binding[name] for name in fingerprint if name in survey.binding}, fingerprint)
    origin = None if known is None else known[1]
    start = None if origin is None else origin.start
    plan = replace(plan, start_us=NEVER if start is None or start.start_us is None else start.start_us)
    ends, starts = admin.ends(ordered.all_partitions), admin.starts(ordered.all_partitions)
    promises = last_ctis(plan.kafka, starts, ends)
    judged = {number: max(cti.next_offset for cti in channels.values()) for number, channels in promises.items()}
    if survey.planned is None and origin is not None and origin.starts:
        joins = read_joins(plan, journal, origin.starts)
        plan = with_roster(plan, {*origin.starts, *joins}, joins)
    plan, facts, is_known = _with_facts(plan, admin, journal, judged, is_known=known is not None)
    first_read = {} if origin is None else origin.starts
    # Without an entry in the journal a partition counts from its first record.
    plan = replace(plan, starts={partition: PlannedPosition(first_read.get(partition, 0)) for partition in plan.partitions})
    finals = read_end(plan.kafka, starts, ends)
    replay_ends = _judged_ends(plan, facts, judged, admin.ends(plan.partitions))
    if finals is not None:
        replay_ends |= {plan.partitions[number]: cti.next_offset for number, cti in finals.items() if number < len(plan.partitions)}
    needed = {partition: plan.starts[partition].next_offset for partition in plan.partitions}
    gone = {partition: first for partition, first in survey.first_offsets.items() if partition in needed and first > needed[partition]}
    return Replay(
        plan=plan,
        ordered=ordered,
        facts=facts,
        ends=replay_ends,
        has_ended=finals is not None,
        promises=promises,
        fingerprint=fingerprint,
        is_known=is_known,
        gone=gone,
        complete_from_us=_complete_from(plan, admin, gone) if gone else NEVER,
    )


def _judged_ends(
    plan: IngestPlan, facts: Mapping[Partition, list[Fact]], judged: Mapping[int, int], raw_ends: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Return the offset up to which each partition is judged, by the journal's *facts* or by CTIs (*judged*, by roster number)."""
    ends = {}
    for number, partition in enumerate(plan.partitions):
        ends[partition] = min(raw_ends[partition], max(_closed_position(facts[partition]), judged.get(number, 0)))
    return ends


def _with_facts(
    plan: IngestPlan, admin: Admin, journal: RedisJournal, judged: Mapping[int, int], *, is_known: bool
) -> tuple[IngestPlan, dict[Partition, list[Fact]], bool]:
    """Return the plan with its skips, and the facts of each partition: the journal's, or those in CTIs if it has lost some."""
    facts = {partition: read_journal_facts(plan, journal, partition) for partition in plan.partitions}
    numbers = {partition: number for number, partition in enumerate(plan.partitions)}
    lost = [partition for partition in plan.partitions if _closed_position(facts[partition]) < judged.get(numbers[partition], 0)]
    plan = replace(plan, skips=SkipBook.of(plan, journal).read().in_force)
    if not lost:
        return plan, facts, is_known
    by_number = read_topic_facts(plan, admin)
    plan = plan if plan.joins else replace(plan, partitions=roster_members(plan.partitions, by_number) or plan.partitions)
    merged = {partition: by_number[number].merged.facts for number, partition in enumerate(plan.partitions) if number in by_number}
    return plan, {partition: merged.get(partition, []) for partition in plan.partitions}, False


def _closed_position(facts: list[Fact]) -> int:
    return max((fact.position for fact in facts if fact.kind == FactKind.CLOSED), default=0)


def _complete_from(plan: IngestPlan, admin: Admin, gone: Mapping[Partition, int]) -> int | None:
    """Return the instant from which on no event needs a record that is gone; None if no instant is known."""
    early_us = largest_earliness_us(plan)
    if early_us is None:
        return None
    frontiers_us = [_frontier_us(plan, admin, plan.partitions.index(partition), first) for partition, first in gone.items()]
    if None in frontiers_us:
        return None
    # Kafka's timestamps are whole milliseconds, and a lost record may have the same one.
    return max(us for us in frontiers_us if us is not None) + early_us + MILLISECOND_US + (plan.settings.event_shape is Shape.EDGE)


def _frontier_us(plan: IngestPlan, admin: Admin, number: int, position: int) -> int | None:
    """Return an arrival time that no record below a position exceeds, by the first CTI at or after that position; None without one."""
    output = plan.settings.ordered_topic, plan.outputs_of(number)[0]
    start, end = admin.starts([output])[output], admin.ends([output])[output]
    with RangeReader(plan.kafka, *output, headers=True) as reader:
        ctis = (found.cti for records in reader.read(start, end) for found in decode_ctis(records, *output))
        return next((cti.arrival_us for cti in ctis if cti.number == number and cti.next_offset >= position), None)
