"""Which policies the events of a range broke, and by how much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ingest.stage.policy_breaks import PolicyBreaks
from ordering.model.step import Batch, Model
from ordering.policies import Action, Policies
from ordering.ticks import HOUR_US, MINUTE_US, NEVER, SECOND_US
from tidegate.platform.observe.reports import BrokenPolicies

README = Policies(early_us=5 * MINUTE_US, late_us=MINUTE_US, reorder_us=5 * SECOND_US)
NOW_US = 1_700_000_000 * SECOND_US


def batch_of(times_us: Sequence[int], arrivals_us: Sequence[int], keys: Sequence[bytes] | None = None) -> Batch:
    """Records at these event times and arrivals; with *keys* of substreams."""
    count = len(times_us)
    return Batch(
        offset=np.arange(count),
        arrival_us=np.array(arrivals_us),
        event_time_us=np.array(times_us),
        readable=np.ones(count, dtype=np.bool_),
        substream=None if keys is None else pa.array(keys, pa.binary()).dictionary_encode(),
        key=np.full(count, None),
        value=np.full(count, b""),
        end_offset=count,
    )


def breaks_of(batch: Batch, policies: Policies = README) -> BrokenPolicies:
    """What the stage reports of one piece."""
    model = Model(policies, batch.substream is not None, 1)
    breaks = PolicyBreaks()
    breaks.add(model.step(model.new_state(), batch).counts, batch, policies, NEVER)
    return breaks.report()


def test_an_hour_of_history_produced_now_is_late_by_half_an_hour() -> None:
    """What a backfill without timestamps of the past looks like."""
    times_us = list(range(NOW_US - HOUR_US, NOW_US, SECOND_US))
    found = breaks_of(batch_of(times_us, [NOW_US] * len(times_us)))
    assert (found.events, found.late, found.early) == (3_600, 3_540, 0)
    assert found.median_us["late"] == 1_830.5 * SECOND_US


def test_early_events_have_their_distance_ahead_of_arrival() -> None:
    """They are dropped, so they put no other event out of order."""
    times_us = [NOW_US + minute * MINUTE_US for minute in (0, 10, 20, 30, 0)]
    found = breaks_of(batch_of(times_us, [NOW_US] * 5))
    assert found == BrokenPolicies(events=5, early=3, median_us={"early": 20 * MINUTE_US})


def test_events_out_of_order_are_measured_from_the_largest_of_their_own_timeline() -> None:
    """Dropped or moved: what reorder would have to be."""
    seconds = [100, 50, 70, 90, 98]
    times_us, arrivals_us = [NOW_US + second * SECOND_US for second in seconds], [NOW_US + 100 * SECOND_US] * 5
    for action in Action:
        policies = Policies(early_us=None, late_us=MINUTE_US, reorder_us=5 * SECOND_US, out_of_order_action=action)
        found = breaks_of(batch_of(times_us, arrivals_us), policies)
        assert (found.out_of_order, found.median_us) == (3, {"out_of_order": 30 * SECOND_US})
    apart = breaks_of(batch_of(times_us, arrivals_us, [b"a", b"b", b"b", b"b", b"b"]))
    assert (apart.out_of_order, apart.median_us) == (0, {})


def test_an_input_within_its_policies_is_not_measured() -> None:
    """A tenth may break them: nothing is computed for it, and nothing is said."""
    times_us = [NOW_US] * 9 + [NOW_US - 2 * MINUTE_US]
    found = breaks_of(batch_of(times_us, [NOW_US] * 10))
    assert (found.late, found.median_us) == (1, {})
