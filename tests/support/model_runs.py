"""
Runs of the real model over drawn cases, and the oracle's stories in the same form: what the tests of the law compare.

The model walks the log in batches cut anywhere, torn, and restored from what it saved; the oracle hears one record at a
time and knows nothing of all that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import settings
from support.oracle import compute_story
from support.story import Snapshot, Story
from support.strategies import Case, Range

from ordering.model.state import State
from ordering.model.step import Batch, Model, Reason, Step
from ordering.policies import Shape
from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.wire import Flag
from ordering.testing import Record
from ordering.ticks import NEVER, TICK_MIN

FLAGS = {
    "early": Flag.EARLY,
    "late": Flag.LATE,
    "out_of_order": Flag.OUT_OF_ORDER,
    "cti_violation": Flag.CTI_VIOLATION,
    "lifted_end": Flag.LIFTED_END,
}
"""Flag of each ruling of the oracle."""
VERDICTS = (
    "unreadable",
    "source_ctis",
    "early",
    "early_adjusted",
    "cti_violation_adjusted",
    "cti_violation_dropped",
    "late_adjusted",
    "late_dropped",
    "out_of_order_adjusted",
    "out_of_order_dropped",
    "arrival_clamps",
)
"""The counts that oracle and model both keep."""


def tries(share: float) -> settings:
    """Return settings for a test that deserves so many times the examples of others: more for a cheap one, fewer for a dear one."""
    profile = settings.get_profile(settings.get_current_profile_name())
    return settings(profile, max_examples=round(profile.max_examples * share))


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

    def load(self, model: Model, fresh: Callable[[], State]) -> State:
        """Return the state as it was saved last, a *fresh* one before the first save."""
        return fresh() if self.head is None else model.restore(self.head, dict(self.chunks))


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

    def channels(self) -> dict[int, list[Cti]]:
        """Return every CTI by output partition."""
        by_channel: dict[int, list[Cti]] = {}
        for cti in self.ctis():
            by_channel.setdefault(cti.output_partition, []).append(cti)
        return by_channel


def model_of(case: Case, roster: Roster | None = None, kind: type[Model] = Model) -> Model:
    """Return the model of a case's input partition."""
    return kind(
        case.policies,
        case.over,
        case.output_partitions,
        case.number,
        roster,
        inputs=case.number + 1,
        shape=case.shape,
        generation=case.generation,
        joined_us=case.joined_us,
    )


def channels_of(case: Case) -> list[int]:
    """Return the output partitions that the case's input partition can write to."""
    return list(range(case.output_partitions)) if case.over else [case.number % case.output_partitions]


def walk(case: Case, model: Model | None = None, fresh: Callable[[], State] | None = None) -> Run:
    """Walk a case's log with the model, from a *fresh* state, crashing and restoring as its ranges say."""
    model = model or model_of(case)
    fresh = fresh or model.new_state
    disk, state, steps = Disk(), fresh(), []
    for at, cut in enumerate(case.ranges):
        batch = batch_of(case, cut, finish=case.finish and at == len(case.ranges) - 1)
        if cut.restored:
            state = disk.load(model, fresh)
        step = model.step(state, batch)
        if cut.torn:
            state = disk.load(model, fresh)
            again = model.step(state, batch)
            assert plain(again) == plain(step), "a batch run again after a crash gives the same"
            step = again
        disk.save(state)
        steps.append(step)
    return Run(steps, state)


def batch_of(case: Case, cut: Range, finish: bool) -> Batch:
    """Return one range of a case's log as the model takes it."""
    records = case.records[first_at(case.records, cut.start) : first_at(case.records, cut.end)]
    source_ctis = [NEVER if record.source_cti_us is None else record.source_cti_us for record in records]
    return Batch(
        offset=np.array([record.offset for record in records], dtype=np.int64),
        arrival_us=np.array([record.arrival_us for record in records], dtype=np.int64),
        event_time_us=np.array([-7 if record.event_time_us is None else record.event_time_us for record in records], dtype=np.int64),
        readable=np.array([record.event_time_us is not None for record in records], dtype=np.bool_),
        substream=objects([record.key for record in records]) if case.over else None,
        key=objects([message_key(case, record) for record in records]),
        value=objects([payload(record.offset) for record in records]),
        end_offset=cut.end,
        estimates=cut.estimates,
        finish=finish,
        source_cti_us=np.array(source_ctis, dtype=np.int64) if set(source_ctis) - {NEVER} else None,
        imports=cut.imports,
        end_us=whole([record.end_us for record in records]) if case.shape is Shape.INTERVAL else None,
        start_us=whole([record.start_us for record in records]) if case.shape is Shape.EDGE else None,
    )


def calm(case: Case) -> Case:
    """Return the case without crashes."""
    return replace(case, ranges=tuple(replace(cut, restored=False, torn=False) for cut in case.ranges))


def first_at(records: tuple[Record, ...], offset: int) -> int:
    """Return the place of the first record at *offset* or above."""
    return bisect_left(records, offset, key=lambda record: record.offset)


