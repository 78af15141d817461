"""
The reader's rule against a reader that hears one record at a time, and against the truth.

The naive reader follows the rule word for word and is compared over any log, sense or nonsense. The truth is what one
undisturbed run of the model wrote: writers that die in mid-write, start again from a checkpoint with other batches, or
go on writing when they should be gone must not change what a reader takes, wherever it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.naive_reader import Event, Heard, Line, log_columns, read_naively
from support.written_topics import STORY, Written, cti, nonsense, written

from ordering.errors import GapError, ProtocolError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.reader import PartitionReader, gap_error
from ordering.ticks import INFINITY


def read(
    lines: Sequence[Line],
    partition: int,
    output_partitions: int,
    start_us: int | None,
    cuts: Sequence[int] = (),
    saved: Sequence[bool] = (),
) -> tuple[PartitionReader, Heard]:
    """Read *lines* cut at these line numbers, saving and restoring before the ranges so marked."""
    reader, heard, kept = PartitionReader(partition, output_partitions, start_us), Heard(), list[Event]()
    edges = [0, *sorted(cuts), len(lines)]
    for (low, high), restored in zip(pairwise(edges), [*saved, *[False] * len(edges)], strict=False):
        if restored:
            reader = PartitionReader.restore(reader.save(), partition, output_partitions)
        log, events = log_columns(lines[low:high])
        accepted = reader.accept(log)
        rows = kept + events
        kept = [rows[row] for row in accepted.carried]
        heard.accepted += [(at, rows[row]) for at, row in zip(accepted.position.tolist(), accepted.rows.tolist(), strict=True)]
        heard.progress += accepted.progress
        heard.frontier += accepted.frontier
        heard.listed += accepted.listed
        heard.rosters += accepted.rosters
        assert accepted.finished == reader.finished
    return reader, heard


@given(nonsense(), st.none() | st.integers(0, 20), st.lists(st.integers(0, 60), max_size=6), st.lists(st.booleans(), max_size=8))
def test_any_log_cut_anywhere_reads_like_one_record_at_a_time(
    lines: list[Line], start_us: int | None, cuts: list[int], saved: list[bool]
) -> None:
    """Level 1: whole columns, any cuts, saved and restored, give what the naive reader hears; also over nonsense."""
    naive = read_naively(lines, 0, 1, start_us)
    reader, heard = read(lines, 0, 1, start_us, [min(cut, len(lines)) for cut in cuts], saved)
    assert heard == naive.heard
    assert reader.gaps == naive.gaps
    assert [channel for channel, _, _ in reader.blocked_channels()] == sorted(
        number for number, each in naive.channels.items() if each.waiting
    )
    assert reader.frontier == naive.frontier
    whole, _ = read(lines, 0, 1, start_us)
    assert (whole.duplicates, whole.save()) == (reader.duplicates, reader.save())


def test_no_start_and_no_cut_after_it_shows() -> None:
    """
    Level 1: begun at every instant, cut, saved and restored at every record, a reader hears what the naive one hears.

    The story has all that must be remembered: what a CTI has not confirmed yet, copies of what it has, stale CTIs, a promise that waits.
    """
    for start_us in (None, *range(99, 110)):
        naive = read_naively(STORY, 0, 1, start_us)
        for cut in range(len(STORY) + 1):
            reader, heard = read(STORY, 0, 1, start_us, [cut], [True, True])
            assert (heard, reader.frontier, reader.gaps) == (naive.heard, naive.frontier, naive.gaps), (start_us, cut)


def middle_of(lines: Sequence[Line], start_us: int, back: int = 0) -> list[Line]:
    """Return the log from the first record whose Kafka timestamp is not below X's millisecond, or *back* records before."""
    for at, (_, record) in enumerate(lines):
        if (record.largest_us if isinstance(record, Cti) else record.system_us) // 1000 >= start_us // 1000:
            return list(lines[max(at - back, 0) :])
    return list(lines[max(len(lines) - back, 0) :])


def check_promises(heard: Heard, least_us: int, truth: dict[int, list[Event]]) -> None:
    """No accepted event breaks a promise that stands before it, and each promise finds its events accepted."""
    for number, events in truth.items():
        rises = [(at, c) for at, channel, c in heard.progress if channel == number]
        for at, accepted in heard.accepted:
            if accepted.number == number:
                standing = [c for risen, c in rises if risen < at]
                assert not standing or accepted.system_us >= standing[-1]
        for risen, c in rises:
            promised = [each for each in events if least_us <= each.system_us < c]
            assert promised == [each for at, each in heard.accepted if each.number == number and at <= risen and each.system_us < c]


def channels_in(topic: Written, partition: int) -> dict[int, list[Event]]:
    """Return the true channels of an output partition."""
    return {number: events for (number, at), events in topic.truth.items() if at == partition}


