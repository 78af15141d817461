"""
Explanations: held against the model, against the oracle's own reasons, and against the worked example of the time model.

The stories of the toll log below were written by hand from the policies, not from a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import compute_story
from support.story import EventTrace, SetBy, Setter
from support.strategies import TOLL_POLICIES, TOLL_VARIANTS, clock_text, clock_us, toll_expected, toll_records

from ordering.model.step import Batch, Model, Reason
from ordering.policies import Action, Policies, Shape
from ordering.proof.explain import Explainer, Explanation, Mover, Policy, TimeCause, Verdict
from ordering.protocol.wire import Flag
from ordering.testing import Record
from ordering.ticks import MINUTE_US, NEVER

Cuts = list[tuple[int, int]]
START_US = 10**9


@dataclass(frozen=True)
class Log:
    """A log with everything that decides what becomes of it."""

    policies: Policies
    over: bool
    shape: Shape
    records: tuple[Record, ...]
    estimates: dict[int, int]
    imports: dict[int, int]
    joined_us: int
    finish: bool

    @property
    def end(self) -> int:
        """The offset after the last."""
        return self.records[-1].offset + 1 if self.records else 0

    def batch(self, low: int, high: int) -> Batch:
        """Return the batch of offsets *low* (inclusive) to *high* (exclusive)."""
        records = [record for record in self.records if low <= record.offset < high]
        keys = objects([record.key for record in records])
        # The end of a range is a position of the next one, but for the last.
        last = self.end if high == self.end else high - 1
        return Batch(
            offset=ints([record.offset for record in records]),
            arrival_us=ints([record.arrival_us for record in records]),
            event_time_us=ints([record.event_time_us or 0 for record in records]),
            readable=np.array([record.event_time_us is not None for record in records], dtype=np.bool_),
            substream=keys if self.over else None,
            key=objects([record.raw_key for record in records]),
            value=objects([b"%d" % record.offset for record in records]),
            end_offset=high,
            estimates=tuple((at, us) for at, us in sorted(self.estimates.items()) if low <= at <= last),
            imports=tuple((at, us) for at, us in sorted(self.imports.items()) if low <= at <= last),
            finish=self.finish and high == self.end,
            source_cti_us=ints([NEVER if record.source_cti_us is None else record.source_cti_us for record in records]),
            end_us=ints([record.end_us or 0 for record in records]) if self.shape is Shape.INTERVAL else None,
            start_us=ints([NEVER if record.start_us is None else record.start_us for record in records])
            if self.shape is Shape.EDGE
            else None,
        )


def ints(values: Sequence[int]) -> np.ndarray:
    """Return an int64 column."""
    return np.array(values, dtype=np.int64)


def objects(values: Sequence[bytes | None]) -> np.ndarray:
    """Return a column of objects."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


