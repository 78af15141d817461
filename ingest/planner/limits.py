"""
Limits how much the next batch reads: a maximum of events and bytes, and about as much as the target batch time allows.

Law: limits change the time at which results come, never the results. At least one record is always allowed, so a job never stands still.
The driver writes each batch's cost into the checkpoint's folder, and the planner adapts. While no cost is known, batches begin small and
grow.

A job that is far behind takes longer batches, because each has a fixed cost. Readers need not wait for their ends, since CTIs are written
within them. With many partitions the job then reads some at a time, in turns, because each range has a fixed cost too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ingest.offsets import Partition
from tidegate.platform.checkpoint.batch_cost import RECORD_BYTES, read_batch_cost

_FIRST_EVENTS = 50_000
_LEAST_EVENTS = 1_000
# A job that is more than _FAR_BEHIND batches behind reads up to _LONGER times as much in a batch.
_FAR_BEHIND = 4
_LONGER = 10
# Least events of a range. A range has fewer only if no more exist, or to keep all tasks busy.
_RANGE_EVENTS = 40_000


class Limits:
    """The limits of one job: the most events and payload bytes of a batch over all partitions, and its target time."""

    def __init__(self, events_max: int, bytes_max: int, target_us: int, tasks: int, folder: Path) -> None:
        self._events_max, self._bytes_max, self._target_us = events_max, bytes_max, target_us
        self._tasks, self._folder = tasks, folder
        self._allowed = min(_FIRST_EVENTS, events_max)
        self._shared = 0
        self._last_number = -1
        self._record_bytes = float(RECORD_BYTES)
        self._last: Partition = ("", -1)

    def plan_shares(self, behind: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return how many offsets the next batch may read of the partitions that are *behind*; some may be left out."""
        self._adjust()
        total = sum(behind.values())
        is_far_behind = total > _FAR_BEHIND * self._allowed
        allowed = self._allowed * (_LONGER if is_far_behind else 1)
        allowed = max(min(allowed, self._events_max, int(self._bytes_max / self._record_bytes)), 1)
        chosen = choose_turn(behind, allowed, self._last, self._tasks)
        self._last = chosen[-1]
        shares = deal_shares({partition: behind[partition] for partition in chosen}, allowed)
        self._shared = sum(shares.values())
        return shares

    def _adjust(self) -> None:
        """Adapt to the cost of the last batch: at most double the events, at most halve them."""
        cost = read_batch_cost(self._folder)
        if cost is None or cost.number == self._last_number:
            return
        is_first, self._last_number = self._last_number < 0, cost.number
        self._record_bytes = cost.record_bytes
        if is_first:
            # The first cost includes the start of workers, or is that of another driver's batch.
            return
        fitting = int(cost.events * self._target_us / max(cost.work_us, 1))
        if self._shared >= self._allowed and fitting > self._allowed:
            self._allowed = min(fitting, 2 * self._allowed, self._events_max)
        elif fitting < self._allowed and cost.events >= self._allowed // 2:
            # A small batch that took long had another reason, such as a cold start or a broker that did not answer.
            self._allowed = max(fitting, self._allowed // 2, min(_LEAST_EVENTS, self._events_max))


def choose_turn(behind: Mapping[Partition, int], allowed: int, last: Partition, tasks: int) -> list[Partition]:
    """Return the partitions whose turn comes after *last*: as few as use *allowed* offsets well, but at least one for each task."""
    ordered = sorted(behind, key=lambda partition: (partition <= last, partition))
    chosen, used = list[Partition](), 0
    for partition in ordered:
        if used >= allowed and len(chosen) >= min(tasks, allowed):
            break
        chosen.append(partition)
        used += min(behind[partition], _RANGE_EVENTS)
    return chosen


def deal_shares(behind: Mapping[Partition, int], allowed: int) -> dict[Partition, int]:
    """Deal out *allowed* offsets evenly. Offsets that a partition does not need go to the others, a remainder to those farthest behind."""
    shares: dict[Partition, int] = {}
    remaining = allowed
    ordered = sorted(behind, key=lambda partition: (behind[partition], partition))
    for place, partition in enumerate(ordered):
        even = remaining // (len(ordered) - place)
        shares[partition] = min(behind[partition], even)
        remaining -= shares[partition]
    for partition in reversed(ordered):
        # The remainder of the division.
        more = min(remaining, behind[partition] - shares[partition], 1)
        shares[partition] += more
        remaining -= more
    return {partition: count for partition, count in shares.items() if count}
