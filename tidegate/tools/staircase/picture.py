"""The staircase as a chart: arrival across, time up; a line for each input partition's watermark, a dot for each event."""

from __future__ import annotations

import numpy as np

from ordering.ticks import format_tick
from tidegate.platform.observe.drawing import COLOURS, Axis, Chart, Series
from tidegate.tools.staircase.read import MOVED, Staircase

_KEPT, _MOVED = "#1a7f37", "#bc4c00"
_LINES_NAMED = 6


def draw_staircase(stairs: Staircase, partitions: dict[int, str]) -> Chart:
    """Return the chart; *partitions* are the names of input partitions by roster number."""
    steps = [point for rises in stairs.steps.values() for point in rises]
    across = [*stairs.arrival_us.tolist(), *(arrival for arrival, _ in steps)] or [0]
    # An arrival far off would squeeze all others; so would an event time.
    up = [*stairs.event_us.tolist(), *stairs.system_us.tolist(), *(promise for _, promise in steps)] or [0]
    low, high = np.quantile(up, (0.005, 0.995)) if len(up) > 200 else (min(up), max(up))
    x = Axis("arrival", min(across), max(*across, min(across) + 1), _time_word)
    y = Axis("event time: dots; watermark: steps", float(low), max(float(high), float(low) + 1), _time_word)
    chart = Chart(f"{stairs.topic}: {stairs.events:,} events", x, y)
    is_moved = (stairs.flags & int(MOVED)) != 0
    for name, colour, chosen in (("in order", _KEPT, ~is_moved), ("moved", _MOVED, is_moved)):
        points = list(zip(stairs.arrival_us[chosen].tolist(), stairs.event_us[chosen].tolist(), strict=True))
        chart.series.append(Series(name if points else "", points, colour, is_line=False, radius=1.5))
    for place, (number, rises) in enumerate(stairs.steps.items()):
        name = partitions.get(number, f"partition {number}") if place < _LINES_NAMED else ""
        chart.series.append(Series(name, _corners(rises, int(x.last)), COLOURS[place % 3]))
    return chart


def _corners(rises: list[tuple[int, int]], last: int) -> list[tuple[float, float]]:
    """Return the corners of a staircase: each promise holds until the next rise."""
    corners: list[tuple[float, float]] = []
    for arrival, promise in rises:
        if corners:
            corners.append((arrival, corners[-1][1]))
        corners.append((arrival, promise))
    return [*corners, (last, corners[-1][1])] if corners else corners


def _time_word(us: float) -> str:
    # The time of day: the day would not fit beside the axis.
    return format_tick(int(us) // 1_000_000 * 1_000_000)[11:19] if us >= 0 else ""
