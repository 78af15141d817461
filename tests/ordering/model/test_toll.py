"""
The worked examples of the time model, by hand. Level 1.

The figures below were written down from the policies alone, not from a run.
"""

from __future__ import annotations

import csv
from dataclasses import replace

from support.repository import ROOT

from ordering.policies import Action, Policies
from ordering.testing import Record, Transcript, log_of, transcript
from ordering.ticks import MINUTE_US, SECOND_US

_POLICIES = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)
_HELD = [(11, "12:22", ""), (12, "12:22", "late"), (10, "12:23", "")]


def _toll() -> list[Record]:
    with (ROOT / "tests" / "golden" / "toll.csv").open(newline="") as lines:
        return log_of([(row["event_time"], row["arrival_time"], row["device"]) for row in csv.DictReader(lines)])


def _order(told: Transcript) -> list[int]:
    return [offset for offset, _, _ in told.released]


def test_one_timeline_adjusts_three_events_and_drops_an_early_one() -> None:
    """Level 1: event 3 is early, 6 and 9 are out of order, 12 is late; 11, 12 and 10 are still held at the end."""
    told = transcript(_toll(), _POLICIES)
    assert told.released == [
        (1, "12:07", ""),
        (2, "12:08", ""),
        (4, "12:08", ""),
        (6, "12:17", "out_of_order"),
        (7, "12:17", ""),
        (9, "12:18", "out_of_order"),
        (5, "12:19", ""),
        (8, "12:20", ""),
    ]
    assert told.held == _HELD
    assert told.dropped == [(3, "early")]


def test_without_the_early_policy_an_event_from_the_future_moves_the_watermark() -> None:
    """Level 1: event 3 lifts W to 12:15, so event 4 of 12:08 becomes 12:15."""
    told = transcript(_toll(), replace(_POLICIES, early_us=None))
    assert told.released[:4] == [(1, "12:07", ""), (2, "12:08", ""), (4, "12:15", "out_of_order"), (3, "12:17", "")]
    assert (told.held, told.dropped) == (_HELD, [])


def test_an_early_event_may_be_moved_back_instead_of_dropped() -> None:
    """Level 1: event 3 of 12:17 becomes 12:16 (12:11 and 5 minutes), which lifts W to 12:14: event 4 of 12:08 becomes that."""
    told = transcript(_toll(), replace(_POLICIES, early_action=Action.ADJUST))
    assert told.released[:4] == [(1, "12:07", ""), (2, "12:08", ""), (4, "12:14", "out_of_order"), (3, "12:16", "early")]
    assert (told.held, told.dropped) == (_HELD, [])


def test_over_device_adjusts_only_the_late_event() -> None:
    """Level 1: each device has its own watermark, so events 6 and 9 keep their times; the order differs too."""
    told = transcript(_toll(), _POLICIES, over=True)
    assert _order(told) == [1, 2, 4, 6, 7, 9, 8, 5]
    assert [event for event in told.released + told.held if event[2]] == [(12, "12:22", "late")]
    assert (told.held, told.dropped) == (_HELD, [(3, "early")])


def test_the_end_releases_everything_in_one_order() -> None:
    """Level 1: what is held at the end leaves by system time, then offset."""
    told = transcript(_toll(), _POLICIES, finish=True)
    assert (_order(told)[-3:], told.held) == ([11, 12, 10], [])


def test_late_and_reorder_tolerances_meet_in_one_stream() -> None:
    """Level 1: the second example: one event is lifted to its arrival less the late tolerance, one to the watermark."""
    log = log_of(
        [
            ("00:10:00", "00:10:40", ""),
            ("00:10:30", "00:10:41", ""),
            ("00:10:42", "00:10:42", ""),
            ("00:10:38", "00:10:43", ""),
            ("00:10:35", "00:10:45", ""),
        ]
    )
    told = transcript(log, Policies(late_us=15 * SECOND_US, reorder_us=5 * SECOND_US), finish=True)
    assert sorted(told.released) == [
        (1, "00:10:25", "late"),
        (2, "00:10:30", ""),
        (3, "00:10:42", ""),
        (4, "00:10:38", ""),
        (5, "00:10:37", "out_of_order"),
    ]


def test_a_transcript_reads_as_a_story() -> None:
    """Each line names the record, what was dropped or released upon it, and how far time has come."""
    told = transcript(log_of([("12:07", "12:07", "a"), ("12:20", "12:08", "a"), (None, "12:09", "")]), _POLICIES)
    assert str(told).splitlines() == [
        "   1 12:07 arriving 12:07 a: releases nothing; c = 12:05",
        "   2 12:20 arriving 12:08 a: dropped as early; releases nothing; c = 12:05",
        "   3 unreadable arriving 12:09: releases nothing; c = 12:05",
        "held: 1 at 12:07",
    ]
