"""The checks of the query campaign notice what they are there for: a byte, a result missing, doubled or moved, an end not told."""

from __future__ import annotations

import pytest
from faults.query_told import Told, check_results
from support.bucket_runs import Row
from support.law_breaches import BrokenLawError
from support.stack.topics import Event, Ordered

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY

A, B = [(10, b"a", b"1"), (20, b"a", b"3"), (20, b"a", b"5")], [(10, b"b", b"2"), (20, b"b", b"4")]
LINE = sorted(A + B)
BUCKETS, MERGED = Told({"out": [A, B]}, True, set()), Told({"out": [LINE]}, False, set())


def found(*buckets: list[Row], ended: bool = True) -> Ordered:
    """Return a result topic that holds such rows."""
    topic = Ordered()
    for at, rows in enumerate(buckets):
        roster = Roster(1, len(buckets), Spread.ONE, True)
        end = Cti(at, at, INFINITY if ended else 5, len(rows) if ended else 0, 0, 0, 0, 0, roster, Cause.EVENT)
        topic.events[at, at] = [Event(seq, us, us, us, 0, 0, key, value, 0) for seq, (us, key, value) in enumerate(rows)]
        topic.ctis[at, at] = [(end, len(rows))]
        topic.arrived[at] = []
    return topic


def test_what_is_told_passes() -> None:
    """In its buckets, merged in one, spread over several, as a beginning, and from S on in any order of substreams."""
    assert check_results("out", found(A, B), BUCKETS, whole=True) == 5
    assert check_results("out", found(LINE), MERGED, whole=True) == 5
    assert check_results("out", found(A, B), MERGED, whole=True) == 5
    assert check_results("out", found(A[:1], B, ended=False), BUCKETS, whole=False) == 3
    assert check_results("out", found(A[1:][::-1], B[1:]), BUCKETS.since(20), whole=True, from_start=True) == 3


WRONG = {
    "another byte": [A, [B[0], (20, b"b", b"9")]],
    "another key": [A, [B[0], (20, b"c", b"4")]],
    "another time": [A, [(11, b"b", b"2"), B[1]]],
    "moved": [[A[0], A[2], A[1]], B],
    "missing": [A[:2], B],
    "missing in the middle": [[A[0], A[2]], B],
    "doubled": [A, [B[0], *B]],
    "made up": [[*A, (30, b"a", b"7")], B],
    "in another bucket": [[*A, B[1]], B[:1]],
}


@pytest.mark.parametrize("what", WRONG)
def test_anything_else_does_not(what: str) -> None:
    """With OVER; and without, where results are spread over buckets."""
    with pytest.raises(AssertionError):
        check_results("out", found(*WRONG[what]), BUCKETS, whole=True)
    if what != "in another bucket":
        with pytest.raises(AssertionError):
            check_results("out", found(*WRONG[what]), MERGED, whole=True)


def test_what_is_wrong_is_seen_before_the_end_too() -> None:
    """Between kills only the end may be missing."""
    with pytest.raises(BrokenLawError, match="same bytes"):
        check_results("out", found(A[1:], B, ended=False), BUCKETS, whole=False)
    with pytest.raises(BrokenLawError, match="same bytes"):
        check_results("out", found([A[1], A[0]], B, ended=False), MERGED, whole=False)


def test_an_end_that_is_not_told_is_missed() -> None:
    """A job that has stopped before its input."""
    with pytest.raises(BrokenLawError, match="the end is told"):
        check_results("out", found(A, B, ended=False), BUCKETS, whole=True)


def test_a_suffix_with_what_lies_before_it_is_none() -> None:
    """And one that lacks a result is none."""
    for rows in (A, A[:1], A[1:2]):
        with pytest.raises(BrokenLawError, match="suffix"):
            check_results("out", found(rows, B[1:]), BUCKETS.since(20), whole=True, from_start=True)
