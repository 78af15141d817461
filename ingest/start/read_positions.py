"""
Finds the position from which a raw topic is read so that no event with a time at or above the output start is missed
(docs/operate/starting.md), and checks that the records exist. An event's time exceeds its arrival by ``early`` at most. So reading starts
at the first record that arrived at ``start - early`` or later, by Kafka's time index or the journal's stamps; or earlier, at the first
position where the journal had raised time that far. Without an early tolerance it starts at the beginning.
"""

from __future__ import annotations

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.offsets import Marks, PlannedPosition
from ingest.skips import Skip
from ordering.errors import RefusedError
from ordering.policies import Shape
from ordering.ticks import TICK_MAX, format_tick
from tidegate.platform.kafka.admin import Admin


def find_start(plan: IngestPlan, admin: Admin, journal: RedisJournal, partition: Partition, least_us: int | None) -> PlannedPosition:
    """Return where a partition is read from to write all events from *least_us* on (None: all), with the estimate and import in force."""
    estimates = journal.estimates(plan.journal_key(partition), 0, TICK_MAX)
    imports = journal.imports(plan.import_key(partition), 0, TICK_MAX) if plan.imported else []
    early_us = largest_earliness_us(plan)
    position = 0
    if early_us is not None and least_us is not None:
        # An end edge may be raised to one tick above its start edge, and the start edge must be read too.
        least_us -= plan.settings.event_shape is Shape.EDGE
        indexed = _first_arrival(plan, admin, journal, partition, least_us - early_us)
        position = first_position(indexed, least_us, early_us, tuple(estimates), tuple(imports))
    return PlannedPosition(position, _largest_until(estimates, position), import_us=_largest_until(imports, position))


def _first_arrival(plan: IngestPlan, admin: Admin, journal: RedisJournal, partition: Partition, from_us: int) -> int:
    if plan.settings.arrival == "ingest":
        # A record that was never planned has no stamp yet: it arrives when it is planned.
        return journal.first_stamped(plan.journal_key(partition), from_us)
    return admin.offsets_from([partition], from_us)[partition]


def largest_earliness_us(plan: IngestPlan) -> int | None:
    """Return by how much an event's time can exceed its arrival, microseconds; None: there is no bound."""
    policies = plan.settings.policies()
    # With a negative reorder time, equal events may have raised each other over any distance. A source CTI affects all later events, and
    # the largest one is not remembered.
    if policies.reorder_us < 0 or plan.settings.source_ctis:
        return None
    # Without TIMESTAMP BY the event time is the arrival time.
    return 0 if plan.settings.timestamp_by is None else policies.early_us


def first_position(indexed: int, least_us: int, early_us: int, estimates: Marks, imports: Marks) -> int:
    """Return the position before which no event reaches *least_us*; *indexed*: the first that arrived from ``least_us - early_us`` on."""
    # After an estimate, records count as arrived later than stamped; after an import, intervals may begin at its time.
    raised_at = [position for position, frontier_us in estimates if frontier_us >= least_us - early_us]
    raised_at += [position for position, c_us in imports if c_us >= least_us]
    return min([indexed, *raised_at])


def _largest_until(marks: list[tuple[int, int]], position: int) -> int:
    return max((value for mark_position, value in marks if mark_position <= position), default=0)


def check_retention(plan: IngestPlan, partition: Partition, needed: int, available: int, first_read: int, least_us: int | None) -> None:
    """
    Raise RefusedError (TG-RETENTION) if records that must be read of a partition are gone: *needed* is its first offset that must be read,
    *available* the first that exists, *first_read* the first that the topic was ever made from; *least_us*: as in :func:`find_start`.
    """
    # If the first record that is left is needed, deleted records before it may have been needed too.
    if available <= first_read or needed > available:
        return
    early_us = largest_earliness_us(plan)
    if early_us is None:
        why = "everything: without early, with source_ctis or with a negative cti_delay an event of any age counts"
    elif least_us is None:
        why = "everything"
    else:
        why = f"all that arrived from {format_tick(least_us - early_us)} on (offset {needed} or before)"
    raise RefusedError(
        f"retention has deleted records of {partition[0]}-{partition[1]} that must be read: needed {why}, there from offset {available}",
        code="TG-RETENTION",
        where=f"{partition[0]}-{partition[1]}@{available}",
        fix="start a new ordered topic later (--start) or from what is left (--start earliest), or bring a lost checkpoint back; "
        "give the raw topic a longer retention",
        example="--start now",
    )


def gap_error(gap: Skip, name: str) -> RefusedError:
    """Return the error (TG-RETENTION) for a *gap* in the records that the input *name* still has to read."""
    return RefusedError(
        f"retention has deleted records of {gap.topic}-{gap.partition} that are still to be read: "
        f"needed from offset {gap.start}, there from offset {gap.end}",
        code="TG-RETENTION",
        where=gap.place,
        fix="continue after the gap, which the journal then keeps (tidegate skip, or on_lost_records), or start a new ordered "
        "topic from what is left (set ordered_topic); and give the raw topic a longer retention",
        example=f'tidegate skip {name} {gap.place} --until {gap.end} --why "deleted too early"',
    )
