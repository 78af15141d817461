"""
When CTIs are due within a batch, and what each says.

Law (spec section 4): a CTI's promise is exact at its point - everything below ``c`` is numbered below ``n``, ``ahead`` of
those numbered lie at or above it - and CTIs of a channel only rise. Points inside a batch (every so many events, every so
much application time, CTIs of the source) are a function of the log alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordering.columns.segments import group_order
from ordering.model.ahead import Ahead
from ordering.model.events import ReleaseRows
from ordering.model.state import State
from ordering.policies import Generation
from ordering.protocol.punctuation import Cause, Cti, Roster
from ordering.ticks import INFINITY, NEVER

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CtiPoint:
    """
    A point of a batch that ends what one CTI may tell.

    Args:
        watermark_us: The whole partition's watermark there; with OVER the floor.
        out: How many of the batch's released events are out by then.
        next_offset, arrival_us: As in :class:`~ordering.protocol.punctuation.Cti`.
        cause: What moved time.
        due: Whether CTIs are written: after the last record of a batch they may not be.
    """

    watermark_us: int
    released_count: int
    next_offset: int
    arrival_us: int
    cause: Cause
    is_due: bool = True


@dataclass(slots=True)
class Outflow:
    """
    What left with a batch, in release order.

    Args:
        system_us: System timestamps.
        partition: Output partitions.
        skipped: Which are numbered and written already (a writer that resumes); None: none.
        releases: Upon which batch row each left.
        by_channel: Their places sorted by output partition, where that is known.
    """

    system_us: Ints
    partition: NDArray[np.int32]
    is_skipped: Mask | None
    release_rows: ReleaseRows
    channel_order: Ints | None = None


def find_due_rows(generation: Generation, state: State, counted: Mask, ends: Mask | None, forced: Ints, watermark_us: Ints) -> list[int]:
    """
    Return the batch rows after which CTIs are due, rising.

    Args:
        generation: When CTIs are due; not per batch.
        state: As it stood before the batch.
        counted: Which rows are accepted events that count for ``every_events``.
        ends: Which rows are end edges, upon which application time is not looked at; None: none is.
        forced: Rows after which CTIs are due in any case, rising.
        watermark_us: The watermark (with OVER the floor) after each row.
    """
    due = np.zeros(len(counted), dtype=np.bool_)
    due[forced] = True
    if generation.every_events is not None:
        reached = (state.accepted_count + np.cumsum(counted)) // generation.every_events
        due |= counted & (reached > np.concatenate([[state.accepted_count // generation.every_events], reached[:-1]]))
    rows = np.flatnonzero(due).tolist()
    if generation.every_us is None:
        return rows
    return _add_time_points(rows, generation.every_us, state.last_point_us, ends, watermark_us)


def _add_time_points(rows: list[int], every_us: int, last_us: int, ends: Mask | None, watermark_us: Ints) -> list[int]:
    looked_at = np.arange(len(watermark_us)) if ends is None else np.flatnonzero(~ends)
    points, at, fixed = [], 0, 0
    while at < len(watermark_us):
        far = max(at, int(np.searchsorted(watermark_us, last_us + every_us)))
        place = int(np.searchsorted(looked_at, far))
        reached = int(looked_at[place]) if place < len(looked_at) else len(watermark_us)
        if fixed < len(rows) and rows[fixed] <= reached:
            reached, fixed = rows[fixed], fixed + 1
        if reached >= len(watermark_us):
            break
        points.append(reached)
        last_us, at = int(watermark_us[reached]), reached + 1
    return points


class Punctuator:
    """
    Writes the CTIs of one input partition.

    Args:
        number: Its roster number.
        channels: Output partitions it writes to.
        roster: Who writes into the topic.
        delay_us: How far CTIs stay behind the watermark.
    """

    def __init__(self, number: int, channels: list[int], roster: Roster, delay_us: int) -> None:
        self.roster = roster
        self._number, self._channels, self._delay_us = number, channels, delay_us

    def generate(self, state: State, points: list[CtiPoint], out: Outflow) -> tuple[list[Cti], Ahead]:
        """
        Return the CTIs due at *points* (rising, the last at the end of the batch), and what stays ahead of the last.

        Moves the channels' numbering, largest times, counts and ``c`` on.
        """
        last_c = max(state.c, self._promise(points[-1].watermark_us))
        above = out.system_us >= last_c
        ahead = Ahead.of(out.system_us[above], out.partition[above])
        passed = [chunk.ahead.pop_below(last_c) for chunk in state.all_chunks() if len(chunk.ahead)]
        passed.append((out.system_us[~above], out.partition[~above]))
        below_us = np.concatenate([system_us for system_us, _ in passed])
        below = np.concatenate([partition for _, partition in passed])
        if len(points) > 1:
            order = np.argsort(below_us)
            below_us, below = below_us[order], below[order]
        ctis: list[Cti] = []
        gone = behind = 0
        for point in points:
            state.c = max(state.c, self._promise(point.watermark_us))
            until = len(below) if state.c == last_c else int(np.searchsorted(below_us, state.c))
            self._count(state, out, slice(gone, point.released_count), below[behind:until])
            gone, behind = point.released_count, until
            if point.is_due and state.c > NEVER:
                ctis += self._write(state, point, _count_skipped_after(state, out, point.released_count))
        return ctis, ahead

    def repeat_last(self, state: State) -> Cti | None:
        """Return the last CTI of the first output partition again, as far as *state* has come since; None if there was none."""
        if state.last_promise is None:
            return None
        c, n, ahead, largest_us = state.last_promise
        cause = Cause.IDLE if state.is_estimated else Cause.EVENT
        return Cti(self._number, self._channels[0], c, n, ahead, state.next_offset, state.arrival_us, largest_us, self.roster, cause)

    def _promise(self, watermark_us: int) -> int:
        return watermark_us if watermark_us in (INFINITY, NEVER) else watermark_us - self._delay_us

    def _count(self, state: State, out: Outflow, left: slice, passed: NDArray[np.int32]) -> None:
        partition, system_us = out.partition[left], out.system_us[left]
        if len(self._channels) == 1:
            channel = self._channels[0]
            state.ahead_counts[channel] += len(partition) - len(passed)
            state.seq[channel] += len(partition) if out.is_skipped is None else int(np.count_nonzero(~out.is_skipped[left]))
            state.largest_us[channel] = max(int(state.largest_us[channel]), int(system_us.max(initial=NEVER)))
            return
        channels = len(state.seq)
        count = np.bincount(partition, minlength=channels)
        state.ahead_counts = state.ahead_counts + count - np.bincount(passed, minlength=channels)
        state.seq = state.seq + (count if out.is_skipped is None else np.bincount(partition[~out.is_skipped[left]], minlength=channels))
        if len(partition):
            order = (
                out.channel_order if out.channel_order is not None and len(out.channel_order) == len(partition) else group_order(partition)
            )
            present = np.flatnonzero(count)
            starts = (np.cumsum(count) - count)[present]
            largest_us = np.maximum.reduceat(system_us[order], starts)
            state.largest_us[present] = np.maximum(state.largest_us[present], largest_us)

    def _write(self, state: State, point: CtiPoint, unwalked: Ints) -> list[Cti]:
        ctis, since = [], state.output_start
        for channel in self._channels:
            promise = state.c, int(state.seq[channel]), self.roster.version
            if state.promises.get(channel) == promise or (since is not None and state.c < since.start_us[channel]):
                continue
            state.promises[channel] = promise
            ahead, largest_us = int(state.ahead_counts[channel] + unwalked[channel]), int(state.largest_us[channel])
            if channel == self._channels[0]:
                state.last_promise = state.c, promise[1], ahead, largest_us
            ctis.append(
                Cti(
                    number=self._number,
                    output_partition=channel,
                    c=state.c,
                    n=promise[1],
                    ahead=ahead,
                    next_offset=point.next_offset,
                    arrival_us=point.arrival_us,
                    largest_us=largest_us,
                    roster=self.roster,
                    cause=point.cause,
                )
            )
        return ctis


def _count_skipped_after(state: State, out: Outflow, at: int) -> Ints:
    """Return how many events of each output partition, numbered before this writer came, leave only after a point."""
    if state.output_start is None:
        return np.zeros(len(state.seq), dtype=np.int64)
    if out.is_skipped is None:
        return state.output_start.skip_counts
    later = out.partition[at:][out.is_skipped[at:]]
    return state.output_start.skip_counts + np.bincount(later, minlength=len(state.seq))
