"""
Starting in the middle: at an output start time, or where a topic without its checkpoint continues (docs/operate/starting.md).

Law: readers see the same events as after a run from the beginning. The raw topic is read from a position before which no event can have a
time at or above the output start (:mod:`ingest.start.read_positions`). From there the model walks on and leaves out events below it. In a
topic that was begun before, the output start of a channel is the ``c`` of its last CTI: the events that were written ahead of it are
skipped, and numbering continues from its n. A channel without a CTI begins at the start of its run.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ingest.config import IngestPlan, Partition
from ingest.journal.rebuild import TopicFacts, check_complete, has_lost, rebuild_journal, restore_notes, roster_members
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import TopicOrigin
from ingest.offsets import IngestOffset, PartitionJoin, Positions
from ingest.planner.joining_partitions import read_joins, with_roster
from ingest.start.read_positions import check_retention, find_start
from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.wire import decode_cti, encode_cti
from ordering.ticks import NEVER
from tidegate.ordered_topic.promises import Promises, last_promises
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.checkpoint.output_start import BEGINNING, Start
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.logs import get_logger

# The file in the checkpoint's folder that says where the job began, for every later start from this checkpoint.
FILE = "resumed.json"

_log = get_logger("ingest.start")


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where and how a job began."""

    # The position from which each input partition is read.
    starts: Positions
    # Each channel's last CTI.
    promises: Promises = field(default_factory=dict)
    # The output start of the ordered topic's run.
    start: Start = BEGINNING
    # The partitions that have joined since.
    joins: Mapping[Partition, PartitionJoin] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        fields = {
            "starts": IngestOffset(self.starts, joins=self.joins).to_json(),
            "promises": [[partition, *_encode(cti)] for channels in self.promises.values() for partition, cti in channels.items()],
            "start": asdict(self.start),
        }
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_text(folder / FILE, json.dumps(fields))

    @classmethod
    def read(cls, folder: Path) -> Resumption | None:
        fields = read_json(folder / FILE)
        if fields is None:
            return None
        promises: Promises = {}
        for partition, header, body in fields["promises"]:
            cti = decode_cti(base64.b64decode(header), base64.b64decode(body), partition, str(folder / FILE))
            promises.setdefault(cti.number, {})[partition] = cti
        offset = IngestOffset.from_json(fields["starts"])
        return cls(offset.partitions, promises, Start(**fields["start"]), offset.joins)

    def apply_to(self, plan: IngestPlan) -> IngestPlan:
        start_us = NEVER if self.start.start_us is None else self.start.start_us
        plan = with_roster(plan, self.starts, self.joins)
        return replace(plan, starts={**plan.starts, **self.starts}, promises=self.promises, start_us=start_us)


def _encode(cti: Cti) -> tuple[str, str]:
    header, body = encode_cti(cti)
    return base64.b64encode(header).decode(), base64.b64encode(body).decode()


def begin_topic(plan: IngestPlan, admin: Admin, journal: RedisJournal, start: Start) -> Resumption:
    """Return the positions from which an empty topic gets all events from *start* on. Raises RefusedError: records of them are gone."""
    available, ends = admin.starts(plan.partitions), admin.ends(plan.partitions)
    starts = {}
    for partition in plan.partitions:
        position = find_start(plan, admin, journal, partition, start.start_us)
        if start.start_us is not None and 0 < available[partition] == ends[partition]:
            _log.warning(
                "nothing is left of what came before: it is taken for older than the start", topic=partition[0], partition=partition[1]
            )
        elif start.start_us is not None:
            check_retention(plan, partition, position.next_offset, available[partition], 0, start.start_us)
        starts[partition] = replace(position, next_offset=max(position.next_offset, available[partition]))
    return Resumption(starts, start=start)


def resume_topic(plan: IngestPlan, admin: Admin, journal: RedisJournal, origin: TopicOrigin) -> Resumption:
    """
    Return where a topic without its checkpoint continues; *plan* is the plan for an empty topic. Raises RefusedError: the topic has ended,
    was made from other inputs, or needed records or facts are gone.
    """
    promises = last_promises(plan.kafka, admin.starts(plan.outputs), admin.ends(plan.outputs))
    plan, facts_by_number = _with_journal(plan, admin, journal, origin, promises)
    available = admin.starts(plan.partitions)
    start = origin.start or BEGINNING
    starts = {}
    for number, partition in enumerate(plan.partitions):
        channels = promises.get(number, {})
        least_us = first_missing_us(channels, plan.outputs_of(number), start.start_us)
        position = find_start(plan, admin, journal, partition, least_us)
        check_retention(plan, partition, position.next_offset, available[partition], origin.starts.get(partition, 0), least_us)
        starts[partition] = replace(position, next_offset=max(position.next_offset, available[partition]))
        _log.info("resumes from the last CTI of each channel", topic=partition[0], partition=partition[1], offset=position.next_offset)
    check_complete(plan, facts_by_number, {partition: position.next_offset for partition, position in starts.items()})
    return Resumption(starts, promises, start, plan.joins)


