"""
What tests draw from: policies, disordered logs, estimates, cuts into batches, crashes; and the golden toll log.

A drawn log stands on small numbers of ticks, so that equal times, full tolerances and clamped arrivals are common, and
is then put somewhere on the time line, ends included, and stretched.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from hypothesis import strategies as st

from ordering.oracle import Record
from ordering.policies import Action, Policies
from ordering.ticks import HOUR_US, MINUTE_US, TICK_MAX, TICK_MIN

GOLDEN = Path(__file__).parent / "golden"
TOLL_POLICIES = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)
TOLL_VARIANTS = {
    "one_timeline": (TOLL_POLICIES, False),
    "early_off": (replace(TOLL_POLICIES, early_us=None), False),
    "over_device": (TOLL_POLICIES, True),
}
"""The worked example of the time model, section 8: its policies, and whether each device has a timeline of its own."""


@dataclass(frozen=True)
class Range:
    """One batch: offsets from ``start`` (inclusive) to ``end`` (exclusive), the estimates it applies, crashes before and in it."""

    start: int
    end: int
    estimates: tuple[tuple[int, int], ...] = ()
    restored: bool = False
    torn: bool = False


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
        late_us=None if late_us is None else late_us * scale,
        late_action=draw(st.sampled_from(Action)),
        reorder_us=reorder_us if reorder_us < 0 else reorder_us * scale,
        out_of_order_action=draw(st.sampled_from(Action)),
    )


KEYS = (b"", b"a", b"b", b"c", b"\x00\xff", b"a longer key")
_STEPS = st.tuples(
    st.sampled_from([1, 1, 1, 2, 5]),  # to the next offset
    st.integers(-3, 6) | st.integers(0, 2),  # to the next arrival, not yet clamped
    st.integers(-12, 14) | st.integers(-2, 3),  # lateness
    st.sampled_from(KEYS[:2]) | st.sampled_from(KEYS),
    st.sampled_from([True] * 9 + [False]),  # readable
)


@st.composite
def logs(draw: st.DrawFn, start_us: int = 10**9, scale: int = 1) -> tuple[Record, ...]:
    """Draw the log of an input partition: disorder, gaps between offsets, arrivals going back, unreadable records."""
    size = draw(st.sampled_from([2, 6, 14, 20, 30, 50]))  # Hypothesis left alone prefers logs too short to hold anything
    steps = draw(st.lists(_STEPS, min_size=size // 2, max_size=size))
    offset, arrival_us, records = draw(st.integers(0, 3)), start_us, []
    for gap, ahead, lateness, key, readable in steps:
        arrival_us = within_range(arrival_us + ahead * scale)
        event_time_us = within_range(arrival_us - lateness * scale) if readable else None
        records.append(Record(offset, arrival_us, event_time_us, key))
        offset += gap
    return tuple(records)


def within_range(tick: int) -> int:
    """Return the valid time nearest to *tick*."""
    return min(max(tick, TICK_MIN), TICK_MAX)


@st.composite
def estimates(draw: st.DrawFn, records: tuple[Record, ...], scale: int = 1) -> dict[int, tuple[int, ...]]:
    """Draw what the idle clock said at some positions, the end included: rising frontiers, at times above the next arrival."""
    if not records:
        return {}
    end = records[-1].offset + 1
    stands = dict.fromkeys(range(records[0].offset, end + 1), records[-1].arrival_us)
    for record, previous in zip(reversed(records), [*reversed(records[:-1]), None], strict=True):
        for position in range(previous.offset + 1 if previous else record.offset, record.offset + 1):
            stands[position] = record.arrival_us
    raises = st.lists(st.integers(-4, 9), min_size=1, max_size=3).map(sorted)
    drawn = draw(st.dictionaries(st.sampled_from(sorted(stands)), raises, max_size=4))
    return {position: tuple(within_range(stands[position] + ahead * scale) for ahead in heard) for position, heard in drawn.items()}


@st.composite
def ranges(draw: st.DrawFn, records: tuple[Record, ...], heard: Mapping[int, tuple[int, ...]]) -> tuple[Range, ...]:
    """Draw a cut of the log into batches, empty ones included, and lay each estimate into a batch that may apply it."""
    first, end = (records[0].offset, records[-1].offset + 1) if records else (0, 0)
    inner = sorted(draw(st.lists(st.integers(first, end), max_size=8)))
    edges = [0 if draw(st.booleans()) else first, *inner, end, *([end] if draw(st.booleans()) else [])]
    bounds = list(pairwise(edges))
    laid: list[list[tuple[int, int]]] = [[] for _ in bounds]
    for position, frontiers in sorted(heard.items()):
        open_to = [at for at, (low, high) in enumerate(bounds) if low <= position <= high]
        chosen = sorted(draw(st.lists(st.sampled_from(open_to), min_size=len(frontiers), max_size=len(frontiers))))
        for at, frontier_us in zip(chosen, frontiers, strict=True):
            laid[at].append((position, frontier_us))
    return tuple(
        Range(low, high, tuple(applied), restored=draw(st.booleans()), torn=draw(st.booleans()))
        for (low, high), applied in zip(bounds, laid, strict=True)
    )


@st.composite
def cases(draw: st.DrawFn, over: bool | None = None) -> Case:
    """Draw a whole case."""
    over = draw(st.booleans()) if over is None else over
    scale = draw(st.sampled_from([1, 1_000, 60_000_000]))
    start_us = draw(st.sampled_from([TICK_MIN, 10**9, 10**15, TICK_MAX - 100 * scale]))
    records = draw(logs(start_us, scale))
    heard = draw(estimates(records, scale))
    return Case(
        policies=draw(policies(over, scale)),
        over=over,
        output_partitions=draw(st.integers(1, 4)),
        number=draw(st.integers(0, 5)),
        records=records,
        estimates={position: frontiers[-1] for position, frontiers in heard.items()},
        ranges=draw(ranges(records, heard)),
        finish=draw(st.booleans()),
    )
