"""
Input and output of one step of the model, as columns: events before and after the policies.

An event has an event time (from its payload, never changed), an arrival time (never falling within its input partition) and, if kept, a
system timestamp. Law: every column has one entry a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.payload_columns import Payload
from ordering.model.release_rows import ReleaseRows
from ordering.model.verdicts import Reason
from ordering.protocol.punctuation import Cti

__all__ = ["Batch", "Counts", "Dropped", "Outflow", "Reason", "Released", "Step"]


@dataclass(slots=True)
class Batch:
    """
    A contiguous range of one input partition in offset order. All columns have one entry a record; times are microseconds.

    Args:
        offset: Offsets, rising, not necessarily consecutive.
        arrival_us: Arrival times as stamped (not yet clamped).
        event_time_us: Event times, arbitrary where not *readable*. None: the (clamped) arrival time is the event time.
        readable: False for records without a valid event time: they only advance the arrival frontier.
        substream: Substream key bytes (binary or dictionary column, or bytes objects); None without OVER.
        key: Record keys (bytes or None), passed on unchanged: a numpy column of objects, or an Arrow binary column.
        value: Payloads, as *key*.
        end_offset: The offset after the range.
        estimates: Journaled estimates (position, arrival frontier), each applied just before the record at its position; ``end_offset`` is
            a valid position.
        finish: The input ends here: all held events are released and the final CTI is written.
        source_cti_us: ``c`` of records that are source CTIs (not *readable*), ``NEVER`` for all others. None: the batch has none.
        imports: Journaled CTIs of another input (position, c), applied like estimates.
        end_us: The ends of intervals. None for other shapes.
        start_us: For end edges (whose event time is their end) the event time of their start edge; ``NEVER`` for start edges. None for
            other shapes.
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
    """Counts of the policies' actions on the records of a batch."""

    events_in: int = 0
    unreadable: int = 0
    # Early events that were dropped: the only action once.
    early: int = 0
    early_adjusted: int = 0
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
    Released events in release order. Times in microseconds; ``number`` is the input partition's roster number. ``key`` and ``value`` are
    columns of the same kind as in the batch. ``lazy_release_rows`` is None for rows that no model released, such as query results.
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
        """The batch row that released each event (the number of rows: after the last); computed at the first access."""
        assert self.lazy_release_rows is not None, "a step of the model released these"
        return self.lazy_release_rows.resolve()


@dataclass(slots=True)
class Outflow:
    """Events released by a batch, in release order; *is_skipped*: those that an earlier writer has written already (None: none)."""

    system_us: Ints
    partition: NDArray[np.int32]
    is_skipped: Mask | None
    release_rows: ReleaseRows
    # Their indices sorted by output partition, if already computed.
    channel_order: Ints | None = None


@dataclass(slots=True)
class Dropped:
    """
    Events rejected by the policies. ``limit_us`` is the limit that an event broke when it came, microseconds: arrival + early, the CTI,
    arrival - late, or its timeline's watermark. ``arrival_us`` is clamped.
    """

    offset: Ints
    reason: NDArray[np.int8]
    event_time_us: Ints
    arrival_us: Ints
    limit_us: Ints


@dataclass(slots=True)
class Step:
    """The result of one step. The CTIs may be written only after the events are acknowledged."""

    released: Released
    dropped: Dropped
    ctis: list[Cti] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
