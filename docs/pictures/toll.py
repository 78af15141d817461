"""
Draw the worked examples of the time model: toll.svg, the front page's, and one picture for each variant of the tutorial.

Usage: python docs/pictures/toll.py. Nothing is placed by hand: times, verdicts and watermarks come from the model.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import fates
import staircase

from ordering.policies import Action, Policies
from ordering.testing import Record, log_of, tick
from ordering.ticks import MINUTE_US, SECOND_US

ROOT = Path(__file__).resolve().parents[2]
TOLL = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)
SECONDS = Policies(late_us=15 * SECOND_US, reorder_us=5 * SECOND_US)
TOLL_FRAME = staircase.Frame((tick("12:06"), tick("12:34"), 2 * MINUTE_US), (tick("12:00"), tick("12:26"), 2 * MINUTE_US))
SECONDS_FRAME = staircase.Frame((tick("00:10:39"), tick("00:10:48"), SECOND_US), (tick("00:09:55"), tick("00:10:50"), 5 * SECOND_US))


@dataclass(frozen=True)
class Example:
    """A picture: the log it shows (a file of tests/golden), under which policies, and what it is called."""

    log: str
    policies: Policies
    over: bool
    frame: staircase.Frame
    title: str


EXAMPLES = {
    "toll": Example(
        "toll", TOLL, False, TOLL_FRAME, "Twelve events by arrival and event time, the watermark, and what the time policies do to each"
    ),
    "toll.early_off": Example("toll", replace(TOLL, early_us=None), False, TOLL_FRAME, "The same twelve events with the early policy off"),
    "toll.early_adjust": Example(
        "toll", replace(TOLL, early_action=Action.ADJUST), False, TOLL_FRAME, "The same twelve events, early ones moved back"
    ),
    "toll.over_device": Example("toll", TOLL, True, TOLL_FRAME, "The same twelve events with a watermark for each device"),
    "toll.late_drop": Example(
        "toll", replace(TOLL, late_action=Action.DROP), False, TOLL_FRAME, "The same twelve events, late ones dropped"
    ),
    "toll.out_of_order_drop": Example(
        "toll", replace(TOLL, out_of_order_action=Action.DROP), False, TOLL_FRAME, "The same twelve events, those out of order dropped"
    ),
    "toll.reorder_0": Example("toll", replace(TOLL, reorder_us=0), False, TOLL_FRAME, "The same twelve events without a reorder tolerance"),
    "seconds": Example("seconds", SECONDS, False, SECONDS_FRAME, "Five events: one is late, one is out of order"),
}
"""By file name, without its end."""


def log(name: str) -> list[Record]:
    """Return the events of a file of tests/golden; their offsets are the event numbers."""
    with (ROOT / "tests" / "golden" / f"{name}.csv").open(newline="") as lines:
        return log_of([(row["event_time"], row["arrival_time"], row["device"]) for row in csv.DictReader(lines)])


def walked(name: str) -> fates.Walk:
    """Return what the model makes of an example."""
    example = EXAMPLES[name]
    return fates.walk(log(example.log), example.policies, example.over)


def picture(name: str = "toll") -> str:
    """Return an example's picture."""
    return staircase.picture(walked(name), EXAMPLES[name].frame, EXAMPLES[name].title)


if __name__ == "__main__":
    for name in EXAMPLES:
        (Path(__file__).parent / f"{name}.svg").write_text(picture(name), encoding="utf-8")
