"""Forecasts: what the model does with the same records, event by event, under any policies; and proposals that keep what they promise."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import SettingError
from ordering.model.step import Model
from ordering.policies import Action, Policies
from ordering.testing import Record, batch_of
from ordering.ticks import NEVER, SECOND_US
from ordering.tuning.forecast import EventWalk, Forecast
from ordering.tuning.recording import Recording
from ordering.tuning.trade_off import find_trade_off, round_up

TOLERANCES = st.integers(0, 12)
ACTIONS = st.sampled_from(Action)
KEYS = (b"a", b"b", b"c")


@st.composite
def recorded(draw: st.DrawFn) -> tuple[list[list[Record]], bool]:
    """Return the records of some partitions, some without an event time, and whether each key is a timeline."""
    ticks = st.integers(1000, 1030)
    record = st.tuples(ticks, st.one_of(ticks, ticks, ticks, st.none()), st.sampled_from(KEYS))
    partitions = draw(st.lists(st.lists(record, max_size=25), min_size=1, max_size=3))
    return [[Record(place, *fields) for place, fields in enumerate(records)] for records in partitions], draw(st.booleans())


DRAWN_POLICIES = st.builds(
    Policies,
    early_us=st.one_of(st.none(), TOLERANCES),
    early_action=ACTIONS,
    late_us=TOLERANCES,
    late_action=ACTIONS,
    reorder_us=TOLERANCES,
    out_of_order_action=ACTIONS,
)


def recording_of(partitions: list[list[Record]], over: bool) -> Recording:
    """Return the recording, its partitions mixed record by record."""
    rows = sorted((record.offset, number, record) for number, records in enumerate(partitions) for record in records)
    columns = [(number, record.arrival_us, record.event_time_us or NEVER, record.event_time_us is not None) for _, number, record in rows]
    partition, arrival_us, event_us, readable = (np.array([row[place] for row in columns], dtype=np.int64) for place in range(4))
    substream = np.array([KEYS.index(record.key or b"a") for _, _, record in rows], dtype=np.int64) if over else None
    return Recording.of(partition, arrival_us, event_us, readable.astype(np.bool_), substream)


def run_model(partitions: list[list[Record]], policies: Policies, over: bool) -> Forecast:
    """Return what the model does, record by record; delays are those of its timelines' watermarks."""
    counts = dict.fromkeys(("early_dropped", "early_moved", "late_moved", "late_dropped", "ooo_moved", "ooo_dropped", "moved"), 0)
    delays: list[int] = []
    events = held_max = 0
    for records in partitions:
        model = Model(policies, over, 1)
        state, most = model.new_state(), 0
        for record in records:
            step = model.step(state, batch_of([record], over=over))
            events += record.event_time_us is not None
            found = step.counts
            values = found.early, found.early_adjusted, found.late_adjusted, found.late_dropped
            for name, value in zip(counts, (*values, found.out_of_order_adjusted, found.out_of_order_dropped), strict=False):
                counts[name] += value
            adjusted = step.counts.early_adjusted or step.counts.late_adjusted or step.counts.out_of_order_adjusted
            counts["moved"] += bool(adjusted) and not len(step.dropped.offset)
            most = max(most, state.held_count)
            if record.event_time_us is not None:
                delays.append(state.arrival_us - watermark_of(state, policies, record, over))
        held_max += most
    delays.sort()
    quantile = [delays[max(ceil(share * len(delays)) - 1, 0)] if delays else None for share in (0.5, 0.99)]
    dropped = counts["early_dropped"] + counts["late_dropped"] + counts["ooo_dropped"]
    return Forecast(
        policies,
        events,
        counts["early_dropped"],
        counts["early_moved"],
        counts["late_moved"],
        counts["late_dropped"],
        counts["ooo_moved"],
        counts["ooo_dropped"],
        counts["moved"] + dropped,
        quantile[0],
        quantile[1],
        held_max,
        None,
    )