def objects(items: list[Any]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return a column of objects."""
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def whole(items: list[int | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a column of times, with anything where there is none."""
    return np.array([-7 if item is None else item for item in items], dtype=np.int64)


def message_key(case: Case, record: Record) -> bytes | None:
    """Return the Kafka key a record has in these tests: what its edges are matched by, else not its substream, and sometimes none."""
    if case.shape is Shape.EDGE:
        return record.raw_key
    return None if record.offset % 7 == 3 else b"key %d" % record.offset


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
    """Return all that a step says, comparable; not the lists of CTIs: after a crash they may tell again what was told."""
    ctis = [replace(cti, listed=()) for cti in step.ctis]
    return step.released.number, events_of(step), step.released.release_rows.tolist(), drops_of(step), ctis, step.counts


def told(case: Case, story: Story) -> list[tuple[Any, ...]]:
    """Return the oracle's events in the form of :func:`events_of`."""
    by_offset = {record.offset: record for record in case.records}
    return [
        (
            event.output_partition,
            event.seq,
            event.system_us,
            event.event_time_us,
            event.arrival_us,
            event.offset,
            sum(FLAGS[name] for name in event.policies) | _shape_flag(by_offset[event.offset]),
            message_key(case, by_offset[event.offset]),
            payload(event.offset),
        )
        for event in story.ordered
    ]


def _shape_flag(record: Record) -> int:
    if record.start_us is not None:
        return Flag.EDGE_END if record.is_end_edge else Flag.EDGE_START
    return 0 if record.end_us is None else Flag.INTERVAL


def dropped_in(story: Story) -> list[tuple[int, str]]:
    """Return the oracle's drops in the form of :func:`drops_of`."""
    return [(drop.offset, drop.reason) for drop in story.dropped]


def tell_case(case: Case, **changed: Any) -> Story:
    """Tell a case's story, *changed* arguments apart."""
    arguments: dict[str, Any] = {
        "records": case.records,
        "estimates": case.estimates,
        "imports": case.imports,
        "joined_us": case.joined_us,
        "delay_us": case.generation.delay_us,
        "finish": case.finish,
    }
    arguments |= changed
    return compute_story(
        arguments.pop("records"),
        case.policies,
        over=case.over,
        output_partitions=case.output_partitions,
        roster=case.number,
        **arguments,
    )


def tell_until(case: Case, walked: int, finish: bool, known: Case | None = None) -> Story:
    """
    Tell the story of the log up to the end of the first *walked* ranges, as far as estimates and imports were heard by then.

    What stands below the first range was heard before: a run that starts in the middle may have the facts of a whole case, *known*.
    """
    start, end = case.ranges[0].start, case.ranges[walked - 1].end
    heard = [dict(_before(facts, start if known else 0)) for facts in (case.estimates, case.imports)]
    for cut in case.ranges[:walked]:
        for facts, applied in zip(heard, (cut.estimates, cut.imports), strict=True):
            for position, value in applied:
                facts[position] = max(value, facts.get(position, value))
    return tell_case(case, records=case.records[: first_at(case.records, end)], estimates=heard[0], imports=heard[1], finish=finish)


def _before(facts: Mapping[int, int], position: int) -> Iterator[tuple[int, int]]:
    return ((at, value) for at, value in facts.items() if at < position)


def verdicts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that the oracle keeps too."""
    return {name: counts[name] for name in VERDICTS}


def total_counts(run: Run) -> dict[str, int]:
    """Return the sums of a run's counts."""
    total: dict[str, int] = {}
    for step in run.steps:
        total = {name: total.get(name, 0) + value for name, value in asdict(step.counts).items()}
    return total


@dataclass(frozen=True)
class Promised:
    """A CTI as it has to be: what it says of which channel, at which moment of which story."""

    cti: tuple[int, int, int, int, int, int]
    moment: Snapshot
    story: Story


def said(cti: Cti) -> tuple[int, int, int, int, int, int]:
    """Return what a CTI says of its channel and input partition: (c, n, ahead, next offset, A, largest released)."""
    return cti.c, cti.n, cti.ahead, cti.next_offset, cti.arrival_us, cti.largest_us


def promised(story: Story, moment: Snapshot, channel: int, next_offset: int) -> tuple[int, int, int, int, int, int]:
    """Return what a CTI has to say at a moment, in the form of :func:`said`."""
    largest_us = story.largest_us(moment, channel)
    return moment.c, *story.promise(moment, channel), next_offset, moment.frontier_us, TICK_MIN if largest_us is None else largest_us


def due_ctis(case: Case) -> dict[int, list[Promised]]:
    """
    Return the CTIs of each channel that a run from the beginning has to write, one batch after the other.

    Those of a partition that joined late say so first, which is not told here.
    """
    due: dict[int, list[Promised]] = {channel: [] for channel in channels_of(case)}
    before: dict[int, tuple[int, int]] = dict.fromkeys(due, (NEVER, 0))
    last_us = NEVER
    for walked, cut in enumerate(case.ranges, start=1):
        finish = case.finish and walked == len(case.ranges)
        story = tell_until(case, walked, finish)
        for moment, next_offset in _points(story, case, cut, finish, last_us):
            last_us = moment.watermark_us
            for channel, promises in due.items():
                words = promised(story, moment, channel, next_offset)
                if words[:2] != before[channel]:
                    promises.append(Promised(words, moment, story))
                    before[channel] = words[:2]
    return due


def _points(story: Story, case: Case, cut: Range, finish: bool, last_us: int) -> Iterator[tuple[Snapshot, int]]:
    """Yield the moments of a batch at which CTIs are due, each with its next offset."""
    for moment in story.snapshots:
        if cut.start < moment.next_offset <= cut.end and moment.is_due(case.generation, last_us):
            last_us = moment.watermark_us
            yield moment, moment.next_offset
    # What stands behind the last record counts with the end of the batch.
    last_offset = max((record.offset for record in case.records if cut.start <= record.offset < cut.end), default=-1)
    moved = any(position > last_offset for position, _ in (*cut.estimates, *cut.imports))
    if case.generation.is_per_batch or moved or finish:
        yield story.snapshots[-1], cut.end
