"""
The story of one input partition's log: the fate of each record, as the oracle computes it and tests compare it.

Law: a story knows nothing of batches. Each *snapshot* is taken after one record, estimate, import or the end, so whatever way the log is
cut, what holds at a batch's end is some snapshot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ordering.policies import Generation, Shape
from ordering.ticks import NEVER


@dataclass(frozen=True, slots=True)
class Record:
    """
    One raw record. Times are microseconds.

    Args:
        offset: Its offset.
        arrival_us: Its arrival as stamped, not yet clamped.
        event_time_us: Its event time (an end edge's is its end); None: unreadable, or a CTI.
        key: With OVER the substream key; else the record's key.
        source_cti_us: The c of a CTI enqueued by the source; None: the record is none.
        end_us: An interval's end; None for other shapes.
        start_us: For an end edge the event time of its start edge; ``NEVER`` marks a start edge; None for other shapes.
        raw_key: The record's key where *key* is the substream's. Without OVER it is what edges are matched by.
    """

    offset: int
    arrival_us: int
    event_time_us: int | None
    key: bytes = b""
    source_cti_us: int | None = None
    end_us: int | None = None
    start_us: int | None = None
    raw_key: bytes | None = None

    @property
    def shape(self) -> Shape:
        """What the event is in time."""
        if self.start_us is not None:
            return Shape.EDGE
        return Shape.POINT if self.end_us is None else Shape.INTERVAL

    @property
    def is_end_edge(self) -> bool:
        """Whether it is an end edge."""
        return self.start_us is not None and self.start_us != NEVER


class SetBy(StrEnum):
    """What may set a watermark: nothing yet, joining, an event's system timestamp, a record's arrival, ..."""

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
    """Who set a mark: a record (event, arrival, source) by its offset, an estimate or import by its position; else -1."""

    by: SetBy
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Ruling:
    """
    One policy applied to one event: ``early``, ``cti_violation``, ``late``, ``out_of_order`` or ``lifted_end``.

    ``limit_us`` is the limit that the event's time was compared with (the latest time not early; the CTI; the earliest time not late; the
    watermark; the start edge's s), *setter* who set that limit, ``system_us`` the time after it; None: dropped.
    """

    policy: str
    limit_us: int
    setter: Setter
    system_us: int | None


@dataclass(slots=True)
class EventTrace:
    """
    One event's way: its clamped arrival, its timeline's watermark before the record and who had set it, every ruling in order, and its
    system timestamp in the end (None: dropped).
    """

    offset: int
    arrival_us: int
    watermark_us: int
    setter: Setter
    rulings: list[Ruling] = field(default_factory=list)
    system_us: int | None = None


@dataclass(frozen=True, slots=True)
class OrderedEvent:
    """
    One event as the ordered topic carries it; ``arrival_us`` is clamped, *policies* are those that changed a time of it.

    ``end_us`` is an interval's end as readers compute it, *snapshot_index* the place in ``Story.snapshots`` at which it left.
    """

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
    The state at the start, after a record, an estimate, an import or the end.

    Args:
        next_offset: The first offset not yet judged.
        frontier_us: A.
        c: The c of a CTI there: no event still to come lies below it.
        released_count: How many events of the story are out.
        watermark_us: The one timeline's watermark, with OVER the floor; ``c`` is this minus the delay.
        watermark_setter: Who set that watermark first.
        tied_setters: What set other marks to the same time.
        trigger: What the snapshot follows: a record is ``EVENT``, a CTI that its source enqueued ``SOURCE``.
        accepted_count: How many events were accepted by then, end edges not counted.
        is_counted: Whether the snapshot follows one of those.
        is_end_edge: Whether it follows an end edge, after which application time is not compared.
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
        """Return whether a CTI is due at this record; ``last_us`` is the watermark at the CTI point before (else ``NEVER``)."""
        if generation.is_per_batch or self.trigger not in (SetBy.EVENT, SetBy.SOURCE):
            return False
        by_count = generation.every_events is not None and self.is_counted and self.accepted_count % generation.every_events == 0
        is_compared = generation.every_us is not None and not self.is_end_edge
        by_time = is_compared and self.watermark_us - last_us >= (generation.every_us or 0)
        return self.trigger is SetBy.SOURCE or by_count or by_time


@dataclass(slots=True)
class Story:
    """
    All that becomes of one input partition's log.

    ``ordered`` stands in release order; ``watermarks`` has for each offset the watermark its event met (early and unreadable records meet
    none), ``traces`` the whole way of each event, early ones too; ``counts`` has ``unreadable``, ``source_ctis``, ``early``,
    ``arrival_clamps`` and, each as ``_adjusted`` and ``_dropped``, ``cti_violation``, ``late`` and ``out_of_order``. ``accepted_us`` has
    for each accepted event (timeline, the largest s that it brought).
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
        """Return one channel's sequence; its events are numbered 0, 1, 2, ..."""
        return [event for event in self.ordered if event.output_partition == output_partition]

    def promise(self, snapshot: Snapshot, output_partition: int) -> tuple[int, int]:
        """Return the channel's ``(n, ahead)`` at *snapshot*: events out by then, and how many of them are not below its ``c``."""
        out = self._out(snapshot, output_partition)
        return len(out), sum(event.system_us >= snapshot.c for event in out)

    def largest_us(self, snapshot: Snapshot, output_partition: int) -> int | None:
        """Return the largest system timestamp released in the channel by *snapshot*; None: no event is out."""
        return max((event.system_us for event in self._out(snapshot, output_partition)), default=None)

    def substreams(self, snapshot: Snapshot, reorder_us: int) -> dict[bytes, tuple[int, int | None]]:
        """
        Return for each substream that has an accepted event by *snapshot* its watermark and the largest s released of it.

        A CTI there may list any whose watermark is above its ``c`` (spec section 4).
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
        Return the story of a run into an empty topic that starts from the output start time ``start_us`` (spec section 6).

        Released events below it are left out and not numbered; the CTIs that count are those with ``c >= start_us``.
        """
        kept = [event for event in self.ordered if event.system_us >= start_us]
        numbers: Counter[int] = Counter()
        ordered = []
        for event in kept:
            ordered.append(replace(event, seq=numbers[event.output_partition]))
            numbers[event.output_partition] += 1
        left_by = Counter(event.snapshot_index for event in kept)
        snapshots, released = [], 0
        for index, snapshot in enumerate(self.snapshots):
            released += left_by[index]
            snapshots.append(replace(snapshot, released_count=released))
        return replace(self, ordered=ordered, snapshots=snapshots)

    def continuation(self, output_partition: int, c: int, ahead: int) -> list[OrderedEvent]:
        """
        Return the events that a run writes into a channel whose last CTI says ``(c, ahead)``: those with s >= c without the first *ahead*.
        Their seq goes on where the channel ended.
        """
        return [event for event in self.channel(output_partition) if event.system_us >= c][ahead:]

    def _out(self, snapshot: Snapshot, output_partition: int) -> list[OrderedEvent]:
        return [event for event in self.ordered[: snapshot.released_count] if event.output_partition == output_partition]
