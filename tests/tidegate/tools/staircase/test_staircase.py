"""The picture of watermarks: its steps are the promises of the topic, each event a dot, whatever names there are."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from ordering.policies import Policies
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import EVENT_HEADER
from ordering.ticks import INFINITY, SECOND_US
from tidegate.platform.observe.drawing import render
from tidegate.tools.staircase.picture import draw_staircase
from tidegate.tools.staircase.read import Section, Staircase, Stretch, compute_steps, find_steps, hash_keys, make_staircase

ROSTER = Roster(1, 2, Spread.ALL, True)


def cti(number: int, partition: int, arrival_s: int, c_s: int) -> Cti:
    """Return a promise of a channel."""
    c = INFINITY if c_s < 0 else c_s * SECOND_US
    return Cti(number, partition, c, 1, 0, 1, arrival_s * SECOND_US, 0, ROSTER, Cause.EVENT)


def test_a_partition_is_as_far_as_its_slowest_channel() -> None:
    """With OVER each output partition has a channel: the least promise counts, once all are known; the end is no step."""
    ctis = [cti(0, 0, 10, 5), cti(0, 1, 10, 4), cti(0, 0, 12, 9), cti(0, 1, 13, 8), cti(1, 0, 11, 3), cti(0, 0, 14, -1)]
    assert find_steps(ctis) == {
        0: [(10 * SECOND_US, 4 * SECOND_US), (13 * SECOND_US, 8 * SECOND_US)],
        1: [(11 * SECOND_US, 3 * SECOND_US)],
    }


def test_without_promises_the_steps_are_those_of_the_policies() -> None:
    """The newest event less reorder, or the newest arrival less late; with substreams the floor alone."""
    arrival, system = np.array([10, 11, 30]) * SECOND_US, np.array([9, 8, 12]) * SECOND_US
    policies = Policies(late_us=10 * SECOND_US, reorder_us=2 * SECOND_US)
    by_event = [(arrival[0], 7 * SECOND_US), (arrival[2], 20 * SECOND_US)]
    assert compute_steps(arrival, system, policies, over=False) == by_event
    assert [step for _, step in compute_steps(arrival, system, policies, over=True)] == [0, SECOND_US, 20 * SECOND_US]


def test_one_substream_has_a_watermark_of_its_own() -> None:
    """All arrivals of its partition raise its floor, its own events alone its time; other substreams' events are left out."""
    fields = np.zeros(4, dtype=EVENT_HEADER)
    fields["arrival_us"] = np.array([10, 11, 12, 30]) * SECOND_US
    fields["system_us"] = np.array([9, 11, 12, 29]) * SECOND_US
    keys = pa.array([b"a", b"b", b"a", None], pa.binary())
    policies = Policies(late_us=10 * SECOND_US, reorder_us=2 * SECOND_US)
    stretch = Stretch([fields], [], [hash_keys(keys)])

    def show(key: bytes | None) -> Staircase:
        return make_staircase("t", [stretch], policies, over=True, shown=Section(key=key))

    of_a = show(b"a")
    assert of_a.arrival_us.tolist() == [10 * SECOND_US, 12 * SECOND_US]
    assert of_a.steps == {0: [(arrival * SECOND_US, promise * SECOND_US) for arrival, promise in ((10, 7), (12, 10), (30, 20))]}
    of_b = show(b"b")
    assert of_b.steps == {0: [(arrival * SECOND_US, promise * SECOND_US) for arrival, promise in ((10, 0), (11, 9), (30, 20))]}
    assert (show(b"c").events, show(b"c").steps) == (0, {})
    assert show(None).events == 4


def test_the_picture_has_a_dot_for_each_event_and_a_line_for_each_partition() -> None:
    """Moved events have another colour; a topic's name is no markup."""
    times = np.arange(1, 11) * SECOND_US
    flags = np.array([0] * 7 + [2] * 3)
    steps = {0: [(2 * SECOND_US, SECOND_US), (9 * SECOND_US, 7 * SECOND_US)]}
    stairs = Staircase('a<b>&"c', times + SECOND_US, times, times, flags, 10, steps)
    svg = render(draw_staircase(stairs, {0: "cars-0"}), ".svg").decode()
    assert svg.count("<circle") == 10
    assert len(re.findall(r'<circle [^>]*fill="#bc4c00"', svg)) == 3
    assert "cars-0" in svg
    assert "<b>" not in svg
    assert render(draw_staircase(stairs, {}), ".png").startswith(b"\x89PNG")
    assert render(draw_staircase(Staircase("empty", *[np.empty(0, np.int64)] * 4, 0), {}), ".svg")
