"""
Where a query job begins to read its topics, or continues, and whether the records that it must read still exist.

Law (spec section 6): a job that is not refused reads everything that its results depend on. From a checkpoint's positions on all records
must exist. A run from the beginning needs everything; a run from an instant X on needs every event with System.Timestamp >= X of every
channel. If retention has deleted the beginning of a topic, a remaining record before the first record of X or later proves that nothing
needed is gone: a CTI of the channel, whose largest s lies below X; or any event of a channel without substreams, which is in order.

With OVER the emission order follows the input records, so a run without its checkpoint must accept each event at the same record as the
lost run. A reader that starts in the middle accepts from the first CTI with c >= X on. So it begins at such a CTI of each channel if there
is one before the first record of X. If there is none, the lost run had gone past it, and all results before that are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Roster
from ordering.ticks import format_tick
from query.config import Partition, QueryPlan
from query.stage.offsets import Offset
from tidegate.kafka.admin import Admin
from tidegate.kafka.channel_promises import log_of
from tidegate.kafka.ranges import RangeReader
from tidegate.kafka.tails import ctis_of
from tidegate.spark.offset_log import last_batches, read_offset

TAIL_RECORDS = 1_000
# Each further look back reads this many times as many records.
_GROWTH = 8
WAYS_OUT = "start from a time that is still there, and give the topic a longer retention"


def finished_positions(plan: QueryPlan) -> dict[Partition, int]:
    """Return the next offset of each partition after the last finished batch; nothing before the first."""
    folder = Path(plan.checkpoint)
    stored = read_offset(folder, last_batches(folder)[1])
    return {} if stored is None else {plan.partitions[log]: offset for log, offset in Offset.from_json(stored).positions.items()}


def read_positions(admin: Admin, plan: QueryPlan) -> dict[Partition, int]:
    """Return where the job begins to read each partition, or continues; RefusedError (TG-RETENTION) if that is gone."""
    available, progress = admin.starts(plan.partitions), finished_positions(plan)
    if progress:
        gone = {partition: f"offset {offset:,}" for partition, offset in progress.items() if available[partition] > offset}
        _refuse_if_gone(plan, available, gone)
        return {**available, **progress}
    if plan.read_from_us is None:
        _refuse_if_gone(plan, available, {partition: "offset 0" for partition, offset in available.items() if offset > 0})
        return available
    first_offsets, ends = admin.offsets_from(plan.partitions, plan.read_from_us), admin.ends(plan.partitions)
    needed = f"everything from {format_tick(max(plan.read_from_us, 0))} on"
    uncertain = [
        partition
        for partition, offset in available.items()
        if offset > 0 and not _is_vouched(plan, partition, offset, first_offsets[partition], ends[partition])
    ]
    _refuse_if_gone(plan, available, dict.fromkeys(uncertain, needed))
    if plan.over:
        first_offsets = {
            partition: settled_position(plan, partition, available[partition], offset) for partition, offset in first_offsets.items()
        }
    # Read the last records in any case: they hold the final CTIs of a topic that ended before X. Starting earlier is sound.
    tails = {partition: max(available[partition], ends[partition] - TAIL_RECORDS) for partition in plan.partitions}
    return {partition: min(first_offsets[partition], tail) for partition, tail in tails.items()}


def settled_position(plan: QueryPlan, partition: Partition, available: int, first_needed: int) -> int:
    """Return the first offset of the channels' last CTIs with c >= X between *available* and *first_needed*, else *first_needed*."""
    topic, number = partition
    assert plan.read_from_us is not None, "the job begins at an instant"
    reader = RangeReader(plan.kafka, topic, number, headers=True)
    length = TAIL_RECORDS
    try:
        while True:
            start = max(first_needed - length, available)
            settled: dict[int, int] = {}
            first_parts: dict[int, int] = {}
            channels_met = set[int]()
            roster: Roster | None = None
            for records in reader.read(start, first_needed) if start < first_needed else ():
                for offset, cti in ctis_of(records, topic, number):
                    roster = cti.roster if roster is None or cti.roster.version > roster.version else roster
                    first_parts |= {cti.number: offset} if cti.part == 0 else {}
                    if cti.part < cti.parts - 1 or cti.number not in first_parts:
                        continue
                    channels_met.add(cti.number)
                    if cti.c >= plan.read_from_us:
                        settled[cti.number] = first_parts[cti.number]
            channels = roster.channels_of(number, _partitions(plan, topic)) if roster is not None else None
            if start == available or (channels is not None and channels_met.issuperset(channels)):
                return min(settled.values(), default=first_needed)
            length *= _GROWTH
    finally:
        reader.close()


def _partitions(plan: QueryPlan, topic: str) -> int:
    return next(feed.partitions for feed in plan.feeds if feed.topic == topic)


def _refuse_if_gone(plan: QueryPlan, available: Mapping[Partition, int], needed: Mapping[Partition, str]) -> None:
    if not needed:
        return
    inputs = {feed.topic: feed.input for feed in plan.feeds}
    losses = [
        f"{topic}-{number}: needed is {needed_from}, there is offset {available[topic, number]:,} and what follows"
        for (topic, number), needed_from in needed.items()
    ]
    names = ", ".join(dict.fromkeys(inputs[topic] for topic, _ in needed))
    reason = f"retention has deleted what must be read of {names}: {'; '.join(losses)}"
    where = ", ".join(f"{topic}-{number}@{available[topic, number]}" for topic, number in needed)
    raise RefusedError(reason, code="TG-RETENTION", where=where, fix=WAYS_OUT, example="--start 2001-01-02T00:00:00Z")


def _is_vouched(plan: QueryPlan, partition: Partition, available: int, first_needed: int, end: int) -> bool:
    """Return whether each channel of a partition has a remaining record before the first record of X."""
    topic, number = partition
    partitions = _partitions(plan, topic)
    reader = RangeReader(plan.kafka, topic, number, headers=True)
    # Before *first_needed* all timestamps lie below X, and a CTI's timestamp is the largest s of its channel.
    channels_met, promised = set[int](), set[int]()
    roster: Roster | None = None
    try:
        for records in reader.read(available, end) if first_needed > available else ():
            log = log_of(records, topic, number)
            ctis = [(offset, cti) for offset, cti in log.ctis if offset < first_needed or roster is None]
            for offset, cti in ctis:
                roster = cti.roster if roster is None or (offset < first_needed and cti.roster.version > roster.version) else roster
                promised |= {cti.number} if offset < first_needed else set()
            channels_met |= {int(number) for number in np.unique(log.number[log.log_offset < first_needed])}
            if roster is not None:
                channels = set(roster.channels_of(number, partitions))
                # A channel without substreams is in order: what was deleted before an event is not younger than it.
                if channels <= (promised if roster.substreams else promised | channels_met):
                    return True
                if int(records.offset[-1]) >= first_needed:
                    return False
    finally:
        reader.close()
    return False
