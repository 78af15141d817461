"""
Level 1 of the law for runs that do not start at the beginning.

From an output start time S a run writes what a run from the beginning writes with s >= S; into channels that exist it
goes on with the very next event, from whichever promise they hold. The law is claimed for a reorder of zero or more: with
a reorder of -1 tick equals push later ones up without bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.model_runs import (
    Run,
    calm,
    channels_of,
    dropped_in,
    first_at,
    model_of,
    promised,
    said,
    tell_case,
    tell_until,
    told,
    walk,
)
from support.story import Story
from support.strategies import PER_BATCH, Case, ranges, whole_cases

from ordering import testing
from ordering.model.step import Model
from ordering.policies import Generation, Policies, Shape
from ordering.protocol.punctuation import Cti
from ordering.testing import Record
from ordering.ticks import NEVER


@dataclass(frozen=True)
class Start:
    """A case, the output start time S, and how a run from the offset ``position`` walks on."""

    case: Case
    start_us: int
    position: int
    onward: Case


def in_order_or_waiting(case: Case) -> Case:
    """Return the case with a reorder for which the law is claimed."""
    return replace(case, policies=replace(case.policies, reorder_us=max(0, case.policies.reorder_us)))


def position_for(case: Case, start_us: int) -> int:
    """
    Return the offset from which a run has to read to write all events with s >= S.

    The first record whose clamped arrival, estimates included, is S - early or later; and nothing may be left out that
    an imported CTI or the joining has moved to S. A lifted end stands one tick above its start edge, so with edges all
    this is one tick earlier.
    """
    start_us -= case.shape is Shape.EDGE
    early_us = case.policies.early_us
    if early_us is None or case.joined_us >= start_us:
        return first_offset(case)
    offsets = [record.offset for record in case.records]
    brought = [position for position, c in case.imports.items() if c >= start_us]
    arrived = [offset for offset in offsets if frontier_at(case, offset) >= start_us - early_us]
    return min([*brought, *arrived, offsets[-1] + 1 if offsets else 0])


def first_offset(case: Case) -> int:
    """Return the offset of a case's first record."""
    return case.records[0].offset if case.records else 0


def frontier_at(case: Case, offset: int) -> int:
    """Return the clamped arrival of the record at *offset*."""
    arrivals = [record.arrival_us for record in case.records if record.offset <= offset]
    return max([*arrivals, *(frontier_us for position, frontier_us in case.estimates.items() if position <= offset)])


def facts_from(facts: Mapping[int, int], position: int) -> dict[int, int]:
    """Return the journaled facts that a run from *position* hears; those up to there count there, as their maximum."""
    before = [value for at, value in facts.items() if at <= position]
    return {at: value for at, value in facts.items() if at > position} | ({position: max(before)} if before else {})


def imports_from(case: Case, position: int) -> dict[int, int]:
    """Return the imports that a run from *position* hears: the CTIs of the source before it are given it as one there."""
    too_early = {offset for offset, _ in dropped_in(tell_case(case))}
    met = [
        record.source_cti_us
        for record in case.records
        if record.source_cti_us is not None and record.offset < position and record.offset not in too_early
    ]
    return facts_from(case.imports | ({position: max([*met, case.imports.get(position, NEVER)])} if met else {}), position)


@st.composite
def onward(draw: st.DrawFn, case: Case, position: int) -> Case:
    """Draw how a run from *position* is cut and what it hears when; the first batch brings all that counts there."""
    heard, brought = facts_from(case.estimates, position), imports_from(case, position)
    later = [{at: (value,) for at, value in facts.items() if at > position} for facts in (heard, brought)]
    cuts = draw(ranges(case.records, *later, first=position))
    at_once = [tuple((at, value) for at, value in facts.items() if at == position) for facts in (heard, brought)]
    first = replace(cuts[0], estimates=(*at_once[0], *cuts[0].estimates), imports=(*at_once[1], *cuts[0].imports))
    return replace(case, ranges=(first, *cuts[1:]))


