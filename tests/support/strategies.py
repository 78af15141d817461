"""
What tests draw from: policies, disordered logs of every shape, CTIs of the source, estimates, imports, cuts into batches,
crashes; and the golden toll log.

A drawn log stands on small numbers of ticks, so that equal times, full tolerances and clamped arrivals are common, and
is then put somewhere on the time line, ends included, and stretched.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from support.repository import ROOT

from ordering.policies import Action, Generation, Policies, Shape
from ordering.testing import Record
from ordering.ticks import HOUR_US, MINUTE_US, NEVER, TICK_MAX, TICK_MIN

PER_BATCH = Generation()
GOLDEN = ROOT / "tests" / "golden"
TOLL_POLICIES = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)
TOLL_VARIANTS = {
    "one_timeline": (TOLL_POLICIES, False),
    "early_off": (replace(TOLL_POLICIES, early_us=None), False),
    "early_adjust": (replace(TOLL_POLICIES, early_action=Action.ADJUST), False),
    "over_device": (TOLL_POLICIES, True),
}
"""The worked example of the time model: its policies, and whether each device has a timeline of its own."""


@dataclass(frozen=True)
class Range:
    """
    One batch: offsets from ``start`` (inclusive) to ``end`` (exclusive), the estimates and imports it applies, whether it goes
    on from the saved state, and whether it is lost half-way and run again.
    """

    start: int
    end: int
    estimates: tuple[tuple[int, int], ...] = ()
    restored: bool = False
    torn: bool = False
    imports: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Case:
    """A log with everything that decides its story, and one way to cut it that must not matter."""

    policies: Policies
    over: bool
    output_partitions: int
    number: int
    records: tuple[Record, ...]
    estimates: Mapping[int, int]
    ranges: tuple[Range, ...]
    finish: bool
    imports: Mapping[int, int] = field(default_factory=dict)
    joined_us: int = NEVER
    generation: Generation = PER_BATCH
    shape: Shape = Shape.POINT
    scale: int = 1


def toll_records() -> list[Record]:
    """Return the golden log; offsets are event numbers, keys are devices."""
    with (GOLDEN / "toll.csv").open(newline="") as lines:
        return [
            Record(int(row["event_no"]), clock_us(row["arrival_time"]), clock_us(row["event_time"]), row["device"].encode())
            for row in csv.DictReader(lines)
        ]


def toll_expected(variant: str) -> list[tuple[str, int, str, str]]:
    """Return the hand-written story of the golden log: (outcome, event number, system time, policies) in release order."""
    with (GOLDEN / f"toll.{variant}.csv").open(newline="") as lines:
        return [(row["outcome"], int(row["event_no"]), row["system_time"], row["policies"]) for row in csv.DictReader(lines)]


def clock_us(text: str) -> int:
    """Read ``hh:mm`` as ticks of the first day."""
    hours, minutes = text.split(":")
    return int(hours) * HOUR_US + int(minutes) * MINUTE_US


def clock_text(tick: int) -> str:
    """Write ticks of the first day as ``hh:mm``."""
    return f"{tick // HOUR_US:02}:{tick % HOUR_US // MINUTE_US:02}"


@st.composite
def policies(draw: st.DrawFn, over: bool = False, scale: int = 1) -> Policies:
    """Draw policies with tolerances of a few *scale* ticks; late may be off only without OVER."""
    late = st.integers(0, 12) if over else st.none() | st.integers(0, 12)
    early_us, late_us, reorder_us = draw(st.none() | st.integers(0, 10)), draw(late), draw(st.integers(-1, 8) | st.integers(-1, 0))
    return Policies(
        early_us=None if early_us is None else early_us * scale,
        early_action=draw(st.sampled_from(Action)),
        late_us=None if late_us is None else late_us * scale,
        late_action=draw(st.sampled_from(Action)),
        cti_violation_action=draw(st.sampled_from(Action)),
        reorder_us=reorder_us if reorder_us < 0 else reorder_us * scale,
        out_of_order_action=draw(st.sampled_from(Action)),
    )


@st.composite
def generations(draw: st.DrawFn, scale: int = 1) -> Generation:
    """Draw when CTIs are written and what they say; per batch and without delay half of the time."""
    delay_us = draw(st.just(0) | st.integers(0, 6)) * scale
    every_us = draw(st.none() | st.integers(1, 9))
    return Generation(
        every_events=draw(st.none() | st.integers(1, 5)),
        every_us=None if every_us is None else every_us * scale,
        delay_us=delay_us,
        list_substreams=draw(st.booleans()),
    )


KEYS = (b"", b"a", b"b", b"c", b"\x00\xff", b"a longer key")
_STEPS = st.tuples(
    st.sampled_from([1, 1, 1, 2, 5]),  # to the next offset
    st.integers(-3, 6) | st.integers(0, 2),  # to the next arrival, not yet clamped
    st.integers(-12, 14) | st.integers(-2, 3),  # lateness
    st.sampled_from(KEYS[:2]) | st.sampled_from(KEYS),
    st.sampled_from([True] * 9 + [False]),  # readable
)
_RAW_KEYS = st.sampled_from([b"r", b"r", b"", None])


@st.composite
def logs(
    draw: st.DrawFn, start_us: int = 10**9, scale: int = 1, shape: Shape = Shape.POINT, source_ctis: bool = False
) -> tuple[Record, ...]:
    """Draw the log of an input partition: disorder, gaps between offsets, arrivals going back, unreadable records."""
    size = draw(st.sampled_from([2, 6, 14, 20, 30, 50]))  # Hypothesis left alone prefers logs too short to hold anything
    steps = draw(st.lists(_STEPS, min_size=size // 2, max_size=size))
    offset, arrival_us, records = draw(st.integers(0, 3)), start_us, []
    for gap, ahead, lateness, key, readable in steps:
        arrival_us = within_range(arrival_us + ahead * scale)
        event_time_us = within_range(arrival_us - lateness * scale)
        if source_ctis and draw(st.integers(0, 7)) == 0:
            records.append(Record(offset, arrival_us, None, key, source_cti_us=event_time_us))
        elif not readable:
            records.append(Record(offset, arrival_us, None, key))
        elif shape is Shape.POINT:
            records.append(Record(offset, arrival_us, event_time_us, key))
        else:
            point = Record(offset, arrival_us, event_time_us, key, raw_key=draw(_RAW_KEYS))
            records.append(draw(_stretched(point, shape, records, scale)))
        offset += gap
    return tuple(records)


@st.composite
def _stretched(draw: st.DrawFn, point: Record, shape: Shape, before: list[Record], scale: int) -> Record:
    """Draw an interval from *point*, or one end of a span: an end edge mostly of a start edge that stands *before* it."""
    assert point.event_time_us is not None
    if shape is Shape.INTERVAL:
        return replace(point, end_us=point.event_time_us + draw(st.integers(-3, 15)) * scale)
    started = [record for record in before if record.start_us == NEVER][-4:]
    fate = draw(st.sampled_from(["start", "start", "end", "end", "stray"]))
    if fate == "end" and started:
        start = draw(st.sampled_from(started))
        return replace(point, key=start.key, raw_key=start.raw_key, start_us=start.event_time_us)
    stray = fate == "stray" and draw(st.booleans())
    return replace(point, start_us=within_range(point.event_time_us + draw(st.integers(-9, 3)) * scale) if stray else NEVER)


def within_range(tick: int) -> int:
    """Return the valid time nearest to *tick*."""
    return min(max(tick, TICK_MIN), TICK_MAX)


@st.composite
def estimates(draw: st.DrawFn, records: tuple[Record, ...], scale: int = 1) -> dict[int, tuple[int, ...]]:
    """Draw what the idle clock said at some positions, the end included: rising frontiers, at times above the next arrival."""
    return draw(_facts(records, st.integers(-4, 9), scale))


@st.composite
def imported(draw: st.DrawFn, records: tuple[Record, ...], scale: int = 1) -> dict[int, tuple[int, ...]]:
    """Draw the CTIs of another input that were imported at some positions, the end included; each position's rise."""
    return draw(_facts(records, st.integers(-20, 4), scale))


