"""The staircase as figures for programs: ``tidegate watermarks --plot FILE.json`` and the page's *Time* have the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ordering.policies import Policies
from ordering.protocol.wire import Flag
from tidegate.tools.staircase.read import Staircase


def make_figures(
    stairs: Staircase,
    policies: Policies | None,
    partitions: Sequence[str],
    place_text: Callable[[int], str],
    dropped: Sequence[list[Any]] = (),
) -> dict[str, Any]:
    """
    Return a staircase as JSON; times are microseconds. *partitions* are the names of input partitions in the order of the roster,
    *place_text* writes a place in one. *dropped* are events that policies dropped, written as events are here.
    """
    what = [
        "early" if flags & Flag.EARLY else "late" if flags & Flag.LATE else "out of order" if flags & Flag.OUT_OF_ORDER else "in order"
        for flags in stairs.flags.tolist()
    ]
    places = map(place_text, stairs.offset.tolist())
    columns = stairs.arrival_us.tolist(), stairs.event_us.tolist(), stairs.system_us.tolist(), what, stairs.number.tolist(), places
    return {
        "topic": stairs.topic,
        "looked_at": stairs.events,
        "early_us": None if policies is None else policies.early_us,
        "late_us": None if policies is None else policies.late_us,
        "reorder_us": None if policies is None else policies.reorder_us,
        "partitions": list(partitions),
        "events": sorted([*map(list, zip(*columns, strict=True)), *dropped], key=lambda event: event[0]),
        "steps": {str(number): steps for number, steps in stairs.steps.items()},
        "ctis": [list(cti) for cti in stairs.ctis],
    }
