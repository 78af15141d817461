"""
The pictures of docs/pictures: drawn anew they are the committed bytes, and what they show is what was written by hand.

Level 1. The files of tests/golden were written down from the policies alone, not from a run.
"""

from __future__ import annotations

import csv
import re
from xml.etree import ElementTree

import fates
import pytest
import staircase
import toll
from support.repository import ROOT

from ordering.policies import Policies
from ordering.testing import clock_text, log_of, tick
from ordering.ticks import MINUTE_US

PICTURES = ROOT / "docs" / "pictures"
GOLDEN = {name: {"toll": "toll.one_timeline", "seconds": "seconds.one_timeline"}.get(name, name) for name in toll.EXAMPLES}
"""Which hand-written story each picture tells."""
WATERMARKS = {
    "toll": "12:05 12:06 12:06 12:08 12:17 12:17 12:17 12:18 12:18 12:21 12:21 12:22",
    "toll.early_off": "12:05 12:06 12:15 12:15 12:17 12:17 12:17 12:18 12:18 12:21 12:21 12:22",
    "toll.early_adjust": "12:05 12:06 12:14 12:14 12:17 12:17 12:17 12:18 12:18 12:21 12:21 12:22",
    "toll.late_drop": "12:05 12:06 12:06 12:08 12:17 12:17 12:17 12:18 12:18 12:21 12:21 12:22",
    "toll.out_of_order_drop": "12:05 12:06 12:06 12:08 12:17 12:17 12:17 12:18 12:18 12:21 12:21 12:22",
    "toll.reorder_0": "12:07 12:08 12:08 12:08 12:19 12:19 12:19 12:20 12:20 12:23 12:23 12:23",
    "seconds": "00:10:25 00:10:26 00:10:37 00:10:37 00:10:37",
}
"""W after each event, worked out by hand: the larger of (largest time so far - reorder) and (arrival - late)."""
OVER_WATERMARKS = {
    "device1": "12:05 12:05 12:06 12:08 12:17 12:17 12:17 12:17 12:17 12:17 12:19 12:22",
    "device2": "12:02 12:06 12:06 12:08 12:11 12:12 12:15 12:18 12:18 12:21 12:21 12:22",
    "device3": "12:02 12:03 12:06 12:08 12:11 12:12 12:13 12:14 12:16 12:17 12:19 12:22",
}
SENTENCE = re.compile(
    r"Event (?P<number>\d+)(?: of \w+)?, (?P<event>\S+) arriving (?P<arrival>\S+): (?:dropped as (?P<reason>[a-z ]+)"
    r"|(?:(?P<policies>[a-z ]+), adjusted to|kept at) (?P<system>\S+), (?:released upon event (?P<upon>\d+)|(?P<held>held)))"
)
"""What a picture says of an event to whoever cannot see it."""


def golden(name: str) -> list[tuple[str, int, str, str]]:
    """Return a hand-written story: (outcome, event number, system time, policies), in release order, dropped ones last."""
    with (ROOT / "tests" / "golden" / f"{GOLDEN[name]}.csv").open(newline="") as lines:
        return [(row["outcome"], int(row["event_no"]), row["system_time"], row["policies"]) for row in csv.DictReader(lines)]


@pytest.mark.parametrize("name", toll.EXAMPLES)
def test_a_picture_drawn_anew_has_the_committed_bytes(name: str) -> None:
    """A changed model must not leave an old picture behind: run ``python docs/pictures/toll.py``."""
    assert toll.picture(name).encode() == (PICTURES / f"{name}.svg").read_bytes()


def test_every_committed_picture_is_drawn_by_code() -> None:
    """Nothing in the folder was drawn by hand, and each picture is small."""
    files = {path.stem: path.stat().st_size for path in PICTURES.glob("*.svg")}
    assert files.keys() == toll.EXAMPLES.keys()
    assert max(files.values()) < 30_000


@pytest.mark.parametrize("name", toll.EXAMPLES)
def test_what_a_picture_is_drawn_from_is_the_story_written_by_hand(name: str) -> None:
    """Level 1: the events released and held, in order, with their times and policies, and those dropped."""
    walked = toll.walked(name)
    rows = [
        (outcome, number, clock_text(walked.fates[number].system_us or 0), "+".join(walked.fates[number].policies).replace(" ", "_"))
        for outcome, numbers in (("released", walked.released), ("held", walked.held))
        for number in numbers
    ]
    rows += [("dropped", fate.number, "", fate.policies[0].replace(" ", "_")) for fate in walked.fates.values() if fate.system_us is None]
    assert rows == golden(name)