@st.composite
def _facts(draw: st.DrawFn, records: tuple[Record, ...], aheads: st.SearchStrategy[int], scale: int) -> dict[int, tuple[int, ...]]:
    """Draw rising values at some positions, each so far *ahead* of the next arrival there (at the end: of the last)."""
    if not records:
        return {}
    end = records[-1].offset + 1
    stands = dict.fromkeys(range(records[0].offset, end + 1), records[-1].arrival_us)
    for record, previous in zip(reversed(records), [*reversed(records[:-1]), None], strict=True):
        for position in range(previous.offset + 1 if previous else record.offset, record.offset + 1):
            stands[position] = record.arrival_us
    raises = st.lists(aheads, min_size=1, max_size=3).map(sorted)
    drawn = draw(st.dictionaries(st.sampled_from(sorted(stands)), raises, max_size=4))
    return {position: tuple(within_range(stands[position] + ahead * scale) for ahead in heard) for position, heard in drawn.items()}


@st.composite
def ranges(
    draw: st.DrawFn,
    records: tuple[Record, ...],
    heard: Mapping[int, tuple[int, ...]],
    brought: Mapping[int, tuple[int, ...]] | None = None,
    first: int | None = None,
) -> tuple[Range, ...]:
    """
    Draw a cut of the log into batches, empty ones included, and lay each estimate and import into a batch that may apply it.

    With *first* the cut starts there, whatever stands before.
    """
    low, end = (records[0].offset, records[-1].offset + 1) if records else (0, 0)
    low = draw(st.sampled_from([0, low])) if first is None else first
    inner = sorted(draw(st.lists(st.integers(min(low, end), end), max_size=8)))
    bounds = list(pairwise([low, *inner, max(low, end), *([max(low, end)] if draw(st.booleans()) else [])]))
    estimates_of, imports_of = draw(_laid(bounds, heard)), draw(_laid(bounds, brought or {}))
    return tuple(
        Range(low, high, estimates_of[at], restored=draw(st.booleans()), torn=draw(st.booleans()), imports=imports_of[at])
        for at, (low, high) in enumerate(bounds)
    )


