"""What a profile says, as a table for a terminal, as JSON, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from math import log10
from typing import Any

from ingest.tuning.profile import Profile
from ingest.tuning.words import percent
from ordering.ticks import MILLISECOND_US, SECOND_US, format_duration
from ordering.tuning.quantiles import Quantiles
from tidegate.platform.observe.drawing import COLOURS, Axis, Chart, Series, duration_word
from tidegate.platform.observe.terminal import TextColumn, TextTable

_SHOWN = (0.01, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
_KEYS_DRAWN = 4


def describe_profile(profile: Profile) -> str:
    """Say what was measured."""
    disorder = profile.disorder
    keys = f", {disorder.key_count:,} key{'s' * (disorder.key_count != 1)}" if disorder.keys else ""
    of = f"{disorder.partitions:,} partition{'s' * (disorder.partitions != 1)}"
    return f"{profile.name}: {disorder.records:,} records of {of}{keys}; event times in steps of {format_duration(disorder.resolution_us)}"


def describe_shares(profile: Profile) -> Iterator[str]:
    """Say how many events are out of order, tied and so on."""
    disorder = profile.disorder
    yield ""
    yield f"{percent(disorder.out_of_order):>8} of the events are out of order: below the newest one of their timeline"
    yield f"{percent(disorder.ties):>8} have the time of an earlier one"
    yield f"{percent(disorder.duplicates):>8} of the records repeat an earlier one"
    yield f"{percent(disorder.unreadable):>8} of the records are no events"


def durations_table(profile: Profile) -> TextTable:
    """Return the distributions as a table."""
    disorder = profile.disorder
    table = TextTable(_columns(""), is_plain=True)
    rows = (
        ("late", disorder.lateness, bool(disorder.records)),
        ("behind the newest, if out of order", disorder.behind, disorder.out_of_order > 0),
        ("silence between arrivals", disorder.gaps, disorder.records > 1),
        ("repeated after", disorder.repeated_after, disorder.duplicates > 0),
    )
    for name, quantiles, is_there in rows:
        if is_there:
            table.add(name, *_cells(quantiles))
    return table


def keys_table(profile: Profile) -> TextTable:
    """Return how late the events of each key are."""
    table = TextTable([TextColumn("late, by key"), TextColumn("events", is_right=True), *_columns("")[1:]], is_plain=True)
    for key in profile.disorder.keys:
        table.add(key.name or f"{key.keys:,} others", percent(key.share), *_cells(key.lateness))
    return table


def _columns(first: str) -> list[TextColumn]:
    return [TextColumn(first), *(TextColumn(f"p{share * 100:g}", is_right=True) for share in _SHOWN), TextColumn("most", is_right=True)]


def _cells(quantiles: Quantiles) -> list[str]:
    return [_rough(us) for us in (*quantiles.at(_shares()).tolist(), quantiles.largest_us)]


def _shares() -> Any:
    import numpy as np

    return np.array(_SHOWN)


def _rough(us: int) -> str:
    """Write a duration without digits that nobody reads."""
    unit = SECOND_US if abs(us) >= 10 * SECOND_US else MILLISECOND_US if abs(us) >= 10 * MILLISECOND_US else 1
    return format_duration(round(us / unit) * unit)


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return the profile as JSON."""
    disorder = profile.disorder
    return {
        "name": profile.name,
        "timestamp_by": profile.timestamp_by,
        "over": profile.over,
        "records": disorder.records,
        "partitions": disorder.partitions,
        "keys": disorder.key_count,
        "resolution_us": disorder.resolution_us,
        "unreadable": disorder.unreadable,
        "duplicates": disorder.duplicates,
        "ties": disorder.ties,
        "out_of_order": disorder.out_of_order,
        "gaps_us": _json(disorder.gaps),
        "lateness_us": _json(disorder.lateness),
        "behind_us": _json(disorder.behind),
        "repeated_after_us": _json(disorder.repeated_after),
        "by_key": [
            {"name": key.name or None, "keys": key.keys, "share": key.share, "lateness_us": _json(key.lateness)} for key in disorder.keys
        ],
    }


def _json(quantiles: Quantiles) -> dict[str, int]:
    names = (f"p{share * 100:g}" for share in _SHOWN)
    return {"least": quantiles.least_us, **dict(zip(names, quantiles.at(_shares()).tolist(), strict=True)), "most": quantiles.largest_us}


def draw_profile(profile: Profile) -> Chart:
    """Return the chart: durations that a share of the events does not exceed, the share drawn out towards all of them."""
    disorder = profile.disorder
    drawn = [("late", disorder.lateness), ("silence between arrivals", disorder.gaps)]
    drawn += [("behind the newest", disorder.behind)] if disorder.out_of_order else []
    drawn += [(f"late, {key.name}", key.lateness) for key in disorder.keys[:_KEYS_DRAWN] if key.name]
    last = max(1.0, *(_across(quantiles.shares[-1]) for _, quantiles in drawn))
    marks = tuple(float(power) for power in range(int(last) + 1))
    x = Axis("share that has no more", 0.0, last, lambda power: percent_below(power), marks)
    values = [us for _, quantiles in drawn for us in quantiles.values_us.tolist()]
    chart = Chart(f"{profile.name}: its disorder", x, Axis("duration", min(0, *values), max(1, *values), duration_word))
    for number, (name, quantiles) in enumerate(drawn):
        points = [(_across(share), float(us)) for share, us in zip(quantiles.shares.tolist(), quantiles.values_us.tolist(), strict=True)]
        chart.series.append(Series(name, points, COLOURS[number % len(COLOURS)]))
    return chart


def percent_below(power: float) -> str:
    """Write the share whose rest is a tenth to a power: 90 %, 99 %, 99.9 %."""
    return f"{(1 - 10**-power) * 100:.{max(int(power) - 2, 0)}f} %"


def _across(share: float) -> float:
    return -log10(max(1 - share, 1e-12))
