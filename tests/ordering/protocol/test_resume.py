"""
Where a writer goes on: the last valid CTI of each channel, against the naive reader and against the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from support.naive_reader import Event, Line, log_columns, read_naively
from support.written_topics import STORY, Written, cti, nonsense, written

from ordering.protocol.punctuation import Cti
from ordering.protocol.resume import LastPromises, last_promises


def walk(lines: Sequence[Line], cuts: Sequence[int] = (), from_beginning: bool = True, partitions: int = 1) -> LastPromises:
    """Walk *lines* cut at these line numbers."""
    found = LastPromises(0, partitions, from_beginning=from_beginning)
    for low, high in pairwise([0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]):
        found.accept(log_columns(lines[low:high])[0])
    return found


@given(nonsense(), st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_the_last_valid_cti_is_the_largest_that_counts(lines: list[Line], cuts: list[int], whole: bool) -> None:
    """Level 1: over any log and any cuts, the CTI found is the one that the naive reader counts with the largest (c, n)."""
    naive = read_naively(lines, 0, 1, None if whole else -(2**62))
    expected = {number: channel.valid for number, channel in naive.channels.items() if channel.valid}
    assert walk(lines, cuts, whole).promises == expected
    assert last_promises(log_columns(lines)[0], 0, 1, from_beginning=whole) == expected


def test_no_cut_shows() -> None:
    """Level 1: a CTI that waits for its events counts wherever the walk is cut before they come."""
    for until in range(len(STORY) + 1):
        naive = read_naively(STORY[:until], 0, 1, None)
        expected = {number: channel.valid for number, channel in naive.channels.items() if channel.valid}
        assert all(walk(STORY[:until], [cut]).promises == expected for cut in range(until)), until


@given(written(), st.integers(0, 300))
def test_a_writer_that_resumes_anywhere_goes_on_as_if_it_had_never_stopped(topic: Written, until: int) -> None:
    """Level 1: of the true channel, what is left from (c, n, ahead) on begins with number n, wherever the log breaks off."""
    for partition, lines in enumerate(topic.partitions):
        log, _ = log_columns(lines[:until])
        for number, promise in last_promises(log, partition, len(topic.partitions)).items():
            left = [each for each in topic.truth.get((number, partition), []) if each.system_us >= promise.c]
            assert [each.seq for each in left[promise.ahead :]] == list(range(promise.n, promise.n + len(left) - promise.ahead))


def test_a_cti_whose_events_were_lost_is_not_valid() -> None:
    """The channel resumes below what is missing, and a channel without a valid CTI is named."""
    lost: list[Line] = [(1, Event(0, 0, 5)), (2, cti(0, 5, 1, inputs=2)), (3, cti(0, 9, 3, inputs=2)), (4, cti(1, 9, 1, inputs=2))]
    found = walk(lost)
    assert found.promises == {0: cti(0, 5, 1, inputs=2)}
    assert found.missing() == [1]
    assert found.roster == cti(0, 5, 1, inputs=2).roster


def test_a_stale_cti_behind_the_last_valid_one_is_passed_over() -> None:
    """A writer that should be gone may have written last; of equal c the larger n counts, and of a CTI in parts the last part."""
    parts: list[Cti] = [cti(0, 7, 1, listed=((b"k", 9),), part=part, parts=2) for part in (0, 1)]
    lines: list[Line] = [(1, Event(0, 0, 6)), (2, cti(0, 7, 0)), (3, parts[0]), (4, parts[1]), (5, cti(0, 4, 0))]
    assert walk(lines).promises == {0: parts[1]}
    assert walk(lines[:3]).promises == {0: cti(0, 7, 0)}


def test_where_the_beginning_was_deleted_the_first_cti_is_believed() -> None:
    """What stands below its n is no longer there to be accepted, but was acknowledged when it was written."""
    rest: list[Line] = [(70, Event(0, 30, 6)), (71, cti(0, 7, 31)), (72, cti(0, 9, 33)), (73, Event(0, 31, 8))]
    assert walk(rest).promises == {}
    assert walk(rest, from_beginning=False).promises == {0: cti(0, 7, 31)}
