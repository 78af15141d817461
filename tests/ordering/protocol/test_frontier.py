"""Frontiers and paces against their laws, told member by member and rise by rise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import SettingError
from ordering.protocol.frontier import Frontier, Pace, PacedStream, Rises
from ordering.ticks import INFINITY, MINUTE_US, NEVER, SECOND_US

NEWS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-5, 9) | st.just(INFINITY), st.sampled_from([True, False])), max_size=30)


@given(st.sets(st.sampled_from("abc"), min_size=1), NEWS)
def test_a_frontier_is_the_least_of_all_members_and_never_goes_back(members: set[str], news: list[tuple[str, int, bool]]) -> None:
    """Level 3: NEVER until each has spoken, INFINITY when all have ended, held by who joins, the same over save and restore."""
    frontier, heard, before = Frontier(sorted(members)), dict.fromkeys(members, NEVER), NEVER
    for member, c, joins_only in news:
        heard[member] = max(heard.get(member, NEVER), NEVER if joins_only else c)
        if joins_only:
            frontier.join(member)
        else:
            frontier.rise(member, c)
        assert frontier.value == max(before, min(heard.values()))
        assert {name: frontier.c(name) for name in heard} == heard == frontier.members
        assert set(frontier.waiting_for()) == {name for name, told in heard.items() if told == NEVER}
        before = frontier.value
        frontier = Frontier.restore(frontier.value, frontier.members)
    if set(heard.values()) == {INFINITY}:
        assert frontier.value == INFINITY


def test_a_frontier_of_nobody_has_not_spoken() -> None:
    """Level 3: without members there is no promise, and a member nobody knows has said nothing."""
    empty: Frontier[str] = Frontier()
    assert (empty.value, empty.c("a"), empty.waiting_for()) == (NEVER, NEVER, [])


PACES = st.builds(Pace, st.none() | st.integers(1, 6), st.none() | st.integers(1, 9), st.just(0) | st.integers(0, 5))


@st.composite
def streams(draw: st.DrawFn) -> tuple[Rises, list[int]]:
    """Draw the rises of a stream and the offsets of the events between them."""
    offset, c, rises, accepted = 0, draw(st.sampled_from([-20, 0, 10**6])), [], []
    for kind, ahead in draw(st.lists(st.tuples(st.sampled_from(["event", "event", "rise", "both"]), st.integers(1, 5)), max_size=40)):
        offset += 1
        if kind != "rise":
            accepted += [offset] * (ahead % 2 + 1)
        if kind != "event":
            c += ahead
            rises.append((offset, c))
    if draw(st.booleans()):
        rises.append((offset + 1, INFINITY))
    return rises, accepted


def told(pace: Pace, rises: Rises, accepted: list[int]) -> Rises:
    """Say one rise at a time which pass, straight from the law."""
    passed: Rises = []
    since, said = 0, NEVER
    for offset, c in rises:
        behind = c if c == INFINITY else c - pace.delay_us
        events = sum(since < at <= offset for at in accepted)
        new_span = pace.every_us is not None and any(said <= k * pace.every_us < behind for k in spans_near(pace.every_us, behind))
        enough = pace.every_events is not None and events >= pace.every_events
        if pace.is_every_cti or c == INFINITY or enough or new_span:
            passed.append((offset, behind))
            since, said = offset, behind
    return passed


def spans_near(every_us: int, c: int) -> range:
    """Multiples of the span a little below c: enough, as the last one below c is the one that counts."""
    return range(c // every_us - 2, c // every_us + 2)


@given(PACES, streams(), st.data())
def test_what_passes_depends_on_the_log_alone(pace: Pace, stream: tuple[Rises, list[int]], data: st.DataObject) -> None:
    """Level 2: the rises that pass are those the law names, however the log is cut, saved and restored."""
    rises, accepted = stream
    end = max([0, *accepted, *(offset for offset, _ in rises)])
    cuts = sorted({-1, end, *data.draw(st.lists(st.integers(0, end), max_size=6))})
    paced, passed = PacedStream(pace), []
    for low, high in pairwise(cuts):
        here = np.array([at for at in accepted if low < at <= high], dtype=np.int64)
        passed += paced.thin([rise for rise in rises if low < rise[0] <= high], here)
        paced = PacedStream.restore(pace, paced.last_c, paced.events_since)
    assert passed == told(pace, rises, accepted)
    assert paced.last_c == max([NEVER, *(c for _, c in passed)])
    assert all(any(c <= given for at, given in rises if at == offset) for offset, c in passed), "nothing more is said than was promised"


def test_spans_hold_their_end() -> None:
    """Level 2: a CTI at a window's end does not settle the window and does not use up the span; the next one above it passes."""
    pace = Pace(every_us=10)
    rises = [(1, 9), (2, 10), (3, 11), (4, 20), (5, 21), (6, 22)]
    assert PacedStream(pace).thin(rises, np.empty(0, dtype=np.int64)) == [(1, 9), (3, 11), (5, 21)]


def test_the_end_always_passes_and_is_not_delayed() -> None:
    """Level 2: a stream that has ended has ended, at any pace."""
    pace = Pace(every_events=1000, delay_us=MINUTE_US)
    assert PacedStream(pace).thin([(1, 5), (2, INFINITY)], np.array([1])) == [(2, INFINITY)]


@pytest.mark.parametrize("wrong", [{"every_events": 0}, {"every_us": -1}, {"delay_us": -1}])
def test_a_wrong_pace_is_refused(wrong: dict[str, int]) -> None:
    """A number that means nothing is named."""
    with pytest.raises(SettingError) as raised:
        Pace(**wrong)
    assert raised.value.where == {"every_events": "cti_every_events", "every_us": "cti_every", "delay_us": "cti_delay"}[next(iter(wrong))]


def test_a_pace_says_what_it_is() -> None:
    """The words of ``tidegate plan``."""
    assert str(Pace()) == "each CTI"
    assert str(Pace(delay_us=5 * SECOND_US)) == "each CTI, 5s behind"
    assert str(Pace(1000, MINUTE_US, SECOND_US)) == "every 1000 events or 1m, 1s behind"
