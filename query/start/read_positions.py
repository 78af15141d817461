"""
Where a query job begins to read its topics, or continues, and whether the records that it must read still exist.

Law (docs/operate/starting.md): a job that is not refused reads everything that its results depend on. From a checkpoint's positions on all
records must exist. A run from the beginning needs everything; a run from an instant X on needs every event with System.Timestamp >= X of
every channel. If retention has deleted the beginning of a topic, a remaining record before the first record at or above the instant needed
proves that nothing needed is gone: a CTI of the channel, whose largest system timestamp lies below it; or any event of a channel without
substreams, which is in order.

With OVER the emission order follows the input records, so a run that begins at an instant must accept each event at the same record as a
run from the beginning. :mod:`query.start.settling` finds where its readers begin for that. What they need must exist too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti, Roster
from ordering.ticks import format_tick
from query.config import LogStart, Partition, QueryPlan
from query.stage.offsets import QueryOffset
from query.stage.open_positions import read_to
from query.start.settling import settle_log
from tidegate.ordered_topic.decode import decode, decode_ctis
from tidegate.ordered_topic.tails import TAIL_RECORDS
from tidegate.platform.checkpoint.offset_log import last_batches, read_offset
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader


def finished_positions(plan: QueryPlan) -> dict[Partition, int]:
    """Return the next offset of each partition after the last finished batch; nothing before the first."""
    return _positions_after(plan, last_batches(Path(plan.checkpoint))[1])


def planned_positions(plan: QueryPlan) -> dict[Partition, int]:
    """Return the next offset of each partition after the last planned batch, finished or not; nothing before the first."""
    return _positions_after(plan, last_batches(Path(plan.checkpoint))[0])


def _positions_after(plan: QueryPlan, batch: int) -> dict[Partition, int]:
    folder = Path(plan.checkpoint)
    stored = read_offset(folder, batch)
    if stored is None:
        return {}
    return {plan.partitions[log]: offset for log, offset in read_to(folder, QueryOffset.from_json(stored).positions, batch).items()}


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
    firsts = {plan.partitions[log]: start.offset for log, start in plan.log_starts.items()} or first_offsets
    uncertain = [
        partition
        for partition, offset in available.items()
        if offset > 0 and not _is_vouched(plan, partition, offset, firsts[partition], ends[partition])
    ]
    _refuse_if_gone(plan, available, dict.fromkeys(uncertain, needed))
    # Read the last records in any case: they hold the final CTIs of a topic that ended before the instant needed. Starting earlier is
    # sound.
    tails = {partition: max(available[partition], ends[partition] - TAIL_RECORDS) for partition in plan.partitions}
    return {partition: min(firsts[partition], tail) for partition, tail in tails.items()}


def settle_logs(admin: Admin, plan: QueryPlan) -> dict[int, LogStart]:
    """Return where a run with OVER that begins at an instant reads its logs from; nothing for other runs."""
    if not plan.over or plan.read_from_us is None:
        return {}
    return {log: _settle(admin, plan, partition) for log, partition in enumerate(plan.partitions)}


def _settle(admin: Admin, plan: QueryPlan, partition: Partition) -> LogStart:
    assert plan.read_from_us is not None, "the job begins at an instant"
    topic, number = partition

    def read(start: int, end: int) -> Iterator[tuple[int, Cti]]:
        return ((found.log_offset, found.cti) for records in reader.read(start, end) for found in decode_ctis(records, topic, number))

    def first_offset(time_us: int) -> int:
        return admin.offsets_from([partition], time_us)[partition]

    with RangeReader(plan.kafka, topic, number, headers=True) as reader:
        return settle_log(plan.read_from_us, first_offset, read, number, _partitions(plan, topic))


def _partitions(plan: QueryPlan, topic: str) -> int:
    return next(feed.partitions for feed in plan.feeds if feed.topic == topic)


def _refuse_if_gone(plan: QueryPlan, available: Mapping[Partition, int], needed: Mapping[Partition, str]) -> None:
    if not needed:
        return
    inputs = {feed.topic: feed.input for feed in plan.feeds}
    losses = [
        f"{topic}-{number}: needed is {needed_from}, the first record left is at offset {available[topic, number]:,}"
        for (topic, number), needed_from in needed.items()
    ]
    names = ", ".join(dict.fromkeys(inputs[topic] for topic, _ in needed))
    reason = f"retention has deleted records of {names} that must be read: {'; '.join(losses)}"
    where = ", ".join(f"{topic}-{number}@{available[topic, number]}" for topic, number in needed)
    fix = "start from a time that is still there, and give the topic a longer retention"
    raise RefusedError(reason, code="TG-RETENTION", where=where, fix=fix, example="--start 2001-01-02T00:00:00Z")


def _is_vouched(plan: QueryPlan, partition: Partition, available: int, first_needed: int, end: int) -> bool:
    """Return whether each channel of a partition has a remaining record before the first record of the instant needed."""
    topic, number = partition
    partitions = _partitions(plan, topic)
    # Before *first_needed* all timestamps lie below that instant, and a CTI's timestamp is the largest system timestamp of its channel.
    channels_met, promised = set[int](), set[int]()
    roster: Roster | None = None
    with RangeReader(plan.kafka, topic, number, headers=True) as reader:
        for records in reader.read(available, end) if first_needed > available else ():
            log = decode(records, topic, number).log
            ctis = [(offset, cti) for offset, cti in log.ctis if offset < first_needed or roster is None]
            for offset, cti in ctis:
                roster = cti.roster if roster is None or (offset < first_needed and cti.roster.version > roster.version) else roster
                promised |= {cti.number} if offset < first_needed else set()
            channels_met |= {int(number) for number in np.unique(log.number[log.log_offset < first_needed])}
            if roster is not None:
                channels = set(roster.channels_of(number, partitions))
                # A channel without substreams is in order: no record deleted before an event is younger than it.
                if channels <= (promised if roster.substreams else promised | channels_met):
                    return True
                if int(records.offset[-1]) >= first_needed:
                    return False
    return False
