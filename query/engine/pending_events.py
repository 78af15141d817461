"""Pending events: decoded events that a bucket retains until their instant is final, and the order in which it evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from query.columns.large_tables import AT_ONCE_BYTES, split_by_bytes, take_rows_in_parts, text_bytes


def sort_by_time(events: pa.Table) -> Iterator[pa.Table]:
    """Yield events in the order (s, input partition, offset), in parts of limited size; events in order already are not copied."""
    system_us, partition_id, offset = (events[name].to_numpy() for name in ("system_us", "partition_id", "offset"))
    steps = np.sign(np.diff(system_us)) * 4 + np.sign(np.diff(partition_id)) * 2 + np.sign(np.diff(offset))
    if (steps >= 0).all():
        return split_by_bytes(events, AT_ONCE_BYTES)
    return take_rows_in_parts(events, np.lexsort((offset, partition_id, system_us)), AT_ONCE_BYTES)


def find_pending_step_end(tables: Sequence[pa.Table], until_us: int) -> int:
    """Return the instant up to which to evaluate pending events next, *until_us* or sooner, so that they are not too many at once."""
    if sum(table.nbytes for table in tables) <= AT_ONCE_BYTES:
        return until_us
    instants = np.concatenate([table["system_us"].to_numpy() for table in tables])
    order = np.argsort(instants, kind="stable")
    ends = np.cumsum(np.concatenate([text_bytes(table) for table in tables])[order])
    first_beyond = int(np.searchsorted(ends, AT_ONCE_BYTES, side="right"))
    # Events of one instant are evaluated together.
    later = instants[order[first_beyond:]]
    later = later[later > instants[order[0]]]
    return min(int(later[0]), until_us) if len(later) else until_us