def first_missing_us(channels: Mapping[int, Cti], outputs: Collection[int], start_us: int | None) -> int | None:
    """Return from when on events may be missing in an input partition's *outputs*, by each one's last CTI; *start_us*: the run's start."""
    # A channel without a CTI needs everything from the run's start on; no CTI lies below that.
    return min(cti.c for cti in channels.values()) if len(channels) == len(outputs) else start_us


def _with_journal(
    plan: IngestPlan, admin: Admin, journal: RedisJournal, origin: TopicOrigin, promises: Promises
) -> tuple[IngestPlan, Mapping[int, TopicFacts]]:
    """Return the plan with the roster of the ordered topic, and the facts of the topic if the journal has lost some."""
    members = _read_members(plan, journal, origin)
    # A job that dies right after a join has not journaled it yet, but the join's CTI carries it.
    if origin.start is not None and _newest_roster(plan, members, promises).inputs <= members.inputs:
        known_plan = _with_roster_of(plan, members, promises)
        judged = {known_plan.partitions[number]: max(cti.next_offset for cti in channels.values()) for number, channels in promises.items()}
        if not has_lost(known_plan, journal, judged):
            return known_plan, {}
    facts_by_number = rebuild_journal(plan, admin, journal)
    if not origin.starts:
        # A rebuilt journal knows which partitions joined, but not where the others began.
        identified = roster_members(plan.partitions, facts_by_number) or plan.partitions
        joins = read_joins(plan, journal, ())
        origin = replace(origin, starts={partition: 0 for partition in identified if partition not in joins})
    return _with_roster_of(plan, _read_members(plan, journal, origin), promises), facts_by_number


def restore_lost_facts(plan: IngestPlan, admin: Admin, journal: RedisJournal, positions: Positions) -> None:
    """
    Restore facts that the journal has lost below a checkpoint's positions: other jobs may need them. The ordered topic tells those of which
    its CTIs follow, what the stage has noted tells the newest.
    """
    judged = {
        partition: position.next_offset
        for partition, position in positions.items()
        if position != plan.starts.get(partition) and not position.is_unclosed
    }
    if has_lost(plan, journal, judged):
        rebuild_journal(plan, admin, journal)
        restore_notes(plan, journal)


@dataclass(frozen=True, slots=True)
class _Members:
    """The input partitions from which the ordered topic was begun, and those that joined, by the journal."""

    founders: Collection[Partition]
    joins: Mapping[Partition, PartitionJoin]

    @property
    def inputs(self) -> int:
        return len(self.founders) + len(self.joins)


def _read_members(plan: IngestPlan, journal: RedisJournal, origin: TopicOrigin) -> _Members:
    founders = tuple(origin.starts) or plan.partitions
    return _Members(founders, read_joins(plan, journal, founders))


def _newest_roster(plan: IngestPlan, members: _Members, promises: Promises) -> Roster:
    rosters = (cti.roster for channels in promises.values() for cti in channels.values())
    return max(rosters, key=lambda roster: roster.version, default=plan.roster_of(len(members.founders), 0))


def _with_roster_of(plan: IngestPlan, members: _Members, promises: Promises) -> IngestPlan:
    """Return the plan with the ordered topic's roster. A partition whose join is in no CTI joins again while the job runs."""
    newest = _newest_roster(plan, members, promises)
    if newest.spread != plan.roster.spread or not len(members.founders) <= newest.inputs <= members.inputs:
        raise RefusedError(
            f"ordered topic {plan.settings.ordered_topic} was written from {newest.inputs} input partitions "
            f"({'with' if newest.substreams else 'without'} over), these settings make it {members.inputs} "
            f"({'with' if plan.roster.substreams else 'without'})",
            code="TG-TOPIC-SETTINGS",
            where=plan.settings.ordered_topic,
            fix="set the input as it was, or set ordered_topic to a topic that is not there yet",
        )
    joined = {partition: join for partition, join in members.joins.items() if join.number in promises}
    return with_roster(plan, {*members.founders, *joined}, joined)
