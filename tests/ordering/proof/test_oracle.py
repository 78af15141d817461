"""The oracle by worked examples and one sentence for each rule of the time model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import compute_story, murmur2, partition_of
from support.story import Dropped, Story
from support.strategies import KEYS, TOLL_VARIANTS, Case, cases, clock_text, toll_expected, toll_records

from ordering.errors import SettingError
from ordering.policies import Action, Policies
from ordering.testing import Record
from ordering.ticks import INFINITY, NEVER

START_US = 1_000_000
EXACT = Policies(early_us=None, late_us=10, late_action=Action.ADJUST, reorder_us=0, out_of_order_action=Action.ADJUST)


def log(*events: tuple[int, int | None] | tuple[int, int | None, bytes]) -> list[Record]:
    """Return a log of (arrival, event time, perhaps key), times in ticks after START_US, at offsets 0, 1, 2, ..."""
    return [
        Record(offset, START_US + event[0], None if event[1] is None else START_US + event[1], event[2] if len(event) > 2 else b"")
        for offset, event in enumerate(events)
    ]


def told(records: list[Record], policies: Policies = EXACT, *, over: bool = False, finish: bool = False, **estimates: int) -> Story:
    """Tell a log over one output partition; estimates are given as ``at3=frontier`` in ticks after START_US."""
    heard = {int(name[2:]): START_US + frontier for name, frontier in estimates.items()}
    return compute_story(records, policies, over=over, output_partitions=1, estimates=heard, finish=finish)


def out(story: Story) -> list[tuple[int, int]]:
    """Return (offset, system timestamp in ticks after START_US) of every released event."""
    return [(event.offset, event.system_us - START_US) for event in story.ordered]


@pytest.mark.parametrize("variant", TOLL_VARIANTS)
def test_the_golden_log_comes_out_as_written_by_hand(variant: str) -> None:
    """Level 1: the worked example of the time model in its three variants."""
    policies, over = TOLL_VARIANTS[variant]
    walked = compute_story(toll_records(), policies, over=over, output_partitions=1)
    everything = compute_story(toll_records(), policies, over=over, output_partitions=1, finish=True).ordered
    assert everything[: len(walked.ordered)] == walked.ordered
    assert walked.held == sorted(event.offset for event in everything[len(walked.ordered) :])
    rows = [
        ("released" if at < len(walked.ordered) else "held", event.offset, clock_text(event.system_us), "+".join(sorted(event.policies)))
        for at, event in enumerate(everything)
    ]
    rows += [("dropped", drop.offset, "", drop.reason) for drop in walked.dropped]
    assert rows == toll_expected(variant)


def test_the_golden_watermarks_are_those_of_the_specification() -> None:
    """Event 6 meets 12:17, event 9 meets 12:18, event 12 meets 12:21."""
    policies, over = TOLL_VARIANTS["one_timeline"]
    met = compute_story(toll_records(), policies, over=over, output_partitions=1).watermarks
    assert {event: clock_text(met[event]) for event in (6, 9, 12)} == {6: "12:17", 9: "12:18", 12: "12:21"}


def test_the_second_example_of_the_specification() -> None:
    """Late 15 s, reorder 5 s: one event is lifted as late, one as out of order, three stay."""
    policies = Policies(late_us=15, reorder_us=5)
    story = told(log((640, 600), (641, 630), (642, 642), (643, 638), (645, 635)), policies, finish=True)
    assert sorted(out(story)) == [(0, 625), (1, 630), (2, 642), (3, 638), (4, 637)]
    flags = {event.offset: event.policies for event in story.ordered}
    assert flags == {0: {"late"}, 1: set(), 2: set(), 3: set(), 4: {"out_of_order"}}


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_known_hashes_of_kafka(key: bytes, hashed: int) -> None:
    """KnownReferences answers of the Java client, there as signed numbers."""
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7


def test_an_event_too_early_is_dropped_and_moves_only_the_frontier() -> None:
    """Its event time would have lifted the watermark to 116; its arrival lifts the floor to 95."""
    policies = replace(EXACT, early_us=10)
    story = told(log((100, 90), (105, 116), (105, 95)), policies)
    assert story.dropped == [Dropped(1, "early")]
    assert out(story) == [(0, 90)]
    assert story.watermarks == {0: NEVER, 2: START_US + 95}


def test_an_event_just_as_early_as_allowed_is_kept() -> None:
    """The tolerance itself is allowed."""
    assert told(log((100, 110)), replace(EXACT, early_us=10)).dropped == []


def test_a_late_event_is_lifted_to_the_floor_or_dropped() -> None:
    """Late is beyond the tolerance, not at it."""
    records = log((100, 90), (100, 89))
    assert out(told(records, finish=True)) == [(0, 90), (1, 90)]
    assert told(records, replace(EXACT, late_action=Action.DROP)).dropped == [Dropped(1, "late")]


def test_an_event_out_of_order_is_lifted_to_the_watermark_or_dropped() -> None:
    """Below the watermark, not at it."""
    records = log((100, 100), (100, 100), (100, 99))
    assert out(told(records, finish=True)) == [(0, 100), (1, 100), (2, 100)]
    assert told(records, replace(EXACT, out_of_order_action=Action.DROP)).dropped == [Dropped(2, "out_of_order")]


def test_an_event_may_be_late_and_out_of_order() -> None:
    """Lifted to the floor first, to the watermark then; both are counted."""
    story = told(log((100, 100), (100, 80)), finish=True)
    assert story.ordered[1].policies == {"late", "out_of_order"}
    assert (story.counts["late_adjusted"], story.counts["out_of_order_adjusted"]) == (1, 1)


def test_an_event_lifted_as_late_may_still_be_dropped_as_out_of_order() -> None:
    """The late count stays: an event counts under every policy that spoke."""
    story = told(log((100, 100), (100, 80)), replace(EXACT, out_of_order_action=Action.DROP))
    assert story.dropped == [Dropped(1, "out_of_order")]
    assert story.counts["late_adjusted"] == 1


def test_the_event_time_itself_is_never_changed() -> None:
    """Only the system timestamp is."""
    event = told(log((100, 50)), finish=True).ordered[0]
    assert (event.event_time_us - START_US, event.system_us - START_US) == (50, 90)


def test_a_dropped_event_moves_the_frontier_but_not_the_watermark_of_its_timeline() -> None:
    """Late and dropped at 200: the floor is 190 then, and lets the first event out."""
    story = told(log((100, 100), (200, 150)), replace(EXACT, late_action=Action.DROP))
    assert out(story) == [(0, 100)]
    assert story.snapshots[-1].c == START_US + 190


def test_an_unreadable_record_moves_the_frontier_and_nothing_else() -> None:
    """It is neither ordered nor dropped by a policy."""
    story = told(log((100, 100), (111, None)))
    assert out(story) == [(0, 100)]
    assert story.dropped == []
    assert story.counts["unreadable"] == 1


def test_arrival_never_goes_back() -> None:
    """The third arrival, 90, counts as 111: the event is late, and the clamp is counted."""
    story = told(log((100, 100), (111, 111), (90, 100)), finish=True)
    assert story.counts["arrival_clamps"] == 1
    assert story.ordered[-1].arrival_us == START_US + 111
    assert story.ordered[-1].policies == {"late", "out_of_order"}


def test_reorder_lets_events_wait_for_one_another() -> None:
    """Within the tolerance the order is mended without adjusting anything."""
    story = told(log((100, 100), (101, 97), (102, 106), (103, 101)), replace(EXACT, late_us=50, reorder_us=5))
    assert out(story) == [(1, 97), (0, 100)]
    assert story.held == [2, 3]
    assert story.counts["out_of_order_adjusted"] == 0


def test_reorder_of_minus_one_tick_commits_each_event_by_itself() -> None:
    """The watermark stands one tick above the last event; an equal of it is out of order."""
    story = told(log((100, 100), (100, 100), (100, 105)), replace(EXACT, reorder_us=-1))
    assert out(story) == [(0, 100), (1, 101), (2, 105)]
    assert story.ordered[1].policies == {"out_of_order"}


def test_silence_advances_nothing_when_late_is_off() -> None:
    """Without a floor only event times move the watermark; an estimate releases nothing."""
    story = told(log((100, 100), (900, None)), replace(EXACT, late_us=None), at2=5_000)
    assert out(story) == []
    assert story.snapshots[-1].c == START_US + 100


def test_late_may_not_be_off_with_over() -> None:
    """A silent substream would hold its events for ever."""
    with pytest.raises(SettingError, match="only without OVER"):
        told([], replace(EXACT, late_us=None), over=True)


def test_each_substream_has_a_watermark_of_its_own() -> None:
    """b's 105 does not make a's 100 out of order; each is released by its own next event."""
    story = told(log((105, 105, b"b"), (105, 100, b"a"), (105, 101, b"a"), (105, 106, b"b")), over=True)
    assert out(story) == [(1, 100), (0, 105)]
    assert story.counts["out_of_order_adjusted"] == 0


def test_the_floor_releases_every_substream_at_once_in_order_of_time() -> None:
    """What one record releases is sorted by (s, offset) over all timelines."""
    story = told(log((105, 104, b"b"), (105, 101, b"a"), (105, 104, b"c"), (120, 120, b"d")), over=True)
    assert out(story) == [(1, 101), (0, 104), (2, 104)]


def test_without_over_the_roster_number_chooses_the_output_partition() -> None:
    """All events of an input partition go into one channel; seq counts from 0."""
    story = compute_story(log((100, 100, b"x"), (100, 101, b"y")), EXACT, over=False, output_partitions=4, roster=6, finish=True)
    assert [(event.output_partition, event.seq, event.roster, event.key) for event in story.ordered] == [(2, 0, 6, b"x"), (2, 1, 6, b"y")]


@given(st.lists(st.sampled_from(KEYS), max_size=20), st.integers(1, 4))
def test_with_over_the_key_chooses_the_output_partition_and_seq_counts_each_channel(keys: list[bytes], partitions: int) -> None:
    """A missing key is zero bytes, hashed like any other."""
    story = compute_story(log(*((100, 100, key) for key in keys)), EXACT, over=True, output_partitions=partitions, finish=True)
    assert len(story.ordered) == len(keys)
    for partition in range(partitions):
        channel = story.channel(partition)
        assert [event.seq for event in channel] == list(range(len(channel)))
        assert all(partition_of(event.key, partitions) == partition for event in channel)


def test_an_estimate_counts_before_the_record_at_its_position_is_judged() -> None:
    """The estimate 120 at position 1 lifts the record there, which arrived at 115, to the floor 110."""
    story = told(log((100, 100), (115, 107)), at1=120)
    assert out(story) == [(0, 100)]
    assert story.counts["arrival_clamps"] == 1
    assert out(told(log((100, 100), (115, 107)), at1=120, finish=True))[1] == (1, 110)


def test_an_estimate_past_the_end_releases_what_the_floor_passes() -> None:
    """Silence moves time."""
    assert out(told(log((100, 100)), at1=110)) == []
    assert out(told(log((100, 100)), at1=111)) == [(0, 100)]


def test_an_estimate_below_the_frontier_changes_nothing() -> None:
    """Frontiers only rise."""
    assert told(log((100, 100)), at1=50).snapshots[-1].frontier_us == START_US + 100


def test_the_end_releases_everything_in_order_of_time() -> None:
    """And closes the channel: nothing is ahead of infinity."""
    story = told(log((100, 103, b"a"), (100, 101, b"b"), (100, 102, b"c")), over=True, finish=True)
    assert out(story) == [(1, 101), (2, 102), (0, 103)]
    assert story.snapshots[-1].c == INFINITY
    assert story.promise(story.snapshots[-1], 0) == (3, 0)


def test_a_promise_counts_what_is_out_at_c_and_above() -> None:
    """With OVER c is the floor, and a released substream may be ahead of it."""
    story = told(log((100, 100, b"a"), (100, 101, b"a")), over=True)
    assert story.snapshots[-1].c == START_US + 90
    assert story.promise(story.snapshots[-1], 0) == (1, 1)


def whole_story(case: Case, estimates: dict[int, int]) -> Story:
    """Tell a drawn case to the end under other estimates."""
    return compute_story(
        case.records, case.policies, over=case.over, output_partitions=case.output_partitions, estimates=estimates, finish=True
    )


@given(cases(), st.data())
def test_an_estimate_not_above_the_next_arrival_changes_no_result(case: Case, data: st.DataObject) -> None:
    """It may release earlier, never otherwise."""
    estimates = {record.offset: record.arrival_us - data.draw(st.integers(0, 20)) for record in case.records if data.draw(st.booleans())}
    with_them, without = whole_story(case, estimates), whole_story(case, {})
    assert (with_them.ordered, with_them.dropped) == (without.ordered, without.dropped)


@given(cases())
def test_promises_only_rise_and_no_event_breaks_one(case: Case) -> None:
    """Every event with s < c has seq < n, whatever is still to come; the floor adjusts nothing in its own partition."""
    story = whole_story(case, dict(case.estimates))
    for before, after in pairwise(story.snapshots):
        assert before.c <= after.c
        assert before.released_count <= after.released_count
        assert before.frontier_us <= after.frontier_us
    for moment in story.snapshots:
        assert all(event.system_us >= moment.c for event in story.ordered[moment.released_count :])


@given(cases())
def test_every_record_has_exactly_one_fate(case: Case) -> None:
    """Ordered, dropped, held or unreadable."""
    story = compute_story(case.records, case.policies, over=case.over, output_partitions=case.output_partitions, estimates=case.estimates)
    unreadable = [record.offset for record in case.records if record.event_time_us is None]
    fates = [event.offset for event in story.ordered] + [drop.offset for drop in story.dropped] + story.held + unreadable
    assert sorted(fates) == [record.offset for record in case.records]
