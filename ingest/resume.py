"""
Starting in the middle: at an output start time, or where a topic without its checkpoint goes on (spec section 6).

Law: readers see what they would have seen of a run from the beginning. The raw topic is read from a position before which
no event can have a time of S or later; the model walks on from there, leaves out what is below S, and numbers on. For a
topic that was begun before, S is each channel's last c: the events ahead of it are skipped, and numbering goes on from its n,
as if the checkpoint had not been lost.

Where that position is: an event's time exceeds its arrival by ``early`` at most, so the first record that arrived
at ``S - early`` or later, by Kafka's time index or the journal's stamps; or the first position at which the journal had
raised time that far. Without that bound, and where a channel without a CTI has no start either, it is the beginning.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.identity import WAYS_OUT
from ingest.joining import joins_of, with_roster
from ingest.journal_redis import RedisJournal
from ingest.offsets import Joined, Marks, Offset, Planned, name_of, partition_of
from ingest.promises import Promises, last_promises
from ingest.rebuilding import Told, bring_back, check_complete, has_lost
from ingest.starting import BEGINNING, Start
from ordering.errors import RefusedError
from ordering.policies import Shape
from ordering.punctuation import Cti
from ordering.ticks import NEVER, TICK_MAX, format_tick
from ordering.wire import decode_cti, encode_cti
from tidegate.runtime.binding import check_same_topics, differences, last_batches, offset_of, replace_text
from tidegate.runtime.kafka.admin import Admin, Topic
from tidegate.runtime.logs import get_logger

FILE = "resumed.json"
"""In the checkpoint's folder: where the job began, for every later start from this checkpoint."""

MAY_GROW = ("input_partitions", "topic_ids")
"""What an ordered topic is made of at least: partitions, and topics of a pattern, may be added."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where each input partition is read from, what each channel has promised, and how the ordered topic's run began."""

    starts: Mapping[Partition, Planned]
    promises: Promises = field(default_factory=dict)
    began: Start = BEGINNING
    joined: Mapping[Partition, Joined] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Leave it in a checkpoint's folder."""
        fields = {
            "starts": Offset(self.starts, joined=self.joined).to_json(),
            "promises": [[partition, *_written(cti)] for channels in self.promises.values() for partition, cti in channels.items()],
            "began": asdict(self.began),
        }
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / FILE, json.dumps(fields))

    @classmethod
    def find(cls, folder: Path) -> Resumption | None:
        """Return what was left in a checkpoint's folder, if anything was."""
        if not (folder / FILE).exists():
            return None
        fields: Any = json.loads((folder / FILE).read_text())
        promises: Promises = {}
        for partition, header, body in fields["promises"]:
            cti = decode_cti(base64.b64decode(header), base64.b64decode(body), partition, str(folder / FILE))
            promises.setdefault(cti.number, {})[partition] = cti
        # Before there were output start times every run began at the beginning.
        at = Offset.from_json(fields["starts"])
        return cls(at.partitions, promises, Start(**fields.get("began", {})), at.joined)

    def applied_to(self, plan: IngestPlan) -> IngestPlan:
        """Return the plan of a job that starts here."""
        start_us = NEVER if self.began.start_us is None else self.began.start_us
        plan = with_roster(plan, self.starts, self.joined)
        return replace(plan, starts={**plan.starts, **self.starts}, promises=self.promises, start_us=start_us)


def _written(cti: Cti) -> tuple[str, str]:
    header, body = encode_cti(cti)
    return base64.b64encode(header).decode(), base64.b64encode(body).decode()


