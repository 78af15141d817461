"""
Events of an ordered topic as one Arrow table, from the bucket that accepts them until an operator computes with them.

Law: rows are selected, cut and concatenated, but never converted: between decoding and the operator there is one type.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.protocol.wire import Flag
from query.columns.large_tables import take_rows
from tidegate.ordered_topic.events import OrderedEvents

# Events as a bucket keeps them: roster number and offset of the raw record, system timestamp, key and payload (null: none), the flags of
# :class:`ordering.protocol.wire.Flag`, arrival time. Times in microseconds.
DECODED_SCHEMA = pa.schema(
    [
        ("partition_id", pa.int32()),
        ("offset", pa.int64()),
        ("system_us", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("flags", pa.uint16()),
        ("arrival_us", pa.int64()),
    ]
)
# Events as operators take them, in order: ``position`` rises and is unique; ``sub`` is the dense number of the substream, 0 for all without
# OVER; ``system_us`` is the system timestamp; ``offset`` that of the raw record; ``value`` the payload; ``arrival_us`` the arrival time.
EVENTS_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("sub", pa.int64()),
        ("system_us", pa.int64()),
        ("partition_id", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("arrival_us", pa.int64()),
    ]
)
NO_EVENTS = DECODED_SCHEMA.empty_table()


def events_table(events: OrderedEvents) -> pa.Table:
    """Return decoded events as a bucket keeps them (``DECODED_SCHEMA``); keys and payloads are not copied."""
    fields = events.fields
    columns = [
        pa.array(events.number.astype(np.int32)),
        pa.array(fields["offset"].astype(np.int64)),
        pa.array(events.system_us),
        events.key,
        events.value,
        pa.array(fields["flags"].astype(np.uint16)),
        pa.array(fields["arrival_us"].astype(np.int64)),
    ]
    return pa.Table.from_arrays(columns, schema=DECODED_SCHEMA)


def for_operators(events: pa.Table, sub: Ints | None = None, position: Ints | None = None) -> pa.Table:
    """Return events as operators take them (``EVENTS_SCHEMA``), no column copied; by default of substream 0, at positions 0, 1, ..."""
    count = events.num_rows
    added = {"position": np.arange(count) if position is None else position, "sub": np.zeros(count, dtype=np.int64) if sub is None else sub}
    # The record's key is left out: operators would take a column of that name for the key of a result.
    columns = [pa.array(added[name]) if name in added else events[name] for name in EVENTS_SCHEMA.names]
    return pa.Table.from_arrays(columns, schema=EVENTS_SCHEMA)


def take_events(events: pa.Table, rows: Ints) -> pa.Table:
    """Return the events at *rows*; the same table if these are all in their order."""
    return take_rows(events, rows) if len(rows) else events.schema.empty_table()


def end_edges(events: pa.Table) -> Mask:
    """Return which events end the interval that a start edge began; CTI generation does not count them."""
    is_end: Mask = (events["flags"].to_numpy() & Flag.EDGE_END) != 0
    return is_end