def watermark_of(state, policies: Policies, record: Record, over: bool) -> int:  # type: ignore[no-untyped-def]
    """Return the watermark of a record's timeline."""
    timelines = state.timelines
    keys = timelines.keys(np.arange(len(timelines))).to_pylist() if over else [record.key] * len(timelines)
    own = [int(largest) - policies.reorder_us for key, largest in zip(keys, timelines.largest_us, strict=True) if key == record.key]
    return max([state.floor_us, *(time for time in own if time > NEVER // 2)])


@given(recorded(), DRAWN_POLICIES)
def test_a_forecast_is_what_the_model_does(drawn: tuple[list[list[Record]], bool], policies: Policies) -> None:
    """Counts, the most events held and the watermark's delays are exactly those of the model, for every early, late and reorder policy."""
    partitions, over = drawn
    assert EventWalk(recording_of(partitions, over)).forecast(policies) == run_model(partitions, policies, over)


@given(recorded(), DRAWN_POLICIES, st.sampled_from((0.0, 0.1, 0.3, 0.8)))
def test_a_proposal_touches_no_more_than_it_may(drawn: tuple[list[list[Record]], bool], policies: Policies, share: float) -> None:
    """What is proposed touches at most the share asked for, a forecast of it says the same, and no point of the curve beats another."""
    walk = EventWalk(recording_of(*drawn))
    found = find_trade_off(walk, policies, share)
    for point in found.curve:
        forecast = walk.forecast(replace(policies, early_us=found.early_us, late_us=point.late_us, reorder_us=point.reorder_us))
        delays = forecast.delay_p50_us, forecast.delay_p99_us
        assert (forecast.touched, *delays) == (point.touched, point.delay_p50_us, point.delay_p99_us)
    if found.proposal is not None:
        assert found.proposal.touched_share <= share
    pairs = [(point.touched, -point.delay_p99_us) for point in found.curve]
    assert pairs == sorted(set(pairs))


def test_times_far_apart_give_the_same_forecast() -> None:
    """If timelines cannot be laid above each other in 64 bits, the slower way gives the same."""
    dice = np.random.default_rng(41)
    arrival = np.sort(dice.integers(10**6, 10**7, 400))
    event, key = arrival - dice.integers(-2_000, 9_000, 400), dice.integers(0, 9, 400)
    near = Recording.of(np.zeros(400, np.int64), arrival, event, np.ones(400, np.bool_), key)
    policies = Policies(early_us=None, late_us=4_000, reorder_us=1_000)
    # One more event, at the end of time, in a timeline of its own: it arrives last and holds nothing.
    far_row = {"arrival": 2**60, "event": 2**60, "key": 9}
    far = Recording.of(
        np.zeros(401, np.int64),
        np.append(arrival, far_row["arrival"]),
        np.append(event, far_row["event"]),
        np.ones(401, np.bool_),
        np.append(key, far_row["key"]),
    )
    ours, other = EventWalk(near).forecast(policies), EventWalk(far).forecast(policies)
    assert (ours.late_moved, ours.out_of_order_moved, ours.touched) == (other.late_moved, other.out_of_order_moved, other.touched)
    assert ours.late_moved > 0 < ours.out_of_order_moved


def test_a_reorder_of_minus_one_tick_is_refused() -> None:
    """It is the one setting whose adjusted events move the watermark."""
    recording = Recording.of(*(np.zeros(1, np.int64) for _ in range(3)), np.ones(1, np.bool_))
    with pytest.raises(SettingError, match="reorder"):
        EventWalk(recording).forecast(Policies(reorder_us=-1))


def test_tolerances_are_rounded_up_to_what_people_write() -> None:
    """Never down: the share would be broken."""
    assert [round_up(us) for us in (0, 1, 2_500_001, 61 * SECOND_US + 1, 7201 * SECOND_US)] == [
        *(0, 10_000, 3 * SECOND_US, 62 * SECOND_US),
        7800 * SECOND_US,
    ]
