"""
Draw what the time model makes of a short log: events by arrival and event time, and the watermark as a staircase.

Law: the bytes of a picture are a function of the walk (see fates.py) and of the frame, the times its axes span. Lines mean
the same in each: a thin line goes from an event to where the staircase passed it, an arrow from its event time to its system
timestamp, a cross stands for a dropped one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import atan2, degrees

from fates import Fate, Walk

from ordering.policies import Policies
from ordering.testing import clock_text
from ordering.ticks import MINUTE_US, format_duration

WIDTH, HEIGHT = 860, 600
LEFT, RIGHT, TOP, BOTTOM = 72, 26, 36, 124

PALETTE = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "grid": ("#eaeef2", "#21262d"),
    "water": ("#0969da", "#4493f8"),
    "kept": ("#1a7f37", "#3fb950"),
    "moved": ("#bc4c00", "#f0883e"),
    "dropped": ("#cf222e", "#f85149"),
    "first": ("#0969da", "#4493f8"),
    "second": ("#8250df", "#ab7df8"),
    "third": ("#0a7a7a", "#39c5cf"),
}
"""Colours on light and on dark paper. The last three are those of substreams, in the order of their first events."""
SUBSTREAMS = ("first", "second", "third")


@dataclass(frozen=True)
class Frame:
    """The part of time that a picture shows: (first, last, from mark to mark) of both axes, microseconds."""

    arrival_us: tuple[int, int, int]
    event_us: tuple[int, int, int]

    def x(self, arrival_us: int) -> float:
        """Return where an arrival stands on the page."""
        first, last, _ = self.arrival_us
        return LEFT + (WIDTH - LEFT - RIGHT) * (arrival_us - first) / (last - first)

    def y(self, event_us: int) -> float:
        """Return where an event time stands on the page; times below the frame stand on its edge."""
        first, last, _ = self.event_us
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (max(event_us, first) - first) / (last - first)


def picture(walked: Walk, frame: Frame, title: str) -> str:
    """Return the picture as SVG text."""
    several = list(walked.stairs) if len(walked.stairs) > 1 else []
    parts = _axes(frame)
    for place, (name, steps) in enumerate(walked.stairs.items()):
        parts += _staircase(steps, frame, SUBSTREAMS[place] if several else "water", 6.5 - 2.5 * place if several else 2.5, not several)
        parts += _legend(name, place) if several else []
    parts += _limits(walked.policies, frame)
    parts += [_waiting(fate, frame, _colour(fate, several)) for fate in walked.fates.values() if fate.system_us is not None]
    parts += [part for fate in walked.fates.values() for part in _event(fate, frame, several)]
    parts += _strip(walked, frame)
    parts.append(_text(8, HEIGHT - 14, f"{_outcome(walked)} {_ends(walked)}"))
    body = "\n".join(parts)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
            ' font-family="sans-serif" font-size="13" role="img" aria-labelledby="title desc">',
            f'<title id="title">{title}</title>',
            f'<desc id="desc">{_told(walked)}</desc>',
            _style(body),
            f'<rect width="{WIDTH}" height="{HEIGHT}" class="f-paper"/>',
            body,
            "</svg>\n",
        ]
    )


_HALO = ' stroke-width="3" paint-order="stroke" stroke-linejoin="round"'
"""Extras of words that may stand on lines; the stroke has the colour of the paper."""


def _axes(frame: Frame) -> list[str]:
    bottom, right, parts = frame.y(frame.event_us[0]), frame.x(frame.arrival_us[1]), []
    for time in range(frame.event_us[0], frame.event_us[1] + 1, frame.event_us[2]):
        parts.append(_line([(LEFT, frame.y(time)), (right, frame.y(time))], "grid"))
        parts.append(_text(LEFT - 8, frame.y(time) + 4, _clock(time, frame), extra='text-anchor="end"'))
    for time in range(frame.arrival_us[0], frame.arrival_us[1] + 1, frame.arrival_us[2]):
        parts.append(_line([(frame.x(time), bottom), (frame.x(time), bottom + 5)], "soft"))
        parts.append(_text(frame.x(time), bottom + 20, _clock(time, frame), extra='text-anchor="middle"'))
    parts.append(_line([(LEFT, TOP), (LEFT, bottom), (right, bottom)], "soft"))
    parts.append(_text(right - 4, bottom - 8, "arrival time", extra='text-anchor="end" font-style="italic"'))
    parts.append(_text(8, TOP - 16, "event time, and system timestamp", extra='font-style="italic"'))
    return parts


def _clock(time_us: int, frame: Frame) -> str:
    """Write a time without its hours where the marks stand closer than minutes."""
    text = clock_text(time_us)
    return text if frame.event_us[2] >= MINUTE_US else (text if len(text) > 5 else f"{text}:00")[3:]


def _limits(policies: Policies, frame: Frame) -> list[str]:
    """Return three slanting lines: on time in the middle, above it where early begins, below it where late begins."""
    lines = [(0, "on time", "1 5")]
    if policies.early_us is not None:
        lines.append((policies.early_us, f"early: above arrival + {format_duration(policies.early_us)}", "5 4"))
    if policies.late_us is not None:
        lines.append((-policies.late_us, f"late: below arrival - {format_duration(policies.late_us)}", "5 4"))
    parts = []
    for shift_us, words, dashes in lines:
        low, high = max(frame.arrival_us[0], frame.event_us[0] - shift_us), min(frame.arrival_us[1], frame.event_us[1] - shift_us)
        start, end = (frame.x(low), frame.y(low + shift_us)), (frame.x(high), frame.y(high + shift_us))
        parts.append(_line([start, end], "soft", f'stroke-dasharray="{dashes}"'))
        slope = degrees(atan2(end[1] - start[1], end[0] - start[0]))
        along = 0.04 if shift_us < 0 else 0.97
        across, up = start[0] + along * (end[0] - start[0]), start[1] + along * (end[1] - start[1]) + (15 if shift_us <= 0 else -6)
        anchor = "start" if shift_us < 0 else "end"
        turned = f'text-anchor="{anchor}" transform="rotate({slope:.1f} {across:.1f} {up:.1f})"'
        parts.append(_text(across, up, words, "soft", turned + _HALO))
    return parts


def _staircase(steps: list[tuple[int, int]], frame: Frame, colour: str, width: float, alone: bool) -> list[str]:
    """Return the watermark as it stood at each moment; where it is the only one also the times below it, which are over."""
    bottom = frame.y(frame.event_us[0])
    corners = [(frame.x(steps[0][0]), bottom)]
    for arrival_us, watermark_us in steps:
        corners += [(frame.x(arrival_us), corners[-1][1]), (frame.x(arrival_us), frame.y(watermark_us))]
    corners.append((frame.x(frame.arrival_us[1]), corners[-1][1]))
    line = _line(corners[1:], colour, f'stroke-width="{width:g}" stroke-linejoin="round"')
    if not alone:
        return [line]
    area = " ".join(f"{across:.1f},{up:.1f}" for across, up in [*corners, (corners[-1][0], bottom)])
    return [
        f'<polygon points="{area}" class="f-{colour}" fill-opacity="0.09"/>',
        line,
        _text(corners[-1][0] - 4, bottom - 28, "below the watermark: over", colour, 'text-anchor="end"'),
    ]


def _legend(name: str, place: int) -> list[str]:
    up = TOP + 16 + 22 * place
    return [
        _line([(LEFT + 14, up), (LEFT + 54, up)], SUBSTREAMS[place], f'stroke-width="{6.5 - 2.5 * place:g}"'),
        _SHAPES[place](LEFT + 34, up, f'class="f-{SUBSTREAMS[place]}"'),
        _text(LEFT + 64, up + 5, f"{name} and its watermark", SUBSTREAMS[place]),
    ]


def _colour(fate: Fate, several: list[str]) -> str:
    if fate.system_us is None:
        return "dropped"
    if several:
        return SUBSTREAMS[several.index(fate.timeline)]
    return "kept" if fate.system_us == fate.event_us else "moved"


def _waiting(fate: Fate, frame: Frame, colour: str) -> str:
    """Return a thin line from an event to where the staircase passed it, or to the edge if it is held at the end."""
    assert fate.system_us is not None
    up, start = frame.y(fate.system_us), frame.x(fate.arrival_us)
    if fate.left is None:
        return _line([(start, up), (frame.x(frame.arrival_us[1]), up)], colour, 'stroke-dasharray="2 3"')
    end = frame.x(fate.left[1])
    return _line([(start, up), (end, up), (end, up - 5), (end, up + 5)], colour, 'stroke-width="1.2"')


def _circle(across: float, up: float, paint: str) -> str:
    return f'<circle cx="{across:.1f}" cy="{up:.1f}" r="5" {paint}/>'


def _square(across: float, up: float, paint: str) -> str:
    return f'<rect x="{across - 4.5:.1f}" y="{up - 4.5:.1f}" width="9" height="9" {paint}/>'


def _diamond(across: float, up: float, paint: str) -> str:
    return f'<path d="M{across:.1f},{up - 6.5:.1f} l6.5,6.5 l-6.5,6.5 l-6.5,-6.5 z" {paint}/>'


_SHAPES: tuple[Callable[[float, float, str], str], ...] = (_circle, _square, _diamond)


def _event(fate: Fate, frame: Frame, several: list[str]) -> list[str]:
    """Return an event with its number; if it was adjusted, an arrow from its event time to its system timestamp."""
    across, up, colour = frame.x(fate.arrival_us), frame.y(fate.event_us), _colour(fate, several)
    shape = _SHAPES[several.index(fate.timeline) if several else 0]
    name = _text(across + 10, up + (16 if fate.system_us == fate.event_us else 5), str(fate.number), extra='font-weight="bold"' + _HALO)
    beside = across + 14 + 9 * len(str(fate.number))
    open_group, what = f"<g><title>{_sentence(fate)}</title>", ", ".join(fate.policies)
    if fate.system_us is None:
        cross = f'<path d="M{across - 5:.1f},{up - 5:.1f} l10,10 m0,-10 l-10,10" class="s-dropped" stroke-width="2.5"/>'
        return [open_group, cross, name, _text(beside, up + 5, f"{what}: dropped", "dropped", _HALO), "</g>"]
    if fate.system_us == fate.event_us:
        return [open_group, shape(across, up, f'class="f-{colour}"'), name, "</g>"]
    there = frame.y(fate.system_us)
    tip = f'<path d="M{across:.1f},{there + 5:.1f} l4.5,8 l-9,0 z" class="f-moved"/>'
    return [
        open_group,
        _line([(across, up - 5), (across, there + 12)], "moved", 'stroke-width="1.5"'),
        tip,
        shape(across, up, f'class="f-paper s-{colour}" stroke-width="2"'),
        shape(across, there, f'class="f-{colour}"'),
        name,
        _text(beside, up + 5, f"{what}: {_clock(fate.system_us, frame)}", "moved", _HALO),
        "</g>",
    ]


def _strip(walked: Walk, frame: Frame) -> list[str]:
    """Return two rows below the axis: which event arrives at each moment, and which leave upon it."""
    arrives, leaves = frame.y(frame.event_us[0]) + 46, frame.y(frame.event_us[0]) + 68
    parts = [_text(8, arrives, "arrives"), _text(8, leaves, "releases")]
    for fate in walked.fates.values():
        across = frame.x(fate.arrival_us)
        gone = [number for number in walked.released if walked.fates[number].left == (fate.number, fate.arrival_us)]
        parts.append(_text(across, arrives, str(fate.number), extra='text-anchor="middle" font-weight="bold"'))
        if gone:
            parts.append(_text(across, leaves, " ".join(map(str, gone)), extra='text-anchor="middle"'))
    return parts


def _outcome(walked: Walk) -> str:
    dropped = [fate.number for fate in walked.fates.values() if fate.system_us is None]
    told = f"Released, in this order: {_numbers(walked.released)}. Still held: {_numbers(walked.held)}."
    return f"{told} Dropped: {_numbers(dropped)}." if dropped else told


def _ends(walked: Walk) -> str:
    last = {name: clock_text(steps[-1][1]) for name, steps in walked.stairs.items()}
    if len(set(last.values())) == 1:
        return f"Watermark at the end: {next(iter(last.values()))}."
    return f"Watermarks at the end: {', '.join(f'{name} {time}' for name, time in last.items())}."


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _told(walked: Walk) -> str:
    """Return the whole picture in words."""
    return " ".join([*(f"{_sentence(fate)}." for fate in walked.fates.values()), _outcome(walked), _ends(walked)])


def _sentence(fate: Fate) -> str:
    """Return what became of an event in one sentence, without its full stop."""
    event = f"Event {fate.number}{' of ' + fate.timeline if fate.timeline else ''}, {clock_text(fate.event_us)}"
    came = f"{event} arriving {clock_text(fate.arrival_us)}"
    if fate.system_us is None:
        return f"{came}: dropped as {fate.policies[0]}"
    moved = f"{' and '.join(fate.policies)}, adjusted to" if fate.policies else "kept at"
    return f"{came}: {moved} {clock_text(fate.system_us)}, {f'released upon event {fate.left[0]}' if fate.left else 'held'}"


def _line(points: list[tuple[float, float]], colour: str, extra: str = "") -> str:
    path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
    return f'<polyline points="{path}" fill="none" class="s-{colour}" {extra}/>'.replace(" />", "/>")


def _text(across: float, up: float, words: str, colour: str = "ink", extra: str = "") -> str:
    paint = f"f-{colour} s-paper" if _HALO in extra else f"f-{colour}"
    return f'<text x="{across:.1f}" y="{up:.1f}" class="{paint}" {extra}>{words}</text>'.replace(" >", ">").replace("  ", " ")


def _style(body: str) -> str:
    """Return the colours that are used: GitHub and browsers choose the dark ones where the reader has a dark page."""
    used = [name for name in PALETTE if name == "paper" or f"f-{name}" in body or f"s-{name}" in body]
    light, dark = (
        "".join(f".f-{name}{{fill:{PALETTE[name][shade]}}}.s-{name}{{stroke:{PALETTE[name][shade]}}}" for name in used) for shade in (0, 1)
    )
    return f"<style>{light}\n@media (prefers-color-scheme:dark){{{dark}}}</style>"