@given(written(), st.lists(st.integers(0, 200), max_size=6), st.lists(st.booleans(), max_size=8))
def test_torn_writes_rewrites_and_zombies_change_nothing(topic: Written, cuts: list[int], saved: list[bool]) -> None:
    """Level 1: from the beginning a reader takes every channel's true sequence, each event once, and no promise is broken."""
    event(f"rewritten {topic.rewritten}")
    for partition, lines in enumerate(topic.partitions):
        reader, heard = read(lines, partition, len(topic.partitions), None, [min(cut, len(lines)) for cut in cuts], saved)
        truth = channels_in(topic, partition)
        for number, events in truth.items():
            assert [each for _, each in heard.accepted if each.number == number] == events
        assert (reader.gaps, reader.blocked_channels(), reader.missing()) == (0, [], [])
        assert len(heard.accepted) + reader.duplicates == sum(isinstance(record, Event) for _, record in lines)
        assert reader.finished == bool(lines)
        check_promises(heard, 0, truth)


@given(
    written(),
    st.integers(-30, 60),
    st.just(0) | st.integers(0, 20),
    st.lists(st.integers(0, 200), max_size=6),
    st.lists(st.booleans(), max_size=8),
)
def test_a_reader_in_the_middle_takes_exactly_the_events_from_x_on(
    topic: Written, ahead: int, back: int, cuts: list[int], saved: list[bool]
) -> None:
    """Level 1: started at time X, a reader takes each true event with s >= X once, in order, and no promise is broken."""
    times = sorted({each.system_us for events in topic.truth.values() for each in events} | {10**6})
    start_us = times[min(max(ahead, 0), len(times) - 1)] + min(ahead, 0)
    for partition, lines in enumerate(topic.partitions):
        rest = middle_of(lines, start_us, back)
        event(f"skipped {len(rest) < len(lines)}")
        reader, heard = read(rest, partition, len(topic.partitions), start_us, [min(cut, len(rest)) for cut in cuts], saved)
        late = {number: [each for each in events if each.system_us >= start_us] for number, events in channels_in(topic, partition).items()}
        for number, events in late.items():
            assert [each for _, each in heard.accepted if each.number == number] == events
        assert (reader.gaps, reader.blocked_channels()) == (0, [])
        check_promises(heard, start_us, late)


def test_a_stale_writer_after_the_start_does_not_open_a_gap_that_never_closes() -> None:
    """Level 1: events 7 to 9 lie before X and before the start; a zombie's 5, 6 and CTI must not make the reader wait for them."""
    lines: list[Line] = [
        (20, Event(1, 0, 100)),
        (21, Event(0, 5, 50)),
        (22, Event(0, 6, 60)),
        (23, cti(0, 61, 7, inputs=2)),
        (24, Event(0, 10, 110)),
        (25, cti(0, 111, 11, inputs=2)),
        (26, Event(0, 11, 120)),
    ]
    reader, heard = read(lines, 0, 1, 100)
    assert heard.accepted == [(25, Event(0, 10, 110)), (26, Event(0, 11, 120))]
    assert (reader.blocked_channels(), reader.missing()) == ([], [1])


def test_a_reader_in_the_middle_waits_for_a_cti_then_follows_the_log() -> None:
    """Level 1: events are collected until a CTI vouches for them; from the first c >= X on each is accepted upon itself."""
    lines: list[Line] = [
        (1, Event(0, 7, 105)),
        (2, Event(0, 6, 103)),
        (3, Event(0, 7, 105)),
        (4, cti(0, 103, 6)),
        (5, Event(0, 8, 104)),
        (6, cti(0, 104, 8)),
        (7, Event(0, 9, 106)),
        (8, Event(0, 9, 106)),
    ]
    reader, heard = read(lines, 0, 1, 104, cuts=[2, 3, 5], saved=[False, True, True, True])
    assert heard.accepted == [(6, Event(0, 7, 105)), (6, Event(0, 8, 104)), (7, Event(0, 9, 106))]
    assert heard.progress == [(4, 0, 103), (6, 0, 104)]
    assert reader.duplicates == 2


def test_nothing_is_final_before_every_channel_of_the_newest_roster_has_spoken() -> None:
    """A partition's frontier waits for each channel, and a longer roster holds it where it is."""
    lines: list[Line] = [
        (1, cti(0, 10, 0, inputs=2)),
        (2, cti(1, 5, 0, inputs=2)),
        (3, cti(1, 20, 0, version=2, inputs=3)),
        (4, cti(0, 30, 0, version=2, inputs=3)),
        (5, cti(2, 25, 0, version=2, inputs=3)),
        (6, cti(1, 40, 0, version=1, inputs=2)),
    ]
    reader, heard = read(lines, 0, 1, None)
    assert heard.frontier == [(2, 5), (5, 20), (6, 25)]
    middle, _ = read(lines[:4], 0, 1, None)
    assert (middle.missing(), middle.frontier, middle.c(1)) == ([2], 5, 20)
    assert reader.roster == Roster(2, 3, Spread.ALL, True)


