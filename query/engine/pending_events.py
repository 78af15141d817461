"""
Events that wait in a bucket, as tables: what the retention keeps of them, and the order in which they are worked on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from query.columns.decode import Events
from query.columns.large_tables import AT_ONCE_BYTES, combine_column, split_by_bytes, take_rows_in_parts, text_bytes

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("offset", pa.int64()),
        ("system_us", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("flags", pa.uint16()),
        ("arrival_us", pa.int64()),
    ]
)


def table_of(events: Events) -> pa.Table:
    """Return events as an Arrow table, to be kept."""
    columns = [events.number, events.offset, events.system_us]
    return pa.Table.from_arrays(
        [
            *map(pa.array, columns),
            events.key,
            events.value,
            *map(pa.array, (events.flags, events.arrival_us)),
        ],
        schema=SCHEMA,
    )


def events_of(table: pa.Table) -> Events:
    """Return the events of a table made by :func:`table_of`."""
    key, value = (combine_column(table[name]) for name in ("key", "value"))
    number, offset, system_us, flags, arrival_us = (
        table[name].to_numpy() for name in ("number", "offset", "system_us", "flags", "arrival_us")
    )
    return Events(number, offset, system_us, key, value, flags, arrival_us)


def sort_by_time(table: pa.Table) -> Iterator[pa.Table]:
    """
    Yield events of :func:`table_of` in the order (s, input partition, offset), in parts that are worked on one by one.

    Those that are in it are not moved.
    """
    system_us, number, offset = (table[name].to_numpy() for name in ("system_us", "number", "offset"))
    later = np.sign(np.diff(system_us)) * 4 + np.sign(np.diff(number)) * 2 + np.sign(np.diff(offset))
    if (later >= 0).all():
        return split_by_bytes(table, AT_ONCE_BYTES)
    return take_rows_in_parts(table, np.lexsort((offset, number, system_us)), AT_ONCE_BYTES)


def find_pending_step_end(tables: Sequence[pa.Table], until_us: int) -> int:
    """
    Return up to which instant events are worked on next, so that they are not too many at once.

    Args:
        tables: All that wait: those of :func:`table_of`.
        until_us: Up to which instant they are due, microseconds.
    """
    if sum(table.nbytes for table in tables) <= AT_ONCE_BYTES:
        return until_us
    instants = np.concatenate([table["system_us"].to_numpy() for table in tables])
    order = np.argsort(instants, kind="stable")
    ends = np.cumsum(np.concatenate([text_bytes(table) for table in tables])[order])
    beyond = int(np.searchsorted(ends, AT_ONCE_BYTES, side="right"))
    # Events of one instant are worked on together.
    later = instants[order[beyond:]]
    later = later[later > instants[order[0]]]
    return min(int(later[0]), until_us) if len(later) else until_us
