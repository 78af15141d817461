"""
Counts the events of a range that broke each time policy, and measures by how much, so that the driver can warn of a backfill.

Law: nothing here changes an event. Distances are computed only for pieces in which more than a tenth of the events broke a policy, so that
an input within its policies costs some additions a piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ingest.time_warnings import POLICIES, SHARE_MAX, least_broken
from ordering.arrays import Ints
from ordering.columns.segments import running_max
from ordering.model.events import Batch, Counts
from ordering.policies import Action, Policies
from tidegate.platform.observe.reports import BrokenPolicies

_SAMPLE_ROWS = 10_000


class PolicyBreaks:
    """The counts of one range, and the median distance by policy of the last piece that was measured, microseconds."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("events", *POLICIES), 0)
        self._median_us: dict[str, int] = {}

    def add(self, counts: Counts, batch: Batch, policies: Policies, frontier_us: int) -> None:
        """Add a piece with its *counts*; *frontier_us* is the arrival frontier before it."""
        broken = {
            "early": counts.early + counts.early_adjusted,
            "late": counts.late_adjusted + counts.late_dropped,
            "out_of_order": counts.out_of_order_adjusted + counts.out_of_order_dropped,
        }
        for policy, count in {"events": counts.events_in, **broken}.items():
            self._counts[policy] += count
        if least_broken(broken) > SHARE_MAX * counts.events_in:
            self._median_us |= median_distances(batch, policies, frontier_us)

    def report(self) -> BrokenPolicies:
        return BrokenPolicies(**self._counts, median_us=self._median_us)


def median_distances(batch: Batch, policies: Policies, frontier_us: int) -> dict[str, int]:
    """
    Return for each broken policy the median distance in microseconds. The distance of an early or late event is that between its event time
    and its arrival; an event out of order is behind the largest event time before it in *batch*.
    """
    arrival_us = np.maximum(np.maximum.accumulate(batch.arrival_us), frontier_us)
    time_us = arrival_us if batch.event_time_us is None else batch.event_time_us
    usable = batch.readable
    is_early = usable & (time_us - arrival_us > policies.early_us) if policies.early_us is not None else np.zeros_like(usable)
    is_late = usable & (arrival_us - time_us > policies.late_us) if policies.late_us is not None else np.zeros_like(usable)
    # Sorting by timeline is the costly part, so only a sample is sorted.
    if policies.early_us is not None and policies.early_action is Action.ADJUST:
        kept_us, is_kept = np.minimum(time_us, arrival_us + policies.early_us), usable
    else:
        kept_us, is_kept = time_us, usable & ~is_early
    kept = np.flatnonzero(is_kept)[:_SAMPLE_ROWS]
    adjusted_us = kept_us[kept] if policies.late_us is None else np.maximum(kept_us[kept], arrival_us[kept] - policies.late_us)
    behind_us = _behind_largest(adjusted_us, None if batch.substream is None else _timeline_codes(batch.substream)[kept])
    distances_by_policy = {
        "early": (time_us - arrival_us)[is_early],
        "late": (arrival_us - time_us)[is_late],
        "out_of_order": behind_us[behind_us > max(policies.reorder_us, 0)],
    }
    return {policy: int(np.median(distances_us)) for policy, distances_us in distances_by_policy.items() if len(distances_us)}


def _behind_largest(adjusted_us: Ints, codes: Ints | None) -> Ints:
    """Return how far each event lies behind the largest of its timeline so far; *codes* number the timelines (None: there is one)."""
    segment = np.zeros(len(adjusted_us), dtype=np.int64) if codes is None else np.unique(codes, return_inverse=True)[1]
    order = np.argsort(segment, kind="stable")
    return running_max(adjusted_us[order], segment[order]) - adjusted_us[order]


def _timeline_codes(substream: Any) -> Ints:
    encoded = substream if isinstance(substream, pa.DictionaryArray) else pa.array(substream).dictionary_encode()
    codes: Ints = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes
