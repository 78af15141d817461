"""
Records as columns for the time model: times, keys and payloads, and which records can be used.

Law: a record without a valid event time, or a span without a valid end, still goes through the model, since its arrival advances time. A
record without a valid arrival or partition does not.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.columns import payload_columns
from ordering.columns.payload_columns import Payload
from ordering.model.step import Batch
from ordering.policies import Shape
from ordering.ticks import NEVER
from tidegate.records.files.blocks import Block


class RecordColumns:
    """
    One block as columns, one entry a record; subclasses fill in the times and keys.

    Attributes:
        line: The line of each record.
        is_bad: Which records cannot be used; ``reason`` is the first reason found.
        is_walked: Which records go through the model.
        arrival_us, event_us: Times, microseconds; without event times the arrival counts.
        end_us, start_us: As in :class:`ordering.model.step.Batch`.
        substream, key: Key bytes of the substream and of the record, or None.
        value: The payloads.
    """

    def __init__(self, block: Block, value: Payload) -> None:
        self.block, self.value = block, value
        self.reason: list[str]
        # The records of a plain block need not be looked at one by one.
        if block.is_plain:
            self.line: Ints = np.arange(block.line[0], block.line[0] + len(block))
            self.reason, self.is_bad = [""] * len(block), np.zeros(len(block), dtype=np.bool_)
        else:
            self.line = np.array(block.line, dtype=np.int64)
            self.reason = [fault.value if fault else "" for fault in block.fault]
            self.is_bad = np.array([fault is not None for fault in block.fault], dtype=np.bool_)
        self.is_walked: Mask = ~self.is_bad
        self.arrival_us: Ints = np.full(len(block), NEVER, dtype=np.int64)
        self.event_us: Ints | None = None
        self.end_us: Ints | None = None
        self.start_us: Ints | None = None
        self.substream: pa.Array | None = None
        self.key: pa.Array | None = None

    def mark_bad(self, rows: Mask, reason: str, *, is_walked: bool = True) -> None:
        """Mark records as bad unless they already are; with *is_walked* False they do not go through the model."""
        newly_bad = rows & ~self.is_bad
        for row in np.flatnonzero(newly_bad).tolist():
            self.reason[row] = reason
        self.is_bad |= newly_bad
        if not is_walked:
            self.is_walked &= ~newly_bad

    def set_ends(self, shape: Shape, ticks: Ints, valid: Mask, present: Mask) -> None:
        """
        Set the ends of intervals, or the starts of end edges, whose event time is their end.

        Args:
            ticks: The ends, microseconds, of which *valid* ones can be read.
            present: Which records have an end; an edge without one is a start edge.
        """
        assert self.event_us is not None, "event times are read before ends"
        if shape is Shape.INTERVAL:
            self.mark_bad(~valid, "end")
            self.end_us = ticks
            return
        self.mark_bad(present & ~valid, "end")
        self.start_us = np.where(present, self.event_us, NEVER)
        self.event_us = np.where(present, ticks, self.event_us)

    def batch(self, rows: Ints) -> Batch:
        """Return some rows, at least one, as a batch for the model."""

        def choose(column: Payload) -> Payload:
            # All rows in order is the common case: no copy.
            return column if column is None or len(rows) == len(self.line) else payload_columns.take_rows(column, rows)

        key = choose(self.key)
        return Batch(
            offset=choose(self.line),
            arrival_us=choose(self.arrival_us),
            event_time_us=choose(self.event_us),
            readable=~choose(self.is_bad),
            substream=choose(self.substream),
            key=np.empty(len(rows), dtype=object) if key is None else key,
            value=choose(self.value),
            end_offset=int(self.line[rows[-1]]) + 1,
            end_us=choose(self.end_us),
            start_us=choose(self.start_us),
        )
