"""What a tuning says, in words and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.tuning.tuning import Tuning
from ordering.ticks import MILLISECOND_US, SECOND_US, format_duration, format_tick
from ordering.tuning.forecast import Forecast
from tidegate.platform.observe.terminal import TextColumn, TextTable


def describe_recording(tuning: Tuning) -> str:
    """Say what was recorded."""
    events = f"{tuning.records - tuning.unreadable:,} events"
    bad = f" ({tuning.unreadable:,} records are none)" if tuning.unreadable else ""
    keys = "" if tuning.substreams is None else f", {tuning.substreams:,} substreams"
    span = "" if tuning.span_us is None else f", arrived {format_tick(tuning.span_us[0])} to {format_tick(tuning.span_us[1])}"
    return f"{tuning.name}: {events}{bad} of {tuning.partitions:,} partition{'s' * (tuning.partitions != 1)}{keys}{span}"


def describe_forecast(forecast: Forecast) -> tuple[str, ...]:
    """Return the cells of a forecast: moved, dropped, delays, events held at once, windows changed."""
    held = f"{forecast.held_max:,}" + ("" if forecast.held_bytes is None else f" (~{_bytes(forecast.held_bytes)})")
    counts = (f"{count:,} ({percent(count / max(forecast.events, 1))})" for count in (forecast.moved, forecast.dropped))
    changed = (f"{each.changed:,} of {each.windows:,} ({percent(each.changed_share)})" for each in forecast.results)
    return (*counts, _delay(forecast.delay_p50_us), _delay(forecast.delay_p99_us), held, *changed)


def describe_proposal(tuning: Tuning, share: float) -> Iterator[str]:
    """Say which tolerances are proposed."""
    best, trade_off = tuning.trade_off.proposal, tuning.trade_off
    yield ""
    if best is None:
        yield f"No tolerances touch at most {percent(share)} of the events."
        return
    early = "" if trade_off.early_us in (None, tuning.now.policies.early_us) else f"early = {format_duration(trade_off.early_us or 0)}, "
    yield f"For at most {percent(share)} moved: {early}late = {format_duration(best.late_us)}, reorder = {format_duration(best.reorder_us)}"
    yield ""


def curve_table(tuning: Tuning) -> TextTable:
    """Return the curve as a table, from the fewest events touched to the least delay."""
    heads = ("touched", "late", "reorder", "delay p50", "p99")
    table = TextTable([TextColumn(head, is_right=True) for head in heads], is_plain=True)
    for point in tuning.trade_off.curve:
        delays = (_delay(point.delay_p50_us), _delay(point.delay_p99_us))
        table.add(percent(point.touched_share), format_duration(point.late_us), format_duration(point.reorder_us), *delays)
    return table


def percent(share: float) -> str:
    """Write a share with two digits that count: 0.1 %, 35 %, 0.0013 %."""
    return f"{share * 100:.2g} %" if 0 < share < 0.1 else f"{share * 100:.0f} %"


def _delay(us: int | None) -> str:
    if us is None:
        return "-"
    unit = SECOND_US if abs(us) >= 10 * SECOND_US else MILLISECOND_US
    return ("-" if us < 0 else "") + format_duration(abs(us) // unit * unit)


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count = round(count / 1000)
    return f"{count:,} GB"
