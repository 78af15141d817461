"""
Level 1 of the law, against the oracle: every channel's sequence is a pure function of log, settings and journal.

The model walks the log in batches cut anywhere, torn, and restored from what it saved; the oracle hears one record at a
time and knows nothing of all that. What both tell must be equal, field by field.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import TOLL_VARIANTS, Case, Range, cases, clock_text, toll_expected, toll_records

from ordering.oracle import Record, Story, tell
from ordering.policies import Action, Policies
from ordering.punctuation import Cti
from ordering.state import State
from ordering.step import Batch, Model, Reason, Step
from ordering.ticks import INFINITY, MINUTE_US, SECOND_US, TICK_MAX, TICK_MIN
from ordering.wire import Flag

_POLICY_FLAGS = {"late": Flag.LATE, "out_of_order": Flag.OUT_OF_ORDER}
_VERDICTS = ("unreadable", "early", "late_adjusted", "late_dropped", "out_of_order_adjusted", "out_of_order_dropped", "arrival_clamps")


@dataclass
class Disk:
    """What a state leaves behind: enough to restore it after a crash."""

    head: bytes | None = None
    chunks: dict[int, bytes] = field(default_factory=dict)

    def save(self, state: State) -> None:
        """Write what changed since the last save."""
        delta = state.save()
        self.head = delta.head
        self.chunks.update(delta.put)
        for number in delta.delete:
            del self.chunks[number]

    def load(self, model: Model) -> State:
        """Return the state as it was saved last."""
        return model.new_state() if self.head is None else model.restore(self.head, dict(self.chunks))


@dataclass
class Run:
    """What a run of the model left: every step, and its last state."""

    steps: list[Step]
    state: State

    def events(self) -> list[tuple[Any, ...]]:
        """Return every released event, in release order."""
        return [event for step in self.steps for event in events_of(step)]

    def drops(self) -> list[tuple[int, str]]:
        """Return every dropped offset with its reason."""
        return [drop for step in self.steps for drop in drops_of(step)]

    def ctis(self) -> list[Cti]:
        """Return every CTI."""
        return [cti for step in self.steps for cti in step.ctis]


def walk(case: Case) -> Run:
    """Walk a case's log with the model, crashing and restoring as its ranges say."""
    model = Model(case.policies, case.over, case.output_partitions, case.number, inputs=case.number + 1)
    disk, state = Disk(), model.new_state()
    steps = []
    for at, cut in enumerate(case.ranges):
        batch = batch_of(case, cut, finish=case.finish and at == len(case.ranges) - 1)
        if cut.restored:
            state = disk.load(model)
        step = model.step(state, batch)
        if cut.torn:
            state = disk.load(model)
            again = model.step(state, batch)
            assert plain(again) == plain(step), "a batch run again after a crash gives the same"
            step = again
        disk.save(state)
        steps.append(step)
    return Run(steps, state)


def batch_of(case: Case, cut: Range, finish: bool) -> Batch:
    """Return one range of a case's log as the model takes it."""
    records = case.records[first_at(case.records, cut.start) : first_at(case.records, cut.end)]
    return Batch(
        offset=np.array([record.offset for record in records], dtype=np.int64),
        arrival_us=np.array([record.arrival_us for record in records], dtype=np.int64),
        event_time_us=np.array([-7 if record.event_time_us is None else record.event_time_us for record in records], dtype=np.int64),
        readable=np.array([record.event_time_us is not None for record in records], dtype=np.bool_),
        substream=objects([record.key for record in records]) if case.over else None,
        key=objects([message_key(record.offset) for record in records]),
        value=objects([payload(record.offset) for record in records]),
        end_offset=cut.end,
        estimates=cut.estimates,
        finish=finish,
    )


def first_at(records: tuple[Record, ...], offset: int) -> int:
    """Return the place of the first record at *offset* or above."""
    return bisect_left(records, offset, key=lambda record: record.offset)


