"""
Draw toll.svg, the worked example of the time model: twelve events, what the policies do to each, and the watermark.

Usage: python docs/pictures/toll.py. Nothing is placed by hand: times, verdicts and watermarks come from the model.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from math import atan2, degrees
from pathlib import Path

from ordering.oracle import Record
from ordering.policies import Policies
from ordering.step import Model
from ordering.testing import batch_of, clock_text, log_of, tick, transcript
from ordering.ticks import MINUTE_US

ROOT = Path(__file__).resolve().parents[2]
POLICIES = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)

WIDTH, HEIGHT = 860, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 90
ARRIVAL, EVENT = (tick("12:06"), tick("12:31")), (tick("12:00"), tick("12:25"))
INK, SOFT, WATER, ON_TIME, MOVED, DROPPED = "#24292f", "#8c959f", "#0969da", "#1a7f37", "#bc4c00", "#cf222e"


@dataclass(frozen=True)
class Dot:
    """One event: when it arrived, its own time, the time it ended up with (None: dropped), and the policy that did it."""

    number: int
    arrival_us: int
    event_us: int
    system_us: int | None
    policy: str


def toll() -> list[Record]:
    """Return the twelve events."""
    with (ROOT / "tests" / "golden" / "toll.csv").open(newline="") as lines:
        return log_of([(row["event_time"], row["arrival_time"], row["device"]) for row in csv.DictReader(lines)])


def dots(log: list[Record]) -> list[Dot]:
    """Return what the model made of each event."""
    told = transcript(log, POLICIES)
    fate: dict[int, tuple[int | None, str]] = {number: (tick(time), policy) for number, time, policy in told.released + told.held}
    fate |= {number: (None, policy) for number, policy in told.dropped}
    return [Dot(record.offset, record.arrival_us, record.event_time_us or 0, *fate[record.offset]) for record in log]


def watermarks(log: list[Record]) -> list[tuple[int, int]]:
    """Return (arrival, watermark after it) of each event."""
    model = Model(POLICIES, over=False, output_partitions=1)
    state = model.new_state()
    found = []
    for record in log:
        model.step(state, batch_of([record]))
        found.append((record.arrival_us, state.c))
    return found


def x(arrival_us: int) -> float:
    """Return where an arrival stands on the page."""
    return LEFT + (WIDTH - LEFT - RIGHT) * (arrival_us - ARRIVAL[0]) / (ARRIVAL[1] - ARRIVAL[0])


def y(event_us: int) -> float:
    """Return where an event time stands on the page."""
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (event_us - EVENT[0]) / (EVENT[1] - EVENT[0])


def line(points: list[tuple[float, float]], colour: str, extra: str = "") -> str:
    """Return a line through *points*."""
    path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" {extra}/>'


def text(across: float, up: float, words: str, colour: str = INK, extra: str = "") -> str:
    """Return words at a place."""
    return f'<text x="{across:.1f}" y="{up:.1f}" fill="{colour}" {extra}>{words}</text>'


def axes() -> list[str]:
    """Return both axes with a mark every two minutes."""
    floor, parts = y(EVENT[0]), []
    for time in range(ARRIVAL[0], ARRIVAL[1] + 1, 2 * MINUTE_US):
        parts.append(line([(x(time), floor), (x(time), floor + 5)], SOFT))
        parts.append(text(x(time), floor + 20, clock_text(time), INK, 'text-anchor="middle"'))
    for time in range(EVENT[0], EVENT[1] + 1, 2 * MINUTE_US):
        parts.append(line([(LEFT, y(time)), (x(ARRIVAL[1]), y(time))], "#eaeef2"))
        parts.append(text(LEFT - 8, y(time) + 4, clock_text(time), INK, 'text-anchor="end"'))
    parts.append(line([(LEFT, TOP), (LEFT, floor), (x(ARRIVAL[1]), floor)], SOFT))
    parts.append(text(x(ARRIVAL[1]), floor + 40, "arrival time", INK, 'text-anchor="end" font-style="italic"'))
    parts.append(text(LEFT - 50, TOP - 14, "event time", INK, 'font-style="italic"'))
    return parts


def tolerances() -> list[str]:
    """Return the two limits: above the upper one an event is early, below the lower one late."""
    parts = []
    limits = (
        (POLICIES.early_us or 0, tick("12:13"), -6, "early: above arrival + 5 min"),
        (-(POLICIES.late_us or 0), tick("12:06:30"), 16, "late: below arrival - 5 min"),
    )
    for shift, begins, away, words in limits:
        low, high = max(ARRIVAL[0], EVENT[0] - shift), min(ARRIVAL[1], EVENT[1] - shift)
        parts.append(line([(x(low), y(low + shift)), (x(high), y(high + shift))], SOFT, 'stroke-dasharray="5 4"'))
        across, up = x(begins), y(begins + shift) + away
        slope = degrees(atan2(y(EVENT[0] + MINUTE_US) - y(EVENT[0]), x(ARRIVAL[0] + MINUTE_US) - x(ARRIVAL[0])))
        parts.append(text(across, up, words, SOFT, f'transform="rotate({slope:.1f} {across:.1f} {up:.1f})"'))
    return parts


def staircase(steps: list[tuple[int, int]]) -> list[str]:
    """Return the watermark as it stood at each moment, and below it the times that are over."""
    corners = [(x(steps[0][0]), y(max(steps[0][1], EVENT[0])))]
    for arrival_us, watermark_us in steps[1:]:
        corners += [(x(arrival_us), corners[-1][1]), (x(arrival_us), y(max(watermark_us, EVENT[0])))]
    corners.append((x(ARRIVAL[1]), corners[-1][1]))
    floor = y(EVENT[0])
    area = " ".join(f"{across:.1f},{up:.1f}" for across, up in [(corners[0][0], floor), *corners, (corners[-1][0], floor)])
    return [
        f'<polygon points="{area}" fill="{WATER}" fill-opacity="0.08"/>',
        line(corners, WATER, 'stroke-width="2.5"'),
        text(corners[-1][0], corners[-1][1] - 8, f"watermark {clock_text(steps[-1][1])}", WATER, 'text-anchor="end"'),
    ]


def event(dot: Dot) -> list[str]:
    """Return an event, where it was moved to, and its number."""
    across, up = x(dot.arrival_us), y(dot.event_us)
    name = text(across + 10, up + 5, str(dot.number), INK, 'font-weight="bold"')
    beside = across + 14 + 9 * len(str(dot.number))
    if dot.system_us is None:
        cross = f'<path d="M{across - 5:.1f},{up - 5:.1f} l10,10 m0,-10 l-10,10" stroke="{DROPPED}" stroke-width="2.5"/>'
        return [cross, name, text(beside, up + 5, f"{dot.policy}: dropped", DROPPED)]
    if dot.system_us == dot.event_us:
        return [f'<circle cx="{across:.1f}" cy="{up:.1f}" r="5" fill="{ON_TIME}"/>', name]
    there = y(dot.system_us)
    return [
        line([(across, up - 5), (across, there + 7)], MOVED, 'stroke-width="1.5" marker-end="url(#tip)"'),
        f'<circle cx="{across:.1f}" cy="{up:.1f}" r="5" fill="white" stroke="{MOVED}" stroke-width="2"/>',
        f'<circle cx="{across:.1f}" cy="{there:.1f}" r="5" fill="{MOVED}"/>',
        name,
        text(beside, up + 5, f"{dot.policy.replace('_', ' ')}: {clock_text(dot.system_us)}", MOVED),
    ]


def picture() -> str:
    """Return the whole picture."""
    log = toll()
    told = transcript(log, POLICIES)
    released = ", ".join(f"{number}" for number, _, _ in told.released)
    held = ", ".join(f"{number}" for number, _, _ in told.held)
    parts = [*axes(), *tolerances(), *staircase(watermarks(log))]
    parts += [part for dot in dots(log) for part in event(dot)]
    parts.append(text(LEFT, HEIGHT - 22, f"Released, in this order: {released}. Still held: {held}."))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
            ' font-family="sans-serif" font-size="13">',
            "<title>Twelve events by arrival and event time, the watermark, and what the time policies do to each</title>",
            '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">',
            f'<path d="M0,0 L8,4 L0,8 z" fill="{MOVED}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture(), encoding="utf-8")
