"""
The story of one input partition's log: the fate of each record, computed by the oracle and compared by tests.

Law: a story has no batches. A *snapshot* is taken after each record, estimate, import and the end; so for any cut of the log, the state at
a batch's end equals one of the snapshots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate, count

from ordering.policies import Generation
from ordering.ticks import NEVER


class SetBy(StrEnum):
    """The causes of a watermark."""

    NOBODY = "nobody"
    JOINED = "joined"
    EVENT = "event"
    ARRIVAL = "arrival"
    ESTIMATE = "estimate"
    SOURCE = "source"
    IMPORT = "import"
    END = "end"


@dataclass(frozen=True, slots=True)
class Setter:
    """The setter of a mark: the offset of a record (event, arrival, source), the position of an estimate or import; else -1."""

    by: SetBy
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Ruling:
    """
    One policy (``early``, ``cti_violation``, ``late``, ``out_of_order`` or ``lifted_end``) applied to one event; ``system_us`` is the time
    after it, None: dropped. *setter* set the limit: the latest time not early, the CTI, the earliest time not late, the watermark, or the
    start edge's s.
    """

    policy: str
    limit_us: int
    setter: Setter
    system_us: int | None


@dataclass(slots=True)
class EventTrace:
    """One event's clamped arrival, the watermark it met with its setter, its rulings in order, and its system timestamp (None: dropped)."""

    offset: int
    arrival_us: int
    watermark_us: int
    setter: Setter
    rulings: list[Ruling] = field(default_factory=list)
    system_us: int | None = None


@dataclass(frozen=True, slots=True)
class OrderedEvent:
    """One event of the ordered topic: ``arrival_us`` is clamped, *policies* changed one of its times, *snapshot_index* is its release."""

    output_partition: int
    seq: int
    system_us: int
    event_time_us: int
    arrival_us: int
    roster: int
    offset: int
    policies: frozenset[str]
    key: bytes
    end_us: int | None = None
    start_us: int | None = None
    snapshot_index: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Dropped:
    """One event rejected by a policy: ``early``, ``cti_violation``, ``late`` or ``out_of_order``."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The state at the start, or after a record, an estimate, an import or the end.

    Args:
        c: The c of a CTI at this point: no later event lies below it.
        released_count, accepted_count: How many events are released, and accepted without end edges, so far.
        watermark_us: The watermark of the only timeline, with OVER the floor; ``c`` is this minus the delay.
        watermark_setter, tied_setters: The first setter of that watermark; the kinds of all setters of marks with the same time.
        trigger: The kind of input before the snapshot: ``EVENT`` for a record, ``SOURCE`` for a source CTI.
        is_counted: Whether the snapshot follows an event of ``accepted_count``.
        is_end_edge: Whether it follows an end edge, at which ``every_us`` is not checked.
    """

    next_offset: int
    frontier_us: int
    c: int
    released_count: int
    watermark_us: int
    watermark_setter: Setter
    tied_setters: frozenset[SetBy]
    trigger: SetBy
    accepted_count: int
    is_counted: bool
    is_end_edge: bool

    def is_due(self, generation: Generation, last_us: int) -> bool:
        """Return whether a CTI is due at this record; ``last_us`` is the watermark at the previous CTI point (else ``NEVER``)."""
        if generation.is_per_batch or self.trigger not in (SetBy.EVENT, SetBy.SOURCE):
            return False
        by_count = generation.every_events is not None and self.is_counted and self.accepted_count % generation.every_events == 0
        is_compared = generation.every_us is not None and not self.is_end_edge
        by_time = is_compared and self.watermark_us - last_us >= (generation.every_us or 0)
        return self.trigger is SetBy.SOURCE or by_count or by_time


@dataclass(slots=True)
class Story:
    """
    The fate of every record of one input partition's log.

    Args:
        ordered: Released events in release order.
        watermarks: Offset -> the watermark that the event met; early and unreadable records meet none.
        traces: Offset -> the trace of the event, early ones included.
        counts: ``unreadable``, ``source_ctis``, ``early``, ``arrival_clamps``; ``_adjusted`` and ``_dropped`` of the other policies.
        accepted_us: Offset of an accepted event -> (timeline, its system timestamp before its end was lifted).
    """

    ordered: list[OrderedEvent] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    watermarks: dict[int, int] = field(default_factory=dict)
    traces: dict[int, EventTrace] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    accepted_us: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def channel(self, output_partition: int) -> list[OrderedEvent]:
        return [event for event in self.ordered if event.output_partition == output_partition]

    def promise(self, snapshot: Snapshot, output_partition: int) -> tuple[int, int]:
        """Return the channel's ``(n, ahead)`` at *snapshot*: its released events, and how many of them are at or above ``c``."""
        out = self._out(snapshot, output_partition)
        return len(out), sum(event.system_us >= snapshot.c for event in out)

    def largest_us(self, snapshot: Snapshot, output_partition: int) -> int | None:
        """Return the largest system timestamp released in the channel by *snapshot*; None if no event is released."""
        return max((event.system_us for event in self._out(snapshot, output_partition)), default=None)

    def substreams(self, snapshot: Snapshot, reorder_us: int) -> dict[bytes, tuple[int, int | None]]:
        """
        Return the watermark and the largest released s of each substream with an accepted event by *snapshot*. A CTI at this point may list
        each substream whose watermark is above its ``c``.
        """
        known: dict[bytes, int] = {}
        for offset, (timeline, accepted_us) in self.accepted_us.items():
            if offset < snapshot.next_offset:
                known[timeline] = max(accepted_us - reorder_us, snapshot.watermark_us, known.get(timeline, NEVER))
        out: dict[bytes, int] = {}
        for event in self.ordered[: snapshot.released_count]:
            out[event.key] = max(event.system_us, out.get(event.key, NEVER))
        return {timeline: (watermark_us, out.get(timeline)) for timeline, watermark_us in known.items()}

    def starting_at(self, start_us: int) -> Story:
        """
        Return the story of a run into an empty topic from the output start time ``start_us``. Released events below it are
        omitted and not numbered; only CTIs with ``c >= start_us`` count.
        """
        numbers: defaultdict[int, Iterator[int]] = defaultdict(count)
        kept = [event for event in self.ordered if event.system_us >= start_us]
        ordered = [replace(event, seq=next(numbers[event.output_partition])) for event in kept]
        left_by = Counter(event.snapshot_index for event in kept)
        released_counts = accumulate(left_by[index] for index in range(len(self.snapshots)))
        counted = zip(self.snapshots, released_counts, strict=True)
        return replace(self, ordered=ordered, snapshots=[replace(snapshot, released_count=released) for snapshot, released in counted])

    def continuation(self, output_partition: int, c: int, ahead: int) -> list[OrderedEvent]:
        """Return the events that a run appends to a channel whose last CTI has ``(c, ahead)``: those with s >= c but the first *ahead*."""
        return [event for event in self.channel(output_partition) if event.system_us >= c][ahead:]

    def _out(self, snapshot: Snapshot, output_partition: int) -> list[OrderedEvent]:
        return [event for event in self.ordered[: snapshot.released_count] if event.output_partition == output_partition]
