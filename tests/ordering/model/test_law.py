"""
Level 1 of the law, against the oracle: every channel's sequence is a pure function of log, settings and journal.

The model walks the log in batches cut anywhere, torn, and restored from what it saved; the oracle hears one record at a
time and knows nothing of all that. What both tell must be equal, field by field.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from support.model_runs import (
    channels_of,
    dropped_in,
    tell_case,
    tell_until,
    told,
    total_counts,
    tries,
    verdicts,
    walk,
)
from support.story import SetBy, Story
from support.strategies import TOLL_VARIANTS, Case, Range, cases, clock_text, toll_expected, toll_records, whole_cases

from ordering.protocol.wire import Flag
from ordering.ticks import INFINITY


@tries(4)
@given(whole_cases(generated=True))
def test_events_do_not_depend_on_batches_crashes_or_the_moment_of_estimates(case: Case) -> None:
    """Level 1: the model's events are the oracle's, field by field and in the same order, and so is what is dropped."""
    run, story = walk(case), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)
    assert {step.released.number for step in run.steps} == {case.number}
    assert sorted(run.state.held.offset.tolist()) == story.held


@given(cases())
def test_points_without_ctis_from_elsewhere_keep_the_law(case: Case) -> None:
    """Level 1: the same of the plainest inputs, which are the most common ones."""
    run, story = walk(case), tell_case(case)
    assert run.events() == told(case, story)
    assert run.drops() == dropped_in(story)


@given(whole_cases())
def test_counts_add_up_to_what_the_oracle_counts(case: Case) -> None:
    """Level 1: how often each policy spoke does not depend on cuts either; nothing is lost between in, out and held."""
    run, story = walk(case), tell_case(case)
    total = total_counts(run)
    assert verdicts(total) == verdicts(story.counts)
    assert (total["events_in"], total["released"]) == (len(case.records), len(story.ordered))
    held = run.steps[-1].counts.held
    assert held == len(story.held)
    assert total["events_in"] == total["unreadable"] + total["source_ctis"] + len(story.dropped) + total["released"] + held


@given(whole_cases())
def test_each_batch_releases_all_that_the_log_allows_by_then(case: Case) -> None:
    """Level 1: nothing waits for a later batch, and CTIs say exactly what the oracle knows where the batch ends."""
    released = 0
    said: dict[int, tuple[int, int, int]] = {}
    for walked, step in enumerate(walk(case).steps, start=1):
        story = tell_until(case, walked, finish=case.finish and walked == len(case.ranges))
        released += len(step.released)
        assert (released, step.counts.held) == (len(story.ordered), len(story.held))
        said |= {cti.output_partition: (cti.c, cti.n, cti.ahead) for cti in step.ctis}
        for output_partition, promise in said.items():
            assert promise == (story.snapshots[-1].c, *story.promise(story.snapshots[-1], output_partition))


@given(whole_cases())
def test_each_event_names_the_row_upon_which_it_left(case: Case) -> None:
    """Level 1: the record that released it; for an estimate, an import or the end the record after it, or none."""
    released = 0
    for walked, (cut, step) in enumerate(zip(case.ranges, walk(case).steps, strict=True), start=1):
        story = tell_until(case, walked, finish=case.finish and walked == len(case.ranges))
        rows = [record.offset for record in case.records if cut.start <= record.offset < cut.end]
        left = story.ordered[released : released + len(step.released)]
        assert step.released.release_rows.tolist() == [row_of(story, event.snapshot_index, rows) for event in left]
        released += len(step.released)


def row_of(story: Story, at: int, rows: list[int]) -> int:
    """Return the place in *rows* (offsets of a batch) of the record with which a moment counts; after the last if there is none."""
    moment = story.snapshots[at]
    if moment.trigger is SetBy.END:
        return len(rows)
    offset = moment.next_offset - (moment.trigger in (SetBy.EVENT, SetBy.SOURCE))
    return sum(row < offset for row in rows)


@given(whole_cases(generated=True))
def test_the_final_cti_closes_every_channel(case: Case) -> None:
    """Level 1: a finished input leaves nothing held and promises infinity in each channel it can write to."""
    case = replace(case, finish=True)
    run, story = walk(case), tell_case(case)
    final = {cti.output_partition: cti for cti in run.steps[-1].ctis}
    assert set(final) == set(channels_of(case))
    assert {(cti.c, cti.ahead) for cti in final.values()} == {(INFINITY, 0)}
    assert {channel: cti.n for channel, cti in final.items()} == {channel: len(story.channel(channel)) for channel in final}
    assert len(run.state.held) == 0


@pytest.mark.parametrize("size", [1, 2, 5, 12])
@pytest.mark.parametrize("variant", TOLL_VARIANTS)
def test_the_golden_log_comes_out_as_written_by_hand(variant: str, size: int) -> None:
    """Level 1: the worked example of the time model, cut into batches of any size."""
    toll_policies, over = TOLL_VARIANTS[variant]
    records = tuple(toll_records())
    cuts = [Range(1 + at, 1 + min(at + size, 12)) for at in range(0, 12, size)]
    walked = Case(toll_policies, over, 1, 0, records, {}, tuple(cuts), finish=False)
    flushed = replace(walked, ranges=(*cuts, Range(13, 13)), finish=True)
    released, everything = walk(walked).events(), walk(flushed).events()
    names = {0: "", Flag.EARLY: "early", Flag.LATE: "late", Flag.OUT_OF_ORDER: "out_of_order"}
    rows = [("released" if at < len(released) else "held", e[5], clock_text(e[2]), names[e[6]]) for at, e in enumerate(everything)]
    rows += [("dropped", offset, "", reason) for offset, reason in walk(walked).drops()]
    assert rows == toll_expected(variant)
