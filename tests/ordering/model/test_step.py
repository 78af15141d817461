"""Level 1 of the law at places that drawn cases seldom reach: the model's answer, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from support.model_runs import batch_of, model_of, walk
from support.strategies import Case, Range

from ordering.model.step import Model
from ordering.policies import Action, Generation, Policies, Shape
from ordering.protocol.punctuation import Roster, Spread
from ordering.protocol.wire import Flag
from ordering.testing import Record
from ordering.testing import batch_of as plain_batch
from ordering.ticks import MINUTE_US, NEVER, SECOND_US


def case_of(records: tuple[Record, ...], policies: Policies, over: bool) -> Case:
    """Return a log read in one batch, into one output partition."""
    return Case(policies, over, 1, 0, records, {}, (Range(0, len(records)),), finish=False)


def test_a_cti_of_the_source_just_as_early_as_allowed_counts() -> None:
    """Level 1: one tick later it is too early and moves no time."""
    for ahead_us, counts in ((5 * SECOND_US, True), (5 * SECOND_US + 1, False)):
        record = Record(0, MINUTE_US, None, source_cti_us=MINUTE_US + ahead_us)
        step = walk(case_of((record,), Policies(early_us=5 * SECOND_US, late_us=None), over=False)).steps[0]
        assert (step.counts.source_ctis, step.counts.early) == (int(counts), int(not counts))
        assert [cti.c for cti in step.ctis] == ([MINUTE_US + ahead_us] if counts else [])


def test_a_writer_that_resumes_under_a_new_roster_counts_what_it_has_yet_to_skip() -> None:
    """Level 1: its first CTI stands before the event that the old one counted as ahead, which is numbered all the same."""
    late_us = 10 * SECOND_US
    first, second = (Record(at, MINUTE_US, MINUTE_US - 5 * SECOND_US + at, key=b"car") for at in range(2))
    case = case_of((first, second), Policies(late_us=late_us), over=True)
    (promise,) = walk(case).ctis()
    assert (promise.c, promise.n, promise.ahead) == (MINUTE_US - late_us, 1, 1)
    model = model_of(case, Roster(2, 2, Spread.ALL, substreams=True))
    state = model.resume({0: promise}, next_offset=0)
    before = model.step(state, batch_of(case, Range(0, 1), finish=False))
    after = model.step(state, batch_of(case, Range(1, 2), finish=False))
    assert [(cti.c, cti.n, cti.ahead) for cti in before.ctis] == [(promise.c, 1, 1)]
    assert [len(step.released) for step in (before, after)] == [0, 0]
    assert after.ctis == []


def test_a_list_says_nothing_of_a_substream_that_moved_upon_the_next_record() -> None:
    """Level 1: at the CTI's point its watermark was lower, and its event below the new one has no number yet."""
    policies = Policies(late_us=30 * SECOND_US, reorder_us=5 * SECOND_US)
    records = tuple(Record(at, MINUTE_US, us * SECOND_US, key=key) for at, (us, key) in enumerate([(40, b"a"), (41, b"b"), (50, b"a")]))
    model = Model(policies, True, 1, generation=Generation(every_events=2, list_substreams=True))
    step = model.step(model.new_state(), plain_batch(records, over=True))
    assert [(cti.next_offset, cti.n, dict(cti.listed)) for cti in step.ctis] == [(2, 0, {b"b": 36 * SECOND_US})]
    assert step.released.system_us.tolist() == [40 * SECOND_US]


def test_an_early_event_moved_back_below_an_imported_cti_is_out_of_order() -> None:
    """Level 1: its own time lies above the CTI, so it violates none; arrival + early lies below, and so below the watermark."""
    records = (Record(0, MINUTE_US, MINUTE_US + 30 * SECOND_US),)
    for action, flags, system_us in (
        (Action.ADJUST, [Flag.EARLY | Flag.OUT_OF_ORDER], [MINUTE_US + 20 * SECOND_US]),
        (Action.DROP, [], []),
    ):
        policies = Policies(early_us=10 * SECOND_US, early_action=Action.ADJUST, late_us=None, out_of_order_action=action)
        model = Model(policies, False, 1)
        batch = plain_batch(records, imports=[(0, MINUTE_US + 20 * SECOND_US)], finish=True)
        step = model.step(model.new_state(), batch)
        assert (step.released.flags.tolist(), step.released.system_us.tolist()) == (flags, system_us)
        adjusted, dropped = (1, 0) if action is Action.ADJUST else (0, 1)
        assert (step.counts.early_adjusted, step.counts.out_of_order_adjusted, step.counts.out_of_order_dropped) == (1, adjusted, dropped)


def test_an_end_edge_whose_start_was_early_ends_one_tick_after_the_latest_time() -> None:
    """Level 1: both edges are moved back to arrival + early; the end comes out behind the start, not behind the time it names."""
    start_us = MINUTE_US + 30 * SECOND_US
    start = Record(0, MINUTE_US, start_us, key=b"a", start_us=NEVER)
    end = Record(1, MINUTE_US, MINUTE_US + 5 * SECOND_US, key=b"a", start_us=start_us)
    policies = Policies(early_us=10 * SECOND_US, early_action=Action.ADJUST, late_us=None)
    model = Model(policies, False, 1, shape=Shape.EDGE)
    step = model.step(model.new_state(), plain_batch((start, end), finish=True))
    latest_us = MINUTE_US + 10 * SECOND_US
    assert step.released.system_us.tolist() == [latest_us, latest_us + 1]
    assert step.released.flags.tolist() == [Flag.EARLY | Flag.EDGE_START, Flag.EARLY | Flag.EDGE_END | Flag.LIFTED_END]


def test_a_state_of_a_model_that_knows_no_early_action_stays_valid() -> None:
    """Its fingerprint names no such action: only an adjusting one is named."""
    policies = Policies(early_us=10 * SECOND_US)
    dropping, adjusting = (Model(each, False, 1).new_state() for each in (policies, replace(policies, early_action=Action.ADJUST)))
    assert "early_action" not in dropping.model_fingerprint
    assert "early_action=adjust" in adjusting.model_fingerprint