def test_a_channel_alone_in_its_partition_asks_for_no_other() -> None:
    """Without OVER each partition hears only the input partitions that write into it."""
    promise = Cti(1, 1, 50, 0, 0, 0, 0, 0, Roster(1, 2, Spread.ONE, False), Cause.EVENT)
    _, heard = read([(9, promise)], 1, 2, None)
    assert heard.frontier == [(9, 50)]


def test_a_cti_counts_upon_the_event_that_completes_it_and_a_stale_one_never() -> None:
    """Level 1: a promise about events still missing waits, and one that says less than what is known is ignored."""
    lines: list[Line] = [
        (1, Event(0, 0, 1)),
        (2, cti(0, 9, 3)),
        (3, Event(0, 2, 3)),
        (4, Event(0, 1, 2)),
        (5, Event(0, 2, 3)),
        (6, cti(0, 4, 1)),
    ]
    reader, heard = read(lines, 0, 1, None)
    assert heard.progress == [(5, 0, 9)]
    assert [at for at, _ in heard.accepted] == [1, 4, 5]
    assert (reader.gaps, reader.duplicates) == (1, 0)


def test_a_gap_that_stays_is_named() -> None:
    """A CTI whose events never come is listed until they do, and its error says which events are missing where."""
    reader, _ = read([(1, Event(0, 0, 1)), (2, cti(0, 9, 3)), (3, cti(0, 12, 5))], 0, 1, None)
    assert reader.blocked_channels() == [(0, 3, 0)]
    error = gap_error("rides.ordered", 4, *reader.blocked_channels()[0])
    assert isinstance(error, GapError)
    assert (error.code, error.where) == ("TG-PROTOCOL-GAP", "rides.ordered-4")


def test_a_finished_channel_finishes_the_reader() -> None:
    """The final CTI of every channel ends the partition, also where it carries no event at all."""
    lines: list[Line] = [(1, cti(0, INFINITY, 0, inputs=2)), (2, Event(1, 0, 5)), (3, cti(1, INFINITY, 1, inputs=2))]
    assert [read(lines[:upto], 0, 1, None)[0].finished for upto in range(4)] == [False, False, False, True]


def test_a_rewrite_after_a_gap_is_accepted_from_the_first_missing_event() -> None:
    """Level 1: what lies beyond the gap is ignored, what was accepted before is skipped."""
    lines: list[Line] = [(offset, Event(0, seq, 10 + seq)) for offset, seq in enumerate([0, 1, 5, 1, 2, 3])]
    log, _ = log_columns(lines)
    reader = PartitionReader(0, 1)
    assert reader.accept(log).rows.tolist() == [0, 1, 4, 5]
    assert (reader.last(0), reader.duplicates, reader.gaps) == (3, 1, 1)


def test_a_state_of_another_version_is_refused() -> None:
    """A saved state that this program does not know is an error, never a guess."""
    for version in (b"0", b"2", b"99"):
        saved = PartitionReader(0, 1).save().replace(b'"version":1', b'"version":' + version)
        with pytest.raises(ProtocolError, match="saved state has version"):
            PartitionReader.restore(saved, 0, 1)


def test_a_saved_reader_goes_on_as_it_would_have() -> None:
    """A state of this version written down by hand: what an earlier build has saved is read after a change."""
    saved = b"""{"version":1,"start_us":100,"duplicates":3,"gaps":2,"frontier":104,"roster":[4,2,"all",true],
        "channels":[[0,true,6,107,[[55,9,120,[]],[57,8,110,[["6b",112]]]],[]],[1,false,-1,104,[],[[3,5],[9,10]]]],"parts":[]}"""
    reader = PartitionReader.restore(saved, 0, 1)
    assert (reader.duplicates, reader.gaps, reader.frontier, reader.roster) == (3, 2, 104, Roster(4, 2, Spread.ALL, True))
    assert (reader.blocked_channels(), reader.last(0), reader.c(1), reader.missing()) == ([(0, 8, 6)], 6, 104, [])
    log, _ = log_columns([(60, Event(0, 7, 111)), (61, Event(0, 8, 121)), (62, cti(1, 109, 5, version=4, inputs=2))])
    accepted = reader.accept(log)
    assert accepted.rows.tolist() == [3, 4, 0, 1]
    assert (accepted.carried.tolist(), accepted.listed) == ([], [(60, 0, b"k", 112)])
    assert accepted.progress == [(60, 0, 110), (61, 0, 120), (62, 1, 109)]
    assert accepted.frontier == [(62, 109)]