@st.composite
def policies(draw: st.DrawFn, over: bool) -> Policies:
    """Draw tolerances of a few ticks."""
    return Policies(
        early_us=draw(st.none() | st.integers(0, 8)),
        late_us=draw(st.integers(0, 9) if over else st.none() | st.integers(0, 9)),
        late_action=draw(st.sampled_from(Action)),
        reorder_us=draw(st.integers(-1, 6)),
        out_of_order_action=draw(st.sampled_from(Action)),
        cti_violation_action=draw(st.sampled_from(Action)),
    )


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Draw a log on small ticks: all shapes, both kinds of timeline, CTIs of the source, estimates, imports, joining."""
    over, shape = draw(st.booleans()), draw(st.sampled_from(Shape))
    records, offset, arrival_us = [], draw(st.integers(0, 2)), START_US
    for _ in range(draw(st.sampled_from([3, 10, 25, 40]))):
        arrival_us += draw(st.integers(-2, 4))
        key, raw_key = draw(st.sampled_from([b"", b"a", b"b"])), draw(st.sampled_from([None, b"", b"k"]))
        kind = draw(st.sampled_from(["event"] * 8 + ["unreadable", "source"]))
        time_us = arrival_us - draw(st.integers(-9, 11))
        record = Record(offset, arrival_us, time_us if kind == "event" else None, key, raw_key=raw_key)
        if kind == "source":
            record = replace(record, source_cti_us=time_us)
        elif kind == "event" and shape is Shape.INTERVAL:
            record = replace(record, end_us=time_us + draw(st.integers(-2, 8)))
        elif kind == "event" and shape is Shape.EDGE:
            record = replace(record, start_us=draw(st.just(NEVER) | st.integers(time_us - 4, time_us + 2)))
        records.append(record)
        offset += draw(st.sampled_from([1, 1, 1, 3]))
    latest_us = max(record.arrival_us for record in records)
    facts = st.dictionaries(st.integers(records[0].offset, offset), st.integers(START_US - 5, latest_us + 5), max_size=3)
    return Log(
        policies=draw(policies(over)),
        over=over,
        shape=shape,
        records=tuple(records),
        estimates={min(at, records[-1].offset + 1): us for at, us in draw(facts).items()},
        imports={min(at, records[-1].offset + 1): us for at, us in draw(facts).items()},
        joined_us=draw(st.sampled_from([NEVER, NEVER, START_US - 2, START_US + 9])),
        finish=draw(st.booleans()),
    )


@st.composite
def cut_logs(draw: st.DrawFn) -> tuple[Log, Cuts]:
    """Draw a log and one way to cut it into batches."""
    log = draw(logs())
    inner = draw(st.lists(st.integers(log.records[0].offset, log.end - 1), max_size=6, unique=True).map(sorted))
    edges = [log.records[0].offset, *(at for at in inner if at > log.records[0].offset), log.end]
    return log, list(pairwise(edges))


def explain(log: Log, cuts: Cuts | None = None, **wanted: object) -> list[Explanation]:
    """Return the explanations of a log in the order in which they became complete, the held ones at the end."""
    explainer = Explainer(log.policies, log.over, joined_us=log.joined_us, **wanted)  # type: ignore[arg-type]
    told = [one for low, high in cuts or [(0, log.end)] for one in explainer.walk(log.batch(low, high))]
    return told + explainer.held()


def flags_of(told: Explanation, shape: Shape, log: Log) -> int:
    """Return the flags that the model gives the event of an explanation."""
    flags = {
        Policy.LATE: Flag.LATE,
        Policy.OUT_OF_ORDER: Flag.OUT_OF_ORDER,
        Policy.CTI_VIOLATION: Flag.CTI_VIOLATION,
        Policy.SHAPE: Flag.LIFTED_END,
    }
    found = Flag(0)
    for step in told.steps:
        found |= flags[step.policy]
    record = next(record for record in log.records if record.offset == told.offset)
    if shape is Shape.INTERVAL:
        found |= Flag.INTERVAL | (Flag.LIFTED_END if told.end_us != record.end_us else Flag(0))
    if shape is Shape.EDGE:
        found |= Flag.EDGE_START if record.start_us == NEVER else Flag.EDGE_END
    return int(found)


@given(cut_logs())
def test_an_explanation_agrees_with_the_model(drawn: tuple[Log, Cuts]) -> None:
    """Level 1: offset, system timestamp, flags, clamped arrival, release order and step, and reasons are the model's."""
    log, cuts = drawn
    model = Model(log.policies, log.over, 1, shape=log.shape, joined_us=log.joined_us)
    state, left, dropped, upon = model.new_state(), [], [], []
    for low, high in cuts:
        batch = log.batch(low, high)
        step = model.step(state, batch)
        out = step.released
        columns = (out.offset, out.system_us, out.event_time_us, out.arrival_us, out.flags)
        left += list(zip(*(column.tolist() for column in columns), strict=True))
        rows = [*batch.offset.tolist(), high]
        upon += [rows[row] for row in out.release_rows.tolist()]
        dropped += [
            (offset, Policy[Reason(reason).name])
            for offset, reason in zip(step.dropped.offset.tolist(), step.dropped.reason.tolist(), strict=True)
        ]
    told = explain(log, cuts)
    out = [one for one in told if one.released_by]
    assert [(one.offset, one.system_us, one.event_time_us, one.arrival_us, flags_of(one, log.shape, log)) for one in out] == left
    assert [(one.offset, one.steps[-1].policy) for one in told if one.verdict is Verdict.DROPPED] == dropped
    assert {one.offset for one in told} == {record.offset for record in log.records}
    held = sorted(state.held.offset.tolist())
    assert sorted(one.offset for one in told if one.system_us is not None and not one.released_by) == held
    for one, row in zip(out, upon, strict=True):
        assert one.released_by is not None
        at = log.end if one.released_by.offset is None else one.released_by.offset
        high = next((high for low, high in cuts if low <= at < high), log.end)
        assert row == next((record.offset for record in log.records if at <= record.offset < high), high)


