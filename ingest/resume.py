"""
Going on with an ordered topic whose checkpoint is lost: from what its channels promised (spec section 6).

Law: readers see what they would have seen had the checkpoint not been lost. The raw topic is read again from a position
before which no event can have a time that is not promised yet; the model walks on from there, leaves out what is below
each channel's c, skips the events ahead of it, and numbers on from n.

Where that position is: an event's time exceeds its arrival by ``early`` at most, so the first record that arrived
at ``c - early`` or later, by Kafka's time index; or the first position at which the journal had raised time that far.
Without that bound, and where a channel has no CTI yet, it is the beginning.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.journal_redis import RedisJournal
from ingest.offsets import Marks, Offset, Planned
from ingest.promises import Promises, last_promises
from ordering.errors import RefusedError
from ordering.policies import Shape
from ordering.punctuation import Cti
from ordering.ticks import TICK_MAX
from ordering.wire import decode_cti, encode_cti
from tidegate.runtime.binding import differences
from tidegate.runtime.kafka.admin import Admin, Topic
from tidegate.runtime.logs import get_logger

FILE = "resumed.json"
"""In the checkpoint's folder: where the job began, for every later start from this checkpoint."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where each input partition is read from, and what each channel has promised."""

    starts: Mapping[Partition, Planned]
    promises: Promises

    def write(self, folder: Path) -> None:
        """Leave it in a checkpoint's folder."""
        fields = {
            "starts": Offset(self.starts).to_json(),
            "promises": [[partition, *_written(cti)] for channels in self.promises.values() for partition, cti in channels.items()],
        }
        draft = (folder / FILE).with_suffix(".new")
        draft.write_text(json.dumps(fields))
        draft.replace(folder / FILE)

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
        return cls(Offset.from_json(fields["starts"]).partitions, promises)


def _written(cti: Cti) -> tuple[str, str]:
    header, body = encode_cti(cti)
    return base64.b64encode(header).decode(), base64.b64encode(body).decode()


def resume(plan: IngestPlan, admin: Admin, journal: RedisJournal, began: Mapping[Partition, int]) -> Resumption:
    """
    Return where to go on.

    Args:
        plan: The job as it would start on a topic that holds nothing.
        admin: For offsets by time.
        journal: The journal.
        began: First offset of each partition that the topic was made from, as far as it is known.

    Raises:
        RefusedError: The topic has ended, was made by other inputs, or what must be read again or known is gone.
    """
    topic = plan.settings.ordered_topic
    outputs = [(topic, partition) for partition in range(plan.output_partitions)]
    promises = last_promises(plan.kafka, topic, admin.starts(outputs), admin.ends(outputs))
    _check_roster(plan, promises)
    check_journal(plan, journal, promises)
    starts = {partition: _start(plan, admin, journal, number, promises.get(number, {})) for number, partition in enumerate(plan.partitions)}
    there = admin.starts(plan.partitions)
    for partition, at in starts.items():
        _check_retention(partition, at.next_offset, there[partition], began.get(partition, 0))
        starts[partition] = replace(at, next_offset=max(at.next_offset, there[partition]))
        _log.info("resumes from the last CTI of each channel", topic=partition[0], partition=partition[1], offset=at.next_offset)
    return Resumption(starts, promises)


def check_made_of(
    plan: IngestPlan, journal: RedisJournal, ordered: Topic, made_of: Mapping[str, str], has_events: bool, has_checkpoint: bool
) -> dict[Partition, int]:
    """
    Compare what the ordered topic is made of with what the journal says; without a checkpoint nothing else tells.

    Args:
        plan: The job.
        journal: The journal.
        ordered: The ordered topic.
        made_of: The settings that shape its events.
        has_events: Whether something was written to it.
        has_checkpoint: Whether its checkpoint is there.

    Returns:
        The first offset of each partition it was made from, as far as that is known.

    Raises:
        RefusedError: It was made under other settings.
    """
    # Of a topic that was begun before nobody knows any more which offsets came first.
    starts = {} if has_events else Offset(plan.starts).to_json()["partitions"]
    text = json.dumps({"settings": made_of, "starts": {name: at["next"] for name, at in starts.items()}}, sort_keys=True)
    said, first = journal.made_of(ordered.name, ordered.topic_id, text, anew=not has_events)
    if first and has_events and not has_checkpoint:
        _log.warning("the journal does not know the ordered topic: its settings cannot be compared", topic=ordered.name)
    known = json.loads(said)
    if has_events and not has_checkpoint and known["settings"] != made_of:
        raise RefusedError(
            f"ordered topic {ordered.name} was made under other settings: {'; '.join(differences(known['settings'], made_of))}",
            code="TG-TOPIC-SETTINGS",
            where=ordered.name,
            fix="set them back, or write to a new ordered topic (set ordered_topic): events judged by two policies must not mix",
        )
    return {partition: known["starts"].get("/".join(map(str, partition)), 0) for partition in plan.partitions}


