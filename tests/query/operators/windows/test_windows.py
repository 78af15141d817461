"""Which windows an event belongs to, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ordering.ticks import HOUR_US, TICK_MAX
from query.plan.windows import Window

WINDOWS = st.builds(lambda size, hop, offset: Window(size, hop, offset % hop), st.integers(1, 40), st.integers(1, 15), st.integers(0, 100))


@given(WINDOWS, st.integers(1_000, 1_200) | st.integers(TICK_MAX - 100, TICK_MAX))
def test_ends_are_those_of_the_definition(window: Window, system_us: int) -> None:
    """An event belongs to (end - size, end] for every end = offset mod hop, and to no other."""
    nearby = range(system_us - 2, system_us + window.size_us + window.hop_us + 2)
    ends = [end for end in nearby if (end - window.offset_us) % window.hop_us == 0 and end - window.size_us < system_us <= end]
    at = np.array([system_us])
    first, last = int(window.first_end(at)[0]), int(window.last_end(at)[0])
    assert list(range(first, last + 1, window.hop_us)) == ends
    pane = int(window.pane_end(at)[0])
    assert pane - window.pane_us < system_us <= pane
    assert (pane - window.offset_us) % window.pane_us == 0


def test_an_event_on_a_boundary_belongs_to_the_window_it_ends() -> None:
    """Windows are open at the start and closed at the end."""
    window = Window(HOUR_US, HOUR_US)
    assert window.first_end(np.array([HOUR_US, HOUR_US + 1])).tolist() == [HOUR_US, 2 * HOUR_US]


def test_windows_print_themselves() -> None:
    """As plans show them."""
    assert str(Window(HOUR_US, HOUR_US)) == "tumbling 1h"
    assert str(Window(HOUR_US, HOUR_US // 4, 1_000_000)) == "hopping 1h by 15m, offset 1s"