def test_a_list_takes_effect_with_the_cti_that_bears_it() -> None:
    """Level 1: at once if its events are accepted, upon the event that completes it if not; a saved reader remembers it."""
    lines: list[Line] = [
        (1, Event(0, 0, 5)),
        (2, cti(0, 4, 1, listed=((b"a", 9), (b"", 7)))),
        (3, cti(0, 5, 3, listed=((b"b", 8),))),
        (4, Event(0, 1, 6)),
        (5, Event(0, 2, 7)),
    ]
    _, heard = read(lines, 0, 1, None, cuts=[2, 3, 4], saved=[True] * 4)
    assert heard.listed == [(2, 0, b"a", 9), (2, 0, b"", 7), (5, 0, b"b", 8)]
    assert heard.progress == [(2, 0, 4), (5, 0, 5)]


def test_a_list_in_parts_takes_effect_with_the_last() -> None:
    """Level 1: before the last part nothing of the CTI counts, its roster neither; cuts between the parts change nothing."""
    parts = [cti(0, 9, 0, version=2, listed=((b"%d" % at, at),), part=at, parts=3) for at in range(3)]
    lines: list[Line] = [(1, parts[0]), (2, cti(1, 3, 0)), (3, parts[1]), (4, Event(0, 0, 9)), (5, parts[2])]
    reader, heard = read(lines, 0, 1, None, cuts=[1, 2, 3, 4], saved=[True] * 5)
    assert heard.listed == [(5, 0, b"0", 0), (5, 0, b"1", 1), (5, 0, b"2", 2)]
    assert heard.progress == [(2, 1, 3), (5, 0, 9)]
    assert [(at, roster.version) for at, roster in heard.rosters] == [(2, 1), (5, 2)]
    assert reader.frontier == 9


@pytest.mark.parametrize("between", [(0,), (1, 2), (0, 0, 2), (0, 2), (0, 1, 0, 2), (0, 1, 1, 2), (2,)])
def test_parts_out_of_turn_lose_the_list_and_nothing_else(between: tuple[int, ...]) -> None:
    """Level 1: c and n of the last part count all the same; a list that is whole later does too."""
    parts = [cti(0, 9, 0, listed=((b"%d" % at, at),), part=at, parts=3) for at in range(3)]
    _, heard = read([(at, parts[part]) for at, part in enumerate(between)], 0, 1, None)
    assert heard.listed == []
    assert heard.progress == ([(len(between) - 1, 0, 9)] if between[-1] == 2 else [])
    _, heard = read([(at, parts[part]) for at, part in enumerate((*between, 0, 1, 2))], 0, 1, None)
    assert [key for _, _, key, _ in heard.listed] == [b"0", b"1", b"2"]


def test_another_cti_between_the_parts_undoes_them() -> None:
    """Level 1: parts of two CTIs are never mixed, nor is one continued after another CTI of its channel."""
    first, last = (cti(0, 9, 0, listed=((b"k", 5),), part=part, parts=2) for part in (0, 1))
    for lines in ([first, cti(0, 4, 0), last], [first, replace(last, c=8)], [replace(first, ahead=1), last]):
        _, heard = read(list(enumerate(lines)), 0, 1, None)
        assert heard.listed == []
    assert read(list(enumerate([first, cti(1, 4, 0), last])), 0, 1, None)[1].listed == [(2, 0, b"k", 5), (2, 0, b"k", 5)]


def test_time_rises_once_upon_a_record() -> None:
    """A CTI that brings both a roster in which its channel is alone and a larger c is one step, wherever the log is cut."""
    lines: list[Line] = [(1, cti(0, 10, 0, inputs=2)), (2, cti(0, 30, 0, version=2, inputs=1))]
    for cuts in ([], [1]):
        assert read(lines, 0, 1, None, cuts)[1].frontier == [(2, 30)]


def test_input_partitions_that_join_hold_time_until_each_has_spoken() -> None:
    """Level 1: from the first CTI of the longer roster the frontier stands still, and it goes on from the least of all; never back."""
    lines: list[Line] = [
        (1, cti(0, 50, 0)),
        (2, cti(0, 60, 0, version=2, inputs=3)),
        (3, cti(1, 55, 0, version=2, inputs=3)),
        (4, cti(0, 70, 0)),
        (5, cti(2, 40, 0, version=2, inputs=3)),
        (6, cti(2, 56, 0, version=2, inputs=3)),
    ]
    reader, heard = read(lines, 0, 1, None)
    assert heard.frontier == [(1, 50), (6, 55)]
    assert [(at, roster.inputs) for at, roster in heard.rosters] == [(1, 1), (2, 3)]
    assert (read(lines[:4], 0, 1, None)[0].missing(), reader.missing()) == ([2], [])