def _start(plan: IngestPlan, admin: Admin, journal: RedisJournal, number: int, channels: Mapping[int, Cti]) -> Planned:
    """Return where one input partition is read from, with the largest estimate and import up to there."""
    partition = plan.partitions[number]
    estimates = journal.estimates(plan.journal_key(partition), 0, TICK_MAX)
    imports = journal.imports(plan.import_key(partition), 0, TICK_MAX) if plan.imported else []
    early_us = _largest_earliness_us(plan)
    position = 0
    if early_us is not None and len(channels) == len(plan.outputs_of(number)):
        # A lifted end stands one tick above its start edge, which must be met too.
        least_us = min(cti.c for cti in channels.values()) - (plan.settings.event_shape is Shape.EDGE)
        indexed = admin.offsets_from([partition], least_us - early_us)[partition]
        position = first_position(indexed, least_us, early_us, tuple(estimates), tuple(imports))
    return Planned(position, _largest(estimates, position), import_us=_largest(imports, position))


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


def _check_roster(plan: IngestPlan, promises: Promises) -> None:
    expected = plan.roster
    for channels in promises.values():
        for cti in channels.values():
            if (cti.roster.inputs, cti.roster.spread) != (expected.inputs, expected.spread):
                raise RefusedError(
                    f"ordered topic {plan.settings.ordered_topic} was written from {cti.roster.inputs} input partitions "
                    f"({'with' if cti.roster.substreams else 'without'} over), these settings make it {expected.inputs} "
                    f"({'with' if expected.substreams else 'without'})",
                    code="TG-TOPIC-SETTINGS",
                    where=plan.settings.ordered_topic,
                    fix="set the input as it was, or set ordered_topic to a topic that is not there yet",
                )


def check_journal(plan: IngestPlan, journal: RedisJournal, promises: Promises) -> None:
    """
    Compare what was judged with what the journal has closed; give it back what CTIs tell of estimates.

    Raises:
        RefusedError: It has lost facts, and imports may be among them (TG-JOURNAL-LOST).
    """
    lost = False
    for number, channels in promises.items():
        partition = plan.partitions[number]
        key = plan.journal_key(partition)
        lost |= journal.closed(key) < max(cti.next_offset for cti in channels.values())
        # A CTI says how far arrival time had come before the record at its next offset: so had every walk.
        journal.estimate_many([(key, cti.next_offset, cti.arrival_us) for cti in channels.values() if cti.arrival_us >= 0])
    if not lost:
        return
    if plan.imported is not None:
        raise RefusedError(
            f"the journal at {plan.redis.address} has lost what was imported into {plan.settings.name}: events would be judged anew",
            code="TG-JOURNAL-LOST",
            where="redis.url",
            fix="bring the data of Redis back, or set ordered_topic to a topic that is not there yet",
        )
    _log.warning(
        "the journal has lost estimates: an event that one of them made late may be judged differently now", redis=plan.redis.address
    )


def _check_retention(partition: Partition, needed: int, there: int, began: int) -> None:
    # Where the first record there is needed nobody knows whether those before it are not.
    if there <= began or needed > there:
        return
    raise RefusedError(
        "retention has deleted records that must be read again: "
        f"needed from {f'offset {needed} or before' if needed else 'the beginning'}, there from offset {there}",
        code="TG-RETENTION",
        where=f"{partition[0]}-{partition[1]}",
        fix="bring the checkpoint back, or set ordered_topic to a topic that is not there yet: it starts from what is left",
    )