@st.composite
def starts(draw: st.DrawFn, generated: bool = False) -> Start:
    """Draw a case and an output start time around what it holds."""
    case = in_order_or_waiting(draw(whole_cases(generated=generated)))
    arrivals = [record.arrival_us for record in case.records] or [0]
    start_us = draw(st.integers(-4, (max(arrivals) - min(arrivals)) // case.scale + 6)) * case.scale + min(arrivals)
    start_us += draw(st.sampled_from([0, 0, 1, -1]))
    position = position_for(case, start_us)
    return Start(case, start_us, position, draw(onward(case, position)))


@given(starts())
def test_the_oracle_itself_keeps_the_start_time_law(start: Start) -> None:
    """Level 1: the law follows from the rules; told from the position on, the same events have s >= S."""
    case = start.case
    records = case.records[first_at(case.records, start.position) :]
    facts = {"estimates": facts_from(case.estimates, start.position), "imports": imports_from(case, start.position)}
    from_there = tell_case(case, records=records, **facts).starting_at(start.start_us)
    assert from_there.ordered == tell_case(case).starting_at(start.start_us).ordered


@given(starts(generated=True))
def test_a_run_from_a_start_time_writes_what_a_run_from_the_beginning_does_from_then_on(start: Start) -> None:
    """Level 1: the same events byte for byte, numbered from 0, and in channels without anything below S."""
    run = run_from(start)
    assert run.events() == told(start.case, tell_case(start.case).starting_at(start.start_us))


@given(starts())
def test_ctis_of_a_run_from_a_start_time_say_what_the_whole_story_knows(start: Start) -> None:
    """Level 1: none lies below S; per batch they are exact, as soon as the watermark has reached S."""
    run = run_from(start)
    assert all(cti.c >= start.start_us for cti in run.ctis())
    held: dict[int, Cti] = {}
    for walked, step in enumerate(run.steps, start=1):
        story = tell_from(start, walked).starting_at(start.start_us)
        held |= {cti.output_partition: cti for cti in step.ctis}
        moment = story.snapshots[-1]
        reached = moment.c >= start.start_us and moment.c > NEVER
        assert set(held) == (set(channels_of(start.case)) if reached else set())
        for channel, cti in held.items():
            assert said(cti)[:3] == promised(story, moment, channel, cti.next_offset)[:3]
            assert cti.largest_us == promised(story, moment, channel, cti.next_offset)[5]


@given(starts(generated=True))
def test_promises_of_a_run_from_a_start_time_are_never_broken(start: Start) -> None:
    """Level 1: however CTIs are generated."""
    story = tell_case(start.case, finish=True).starting_at(start.start_us)
    for channel, ctis in run_from(start).channels().items():
        check_promises(story, channel, ctis, start.start_us)


def check_promises(story: Story, channel: int, ctis: list[Cti], start_us: int) -> None:
    """Hold the CTIs of a channel that has no events below S against all that ever leaves through it."""
    events = [event for event in story.channel(channel) if event.system_us >= start_us]
    for cti in ctis:
        assert all(event.seq < cti.n for event in events if event.system_us < cti.c)
        assert cti.ahead == sum(event.system_us >= cti.c and event.seq < cti.n for event in events)


def run_from(start: Start) -> Run:
    """Walk on from a start time into an empty topic."""
    model = model_of(start.case)
    return walk(start.onward, model, lambda: model.state_from(start_us=start.start_us, next_offset=start.position))


def tell_from(start: Start, walked: int) -> Story:
    """Tell the whole story as far as the run knows it after so many of its batches."""
    finish = start.onward.finish and walked == len(start.onward.ranges)
    return tell_until(start.onward, walked, finish, known=start.case)


@dataclass(frozen=True)
class Resumption:
    """A case, a run of it that broke off, and what its channels hold; the run that goes on walks ``onward`` from ``position``."""

    case: Case
    promises: Mapping[int, Cti]
    position: int
    onward: Case


@st.composite
def resumptions(draw: st.DrawFn, generated: bool = False) -> Resumption:
    """Draw a run and, for each channel by itself, one of the CTIs that it wrote, or none; and a run that goes on."""
    case = in_order_or_waiting(draw(whole_cases(generated=generated)))
    written = walk(calm(replace(case, finish=False))).channels()
    promises: dict[int, Cti] = {}
    for channel, ctis in written.items():
        if draw(st.integers(0, 9)):
            promises[channel] = draw(st.sampled_from(ctis))
    known = set(promises) == set(channels_of(case))
    position = position_for(case, min(cti.c for cti in promises.values())) if known else first_offset(case)
    return Resumption(case, promises, position, draw(onward(case, position)))


def run_on(resumption: Resumption) -> Run:
    """Walk on into channels that exist."""
    model = model_of(resumption.case)
    return walk(resumption.onward, model, lambda: model.resume(resumption.promises, resumption.position))


def numbered_below(resumption: Resumption, channel: int) -> int:
    """Return how many events a channel's promise knows."""
    return resumption.promises[channel].n if channel in resumption.promises else 0


@given(resumptions(generated=True))
def test_a_writer_that_resumes_goes_on_with_the_next_event_of_each_channel(resumption: Resumption) -> None:
    """Level 1: from promises of any age, each channel's own: the same bytes and numbers, none twice and none missing."""
    story = tell_case(resumption.case)
    rest = [event for event in told(resumption.case, story) if event[1] >= numbered_below(resumption, event[0])]
    assert run_on(resumption).events() == rest


@given(starts(generated=True), st.data())
def test_a_writer_that_resumes_a_run_from_a_start_time_goes_on_with_its_next_events(start: Start, data: st.DataObject) -> None:
    """Level 1: channels that had promised nothing yet are written from the start time on, the others from their promise."""
    case = start.case
    written = run_from(replace(start, onward=calm(replace(start.onward, finish=False)))).channels()
    promises = {channel: data.draw(st.sampled_from(ctis)) for channel, ctis in written.items() if data.draw(st.integers(0, 3))}
    known = set(promises) == set(channels_of(case))
    position = position_for(case, min(cti.c for cti in promises.values()) if known else start.start_us)
    model = model_of(case)
    resumed = walk(data.draw(onward(case, position)), model, lambda: model.resume(promises, position, start.start_us))
    story = tell_case(case).starting_at(start.start_us)
    assert resumed.events() == [event for event in told(case, story) if event[0] not in promises or event[1] >= promises[event[0]].n]


@given(resumptions(generated=True))
def test_the_oracle_agrees_with_itself_on_what_a_promise_leaves_out(resumption: Resumption) -> None:
    """Level 1: leaving out s < c and the first *ahead* others is the same as going on with number n."""
    story = tell_case(resumption.case)
    for channel, cti in resumption.promises.items():
        assert story.continuation(channel, cti.c, cti.ahead) == story.channel(channel)[cti.n :]


@given(resumptions(generated=True))
def test_ctis_of_a_writer_that_resumes_rise_above_what_the_channels_hold(resumption: Resumption) -> None:
    """Level 1: and are never broken."""
    story = tell_case(resumption.case, finish=True)
    for channel, ctis in run_on(resumption).channels().items():
        held = resumption.promises.get(channel)
        check_promises(story, channel, ctis, NEVER)
        chain = [(cti.c, cti.n) for cti in ([held] if held else []) + ctis]
        assert all(old[0] <= new[0] and old[1] <= new[1] and old != new for old, new in pairwise(chain))


@given(resumptions())
def test_ctis_of_a_writer_that_resumes_are_exact(resumption: Resumption) -> None:
    """Level 1: per batch, what a channel holds is what the whole story knows there, once the run has passed its promise."""
    case = resumption.case
    assert case.generation == PER_BATCH
    held = {channel: said(cti)[:3] + said(cti)[5:] for channel, cti in resumption.promises.items()}
    start = Start(case, NEVER, resumption.position, resumption.onward)
    for walked, step in enumerate(run_on(resumption).steps, start=1):
        story = tell_from(start, walked)
        held |= {cti.output_partition: said(cti)[:3] + said(cti)[5:] for cti in step.ctis}
        moment = story.snapshots[-1]
        assume(moment.c > NEVER)
        for channel in channels_of(case):
            now = promised(story, moment, channel, 0)
            before = resumption.promises.get(channel)
            if before is None or (now[0] >= before.c and now[1] >= before.n):
                assert held[channel] == now[:3] + now[5:]


@pytest.mark.parametrize("delay_us", [0, 100])
@pytest.mark.parametrize("cut", range(5, 40, 5))
def test_a_resumed_writer_counts_ahead_exactly_at_every_point(cut: int, delay_us: int) -> None:
    """Level 1: CTIs after each event, written while the events that are in the topic already are skipped, count those too."""
    log = [Record(offset, 10**15 + 10 * offset, 10**15 + 10 * offset) for offset in range(40)]
    policies, written = Policies(early_us=0, late_us=1_000), Generation(every_events=1, delay_us=100)
    model = Model(policies, False, 1, generation=written)
    state = model.new_state()
    last = model.step(state, testing.batch_of(log[:cut])).ctis[-1]
    begin = next(record.offset for record in log if record.arrival_us >= last.c)
    resumed = Model(policies, False, 1, generation=Generation(every_events=1, delay_us=delay_us))
    ctis = resumed.step(resumed.resume({0: last}, begin), testing.batch_of(log[begin:], finish=True)).ctis
    assert ctis
    for cti in ctis:
        # Nothing is out of order here: the event numbered n has the event time of offset n.
        assert cti.ahead == sum(record.arrival_us >= cti.c for record in log[: cti.n])
