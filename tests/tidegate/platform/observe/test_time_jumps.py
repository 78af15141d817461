"""Which records move time further than the bound; told by hand and, drawn, by one record after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ordering.model.step import Batch
from ordering.policies import Policies
from ordering.ticks import NEVER
from tidegate.platform.observe.time_jumps import JumpCause, TimeJump, find_time_jumps

BOUND_US, PLANNED_US, SLACK_US = 600, 10_000, 100


def batch_of(rows: list[tuple[int, int | None]]) -> Batch:
    """A batch of (arrival, event time) from offset 5 on; None: not readable."""
    nothing = pa.nulls(len(rows), pa.binary())
    return Batch(
        offset=np.arange(5, 5 + len(rows)),
        arrival_us=np.array([arrival for arrival, _ in rows], dtype=np.int64),
        event_time_us=np.array([NEVER if time is None else time for _, time in rows], dtype=np.int64),
        readable=np.array([time is not None for _, time in rows], dtype=np.bool_),
        substream=None,
        key=nothing,
        value=nothing,
        end_offset=5 + len(rows),
    )


def jumps(rows: list[tuple[int, int | None]], early_us: int | None = None, frontier_us: int = NEVER) -> list[TimeJump]:
    """The jumps of a batch at the frontier, with a reorder of 10."""
    policies = Policies(early_us=early_us, late_us=None, reorder_us=10)
    return list(find_time_jumps(batch_of(rows), policies, frontier_us, PLANNED_US + SLACK_US, BOUND_US))


def test_an_event_ahead_of_its_arrival_is_found_where_early_lets_it_pass() -> None:
    """The watermark is the event's time less reorder; unreadable and early events move none."""
    rows: list[tuple[int, int | None]] = [(100, 710), (100, 711), (100, None), (100, 5_000)]
    assert jumps(rows) == [TimeJump(JumpCause.EVENT, 6, 601, 2)]
    assert jumps(rows, early_us=1_000) == [TimeJump(JumpCause.EVENT, 6, 601, 1)]
    assert jumps(rows, early_us=BOUND_US) == []


def test_an_arrival_ahead_of_the_clock_is_found_and_one_behind_an_earlier_record() -> None:
    """Each once, with its first record; the frontier before the batch counts as an earlier record."""
    assert jumps([(10_700, 0), (10_701, 0), (10_800, 0)]) == [TimeJump(JumpCause.ARRIVAL, 6, 601, 2)]
    assert jumps([(2_000, 0), (1_400, 0), (1_399, 0)]) == [TimeJump(JumpCause.BEHIND, 7, 601, 1)]
    assert jumps([(2_000, 0)], frontier_us=2_601) == [TimeJump(JumpCause.BEHIND, 5, 601, 1)]
    assert jumps([]) == []


def test_a_record_that_is_younger_than_the_clock_reading_in_force_is_no_jump() -> None:
    """Readings are taken anew after a tenth of ``arrival_max_ahead``: 2.4 hours where brokers stamp."""
    assert jumps([(PLANNED_US + SLACK_US, 0)]) == jumps([(PLANNED_US + SLACK_US + BOUND_US, 0)]) == []


@given(st.lists(st.tuples(st.integers(0, 12_000), st.none() | st.integers(0, 20_000)), max_size=20), st.data())
def test_counts_do_not_depend_on_where_a_batch_is_cut(rows: list[tuple[int, int | None]], data: st.DataObject) -> None:
    """A replay that reads other pieces counts the same."""
    cut = data.draw(st.integers(0, len(rows)))
    early_us = data.draw(st.none() | st.integers(0, 5_000))
    whole = {jump.cause: jump.count for jump in jumps(rows, early_us)}
    frontier_us = max((arrival for arrival, _ in rows[:cut]), default=NEVER)
    pieces = [*jumps(rows[:cut], early_us), *jumps(rows[cut:], early_us, frontier_us)]
    assert whole == {cause: sum(jump.count for jump in pieces if jump.cause is cause) for cause in {jump.cause for jump in pieces}}
