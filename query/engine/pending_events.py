"""Pending events: decoded events that a bucket retains until their instant is final, and the order in which it evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from query.columns.large_tables import combine_column, split_by_bytes, take_rows_in_parts, text_bytes
from tidegate.basics.budget import BUDGET, cut


def sort_by_time(events: pa.Table, *, by_key: bool = False) -> Iterator[pa.Table]:
    """
    Yield events in the order (system timestamp, input partition, offset), in parts of limited size; events in order already are not copied.

    With *by_key* the order is (system timestamp, input partition, key, offset). Results of a query with OVER need that: which of two keys
    was written first follows from the places of CTIs, so it differs from run to run.
    """
    if not by_key and (_steps(events) >= 0).all():
        yield from split_by_bytes(events, BUDGET.evaluated_bytes)
        return
    for part in _split_by_time(events):
        system_us, partition_id, offset = (part[name].to_numpy() for name in ("system_us", "partition_id", "offset"))
        within = (offset, _key_ranks(part["key"])) if by_key else (offset,)
        yield from take_rows_in_parts(part, np.lexsort((*within, partition_id, system_us)), BUDGET.bytes)


def _key_ranks(key: pa.ChunkedArray) -> np.ndarray:
    """Return an integer for each key, in the order of their bytes; null is zero bytes."""
    coded = combine_column(pc.fill_null(key, b"")).dictionary_encode()
    rank = np.empty(len(coded.dictionary), dtype=np.int64)
    rank[pc.sort_indices(coded.dictionary).to_numpy()] = np.arange(len(rank))
    ranks: np.ndarray = rank[coded.indices.to_numpy()]
    return ranks


def _steps(events: pa.Table) -> np.ndarray:
    """Return a number for each event but the first: negative if it belongs before the event that it follows."""
    system_us, partition_id, offset = (events[name].to_numpy() for name in ("system_us", "partition_id", "offset"))
    steps: np.ndarray = np.sign(np.diff(system_us)) * 4 + np.sign(np.diff(partition_id)) * 2 + np.sign(np.diff(offset))
    return steps


def _split_by_time(events: pa.Table) -> Iterator[pa.Table]:
    """Yield events in parts that follow one another in time and are evaluated at once; events of one instant stay together."""
    if events.nbytes <= BUDGET.evaluated_bytes:
        yield events
        return
    instants = events["system_us"].to_numpy()
    order = np.argsort(instants, kind="stable")
    parts = cut(text_bytes(events)[order], BUDGET.evaluated_bytes)
    cuts = np.unique(instants[order[[part.start for part in parts][1:]]])
    # Chunks come from single logs: each is in order of time nearly always, so a part has a slice of each.
    chunks = [_in_time(pa.Table.from_batches([batch])) for batch in events.to_batches()]
    bounds = [[0, *np.searchsorted(chunk["system_us"].to_numpy(), cuts).tolist(), chunk.num_rows] for chunk in chunks]
    for first, last in pairwise(range(len(cuts) + 2)):
        part = pa.concat_tables([chunk.slice(at[first], at[last] - at[first]) for chunk, at in zip(chunks, bounds, strict=True)])
        if part.num_rows:
            yield part


def _in_time(chunk: pa.Table) -> pa.Table:
    instants = chunk["system_us"].to_numpy()
    return chunk if (np.diff(instants) >= 0).all() else chunk.take(pa.array(np.argsort(instants, kind="stable")))


def find_pending_step_end(tables: Sequence[pa.Table], until_us: int) -> int:
    """Return the instant up to which to evaluate pending events next, *until_us* or sooner, so that they are not too many at once."""
    if sum(table.nbytes for table in tables) <= BUDGET.bytes:
        return until_us
    instants = np.concatenate([table["system_us"].to_numpy() for table in tables])
    order = np.argsort(instants, kind="stable")
    ends = np.cumsum(np.concatenate([text_bytes(table) for table in tables])[order])
    first_beyond = int(np.searchsorted(ends, BUDGET.bytes, side="right"))
    # Events of one instant are evaluated together.
    later = instants[order[first_beyond:]]
    later = later[later > instants[order[0]]]
    return min(int(later[0]), until_us) if len(later) else until_us
