"""
What goes into one step of the model and what comes out of it, as columns: events before and after the policies.

An event has an event time (from its payload, never changed), an arrival time (never falling within its input
partition) and, once kept, a system timestamp. Law: every column has one entry a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ordering.columns.payload_columns import Payload
from ordering.model.release_rows import ReleaseRows
from ordering.model.verdicts import Reason
from ordering.protocol.punctuation import Cti

__all__ = ["Batch", "Counts", "Dropped", "Outflow", "Reason", "Released", "Step"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Batch:
    """
    A contiguous range of one input partition, in offset order. All columns have one entry a record.

    Args:
        offset: Offsets, rising; holes are allowed.
        arrival_us: Arrival times as stamped (not yet clamped), microseconds.
        event_time_us: Event times, microseconds; anything where not *readable*. None: the (clamped) arrival is the event time.
        readable: False for records without a valid event time: they move the arrival frontier and nothing else.
        substream: Substream key bytes (binary or dictionary column, or bytes objects), or None without OVER.
        key: Record keys (bytes or None), passed on untouched: a numpy column of objects, or an Arrow binary column.
        value: Payloads, as *key*.
        end_offset: The offset after the range.
        estimates: (position, arrival frontier in microseconds): journaled estimates, each applied just before the
            record at its position is judged; ``end_offset`` is a position too.
        finish: The input ends here: everything held is released and the final CTI written.
        source_cti_us: For records that are CTIs enqueued by the source (not *readable*) their ``c``, microseconds;
            ``NEVER`` for all others. None: there are none.
        imports: (position, c in microseconds): journaled CTIs of another input, each applied like an estimate.
        end_us: For intervals their ends, microseconds. None for other shapes.
        start_us: For end edges the event time of their start edge, microseconds; ``NEVER`` marks a start edge. The event
            time of an end edge is its end. None for other shapes.
    """

    offset: Ints
    arrival_us: Ints
    event_time_us: Ints | None
    readable: Mask
    substream: Payload | None
    key: Payload
    value: Payload
    end_offset: int
    estimates: tuple[tuple[int, int], ...] = ()
    finish: bool = False
    source_cti_us: Ints | None = None
    imports: tuple[tuple[int, int], ...] = ()
    end_us: Ints | None = None
    start_us: Ints | None = None


@dataclass(slots=True)
class Counts:
    """What happened to the records of a batch, in numbers (spec section 7)."""

    events_in: int = 0
    unreadable: int = 0
    early: int = 0
    late_adjusted: int = 0
    late_dropped: int = 0
    out_of_order_adjusted: int = 0
    out_of_order_dropped: int = 0
    arrival_clamps: int = 0
    source_ctis: int = 0
    cti_violation_adjusted: int = 0
    cti_violation_dropped: int = 0
    released: int = 0
    held: int = 0


@dataclass(slots=True)
class Released:
    """
    Events that left, in release order. Times in microseconds; ``number`` is the input partition's roster number.

    ``key`` and ``value`` are columns of the kind that came in. Rows that no step of the model released, such as a query's
    results, have no ``lazy_release_rows``.
    """

    number: int
    output_partition: NDArray[np.int32]
    seq: Ints
    system_us: Ints
    event_time_us: Ints
    arrival_us: Ints
    offset: Ints
    flags: NDArray[np.uint16]
    key: Payload
    value: Payload
    lazy_release_rows: ReleaseRows | None = None

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def release_rows(self) -> Ints:
        """The batch row that released each event, 0 to the number of rows (after the last); computed when asked for."""
        assert self.lazy_release_rows is not None, "a step of the model released these"
        return self.lazy_release_rows.resolve()


@dataclass(slots=True)
class Outflow:
    """
    All that left with a batch, in release order: what CTIs count, also if an earlier writer has written it already.

    Args:
        system_us: System timestamps.
        partition: Output partitions.
        is_skipped: Which are numbered and written already (a writer that resumes); None: none.
        release_rows: The batch row that released each.
        channel_order: Their places sorted by output partition, if that is known.
    """

    system_us: Ints
    partition: NDArray[np.int32]
    is_skipped: Mask | None
    release_rows: ReleaseRows
    channel_order: Ints | None = None


@dataclass(slots=True)
class Dropped:
    """Events the policies rejected: their offsets and the ``Reason`` of each."""

    offset: Ints
    reason: NDArray[np.int8]


@dataclass(slots=True)
class Step:
    """What one step gave: events first, then the CTIs that may follow once those are acknowledged."""

    released: Released
    dropped: Dropped
    ctis: list[Cti] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
