"""
A range of an ordered partition as buckets take it: the numbers for the reader's rule, and the events as one table.

:mod:`tidegate.ordered_topic.decode` has decoded the records; scripts on files make the same without a topic.
:mod:`query.columns.events` describes the table. Frames before the values of events stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.protocol.reader import Log
from query.columns.events import events_table
from tidegate.ordered_topic.decode import OrderedPiece
from tidegate.ordered_topic.foreign_records import ForeignRecords


@dataclass(frozen=True, slots=True)
class DecodedRange:
    """A range of one ordered partition, decoded."""

    # Numbers of its events and its CTIs, for the reader's rule.
    log: Log
    # The events themselves (``DECODED_SCHEMA``), row by row as in *log*.
    events: pa.Table
    # The first offset beyond the range; 0 if it has no records.
    next_offset: int
    # The bucket of each event; None if rows are not exchanged, or not routed yet.
    buckets: NDArray[np.int32] | None = None
    # The records that are none of the protocol, which are passed over.
    foreign: ForeignRecords = field(default_factory=ForeignRecords)

    @classmethod
    def of(cls, piece: OrderedPiece) -> DecodedRange:
        """Return the range that was decoded from a topic."""
        return cls(piece.log, events_table(piece.events), piece.next_offset, foreign=piece.foreign)

    @property
    def nbytes(self) -> int:
        """The bytes of the events' keys and payloads."""
        return int(self.events["key"].nbytes + self.events["value"].nbytes)