@st.composite
def _laid(draw: st.DrawFn, bounds: list[tuple[int, int]], facts: Mapping[int, tuple[int, ...]]) -> list[tuple[tuple[int, int], ...]]:
    """Draw for each batch the (position, value) it applies: one at a batch's end may as well come with the next batch."""
    laid: list[list[tuple[int, int]]] = [[] for _ in bounds]
    for position, values in sorted(facts.items()):
        open_to = [at for at, (low, high) in enumerate(bounds) if low <= position <= high]
        chosen = sorted(draw(st.lists(st.sampled_from(open_to), min_size=len(values), max_size=len(values))))
        for at, value in zip(chosen, values, strict=True):
            laid[at].append((position, value))
    return [tuple(applied) for applied in laid]


@st.composite
def cases(
    draw: st.DrawFn,
    over: bool | None = None,
    shape: Shape | None = Shape.POINT,
    whole: bool = False,
    generated: bool = False,
    joins: bool = False,
    **fixed: Any,
) -> Case:
    """
    Draw a case of a *shape* (None: any), with *fixed* parts.

    A *whole* one may have CTIs of the source, imports and a late join, which it has if it *joins*; a *generated* one CTIs by count, by
    time, with a delay.
    """
    over = draw(st.booleans()) if over is None else over
    scale = draw(st.sampled_from([1, 1_000, 60_000_000]))
    start_us = draw(st.sampled_from([TICK_MIN, 10**9, 10**15, TICK_MAX - 100 * scale]))
    shape = draw(st.sampled_from(Shape)) if shape is None else shape
    records = draw(logs(start_us, scale, shape, whole and draw(st.booleans())))
    heard = draw(estimates(records, scale))
    brought = draw(imported(records, scale)) if whole and draw(st.booleans()) else {}
    joined = joins or (whole and draw(st.integers(0, 3)) == 0)
    case = Case(
        policies=draw(policies(over, scale)),
        over=over,
        output_partitions=draw(st.integers(1, 4)),
        number=draw(st.integers(0, 5)),
        records=records,
        estimates={position: frontiers[-1] for position, frontiers in heard.items()},
        ranges=draw(ranges(records, heard, brought)),
        finish=draw(st.booleans()),
        imports={position: values[-1] for position, values in brought.items()},
        joined_us=within_range(start_us + draw(st.integers(-5, 25)) * scale) if joined else NEVER,
        generation=draw(generations(scale)) if generated else PER_BATCH,
        shape=shape,
        scale=scale,
    )
    return replace(case, **fixed)


def whole_cases(over: bool | None = None, shape: Shape | None = None, generated: bool = False, **fixed: Any) -> st.SearchStrategy[Case]:
    """Draw cases with all there is: see :func:`cases`."""
    return cases(over, shape, whole=True, generated=generated, **fixed)
