"""
The oracle by small stories computed by hand: CTIs of the source and imported ones, shapes, joining, CTI generation,
starting, and who had set each watermark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.oracle import compute_story
from support.story import Dropped, EventTrace, Ruling, SetBy, Setter, Story
from support.strategies import TOLL_VARIANTS, clock_text, toll_records

from ordering.policies import Action, Generation, Policies
from ordering.testing import Record
from ordering.ticks import INFINITY, NEVER

START_US = 1_000_000
EXACT = Policies(early_us=None, late_us=10, late_action=Action.ADJUST, reorder_us=0, out_of_order_action=Action.ADJUST)
DROPPING = replace(EXACT, cti_violation_action=Action.DROP)
WAITING = replace(EXACT, reorder_us=20)


def point(offset: int, arrival: int, time: int, key: bytes = b"") -> Record:
    """Return a point; times in ticks after START_US, here and below."""
    return Record(offset, START_US + arrival, START_US + time, key)


def cti(offset: int, arrival: int, c: int) -> Record:
    """Return a CTI enqueued by the source."""
    return Record(offset, START_US + arrival, None, source_cti_us=START_US + c)


def span(offset: int, arrival: int, start: int, end: int) -> Record:
    """Return an interval."""
    return Record(offset, START_US + arrival, START_US + start, end_us=START_US + end)


def start_edge(offset: int, arrival: int, time: int, raw_key: bytes | None = b"r") -> Record:
    """Return the edge that opens a span."""
    return Record(offset, START_US + arrival, START_US + time, start_us=NEVER, raw_key=raw_key)


def end_edge(offset: int, arrival: int, time: int, start: int, raw_key: bytes | None = b"r") -> Record:
    """Return the edge that ends the span opened at *start*."""
    return Record(offset, START_US + arrival, START_US + time, start_us=START_US + start, raw_key=raw_key)


def told(*records: Record, policies: Policies = EXACT, over: bool = False, **parts: Any) -> Story:
    """Tell a log over one output partition."""
    return compute_story(records, policies, over=over, output_partitions=1, **parts)


def out(story: Story) -> list[tuple[int, int]]:
    """Return (offset, system timestamp in ticks after START_US) of every released event."""
    return [(event.offset, event.system_us - START_US) for event in story.ordered]


def policies_of(story: Story) -> dict[int, set[str]]:
    """Return what changed a time of each released event."""
    return {event.offset: set(event.policies) for event in story.ordered}


def test_a_cti_of_the_source_releases_what_lies_below_it() -> None:
    """It moves every timeline of the partition, and c stands on it."""
    story = told(point(0, 100, 100, b"a"), point(1, 100, 104, b"b"), cti(2, 100, 104), over=True)
    assert out(story) == [(0, 100)]
    last = story.snapshots[-1]
    assert (last.c - START_US, last.watermark_setter, last.trigger) == (104, Setter(SetBy.SOURCE, 2), SetBy.SOURCE)
    assert story.counts["source_ctis"] == 1


def test_a_cti_of_the_source_counts_for_later_records_only() -> None:
    """Events that stand before it in the log are judged without it."""
    story = told(point(0, 100, 95), cti(1, 100, 97), point(2, 100, 96), point(3, 100, 97), finish=True)
    assert out(story) == [(0, 95), (3, 97)]
    assert story.dropped == [Dropped(2, "cti_violation")]


def test_a_cti_too_early_is_dropped_like_an_event_and_its_arrival_counts() -> None:
    """11 ticks ahead of its arrival where 10 are allowed; the floor rises to 102 by the arrival."""
    story = told(point(0, 100, 101), cti(1, 112, 123), policies=replace(EXACT, early_us=10))
    assert story.dropped == [Dropped(1, "early")]
    assert (story.counts["early"], story.counts["source_ctis"]) == (1, 0)
    assert out(story) == [(0, 101)]
    assert story.snapshots[-1].c == START_US + 102
    assert told(cti(0, 112, 122), policies=replace(EXACT, early_us=10)).snapshots[-1].c == START_US + 122


@pytest.mark.parametrize("policies", [EXACT, DROPPING])
def test_a_point_before_a_cti_is_dropped_whatever_the_action(policies: Policies) -> None:
    """A point has nothing that could reach past the CTI."""
    story = told(cti(0, 100, 105), point(1, 100, 104), point(2, 100, 105), policies=policies, finish=True)
    assert story.dropped == [Dropped(1, "cti_violation")]
    assert out(story) == [(2, 105)]
    assert story.counts["cti_violation_dropped"] == 1


def test_an_interval_that_overlaps_a_cti_starts_at_it() -> None:
    """One that ends at the CTI lies wholly before it."""
    story = told(cti(0, 100, 105), span(1, 100, 101, 106), span(2, 100, 101, 105), finish=True)
    assert out(story) == [(1, 105)]
    assert policies_of(story) == {1: {"cti_violation"}}
    assert (story.ordered[0].event_time_us, story.ordered[0].end_us) == (START_US + 101, START_US + 106)
    assert story.dropped == [Dropped(2, "cti_violation")]
    assert told(cti(0, 100, 105), span(1, 100, 101, 106), policies=DROPPING).dropped == [Dropped(1, "cti_violation")]


def test_edges_before_a_cti_are_moved_to_it() -> None:
    """A start edge reaches on by its nature; an end edge ends at the CTI."""
    story = told(cti(0, 100, 105), start_edge(1, 100, 101), end_edge(2, 100, 104, start=90), finish=True)
    assert out(story) == [(1, 105), (2, 105)]
    assert policies_of(story) == {1: {"cti_violation"}, 2: {"cti_violation"}}


def test_an_event_may_violate_a_cti_and_be_late() -> None:
    """Late goes by the event time: the first ends at the floor 90, the second stays at the CTI 95, both count as both."""
    story = told(cti(0, 100, 85), span(1, 100, 80, 200), cti(2, 100, 95), span(3, 100, 80, 200), finish=True)
    assert out(story) == [(1, 90), (3, 95)]
    assert policies_of(story) == {1: {"cti_violation", "late"}, 3: {"cti_violation", "late"}}


def test_a_violation_counts_though_late_drops_the_event_afterwards() -> None:
    """An event counts under every policy that spoke."""
    story = told(cti(0, 100, 85), span(1, 100, 80, 200), policies=replace(EXACT, late_action=Action.DROP))
    assert story.dropped == [Dropped(1, "late")]
    assert (story.counts["cti_violation_adjusted"], story.counts["late_dropped"]) == (1, 1)


def test_an_imported_cti_counts_for_the_record_at_its_position() -> None:
    """Before that record it releases; at the end of the log it releases too."""
    story = told(point(0, 100, 100), point(1, 100, 104), imports={1: START_US + 105})
    assert out(story) == [(0, 100)]
    assert story.dropped == [Dropped(1, "cti_violation")]
    assert story.traces[1].rulings == [Ruling("cti_violation", START_US + 105, Setter(SetBy.IMPORT, 1), None)]
    assert out(told(point(0, 100, 100), imports={1: START_US + 101})) == [(0, 100)]
    assert out(told(point(0, 100, 100), imports={1: START_US + 100})) == []


def test_an_imported_cti_moves_time_though_late_is_off() -> None:
    """The floor of silence is off, what others promise is not."""
    story = told(point(0, 100, 100), policies=replace(EXACT, late_us=None), imports={1: START_US + 300})
    assert out(story) == [(0, 100)]
    assert (story.snapshots[-1].c - START_US, story.snapshots[-1].watermark_setter) == (300, Setter(SetBy.IMPORT, 1))


def test_an_interval_lasts_a_tick_at_least() -> None:
    """Counted from where it starts in the end: the third is lifted to 90 as late."""
    story = told(span(0, 100, 100, 101), span(1, 100, 100, 100), span(2, 100, 80, 85), policies=WAITING, finish=True)
    assert {event.offset: (event.system_us - START_US, (event.end_us or 0) - START_US) for event in story.ordered} == {
        0: (100, 101),
        1: (100, 101),
        2: (90, 91),
    }
    assert policies_of(story) == {0: set(), 1: {"lifted_end"}, 2: {"late", "lifted_end"}}


def test_an_end_edge_comes_a_tick_after_its_start_edge_at_least() -> None:
    """Both wait; the end at 95 is lifted above its start at 100, and raises no watermark by that."""
    story = told(start_edge(0, 100, 100), end_edge(1, 100, 95, start=100), policies=WAITING)
    assert story.held == [0, 1]
    assert story.snapshots[-1].watermark_us == START_US + 90
    assert story.traces[1].rulings == [Ruling("lifted_end", START_US + 100, Setter(SetBy.EVENT, 1), START_US + 101)]
    assert out(told(start_edge(0, 100, 100), end_edge(1, 100, 95, start=100), policies=WAITING, finish=True)) == [(0, 100), (1, 101)]


def test_an_end_edge_is_lifted_above_where_its_start_edge_was_moved() -> None:
    """The start at 80 was late and lies at 90; the end at 85 is late too, at 90, and comes after it."""
    story = told(start_edge(0, 100, 80), end_edge(1, 100, 85, start=80), finish=True)
    assert out(story) == [(0, 90), (1, 91)]
    assert policies_of(story) == {0: {"late"}, 1: {"late", "lifted_end"}}
    assert story.traces[1].rulings[-1] == Ruling("lifted_end", START_US + 90, Setter(SetBy.EVENT, 0), START_US + 91)


@pytest.mark.parametrize("stranger", [{"raw_key": b"q"}, {"start": 81}])
def test_an_end_edge_knows_its_start_edge_by_key_and_event_time(stranger: dict[str, Any]) -> None:
    """Another key or another start is another span."""
    story = told(start_edge(0, 100, 80), end_edge(1, 100, 85, **({"start": 80} | stranger)), finish=True)
    assert out(story) == [(0, 90), (1, 90)]


def test_a_missing_key_is_the_empty_key_to_edges() -> None:
    """As it is to substreams."""
    story = told(start_edge(0, 100, 80, raw_key=None), end_edge(1, 100, 85, start=80, raw_key=b""), finish=True)
    assert out(story) == [(0, 90), (1, 91)]


def test_with_over_edges_are_matched_within_their_substream() -> None:
    """Whatever keys the records have."""
    edges = [replace(start_edge(0, 100, 80, raw_key=b"x"), key=b"k"), replace(end_edge(1, 100, 85, start=80, raw_key=b"y"), key=b"k")]
    assert out(told(*edges, over=True, finish=True)) == [(0, 90), (1, 91)]


def test_an_end_edge_whose_start_is_out_already_is_not_lifted() -> None:
    """What is out lies below the watermark, and the end edge does not."""
    story = told(start_edge(0, 100, 100), point(1, 105, 105), end_edge(2, 105, 100, start=100), finish=True)
    assert out(story) == [(0, 100), (1, 105), (2, 105)]
    assert policies_of(story)[2] == {"out_of_order"}


def test_an_end_edge_without_a_start_edge_comes_after_the_time_it_names() -> None:
    """Its start may have been dropped, or follow."""
    assert out(told(end_edge(0, 100, 95, start=98), finish=True)) == [(0, 99)]


def test_an_end_edge_is_early_if_its_start_is() -> None:
    """Else it would be lifted past what arrival allows."""
    policies = replace(EXACT, early_us=10)
    assert told(end_edge(0, 100, 100, start=111), policies=policies).dropped == [Dropped(0, "early")]
    assert out(told(end_edge(0, 100, 100, start=110), policies=policies, finish=True)) == [(0, 111)]


def test_what_lies_before_the_joining_is_out_of_order() -> None:
    """A partition that joined at 105 says so before its first record."""
    records = point(0, 100, 104), point(1, 100, 105)
    story = told(*records, joined_us=START_US + 105, finish=True)
    assert (story.snapshots[0].c - START_US, story.snapshots[0].watermark_setter) == (105, Setter(SetBy.JOINED))
    assert out(story) == [(0, 105), (1, 105)]
    assert policies_of(story) == {0: {"out_of_order"}, 1: set()}
    dropping = replace(EXACT, out_of_order_action=Action.DROP)
    assert told(*records, policies=dropping, joined_us=START_US + 105).dropped == [Dropped(0, "out_of_order")]


def test_a_delayed_cti_stays_behind_the_watermark_and_release_does_not() -> None:
    """W = 110 lets 100 and 103 out; c = 102 says that one of them is ahead of it."""
    story = told(point(0, 100, 100), point(1, 100, 103), point(2, 100, 110), delay_us=8)
    assert out(story) == [(0, 100), (1, 103)]
    last = story.snapshots[-1]
    assert (last.c - START_US, story.promise(last, 0), story.largest_us(last, 0)) == (102, (2, 1), START_US + 103)


def test_the_ends_of_time_know_no_delay() -> None:
    """Nothing known is nothing known, and the end is the end; a joining stands as it is."""
    story = told(point(0, 100, 100), delay_us=8, finish=True)
    assert (story.snapshots[0].c, story.snapshots[-1].c) == (NEVER, INFINITY)
    assert told(delay_us=8, joined_us=START_US).snapshots[0].c == START_US


def points_of(story: Story, generation: Generation) -> list[int]:
    """Return the next offsets of the records at which CTIs are due."""
    found, last_us = [], NEVER
    for moment in story.snapshots:
        if moment.is_due(generation, last_us):
            found.append(moment.next_offset)
            last_us = moment.watermark_us
    return found


def test_ctis_are_due_every_so_many_accepted_events() -> None:
    """Neither dropped events nor unreadable records nor end edges count; a CTI of the source is a point by itself."""
    log = [
        point(0, 100, 100),
        Record(1, START_US + 100, None),
        point(2, 100, 70),
        end_edge(3, 100, 101, start=99),
        point(4, 100, 102),
        cti(5, 100, 102),
        point(6, 100, 103),
        point(7, 100, 104),
    ]
    story = told(*log, policies=replace(EXACT, late_action=Action.DROP))
    assert points_of(story, Generation(every_events=2)) == [5, 6, 8]
    assert points_of(story, Generation()) == []


def test_ctis_are_due_every_so_much_application_time() -> None:
    """First as soon as time is known; an end edge carries time on, but only the next record is looked at."""
    log = [point(0, 100, 100), point(1, 100, 109), point(2, 100, 110), end_edge(3, 100, 125, start=100), Record(4, START_US + 100, None)]
    assert points_of(told(*log), Generation(every_us=10)) == [1, 3, 5]


def test_a_count_and_a_time_go_together() -> None:
    """Each point starts the application time anew."""
    log = [point(0, 100, 100), point(1, 100, 105), point(2, 100, 111), point(3, 100, 115)]
    assert points_of(told(*log), Generation(every_events=2, every_us=10)) == [1, 2, 4]


def test_substreams_ahead_of_what_is_out_may_be_listed() -> None:
    """b stands at 106 though only its 105 is out; a has shown nothing yet."""
    story = told(point(0, 105, 105, b"b"), point(1, 105, 100, b"a"), point(2, 105, 106, b"b"), over=True)
    assert story.snapshots[-1].c == START_US + 95
    assert story.substreams(story.snapshots[-1], 0) == {b"b": (START_US + 106, START_US + 105), b"a": (START_US + 100, None)}
    assert story.substreams(story.snapshots[2], 0) == {b"b": (START_US + 105, None), b"a": (START_US + 100, None)}


def test_a_run_from_a_start_time_leaves_out_and_does_not_number_what_lies_before() -> None:
    """The promise counts what is left, too."""
    story = told(point(0, 100, 100), point(1, 100, 103), point(2, 100, 110), delay_us=8).starting_at(START_US + 102)
    assert [(event.seq, event.offset) for event in story.ordered] == [(0, 1)]
    assert story.promise(story.snapshots[-1], 0) == (1, 1)


def test_a_writer_that_resumes_leaves_out_what_its_promise_knows() -> None:
    """c = 102 with one event ahead of it: 100 is below, 103 is the one, 110 is next, as number 2."""
    story = told(point(0, 100, 100), point(1, 100, 103), point(2, 100, 110), delay_us=8, finish=True)
    assert [(event.seq, event.offset) for event in story.continuation(0, START_US + 102, 1)] == [(2, 2)]


def test_the_golden_log_is_explained() -> None:
    """Who had set the watermarks of the worked example, and what the policies made of events 3, 6 and 12."""
    policies, over = TOLL_VARIANTS["one_timeline"]
    met = compute_story(toll_records(), policies, over=over, output_partitions=1).traces
    setters = {event: (clock_text(met[event].watermark_us), met[event].setter) for event in (6, 9, 12)}
    assert setters == {6: ("12:17", Setter(SetBy.EVENT, 5)), 9: ("12:18", Setter(SetBy.EVENT, 8)), 12: ("12:21", Setter(SetBy.EVENT, 10))}
    rulings = {event: [(r.policy, clock_text(r.limit_us), r.setter) for r in met[event].rulings] for event in (3, 6, 12)}
    assert rulings == {
        3: [("early", "12:16", Setter(SetBy.ARRIVAL, 3))],
        6: [("out_of_order", "12:17", Setter(SetBy.EVENT, 5))],
        12: [("late", "12:22", Setter(SetBy.ARRIVAL, 12))],
    }
    assert (met[3].system_us, clock_text(met[12].system_us or 0)) == (None, "12:22")


def test_the_first_to_set_a_watermark_is_named() -> None:
    """Records 0 and 1 reach the same; the third is met by the first's."""
    story = told(point(0, 100, 100), point(1, 100, 100), point(2, 100, 99))
    assert story.traces[2] == EventTrace(
        2,
        START_US + 100,
        START_US + 100,
        Setter(SetBy.EVENT, 0),
        [Ruling("out_of_order", START_US + 100, Setter(SetBy.EVENT, 0), START_US + 100)],
        START_US + 100,
    )


def test_an_estimate_is_named_where_it_holds_the_floor() -> None:
    """Position 1 said 130: the record there is late by it, though it arrived at 115."""
    story = told(point(0, 100, 100), point(1, 115, 112), estimates={1: START_US + 130})
    assert (story.traces[1].watermark_us - START_US, story.traces[1].setter) == (120, Setter(SetBy.ESTIMATE, 1))
    assert story.traces[1].rulings == [Ruling("late", START_US + 120, Setter(SetBy.ESTIMATE, 1), START_US + 120)]


def test_nobody_has_set_the_watermark_of_the_first_event() -> None:
    """It meets none."""
    assert told(point(0, 100, 100)).traces[0] == EventTrace(0, START_US + 100, NEVER, Setter(SetBy.NOBODY), [], START_US + 100)
