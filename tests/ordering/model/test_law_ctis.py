"""
Level 1 of the law for promises: what a CTI says is true of everything that ever comes after it, and exact where it stands.

When CTIs are written may differ between runs; with a count of events and without estimates even that is a function of
the log.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given
from support.model_runs import Disk, Run, batch_of, calm, channels_of, due_ctis, model_of, said, tell_case, tell_until, walk
from support.oracle import partition_of
from support.story import SetBy, Snapshot, Story
from support.strategies import PER_BATCH, Case, Range, whole_cases

from ordering.policies import Generation
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY, NEVER, TICK_MIN


def joined_at_the_start(case: Case) -> Case:
    """Return the case without a late join."""
    return replace(case, joined_us=NEVER)


@given(whole_cases(generated=True))
def test_ctis_only_rise_and_are_never_broken(case: Case) -> None:
    """Level 1: below c nothing comes at n or after, whatever is still held; ahead counts what is out at c and above."""
    run, story = walk(case), tell_case(case, finish=True)
    for channel, ctis in run.channels().items():
        check_promises(case, story, channel, ctis)


def check_promises(case: Case, story: Story, channel: int, ctis: list[Cti]) -> None:
    """Hold the CTIs of one channel against all that ever leaves through it."""
    events = story.channel(channel)
    for cti in ctis:
        assert all(event.seq < cti.n for event in events if event.system_us < cti.c)
        assert cti.ahead == sum(event.system_us >= cti.c for event in events[: cti.n])
        assert cti.largest_us == max((event.system_us for event in events[: cti.n]), default=TICK_MIN)
        assert cti.number == case.number
        assert cti.roster.inputs == case.number + 1
        for key, below_us in cti.listed:
            assert all(event.seq < cti.n for event in events if event.key == key and event.system_us < below_us)
    for before, after in pairwise(ctis):
        assert (before.c, before.n) != (after.c, after.n)
        assert before.c <= after.c
        assert before.n <= after.n
        assert before.next_offset <= after.next_offset
        assert before.arrival_us <= after.arrival_us


@given(whole_cases(generated=True).map(joined_at_the_start))
def test_ctis_are_written_where_they_are_due_and_say_exactly_what_holds_there(case: Case) -> None:
    """Level 1: per batch, every so many events, every so much time, upon a CTI of the source; with a delay or without."""
    written, due = walk(case).channels(), due_ctis(case)
    for channel, promises in due.items():
        assert [said(cti) for cti in written.get(channel, [])] == [promise.cti for promise in promises]


@given(whole_cases(generated=True, estimates={}, imports={}, finish=False).map(joined_at_the_start))
def test_ctis_by_count_or_time_are_a_function_of_the_log(case: Case) -> None:
    """Level 1: without estimates and imports, the CTIs are the same wherever the log is cut."""
    generation = case.generation if not case.generation.is_per_batch else replace(case.generation, every_events=3)
    case = replace(case, generation=generation, ranges=tuple(replace(cut, estimates=(), imports=()) for cut in case.ranges))
    whole = replace(case, ranges=(Range(case.ranges[0].start, case.ranges[-1].end),))
    cut, uncut = walk(case).ctis(), walk(whole).ctis()
    assert [said(cti) for cti in cut] == [said(cti) for cti in uncut]
    assert [cti.cause for cti in cut] == [cti.cause for cti in uncut]


@given(whole_cases(generated=True).map(joined_at_the_start))
def test_a_cti_tells_what_moved_time(case: Case) -> None:
    """Level 1: its cause is who set the watermark that c rests on, or another who set the same."""
    causes = {SetBy.ESTIMATE: Cause.IDLE, SetBy.SOURCE: Cause.SOURCE, SetBy.IMPORT: Cause.IMPORT}
    written, due = walk(case).channels(), due_ctis(case)
    for channel, promises in due.items():
        for cti, promise in zip(written.get(channel, []), promises, strict=True):
            assert (cti.cause is Cause.SHUTDOWN) == (cti.c == INFINITY)
            if cti.c != INFINITY:
                movers = set(promise.moment.tied_setters)
                if any(record.arrival_us == cti.arrival_us for record in case.records if record.offset < cti.next_offset):
                    movers.add(SetBy.ARRIVAL)  # a record's arrival may be what an estimate had said
                assert cti.cause in {causes.get(by, Cause.EVENT) for by in movers}


@given(whole_cases(over=True, generated=True).map(joined_at_the_start))
def test_listed_substreams_are_those_that_are_ahead_and_have_moved(case: Case) -> None:
    """Level 1: a list names exact watermarks above the floor, or lower ones above c, and only what changed; per batch all of it."""
    case = calm(replace(case, generation=replace(case.generation, list_substreams=True)))
    written, due = walk(case).channels(), due_ctis(case)
    for channel, promises in due.items():
        known: dict[bytes, int] = {}
        for cti, promise in zip(written.get(channel, []), promises, strict=True):
            stands = substreams_of(case, promise.story, promise.moment, channel)
            listed = dict(cti.listed)
            assert len(listed) == len(cti.listed)
            for key, watermark_us in listed.items():
                assert cti.c < watermark_us <= stands[key]
                assert watermark_us == stands[key] or stands[key] == promise.moment.watermark_us
                assert known.get(key) != watermark_us
            if case.generation.is_per_batch:
                ahead = {key: us for key, us in stands.items() if us > promise.moment.watermark_us and known.get(key) != us}
                assert ahead.items() <= listed.items()
            known |= listed


def substreams_of(case: Case, story: Story, moment: Snapshot, channel: int) -> dict[bytes, int]:
    """Return the watermark of each substream of a channel."""
    stands = story.substreams(moment, case.policies.reorder_us)
    return {key: us for key, (us, _) in stands.items() if partition_of(key, case.output_partitions) == channel}


@given(whole_cases(generated=True))
def test_lists_are_written_only_where_they_are_asked_for(case: Case) -> None:
    """Level 1: not without the setting, and never without substreams."""
    if case.over:
        case = replace(case, generation=replace(case.generation, list_substreams=False))
    assert not any(cti.listed for cti in walk(case).ctis())


@given(whole_cases(generated=True, joins=True))
def test_a_partition_that_joins_says_first_when_it_joined(case: Case) -> None:
    """Level 1: its first step, though empty, writes c = J in each of its channels, before any event."""
    start = case.ranges[0].start
    run = walk(replace(case, ranges=(Range(start, start), *case.ranges)))
    first = {cti.output_partition: (cti.c, cti.n, cti.ahead) for cti in run.steps[0].ctis}
    assert first == dict.fromkeys(channels_of(case), (case.joined_us, 0, 0))
    story = tell_case(case, finish=True)
    for channel, ctis in run.channels().items():
        check_promises(case, story, channel, ctis)


@given(whole_cases(joins=True))
def test_no_event_of_a_partition_that_joins_lies_before_its_joining(case: Case) -> None:
    """Level 1: what lies below J counts as out of order, whether it is moved to J or dropped."""
    assert all(event[2] >= case.joined_us for event in walk(case).events())


@given(whole_cases(generated=True, finish=False))
def test_a_new_roster_is_told_in_every_channel(case: Case) -> None:
    """Level 1: a state that goes on under a new roster writes a CTI in each channel with its next batch, though empty."""
    run = Run([], model_of(case).new_state())
    disk = Disk()
    for cut in case.ranges:
        run.steps.append(model_of(case).step(run.state, batch_of(case, cut, finish=False)))
    disk.save(run.state)
    story = tell_until(case, len(case.ranges), finish=False)
    assume(run.ctis())
    model = model_of(case, Roster(2, case.number + 4, Spread.ALL if case.over else Spread.ONE, case.over))
    state = disk.load(model, model.new_state)
    end = case.ranges[-1].end
    step = model.step(state, batch_of(case, Range(end, end), finish=False))
    moment = story.snapshots[-1]
    expected = {channel: (moment.c, *story.promise(moment, channel), 2) for channel in channels_of(case)}
    assert {cti.output_partition: (cti.c, cti.n, cti.ahead, cti.roster.version) for cti in step.ctis} == expected
    disk.save(state)
    again = model.step(disk.load(model, model.new_state), batch_of(case, Range(end, end), finish=False))
    assert again.ctis == []


def test_ctis_without_generation_settings_are_per_batch() -> None:
    """The default writes at the end of each batch, without delay and lists."""
    assert Generation() == PER_BATCH
    assert PER_BATCH.is_per_batch