def named(setter: Setter) -> tuple[Mover, int | None] | None:
    """Return the oracle's setter as an explanation names it."""
    movers = {
        SetBy.EVENT: Mover.EVENT,
        SetBy.ARRIVAL: Mover.ARRIVAL,
        SetBy.ESTIMATE: Mover.ESTIMATE,
        SetBy.SOURCE: Mover.SOURCE_CTI,
        SetBy.IMPORT: Mover.IMPORT,
        SetBy.JOINED: Mover.JOINING,
        SetBy.END: Mover.END,
    }
    return None if setter.by is SetBy.NOBODY else (movers[setter.by], None if setter.offset < 0 else setter.offset)


def who(setter: TimeCause | None) -> tuple[Mover, int | None] | None:
    """Return what and which offset."""
    return (setter.mover, setter.offset) if setter else None


def agrees(told: Explanation, met: EventTrace) -> bool:
    """Tell whether an explanation says what the oracle says."""
    rulings = [ruling for ruling in met.rulings if ruling.policy != "lifted_end"]
    steps = [step for step in told.steps if step.policy is not Policy.SHAPE]
    same = [(step.policy.value, step.limit_us, step.after_us, who(step.limit_set_by)) for step in steps] == [
        (ruling.policy, ruling.limit_us, ruling.system_us, named(ruling.setter)) for ruling in rulings
    ]
    watermark = told.watermark_us is None or (told.watermark_us, who(told.watermark_set_by)) == (met.watermark_us, named(met.setter))
    return same and watermark and (told.system_us, told.arrival_us) == (met.system_us, met.arrival_us)


@given(logs())
def test_an_explanation_agrees_with_the_oracle(log: Log) -> None:
    """Level 1: watermark met and who had set it, limits and who had set those, every system timestamp on the way."""
    story = compute_story(
        log.records,
        log.policies,
        over=log.over,
        output_partitions=1,
        estimates=log.estimates,
        imports=log.imports,
        joined_us=log.joined_us,
        finish=log.finish,
    )
    told = {one.offset: one for one in explain(log)}
    assert [told[offset] for offset, met in story.traces.items() if not agrees(told[offset], met)] == []
    assert all((told[offset].watermark_us is not None) == (offset in story.watermarks) for offset in story.traces)


@given(logs())
def test_who_is_named_first_brought_the_watermark_there(log: Log) -> None:
    """Level 1: what the setter brought makes exactly that watermark, and nothing of its kind before it made as much."""
    told = explain(log)
    accepted = {one.offset: accepted_us(one) for one in told if one.system_us is not None}
    by_offset = {record.offset: record for record in log.records}
    for one in told:
        setter = one.watermark_set_by
        if setter is None or one.watermark_us is None:
            continue
        before = [record for record in log.records if setter.offset is not None and record.offset < setter.offset]
        if setter.mover is Mover.EVENT:
            same = [record for record in before if not log.over or record.key == by_offset[one.offset].key]
            earlier, back = [accepted.get(record.offset, NEVER) for record in same], log.policies.reorder_us
        elif setter.mover in (Mover.ARRIVAL, Mover.ESTIMATE):
            earlier, back = [record.arrival_us for record in before], log.policies.late_us or 0
        else:
            earlier, back = [], 0
        assert setter.time_us - back == one.watermark_us
        assert max(earlier, default=NEVER) < setter.time_us
        assert setter.offset is None or setter.offset < one.offset or setter.mover in (Mover.ESTIMATE, Mover.IMPORT)


def accepted_us(told: Explanation) -> int:
    """Return the system timestamp by which a kept event moves its timeline: a lifted end counts as it was before."""
    before = [step.before_us for step in told.steps if step.policy is Policy.SHAPE]
    return before[0] if before else told.system_us or NEVER


@given(cut_logs())
def test_an_explanation_does_not_depend_on_where_batches_are_cut(drawn: tuple[Log, Cuts]) -> None:
    """Level 1: the same explanations in the same order, whatever the cuts."""
    log, cuts = drawn
    assert explain(log, cuts) == explain(log)