def begin(plan: IngestPlan, admin: Admin, journal: RedisJournal, start: Start) -> Resumption:
    """
    Return where a topic that holds nothing is begun, so that it tells from *start* on.

    Raises:
        RefusedError: What must be read is gone (TG-RETENTION).
    """
    there, ends = admin.starts(plan.partitions), admin.ends(plan.partitions)
    starts = {}
    for partition in plan.partitions:
        at = _start(plan, admin, journal, partition, start.start_us)
        if start.start_us is not None and 0 < there[partition] == ends[partition]:
            _log.warning(
                "nothing is left of what came before: it is taken for older than the start", topic=partition[0], partition=partition[1]
            )
        elif start.start_us is not None:
            _check_retention(plan, partition, at.next_offset, there[partition], 0, start.start_us)
        starts[partition] = replace(at, next_offset=max(at.next_offset, there[partition]))
    return Resumption(starts, began=start)


def resume(plan: IngestPlan, admin: Admin, journal: RedisJournal, made: Made) -> Resumption:
    """
    Return where to go on.

    Args:
        plan: The job as it would start on a topic that holds nothing.
        admin: For offsets by time.
        journal: The journal.
        made: How the topic was begun, as far as it is known.

    Raises:
        RefusedError: The topic has ended, was made by other inputs, or what must be read again or known is gone.
    """
    topic = plan.settings.ordered_topic
    outputs = [(topic, partition) for partition in range(plan.output_partitions)]
    promises = last_promises(plan.kafka, topic, admin.starts(outputs), admin.ends(outputs))
    plan, told = _with_journal(plan, admin, journal, made, promises)
    there = admin.starts(plan.partitions)
    began = made.start or BEGINNING
    starts = {}
    for number, partition in enumerate(plan.partitions):
        channels = promises.get(number, {})
        # No CTI lies below the start of its run.
        least_us = min(cti.c for cti in channels.values()) if len(channels) == len(plan.outputs_of(number)) else began.start_us
        at = _start(plan, admin, journal, partition, least_us)
        _check_retention(plan, partition, at.next_offset, there[partition], made.starts.get(partition, 0), least_us)
        starts[partition] = replace(at, next_offset=max(at.next_offset, there[partition]))
        _log.info("resumes from the last CTI of each channel", topic=partition[0], partition=partition[1], offset=at.next_offset)
    check_complete(plan, told, {partition: at.next_offset for partition, at in starts.items()})
    return Resumption(starts, promises, began, plan.joined)


def _with_journal(
    plan: IngestPlan, admin: Admin, journal: RedisJournal, made: Made, promises: Promises
) -> tuple[IngestPlan, Mapping[int, Told]]:
    """Return the plan with the roster of the ordered topic, and what the topic told of the facts that the journal has lost."""
    if made.start is not None:
        there = _with_roster_of(plan, journal, made, promises)
        judged = {there.partitions[number]: max(cti.next_offset for cti in channels.values()) for number, channels in promises.items()}
        if not has_lost(there, journal, judged):
            return there, {}
    told = bring_back(plan, admin, journal)
    return _with_roster_of(plan, journal, made, promises), told


def keep_whole(plan: IngestPlan, admin: Admin, journal: RedisJournal, planned: Mapping[Partition, Planned]) -> None:
    """Bring back what the journal has lost of what a checkpoint knows to be judged: others may need it."""
    judged = {partition: at.next_offset for partition, at in planned.items() if at != plan.starts.get(partition) and not at.unclosed}
    if has_lost(plan, journal, judged):
        bring_back(plan, admin, journal)


@dataclass(frozen=True, slots=True)
class Made:
    """
    How an ordered topic was begun.

    Args:
        starts: The first offset of each input partition it was begun from; empty: not known.
        start: Its output start; None: not known.
    """

    starts: Mapping[Partition, int]
    start: Start | None


