"""
Starting in the middle: at an output start time, or where a topic without its checkpoint goes on (spec section 6).

Law: readers see what they would have seen of a run from the beginning. The raw topic is read from a position before which
no event can have a time of S or later; the model walks on from there, leaves out what is below S, and numbers on. For a
topic that was begun before, S is each channel's last c: the events ahead of it are skipped, and numbering goes on from its n,
as if the checkpoint had not been lost.

Where that position is tells :mod:`ingest.start.read_positions`; where a channel without a CTI has no start either, it is the beginning.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.journal.rebuild import Told, bring_back, check_complete, has_lost, members
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import Made
from ingest.offsets import Joined, Offset, Planned
from ingest.planner.joining_partitions import joins_of, with_roster
from ingest.start.read_positions import check_retention, position_from
from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import decode_cti, encode_cti
from ordering.ticks import NEVER
from tidegate.checkpoint.binding import replace_text
from tidegate.checkpoint.output_start import BEGINNING, Start
from tidegate.kafka.admin import Admin
from tidegate.kafka.channel_promises import Promises, last_promises
from tidegate.observe.logs import get_logger

FILE = "resumed.json"
"""In the checkpoint's folder: where the job began, for every later start from this checkpoint."""

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
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        at = position_from(plan, admin, journal, partition, start.start_us)
        if start.start_us is not None and 0 < there[partition] == ends[partition]:
            _log.warning(
                "nothing is left of what came before: it is taken for older than the start", topic=partition[0], partition=partition[1]
            )
        elif start.start_us is not None:
            check_retention(plan, partition, at.next_offset, there[partition], 0, start.start_us)
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
        at = position_from(plan, admin, journal, partition, least_us)
        check_retention(plan, partition, at.next_offset, there[partition], made.starts.get(partition, 0), least_us)
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
    if not made.starts:
        # A journal that was rebuilt knows who joined, but not from where the others began.
        known = members(plan.partitions, told) or plan.partitions
        joins = joins_of(plan, journal, ())
        made = replace(made, starts={partition: 0 for partition in known if partition not in joins})
    return _with_roster_of(plan, journal, made, promises), told


def keep_whole(plan: IngestPlan, admin: Admin, journal: RedisJournal, planned: Mapping[Partition, Planned]) -> None:
    """Bring back what the journal has lost of what a checkpoint knows to be judged: others may need it."""
    judged = {partition: at.next_offset for partition, at in planned.items() if at != plan.starts.get(partition) and not at.unclosed}
    if has_lost(plan, journal, judged):
        bring_back(plan, admin, journal)


def _with_roster_of(plan: IngestPlan, journal: RedisJournal, made: Made, promises: Promises) -> IngestPlan:
    """Return the plan with the roster of the ordered topic; one whose joining no CTI tells of joins again while the job runs."""
    founders = made.starts or dict.fromkeys(plan.partitions, 0)
    joins = joins_of(plan, journal, founders)
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