@settings(max_examples=50)
@given(logs(), st.sets(st.integers(0, 60)))
def test_only_what_is_wanted_is_told_and_it_says_the_same(log: Log, offsets: set[int]) -> None:
    """Level 1: asking for less changes no answer."""
    every = explain(log)
    assert explain(log, offsets=offsets) == [one for one in every if one.offset in offsets]


@settings(max_examples=50)
@given(logs())
def test_every_explanation_can_be_said_in_json_and_in_words(log: Log) -> None:
    """Neither raises, and both name the verdict and the policies."""
    for one in explain(log):
        said = json.loads(json.dumps(one.as_dict()))
        assert (said["verdict"], tuple(said["policies"])) == (one.verdict.value, one.policies)
        assert all(f"{policy}: " in str(one) for policy in one.policies)
        assert "\n" not in str(one)


def toll(variant: str) -> dict[int, Explanation]:
    """Explain the worked example of the time model."""
    chosen, over = TOLL_VARIANTS[variant]
    log = Log(chosen, over, Shape.POINT, tuple(toll_records()), {}, {}, NEVER, finish=False)
    return {one.offset: one for one in explain(log)}


@pytest.mark.parametrize("variant", TOLL_VARIANTS)
def test_the_toll_log_is_explained_as_it_was_written_down(variant: str) -> None:
    """Level 1: outcome, system time and policies of every event of the golden files."""
    told = toll(variant)
    for outcome, event, system_time, names in toll_expected(variant):
        one = told[event]
        found = "dropped" if one.system_us is None else "released" if one.released_by else "held"
        assert (found, "" if one.system_us is None else clock_text(one.system_us), "+".join(one.policies)) == (outcome, system_time, names)


def at(setter: TimeCause | None) -> tuple[str, int | None, str] | None:
    """Return a setter in short: by what, which event, what time of day."""
    return (setter.mover.value, setter.offset, clock_text(setter.time_us)) if setter else None


def step_of(one: Explanation) -> tuple[str, str, str, tuple[str, int | None, str] | None, str, str | None]:
    """Return the only step of an explanation in short."""
    (step,) = one.steps
    after = None if step.after_us is None else clock_text(step.after_us)
    return step.policy.value, step.action.value, clock_text(step.limit_us), at(step.limit_set_by), clock_text(step.before_us), after


def test_event_3_was_early_by_its_own_arrival() -> None:
    """Level 1: 12:17 arriving 12:11 may be 12:16 at most; it was held against no watermark and is not released."""
    one = toll("one_timeline")[3]
    assert one.verdict is Verdict.DROPPED
    assert step_of(one) == ("early", "drop", "12:16", ("arrival", 3, "12:11"), "12:17", None)
    assert (one.watermark_us, one.watermark_set_by, one.system_us, one.released_by) == (None, None, None, None)


def test_event_6_met_the_watermark_that_event_5_had_set() -> None:
    """Level 1: event 5 of 12:19 had moved W to 12:17; event 8 of 12:20 lets it go."""
    one = toll("one_timeline")[6]
    assert one.verdict is Verdict.ADJUSTED
    assert (one.watermark_us, at(one.watermark_set_by)) == (clock_us("12:17"), ("event", 5, "12:19"))
    assert step_of(one) == ("out_of_order", "adjust", "12:17", ("event", 5, "12:19"), "12:12", "12:17")
    assert at(one.released_by) == ("event", 8, "12:20")


def test_event_9_met_the_watermark_that_event_8_had_set() -> None:
    """Level 1: event 8 of 12:20 had moved W to 12:18; event 10 of 12:23 lets it go."""
    one = toll("one_timeline")[9]
    assert step_of(one) == ("out_of_order", "adjust", "12:18", ("event", 8, "12:20"), "12:16", "12:18")
    assert at(one.released_by) == ("event", 10, "12:23")


def test_event_12_was_late_by_its_own_arrival_and_above_the_watermark_of_event_10() -> None:
    """Level 1: 12:21 arriving 12:27 becomes 12:22, above W = 12:21, which event 10 of 12:23 had set; it is still held."""
    one = toll("one_timeline")[12]
    assert step_of(one) == ("late", "adjust", "12:22", ("arrival", 12, "12:27"), "12:21", "12:22")
    assert (one.watermark_us, at(one.watermark_set_by)) == (clock_us("12:21"), ("event", 10, "12:23"))
    assert one.released_by is None