def check_made_of(
    plan: IngestPlan,
    journal: RedisJournal,
    ordered: Topic,
    made_of: Mapping[str, str],
    start: Start,
    *,
    has_events: bool,
    has_checkpoint: bool,
) -> Made:
    """
    Compare what the ordered topic is made of with what the journal says; without a checkpoint nothing else tells.

    Args:
        plan: The job.
        journal: The journal.
        ordered: The ordered topic.
        made_of: The settings that shape its events, and the ids of the topics.
        start: The output start with which it is begun, if it is begun now.
        has_events: Whether something was written to it.
        has_checkpoint: Whether its checkpoint is there.

    Returns:
        How it was begun, as far as that is known.

    Raises:
        RefusedError: It was made under other settings, or from topics that were deleted and made again.
    """
    # Of a topic that was begun before nobody knows any more which offsets came first, nor where it starts to tell.
    founders = [] if has_events else [partition for partition in plan.partitions if partition not in plan.joined]
    starts = {name_of(partition): plan.starts[partition].next_offset for partition in founders}
    fields: dict[str, Any] = {"settings": made_of, "starts": starts}
    if not has_events:
        fields["start"] = asdict(start)
    said, first = journal.made_of(ordered.name, ordered.topic_id, json.dumps(fields, sort_keys=True), anew=not has_events)
    known = json.loads(said)
    if has_events and not has_checkpoint:
        if first:
            _log.warning("the journal does not know the ordered topic: its settings cannot be compared", topic=ordered.name)
        _compare_settings(ordered.name, known["settings"], made_of)
    # The journal of earlier versions knows of no start: there was none.
    begun = None if first and has_events else Start(**known.get("start", {}))
    return Made({partition_of(name): first for name, first in known["starts"].items()}, begun)


