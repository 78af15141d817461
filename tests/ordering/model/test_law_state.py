"""
Level 1 of the law for what a state remembers: saved, restored and forgetting, it tells no other story than an oracle that
hears everything once and forgets nothing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from support.model_runs import dropped_in, model_of, said, tell_case, told, tries, walk
from support.seeded_logs import crowd_log, long_case, long_log
from support.strategies import Case, Range, whole_cases

from ordering.model.step import Model
from ordering.policies import Action, Policies
from ordering.ticks import SECOND_US, TICK_MAX, TICK_MIN


class Eager(Model):
    """A model that forgets however few substreams there are."""

    FORGET_FROM = 0


def record_by_record(case: Case) -> Case:
    """Return the case cut so that each offset is a batch of its own, run from a restored state."""
    ends = range(case.ranges[0].start, case.ranges[-1].end + 1)
    cuts = [Range(low, high, restored=True) for low, high in pairwise(ends)] or [case.ranges[0]]
    laid = [
        replace(
            cut,
            estimates=tuple(fact for fact in case.estimates.items() if at_home(fact[0], cut, cuts)),
            imports=tuple(fact for fact in case.imports.items() if at_home(fact[0], cut, cuts)),
        )
        for cut in cuts
    ]
    return replace(case, ranges=tuple(laid))


def at_home(position: int, cut: Range, cuts: list[Range]) -> bool:
    """Return whether a fact at *position* is heard with this batch: the one that starts there, or the last."""
    return cut.start == position or (cut is cuts[-1] and position >= cut.end)


@tries(1 / 3)
@given(whole_cases(generated=True).map(record_by_record))
def test_a_state_saved_and_restored_between_any_two_records_tells_no_other_story(case: Case) -> None:
    """Level 1: nothing outlives a batch but what is saved."""
    run, story = walk(case), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)


@given(whole_cases(over=True, generated=True))
def test_what_is_forgotten_is_never_missed(case: Case) -> None:
    """Level 1: a model that forgets all it may after every batch agrees with the oracle, which forgets nothing."""
    run, story = walk(case, model_of(case, kind=Eager)), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)
    assert [said(cti) for cti in run.ctis()] == [said(cti) for cti in walk(case).ctis()]


@given(whole_cases(over=True))
def test_what_is_remembered_is_bounded_by_what_must_be(case: Case) -> None:
    """Level 1: substreams with held events or a watermark above the floor are known; others only while those above are the most."""
    run, story = walk(case, model_of(case, kind=Eager)), tell_case(case)
    held = {record.key for record in case.records if record.offset in story.held}
    reach: dict[bytes, int] = {}
    for timeline, reached_us in story.accepted_us.values():
        reach[timeline] = max(reached_us, reach.get(timeline, reached_us))
    ahead = {timeline for timeline, us in reach.items() if us - case.policies.reorder_us > story.snapshots[-1].watermark_us}
    known = len(run.state.timelines)
    assert known >= len(held | ahead)
    assert known == len(held | ahead) or known < 2 * len(ahead)


@pytest.mark.parametrize("over", [False, True], ids=["one timeline", "over"])
@pytest.mark.parametrize("seed", range(4))
def test_long_logs_keep_the_law_too(seed: int, over: bool) -> None:
    """Level 1: thousands of records, dozens of keys, hundreds in a batch: what small logs cannot reach."""
    case = long_case(seed, long_log(seed, 2_000, keys=40), over)
    run, story = walk(case), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)


@pytest.mark.parametrize("reorder_us", [-1, 0, 4 * SECOND_US])
@pytest.mark.parametrize("action", Action)
def test_forgetting_timelines_changes_nothing_but_the_size_of_the_state(action: Action, reorder_us: int) -> None:
    """Level 1: the model forgets more than a thousand substreams, the oracle none; those that return tell no difference."""
    records = crowd_log(reorder_us)
    tolerant = Policies(early_us=None, late_us=12 * SECOND_US, reorder_us=reorder_us, out_of_order_action=action)
    case = replace(long_case(reorder_us, records, over=True), policies=tolerant, finish=False)
    run, story = walk(case), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)
    assert len({record.key for record in records}) > 1_000
    assert len(run.state.timelines) < 200


@pytest.mark.parametrize("seed", range(3))
def test_times_millennia_apart_keep_the_law_too(seed: int) -> None:
    """Level 1: with early off an event may lie anywhere in time; many substreams, each with a far end of its own."""
    draw = random.Random(seed)
    records = long_log(seed, 1_000, keys=150)
    anywhere = {record.offset: draw.randint(TICK_MIN, TICK_MAX) for record in records if draw.random() < 0.1}
    records = tuple(replace(record, event_time_us=anywhere.get(record.offset, record.event_time_us)) for record in records)
    case = long_case(seed, records, over=True)
    case = replace(case, policies=replace(case.policies, early_us=None), finish=True)
    run, story = walk(case), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)