@pytest.mark.parametrize("name", WATERMARKS)
def test_the_staircase_is_the_one_worked_out_by_hand(name: str) -> None:
    """Level 1: the watermark after each event."""
    assert list(toll.walked(name).stairs) == [""]
    assert stair_text(name, "") == WATERMARKS[name]


@pytest.mark.parametrize("device", OVER_WATERMARKS)
def test_each_substream_has_the_staircase_worked_out_by_hand(device: str) -> None:
    """Level 1: a device's own largest time less 2 minutes, or the floor that all arrivals lift."""
    assert stair_text("toll.over_device", device) == OVER_WATERMARKS[device]


def stair_text(name: str, timeline: str) -> str:
    """Return a timeline's watermark after each event of a picture's log."""
    steps = dict(toll.walked(name).stairs[timeline])
    texts: list[str] = []
    for record in toll.log(toll.EXAMPLES[name].log):
        texts.append(clock_text(steps[record.arrival_us]) if record.arrival_us in steps else texts[-1])
    return " ".join(texts)


@pytest.mark.parametrize("name", toll.EXAMPLES)
def test_an_event_is_released_by_the_first_record_that_lifts_its_watermark_above_it(name: str) -> None:
    """Level 1: what ends a thin line of the picture is the staircase itself."""
    walked = toll.walked(name)
    for fate in walked.fates.values():
        if fate.system_us is not None:
            above = [arrival_us for arrival_us, w_us in walked.stairs[fate.timeline] if w_us > fate.system_us]
            assert (fate.left[1] if fate.left else None) == (above[0] if above else None)


@pytest.mark.parametrize("name", toll.EXAMPLES)
def test_a_picture_tells_in_words_what_it_shows(name: str) -> None:
    """Title and description stand for the picture where it cannot be seen; they tell the story written by hand."""
    root = ElementTree.fromstring((PICTURES / f"{name}.svg").read_text("utf-8"))
    space = {"svg": "http://www.w3.org/2000/svg"}
    assert root.get("aria-labelledby") == "title desc"
    assert root.findtext("svg:title", namespaces=space) == toll.EXAMPLES[name].title
    said = {int(told["number"]): told for told in SENTENCE.finditer(root.findtext("svg:desc", "", space))}
    assert {group.findtext("svg:title", namespaces=space) for group in root.findall("svg:g", space)} == {told[0] for told in said.values()}
    for outcome, number, system_time, policies in golden(name):
        told = said.pop(number)
        assert ("dropped" if told["reason"] else "held" if told["held"] else "released") == outcome
        assert (told["system"] or "") == system_time
        assert (told["reason"] or told["policies"] or "").replace(" and ", "+").replace(" ", "_") == policies
    assert not said


def test_a_picture_is_readable_on_a_dark_page() -> None:
    """Every colour that a picture uses has a value for dark pages; none stands outside the style."""
    for name in toll.EXAMPLES:
        drawn = toll.picture(name)
        light, dark = re.findall(r"<style>(.*)\n@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", drawn)[0]
        assert set(re.findall(r"\.([fs]-\w+)\{", light)) == set(re.findall(r"\.([fs]-\w+)\{", dark))
        assert {use for uses in re.findall(r'class="([^"]*)"', drawn) for use in uses.split()} <= set(re.findall(r"\.([fs]-\w+)\{", light))
        assert "#" not in re.sub(r"<style>.*?</style>", "", drawn, flags=re.DOTALL)


def test_another_log_gives_another_picture() -> None:
    """The frame is chosen, the rest is not: an event more is an event more in the picture."""
    log = [*toll.log("toll"), *log_of([("12:28", "12:29", "device1")], first_offset=13)]
    walked = fates.walk(log, Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US), over=False)
    assert walked.released[-3:] == [11, 12, 10]
    assert walked.stairs[""][-1] == (tick("12:29"), tick("12:26"))
    assert "Still held: 13." in staircase.picture(walked, toll.TOLL_FRAME, "one more")
