"""Windows of local time over changes of clocks, against a look at the clock step by step; and their part in the law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clocks import CHANGES, DAY, HOUR, MINUTE, ends_of_cells, us_of, zone
from support.query_oracle import Event
from support.script_runs import answers_of
from support.windows_oracle import COLUMNS, PAYLOADS, WindowEvents, WindowKind, results

from ordering.ticks import TICK_MAX
from query.operators.windows import compacting
from query.plan.local_windows import LocalWindow
from query.plan.nodes import WindowedAggregate
from query.plan.windows import Window
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SPOTS = [(name, us_of(day)) for name, day, step_us in CHANGES if step_us == 15 * MINUTE and "1970" < day < "9000"]
# Sizes and hops in hours, as a script writes them, and the offset.
SHAPES = [(24, 24, 0), (1, 1, 0), (3, 1, 0), (24, 6, 0), (48, 24, 6), (6, 6, -1)]


def events_near(at_us: int) -> st.SearchStrategy[list[Event]]:
    """Events of three days, many of them at ends of hours or a microsecond beside."""
    times = st.integers(-36 * 4, 36 * 4).map(lambda quarter: at_us + quarter * 15 * MINUTE) | st.integers(
        at_us - 36 * HOUR, at_us + 36 * HOUR
    )
    near = st.builds(lambda time_us, beside: time_us + beside, times, st.sampled_from([0, 0, 1, -1]))
    return st.lists(st.builds(lambda time_us, payload: Event(0, time_us, payload), near, PAYLOADS), max_size=16).map(
        lambda events: sorted(events, key=lambda event: event.system_us)
    )


def local(name: str, at_us: int, size: int, hop: int, offset: int) -> WindowKind:
    """Windows of the last cells of the length of a hop."""
    stretch = (at_us - 120 * HOUR, at_us + 120 * HOUR)
    ends = list(ends_of_cells(name, *stretch, hop * HOUR, offset * HOUR, 15 * MINUTE))

    def windows(events: list[Event]) -> WindowEvents:
        for start_us, end_us in zip(ends, ends[size // hop :], strict=False):
            yield end_us, [event for event in events if start_us < event.system_us <= end_us]

    return windows


def written(name: str, size: int, hop: int, offset: int) -> str:
    """The window as a script has it."""
    parts = [f"Duration(hour, {size})", *([] if hop == size else [f"Hop(hour, {hop})"]), *([f"Offset(hour, {offset})"] if offset else [])]
    return f"{'TumblingWindow' if hop == size else 'HoppingWindow'}({', '.join(parts)}, TimeZone('{name}'))"


CASES = st.sampled_from(SPOTS).flatmap(lambda spot: st.tuples(st.just(spot), st.sampled_from(SHAPES), events_near(spot[1])))
CUTS = st.lists(st.integers(-36 * 60, 60 * 60), max_size=5)


@settings(max_examples=120)
@given(CASES, CUTS, st.integers(-30, 30))
def test_any_cut_and_any_start_give_what_the_oracle_gives(
    case: tuple[tuple[str, int], tuple[int, int, int], list[Event]], cuts: list[int], start_hour: int
) -> None:
    """Level 2: wherever time is cut and saved, and wherever results begin, with no more read than the look-back says."""
    (name, at_us), shape, events = case
    sql = f"SELECT {COLUMNS} FROM a GROUP BY k, {written(name, *shape)}"
    expected = results(events, local(name, at_us, *shape))
    instants = sorted({at_us + cut * MINUTE for cut in cuts})
    assert answers_of(sql, {"a": events}, instants).results["out"].get(0, []) == expected
    start_us = at_us + start_hour * HOUR
    reach_us = reach_of(sql)
    read = [event for event in events if event.system_us >= start_us - reach_us]
    begun = answers_of(sql, {"a": read}, [cut for cut in instants if cut > start_us], start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in expected if row[0] >= start_us]


def reach_of(sql: str) -> int:
    """The look-back of a script."""
    return bind_script(parse_script(sql), [InputSchema("a")], into="out").lookback_us


@settings(max_examples=40)
@given(CASES, CUTS)
def test_rows_put_together_give_the_same(case: tuple[tuple[str, int], tuple[int, int, int], list[Event]], cuts: list[int]) -> None:
    """Level 2: the rows of a cell become one row long before their windows end, also where hours and days stand side by side."""
    (name, at_us), shape, events = case
    hours = (1, 1, shape[2])
    sql = f"SELECT {COLUMNS} FROM a GROUP BY k, Windows({written(name, *shape)}, {written(name, *hours)})"
    expected = results(events, local(name, at_us, *shape), local(name, at_us, *hours))
    with patch.object(compacting, "COMPACTED_FROM", 1), patch.object(compacting, "SAVING", 0):
        found = answers_of(sql, {"a": events}, sorted({at_us + cut * MINUTE for cut in cuts}))
    assert found.results["out"].get(0, []) == expected


@pytest.mark.parametrize(("name", "at_us"), SPOTS)
def test_rows_are_put_together_only_within_cells(name: str, at_us: int) -> None:
    """A row that moves to the end of its cell stays in its windows, whichever stand side by side; two clocks have no cells in common."""
    instants = np.arange(at_us - 36 * HOUR, at_us + 36 * HOUR, 7 * MINUTE)
    made = [LocalWindow(size * HOUR, hop * HOUR, offset * HOUR % (hop * HOUR), zone=zone(name)) for size, hop, offset in SHAPES]
    for windows in [*([window] for window in made), made, made[3:]]:
        grid = compacting.cell_grid(windows)
        assert grid is not None
        for window in windows:
            assert window.first_end(grid.pane_end(instants)).tolist() == window.first_end(instants).tolist()
            assert window.last_end(grid.pane_end(instants)).tolist() == window.last_end(instants).tolist()
    assert compacting.cell_grid([made[0], Window(HOUR, HOUR)]) is None


def test_a_day_of_23_hours_is_read_back_whole() -> None:
    """And one of 25: a restart in its last hour needs its first event."""
    sql = "SELECT COUNT(*) AS n FROM a GROUP BY TumblingWindow(Duration(day, 1), TimeZone('Europe/Berlin'))"
    assert reach_of(sql) == 25 * HOUR
    begin_us, end_us = us_of("2024-10-26T22:00:00"), us_of("2024-10-27T23:00:00")
    events = [Event(0, begin_us + 1, {}), Event(0, end_us, {}), Event(0, end_us + 1, {})]
    answers = answers_of(sql, {"a": events}, start_us=end_us)
    assert (answers.times()[0], answers.values()[0]) == (end_us, '{"n":2}')


WINDOW: Callable[..., LocalWindow] = lambda size, hop, offset=0: LocalWindow(size, hop, offset, zone=zone("Europe/Berlin"))  # noqa: E731


@given(st.sampled_from(SPOTS), st.sampled_from(SHAPES), st.integers(-72 * 60, 72 * 60) | st.just(TICK_MAX // MINUTE))
def test_the_ends_of_an_event_are_those_of_the_windows_that_hold_it(
    spot: tuple[str, int], shape: tuple[int, int, int], minute: int
) -> None:
    """Each window from the first to the last holds it, the one before and the one after do not."""
    size, hop, offset = (hours * HOUR for hours in shape)
    window = LocalWindow(size, hop, offset % hop, zone=zone(spot[0]))
    system_us = np.array([min(spot[1] + minute * MINUTE, TICK_MAX)])
    first, last = int(window.number_of(system_us)[0]), int(window.number_of(window.last_end(system_us))[0])
    numbers = np.arange(first - 1, last + 2)
    holds = (window.start_of(numbers) < system_us) & (system_us <= window.end_of(numbers))
    assert holds.tolist() == [False, *[True] * (last - first + 1), False]
    assert last - first + 1 == window.windows_per_event
    assert (window.end_of(numbers) - window.start_of(numbers) <= window.reach_us).all()
    assert all(before < after for before, after in pairwise(window.end_of(numbers).tolist()))


def test_without_changes_a_local_window_is_a_window_with_an_offset() -> None:
    """India is five and a half hours ahead."""
    there = LocalWindow(DAY, DAY, zone=zone("Asia/Kolkata"))
    here = Window(DAY, DAY, DAY - 5 * HOUR - 30 * MINUTE)
    instants = np.arange(us_of("2024-01-01"), us_of("2024-01-05"), 17 * MINUTE)
    assert there.first_end(instants).tolist() == here.first_end(instants).tolist()
    assert there.reach_us == here.reach_us


def test_windows_print_themselves() -> None:
    """As plans show them, and checkpoints are bound to them."""
    assert str(WINDOW(DAY, DAY)) == "tumbling 1d in Europe/Berlin"
    assert str(WINDOW(7 * DAY, DAY, 6 * HOUR)) == "hopping 7d by 1d, offset 6h in Europe/Berlin"


def test_zones_tell_windows_apart() -> None:
    """Equal nodes are computed once: windows of two zones are two, those of one zone one."""
    assert WINDOW(DAY, DAY) == WINDOW(DAY, DAY)
    assert WINDOW(DAY, DAY) != replace(WINDOW(DAY, DAY), zone=zone("Europe/London"))
    assert WINDOW(DAY, DAY) != Window(DAY, DAY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TumblingWindow(Duration(day, 1), TimeZone('Europe/Berlin'))", WINDOW(DAY, DAY)),
        ("Tumbling(day, 1, timezone('europe/berlin'))", WINDOW(DAY, DAY)),
        ("TumblingWindow(hour, 1, -1, TimeZone('Europe/Berlin'))", WINDOW(HOUR, HOUR)),
        ("HoppingWindow(TimeZone('Europe/Berlin'), Duration(day, 7), Hop(day, 1), Offset(hour, 6))", WINDOW(7 * DAY, DAY, 6 * HOUR)),
    ],
)
def test_a_zone_stands_among_the_lengths(text: str, expected: LocalWindow) -> None:
    """With and without names, in any order."""
    root = bind_script(parse_script(f"SELECT COUNT(*) AS n FROM a GROUP BY {text}"), [InputSchema("a")], into="out").root
    assert isinstance(root, WindowedAggregate)
    assert root.window == expected