def _compare_settings(ordered: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    ids = json.loads(before.get("topic_ids", "{}")), json.loads(now.get("topic_ids", "{}"))
    check_same_topics(*ids, ordered, WAYS_OUT)
    changed = differences(before, now, MAY_GROW)
    if changed:
        raise RefusedError(
            f"ordered topic {ordered} was made under other settings: {'; '.join(changed)}",
            code="TG-TOPIC-SETTINGS",
            where=ordered,
            fix="set them back, or write to a new ordered topic (set ordered_topic): events judged by two policies must not mix",
        )


def _start(plan: IngestPlan, admin: Admin, journal: RedisJournal, partition: Partition, least_us: int | None) -> Planned:
    """
    Return where one input partition is read from, with the largest estimate and import up to there.

    *least_us* is the least time of an event that is to be written, microseconds; None: there is no least.
    """
    estimates = journal.estimates(plan.journal_key(partition), 0, TICK_MAX)
    imports = journal.imports(plan.import_key(partition), 0, TICK_MAX) if plan.imported else []
    early_us = _largest_earliness_us(plan)
    position = 0
    if early_us is not None and least_us is not None:
        # A lifted end stands one tick above its start edge, which must be met too.
        least_us -= plan.settings.event_shape is Shape.EDGE
        indexed = _first_arrived(plan, admin, journal, partition, least_us - early_us)
        position = first_position(indexed, least_us, early_us, tuple(estimates), tuple(imports))
    return Planned(position, _largest(estimates, position), import_us=_largest(imports, position))


def _first_arrived(plan: IngestPlan, admin: Admin, journal: RedisJournal, partition: Partition, from_us: int) -> int:
    """Return the first offset whose record arrived at *from_us*, microseconds, or later; the end where none has."""
    if plan.settings.arrival == "ingest":
        # What nobody has planned to read yet arrives when somebody does.
        return journal.first_stamped(plan.journal_key(partition), from_us)
    return admin.offsets_from([partition], from_us)[partition]


def _largest_earliness_us(plan: IngestPlan) -> int | None:
    """Return by how much an event's time can exceed its arrival, microseconds; None: there is no bound to what matters."""
    policies = plan.settings.policies()
    # One tick ahead of their time, equals may have pushed each other up from any distance.
    # A CTI of the source judges all that comes after it, however much later, and nobody kept the largest.
    if policies.reorder_us < 0 or plan.settings.source_ctis:
        return None
    # Without an event time of their own events are never ahead of their arrival.
    return 0 if plan.settings.timestamp_by is None else policies.early_us


def first_position(indexed: int, least_us: int, early_us: int, estimates: Marks, imports: Marks) -> int:
    """
    Return the position before which no event can have a system timestamp of *least_us* or more.

    Args:
        indexed: First offset whose record arrived at ``least_us - early_us`` or later.
        least_us: The least c of the channels, microseconds.
        early_us: The early tolerance, microseconds.
        estimates: Journaled estimates: from there on records count as having arrived later than stamped.
        imports: Journaled imports: from there on spans may have been moved up to them.
    """
    raised = [position for position, frontier_us in estimates if frontier_us >= least_us - early_us]
    raised += [position for position, c_us in imports if c_us >= least_us]
    return min([indexed, *raised])


def _largest(marks: list[tuple[int, int]], position: int) -> int:
    return max((value for at, value in marks if at <= position), default=0)


def _with_roster_of(plan: IngestPlan, journal: RedisJournal, made: Made, promises: Promises) -> IngestPlan:
    """Return the plan with the roster of the ordered topic; one whose joining no CTI tells of joins again while the job runs."""
    joins = joins_of(plan, journal, made.starts)
    # A journal that was rebuilt knows who joined, but not from where the others began.
    founders = made.starts or {partition: 0 for partition in plan.partitions if partition not in joins}
    ctis = [cti for channels in promises.values() for cti in channels.values()]
    newest = max((cti.roster for cti in ctis), key=lambda roster: roster.version, default=plan.roster_of(len(founders), 0))
    if newest.spread != plan.roster.spread or not len(founders) <= newest.inputs <= len(founders) + len(joins):
        raise RefusedError(
            f"ordered topic {plan.settings.ordered_topic} was written from {newest.inputs} input partitions "
            f"({'with' if newest.substreams else 'without'} over), these settings make it {len(founders) + len(joins)} "
            f"({'with' if plan.roster.substreams else 'without'})",
            code="TG-TOPIC-SETTINGS",
            where=plan.settings.ordered_topic,
            fix="set the input as it was, or set ordered_topic to a topic that is not there yet",
        )
    joined = {partition: each for partition, each in joins.items() if each.number in promises}
    return with_roster(plan, {*founders, *joined}, joined)


def _check_retention(plan: IngestPlan, partition: Partition, needed: int, there: int, began: int, least_us: int | None) -> None:
    # Where the first record there is needed nobody knows whether those before it are not.
    if there <= began or needed > there:
        return
    early_us = _largest_earliness_us(plan)
    if early_us is None:
        why = "everything: without early, with source_ctis or with a negative cti_delay an event of any age counts"
    elif least_us is None:
        why = "everything"
    else:
        why = f"all that arrived from {format_tick(least_us - early_us)} on (offset {needed} or before)"
    raise RefusedError(
        f"retention has deleted records of {partition[0]}-{partition[1]} that must be read: needed {why}, there from offset {there}",
        code="TG-RETENTION",
        where=f"{partition[0]}-{partition[1]}@{there}",
        fix="start a new ordered topic later (--start) or from what is left (--start earliest), or bring a lost checkpoint back; "
        "give the raw topic a longer retention",
        example="--start now",
    )


def check_still_there(folder: Path, admin: Admin, partitions: Sequence[Partition], starts: Mapping[Partition, Planned]) -> None:
    """
    Check that what comes after a checkpoint can still be read; *starts* are where the job began.

    Raises:
        RefusedError: Retention has deleted some of it (TG-RETENTION).
    """
    done = last_batches(folder)[1]
    stored = offset_of(folder, done)
    if stored is None and done >= 0:
        return
    needed = starts if stored is None else Offset.from_json(stored).partitions
    there = admin.starts(partitions)
    for partition, at in needed.items():
        first = there.get(partition, at.next_offset)
        if first > at.next_offset:
            raise RefusedError(
                f"retention has deleted records of {partition[0]}-{partition[1]} that are still to be read: "
                f"needed from offset {at.next_offset}, there from offset {first}",
                code="TG-RETENTION",
                where=f"{partition[0]}-{partition[1]}@{at.next_offset}",
                fix="start a new ordered topic from what is left (set ordered_topic), and give the raw topic a longer retention",
            )