def test_the_first_event_met_no_watermark() -> None:
    """Level 1: event 1 of 12:07 is kept as it was; event 3, dropped, lets nothing go, but event 4's arrival does."""
    one = toll("one_timeline")[1]
    assert (one.verdict, one.steps, one.watermark_us, one.watermark_set_by) == (Verdict.KEPT, (), NEVER, None)
    assert at(one.released_by) == ("arrival", 4, "12:13")


def test_without_the_early_policy_event_4_met_the_watermark_of_event_3() -> None:
    """Level 1: event 3 of 12:17 lifts W to 12:15, and event 4 to it."""
    one = toll("early_off")[4]
    assert step_of(one) == ("out_of_order", "adjust", "12:15", ("event", 3, "12:17"), "12:08", "12:15")


def test_over_device_event_9_met_the_floor_and_not_another_device() -> None:
    """Level 1: device 3 stood at 12:12 - 2 min; the floor at 12:21's predecessor: event 8 arriving 12:19 makes 12:14."""
    one = toll("over_device")[9]
    assert (one.verdict, one.watermark_us) == (Verdict.KEPT, clock_us("12:14"))
    assert at(one.watermark_set_by) == ("arrival", 8, "12:19")


def test_a_clamped_arrival_names_who_had_set_the_frontier() -> None:
    """Level 1: a record whose stamp goes back counts as arriving with the record before, or with the estimate before it."""
    records = (Record(0, START_US, START_US), Record(1, START_US - 3, START_US), Record(5, START_US + 1, START_US))
    log = Log(Policies(), False, Shape.POINT, records, {4: START_US + 9}, {}, NEVER, finish=False)
    _, second, third = sorted(explain(log), key=lambda one: one.offset)
    assert (second.arrival_us, second.clamped_by) == (START_US, TimeCause(Mover.ARRIVAL, 0, START_US))
    assert (third.arrival_us, third.clamped_by) == (START_US + 9, TimeCause(Mover.ESTIMATE, 4, START_US + 9))
    assert "an idle estimate before 4" in str(third)


def test_an_explanation_reads_as_a_paragraph() -> None:
    """What people see of event 6."""
    assert str(toll("one_timeline")[6]) == (
        "The event at partition 0, offset 6, of 1970-01-01T12:12:00Z, was adjusted (out_of_order). "
        "It arrived at 1970-01-01T12:17:00Z. "
        "It met the watermark 1970-01-01T12:17:00Z, set by event 5 (system timestamp 1970-01-01T12:19:00Z). "
        "out_of_order: 1970-01-01T12:12:00Z lies before the earliest time allowed, 1970-01-01T12:17:00Z, "
        "set by event 5 (system timestamp 1970-01-01T12:19:00Z); moved to 1970-01-01T12:17:00Z. "
        "With the system timestamp 1970-01-01T12:17:00Z it was released by event 8 (system timestamp 1970-01-01T12:20:00Z)."
    )


def test_timelines_below_the_floor_are_forgotten() -> None:
    """The memory follows what may still matter, not what was ever seen."""
    explainer = Explainer(Policies(early_us=None, late_us=5, reorder_us=2), over=True, offsets=())
    records = [Record(offset, START_US + offset, START_US + offset, b"%d" % offset) for offset in range(5_000)]
    log = Log(explainer._policies, True, Shape.POINT, tuple(records), {}, {}, NEVER, finish=False)
    assert list(explainer.walk(log.batch(0, log.end))) == []
    assert len(explainer._timelines._marks) <= 2_048


TOLL_LATE_US = 5 * MINUTE_US


def test_an_event_late_and_out_of_order_is_told_with_both_steps() -> None:
    """Level 1: an event may count as late and as out of order; the second step starts where the first ended."""
    records = (Record(0, clock_us("12:10"), clock_us("12:14")), Record(1, clock_us("12:11"), clock_us("12:01")))
    log = Log(replace(TOLL_POLICIES, reorder_us=0), False, Shape.POINT, records, {}, {}, NEVER, finish=False)
    late, order = next(one for one in explain(log) if one.offset == 1).steps
    assert (late.policy, clock_text(late.before_us), late.after_us) == (Policy.LATE, "12:01", clock_us("12:11") - TOLL_LATE_US)
    assert (order.policy, order.before_us, order.after_us) == (Policy.OUT_OF_ORDER, late.after_us, clock_us("12:14"))