def objects(items: list[Any]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return a column of objects."""
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def message_key(offset: int) -> bytes | None:
    """Return the Kafka key a record has in these tests: not its substream, and sometimes none."""
    return None if offset % 7 == 3 else b"key %d" % offset


def payload(offset: int) -> bytes:
    """Return the payload a record has in these tests."""
    return b"payload %d" % offset


def events_of(step: Step) -> list[tuple[Any, ...]]:
    """Return a step's events as tuples of all that a reader sees of them."""
    out = step.released
    columns = (out.output_partition, out.seq, out.system_us, out.event_time_us, out.arrival_us, out.offset, out.flags, out.key, out.value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def drops_of(step: Step) -> list[tuple[int, str]]:
    """Return a step's dropped offsets with their reasons."""
    reasons = (Reason(reason).name.lower() for reason in step.dropped.reason.tolist())
    return list(zip(step.dropped.offset.tolist(), reasons, strict=True))


def plain(step: Step) -> tuple[Any, ...]:
    """Return all that a step says, comparable."""
    return step.released.number, events_of(step), drops_of(step), step.ctis, step.counts


def told(story: Story) -> list[tuple[Any, ...]]:
    """Return the oracle's events in the form of :func:`events_of`."""
    return [
        (
            event.output_partition,
            event.seq,
            event.system_us,
            event.event_time_us,
            event.arrival_us,
            event.offset,
            sum(_POLICY_FLAGS[name] for name in event.policies),
            message_key(event.offset),
            payload(event.offset),
        )
        for event in story.ordered
    ]


def tell_case(case: Case, **changed: Any) -> Story:
    """Tell a case's story, *changed* arguments apart."""
    arguments: dict[str, Any] = {"records": case.records, "estimates": case.estimates, "finish": case.finish} | changed
    return tell(
        arguments.pop("records"),
        case.policies,
        over=case.over,
        output_partitions=case.output_partitions,
        roster=case.number,
        **arguments,
    )


def tell_until(case: Case, walked: int, finish: bool) -> Story:
    """Tell the story of the log up to the end of the first *walked* ranges, as far as estimates were heard by then."""
    heard: dict[int, int] = {}
    for cut in case.ranges[:walked]:
        for position, frontier_us in cut.estimates:
            heard[position] = max(frontier_us, heard.get(position, frontier_us))
    end = case.ranges[walked - 1].end
    return tell_case(case, records=case.records[: first_at(case.records, end)], estimates=heard, finish=finish)


def verdicts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that the oracle keeps too."""
    return {name: counts[name] for name in _VERDICTS}


@given(cases())
def test_events_do_not_depend_on_batches_crashes_or_the_moment_of_estimates(case: Case) -> None:
    """Level 1: the model's events are the oracle's, field by field and in the same order, and so is what is dropped."""
    run, story = walk(case), tell_case(case)
    assert run.events() == told(story)
    assert run.drops() == [(drop.offset, drop.reason) for drop in story.dropped]
    assert {step.released.number for step in run.steps} == {case.number}
    assert sorted(run.state.held.offset.tolist()) == story.held


@given(cases())
def test_counts_add_up_to_what_the_oracle_counts(case: Case) -> None:
    """Level 1: how often each policy spoke does not depend on cuts either; nothing is lost between in, out and held."""
    run, story = walk(case), tell_case(case)
    total: dict[str, int] = {}
    for step in run.steps:
        total = {name: total.get(name, 0) + value for name, value in asdict(step.counts).items()}
    assert verdicts(total) == verdicts(story.counts)
    assert (total["events_in"], total["released"]) == (len(case.records), len(story.ordered))
    held = run.steps[-1].counts.held
    assert held == len(story.held)
    assert total["events_in"] == total["unreadable"] + len(story.dropped) + total["released"] + held


@given(cases())
def test_each_batch_releases_all_that_the_log_allows_by_then(case: Case) -> None:
    """Level 1: nothing waits for a later batch, and CTIs say exactly what the oracle knows where the batch ends."""
    case = replace(case, ranges=tuple(replace(cut, restored=False, torn=False) for cut in case.ranges))
    released = 0
    said: dict[int, tuple[int, int, int]] = {}
    for walked, step in enumerate(walk(case).steps, start=1):
        story = tell_until(case, walked, finish=case.finish and walked == len(case.ranges))
        released += len(step.released)
        assert (released, step.counts.held) == (len(story.ordered), len(story.held))
        said |= {cti.output_partition: (cti.c, cti.n, cti.ahead) for cti in step.ctis}
        for output_partition, promise in said.items():
            assert promise == (story.moments[-1].c, *story.promise(story.moments[-1], output_partition))


@given(cases())
def test_ctis_only_rise_and_are_never_broken(case: Case) -> None:
    """Level 1: below c nothing comes at n or after, whatever is still held; ahead counts what is out at c and above."""
    run, story = walk(case), tell_case(case, finish=True)
    by_channel: dict[int, list[Cti]] = {}
    for cti in run.ctis():
        by_channel.setdefault(cti.output_partition, []).append(cti)
    for output_partition, ctis in by_channel.items():
        channel = story.channel(output_partition)
        assert [event.seq for event in channel] == list(range(len(channel)))
        for cti in ctis:
            assert all(event.seq < cti.n for event in channel if event.system_us < cti.c)
            assert cti.ahead == sum(event.system_us >= cti.c for event in channel[: cti.n])
            assert cti.largest_us == max((event.system_us for event in channel[: cti.n]), default=cti.largest_us)
            assert cti.number == case.number
        for before, after in pairwise(ctis):
            assert (before.c, before.n) < (after.c, after.n)
            assert before.c <= after.c
            assert before.n <= after.n
            assert before.next_offset <= after.next_offset
            assert before.arrival_us <= after.arrival_us


@given(cases())
def test_the_final_cti_closes_every_channel(case: Case) -> None:
    """Level 1: a finished input leaves nothing held and promises infinity in each channel it can write to."""
    run = walk(replace(case, finish=True))
    final = {cti.output_partition: cti for cti in run.steps[-1].ctis}
    assert set(final) == (set(range(case.output_partitions)) if case.over else {case.number % case.output_partitions})
    assert {(cti.c, cti.ahead) for cti in final.values()} == {(INFINITY, 0)}
    story = tell_case(case, finish=True)
    assert {output_partition: cti.n for output_partition, cti in final.items()} == {
        output_partition: len(story.channel(output_partition)) for output_partition in final
    }
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
    names = {0: "", Flag.LATE: "late", Flag.OUT_OF_ORDER: "out_of_order"}
    rows = [("released" if at < len(released) else "held", e[5], clock_text(e[2]), names[e[6]]) for at, e in enumerate(everything)]
    rows += [("dropped", offset, "", reason) for offset, reason in walk(walked).drops()]
    assert rows == toll_expected(variant)


def long_log(seed: int, count: int, keys: int) -> tuple[Record, ...]:
    """Return a seeded log of realistic spread: bursts, silences, stragglers, an occasional broken record."""
    draw = random.Random(seed)
    records, offset, arrival_us = [], 0, 10**15
    for _ in range(count):
        arrival_us += draw.choice([0, 0, 1, 5, 40]) * SECOND_US if draw.random() < 0.97 else -30 * SECOND_US
        lateness_us = int(draw.gauss(20, 60) * SECOND_US) if draw.random() < 0.95 else draw.randint(-900, 1200) * SECOND_US
        event_time_us = None if draw.random() < 0.02 else arrival_us - lateness_us
        records.append(Record(offset, arrival_us, event_time_us, b"key %d" % draw.randrange(keys)))
        offset += 1 if draw.random() < 0.98 else 3
    return tuple(records)


def long_case(seed: int, records: tuple[Record, ...], over: bool) -> Case:
    """Return a case over a long log: seeded policies, estimates and batches of 0 to several hundred offsets, some crashing."""
    draw = random.Random(seed)
    end = records[-1].offset + 1
    edges = [0]
    while edges[-1] < end:
        edges.append(min(end, edges[-1] + draw.choice([0, 1, 7, 60, 400])))
    laid: dict[int, list[tuple[int, int]]] = {}
    heard: dict[int, int] = {}
    for at in draw.sample(range(len(edges) - 1), min(8, len(edges) - 1)):
        stands_us = records[min(first_at(records, edges[at + 1]), len(records) - 1)].arrival_us
        frontier_us = stands_us + draw.randint(-90, 30) * SECOND_US
        laid[at] = [(edges[at + 1], frontier_us)]
        heard[edges[at + 1]] = max(frontier_us, heard.get(edges[at + 1], frontier_us))
    return Case(
        policies=Policies(
            early_us=draw.choice([None, 2 * MINUTE_US]),
            late_us=3 * MINUTE_US if over else draw.choice([None, 3 * MINUTE_US]),
            late_action=draw.choice(list(Action)),
            reorder_us=draw.choice([-1, 0, 45 * SECOND_US]),
            out_of_order_action=draw.choice(list(Action)),
        ),
        over=over,
        output_partitions=draw.choice([1, 3, 4]),
        number=2,
        records=records,
        estimates=heard,
        ranges=tuple(
            Range(low, high, tuple(laid.get(at, ())), restored=draw.random() < 0.3, torn=draw.random() < 0.2)
            for at, (low, high) in enumerate(pairwise(edges))
        ),
        finish=draw.random() < 0.5,
    )


@pytest.mark.parametrize("over", [False, True], ids=["one timeline", "over"])
@pytest.mark.parametrize("seed", range(4))
def test_long_logs_keep_the_law_too(seed: int, over: bool) -> None:
    """Level 1: thousands of records, dozens of keys, hundreds in a batch: what small logs cannot reach."""
    case = long_case(seed, long_log(seed, 2_000, keys=40), over)
    run, story = walk(case), tell_case(case)
    assert run.events() == told(story)
    assert run.drops() == [(drop.offset, drop.reason) for drop in story.dropped]


def crowd_log(seed: int) -> tuple[Record, ...]:
    """Return a log of a few keys that keep coming back, close to the floor, in a crowd of keys seen once."""
    draw = random.Random(seed)
    records, arrival_us = [], 10**15
    for offset in range(2_500):
        arrival_us += draw.choice([0, 0, 0, 1]) * SECOND_US
        regular = draw.random() < 0.5
        key = b"regular %d" % draw.randint(0, 30) if regular else b"passer-by %d" % offset
        lateness_us = draw.randint(-2 if regular else 6, 13) * SECOND_US
        records.append(Record(offset, arrival_us, arrival_us - lateness_us, key))
    return tuple(records)


@pytest.mark.parametrize("reorder_us", [-1, 0, 4 * SECOND_US])
@pytest.mark.parametrize("action", Action)
def test_forgetting_timelines_changes_nothing_but_the_size_of_the_state(action: Action, reorder_us: int) -> None:
    """Level 1: the model forgets more than a thousand substreams, the oracle none; those that return tell no difference."""
    records = crowd_log(reorder_us)
    tolerant = Policies(early_us=None, late_us=12 * SECOND_US, reorder_us=reorder_us, out_of_order_action=action)
    case = replace(long_case(reorder_us, records, over=True), policies=tolerant, finish=False)
    run, story = walk(case), tell_case(case)
    assert run.events() == told(story)
    assert run.drops() == [(drop.offset, drop.reason) for drop in story.dropped]
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
    assert run.events() == told(story)
    assert run.drops() == [(drop.offset, drop.reason) for drop in story.dropped]
