"""The curve of a tuning as a chart: the share of events touched across, the watermark delay up."""

from __future__ import annotations

from math import ceil, floor, log10

from ingest.tuning.tuning import Tuning
from ingest.tuning.words import percent
from ordering.ticks import format_duration
from tidegate.platform.observe.drawing import COLOURS, Axis, Chart, Series, duration_word

_LEAST = 1e-6


def draw_trade_off(tuning: Tuning) -> Chart:
    """Return the chart: the curve, the policies in force, and the proposal."""
    now, curve = tuning.now, tuning.trade_off.curve
    shares = [_across(point.touched_share) for point in curve] + [_across(now.touched_share)]
    heights = [point.delay_p99_us for point in curve] + [now.delay_p99_us or 0]
    first, last = floor(min(shares)), max(ceil(max(shares)), floor(min(shares)) + 1)
    x = Axis("events touched", first, last, lambda power: percent(10**power), tuple(float(power) for power in range(first, last + 1)))
    y = Axis("watermark delay of 99 of 100 events", min(0, *heights), max(*heights, 1), duration_word)
    chart = Chart(f"{tuning.name}: delay against events touched", x, y)
    chart.series.append(Series("what tolerances can do", [(_across(p.touched_share), p.delay_p99_us) for p in curve], COLOURS[0], radius=3))
    place = _across(now.touched_share), float(now.delay_p99_us or 0)
    chart.series.append(Series("now", [place], COLOURS[3], is_line=False, radius=6))
    if (best := tuning.trade_off.proposal) is not None:
        place = _across(best.touched_share), float(best.delay_p99_us)
        word = f"late {format_duration(best.late_us)}, reorder {format_duration(best.reorder_us)}"
        chart.series.append(Series("proposed", [place], COLOURS[4], is_line=False, radius=6, words=[(*place, word)]))
    return chart


def _across(share: float) -> float:
    """Return the place of a share on an axis of powers of ten; none at all stands where one in a million does."""
    return log10(max(share, _LEAST))
