"""
The law of why, over the model: in each drawn situation the cause is named, removing it releases the result, and nothing else does.

A small pipeline runs in process: partitions with a model each, a query that reads their promises, and a clock. A situation is a pipeline
that would publish the result, with one thing wrong. Level 3: which results are published when follows from the promises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from support.chance import dice_of

from ingest.stage.watermark_report import find_watermark, look_at_held
from ordering.model.state import State
from ordering.model.step import Model
from ordering.policies import Policies
from ordering.testing import Record, batch_of
from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.observe.reports import IngestReport
from tidegate.tools.why.facts import InputFacts, OutputFacts, PartitionFacts, StageFacts
from tidegate.tools.why.holds import Hold, HoldCause, find_holds

START_US = 1_767_600_000 * SECOND_US
# A silence margin of half a second, as ingest has it.
MARGIN_US = SECOND_US // 2
STILL = "its producers stamp the records"


@dataclass
class Partition:
    """A raw partition, and the ingest stage of it: records up to ``read`` are judged."""

    name: str
    model: Model
    state: State
    log: list[Record] = field(default_factory=list)
    read: int = 0
    # Whether its reader keeps up.
    is_read: bool = True

    def report(self) -> IngestReport:
        policies, over = self.model.policies, self.model.over
        return IngestReport(
            topic=self.name,
            partition=0,
            next_offset=self.read,
            arrival_us=self.state.arrival_us,
            complete_us=self.state.c,
            held=self.state.held_count,
            watermark=find_watermark(self.state, policies, over),
            held_events=look_at_held(self.state, policies, over, 100),
        )


@dataclass
class Pipeline:
    """Partitions, ingest, and a query that publishes the results below the least promise it has read."""

    policies: Policies
    over: bool
    key: str | None
    due_us: int
    now_us: int
    partitions: list[Partition] = field(default_factory=list)
    ingest_state: str = "live"
    query_state: str = "live"
    waits_for: str = ""
    query_reads: bool = True
    silence_counts: bool = False
    complete_us: int = NEVER

    @classmethod
    def drawn(cls, dice: Random) -> Pipeline:
        """Return a pipeline whose records so far are all below the result's time."""
        over = dice.random() < 0.4
        policies = Policies(early_us=None, late_us=dice.randrange(20, 60) * SECOND_US, reorder_us=dice.randrange(0, 9) * SECOND_US)
        due_us = START_US + 100 * SECOND_US
        pipeline = cls(policies, over, None, due_us, due_us + dice.randrange(10, 15) * SECOND_US)
        for number in range(dice.randrange(1, 5)):
            model = Model(policies, over, 1)
            pipeline.partitions.append(Partition(f"raw{number}", model, model.new_state()))
        for partition in pipeline.partitions:
            for second in sorted(dice.sample(range(60), 8)):
                pipeline.produce(partition, START_US + second * SECOND_US, START_US + second * SECOND_US)
        return pipeline

    def produce(self, partition: Partition, event_us: int, arrival_us: int, key: bytes = b"k") -> None:
        partition.log.append(Record(len(partition.log), arrival_us, event_us, key))

    def use(self, policies: Policies, *, over: bool) -> None:
        """Begin anew with other policies, or timelines."""
        self.policies, self.over = policies, over
        for partition in self.partitions:
            partition.model = Model(policies, over, 1)
            partition.state = partition.model.new_state()

    def finish(self, partition: Partition) -> None:
        """Produce what takes the partition past the result's time: an event beyond the reorder tolerance and, with OVER, the late one."""
        beyond_us = self.due_us + self.policies.reorder_us + SECOND_US
        arrival_us = self.due_us + (self.policies.late_us or 0) + SECOND_US if self.over and self.key is None else self.now_us
        self.now_us = max(self.now_us, arrival_us)
        self.produce(partition, beyond_us, arrival_us)

    def run(self) -> None:
        """Let every stage that can do what it has to do."""
        for partition in self.partitions:
            if self.ingest_state != "live" or not partition.is_read:
                continue
            new = partition.log[partition.read :]
            if new:
                partition.model.step(partition.state, batch_of(new, over=self.over))
                partition.read = len(partition.log)
            elif self.silence_counts and partition.state.arrival_us > NEVER:
                estimate_us = max(self.now_us - MARGIN_US, partition.state.arrival_us)
                batch = partition.model.time_only_batch(partition.read, ((partition.read, estimate_us),))
                partition.model.step(partition.state, batch)
        if self.query_state == "live" and self.query_reads and not self.waits_for:
            self.complete_us = max(self.complete_us, min(self._promise(partition) for partition in self.partitions))

    def _promise(self, partition: Partition) -> int:
        """Return the promise for the substream that is asked for, or for the whole partition."""
        if self.key is None:
            return partition.state.c
        top = look_at_held(partition.state, self.policies, self.over, 100).top
        return max(partition.state.c, next((each.watermark_us for each in top if each.key == self.key), NEVER))

    def facts(self) -> OutputFacts:
        places = tuple(PartitionFacts.of(each.report(), len(each.log), self.key) for each in self.partitions)
        source = InputFacts(
            "cars",
            StageFacts("ingest cars", self.ingest_state, self.now_us),
            places,
            self.policies.late_us,
            self.policies.reorder_us,
            self.over,
            "" if self.silence_counts else STILL,
        )
        query = StageFacts("query counts", self.query_state, self.now_us, self.waits_for)
        return OutputFacts("counts", query, self.complete_us, 5, (source,), self.due_us, self.key)

    def holds(self) -> tuple[Hold, ...]:
        self.run()
        return find_holds(self.facts(), self.now_us)


Situation = tuple[HoldCause, str, Callable[[], None]]


def victim_of(pipeline: Pipeline, dice: Random) -> Partition:
    """Take all partitions but one past the result's time; return that one."""
    victim = dice.choice(pipeline.partitions)
    for partition in pipeline.partitions:
        if partition is not victim:
            pipeline.finish(partition)
    return victim


def silent_partition(pipeline: Pipeline, dice: Random) -> Situation:
    """All partitions but one go on."""
    victim = victim_of(pipeline, dice)
    return HoldCause.SILENT, f"{victim.name}-0", lambda: pipeline.finish(victim)


def silence_in_time(pipeline: Pipeline, dice: Random) -> Situation:
    """The partition is silent, and silence moves time: waiting until the time that is named releases the result."""
    pipeline.use(pipeline.policies, over=False)
    victim = victim_of(pipeline, dice)
    pipeline.silence_counts = True

    def wait() -> None:
        pipeline.now_us = pipeline.due_us + (pipeline.policies.late_us or 0) + 1 + MARGIN_US

    return HoldCause.SILENT, f"{victim.name}-0", wait


def never_spoke(pipeline: Pipeline, dice: Random) -> Situation:
    """A partition has no record at all."""
    victim = victim_of(pipeline, dice)
    victim.log.clear()
    return HoldCause.NEVER_SPOKE, f"{victim.name}-0", lambda: pipeline.finish(victim)


def slow_partition(pipeline: Pipeline, dice: Random) -> Situation:
    """The records are there, and one partition is not read."""
    victim = victim_of(pipeline, dice)
    pipeline.run()
    pipeline.finish(victim)
    victim.is_read = False
    return HoldCause.SLOW, f"{victim.name}-0", lambda: setattr(victim, "is_read", True)


def held_reorder(pipeline: Pipeline, dice: Random) -> Situation:
    """A later event is there, within the reorder tolerance."""
    pipeline.use(replace(pipeline.policies, reorder_us=dice.randrange(2, 9) * SECOND_US), over=False)
    victim = victim_of(pipeline, dice)
    pipeline.produce(victim, pipeline.due_us + SECOND_US, pipeline.now_us)
    return HoldCause.REORDER, f"{victim.name}-0", lambda: pipeline.finish(victim)


def late_tolerance(pipeline: Pipeline, dice: Random) -> Situation:
    """Events come, and none beyond the result's time. With OVER one partition alone, since arrivals would release the results of all."""
    del pipeline.partitions[1 if pipeline.over else len(pipeline.partitions) :]
    victim = victim_of(pipeline, dice)
    pipeline.produce(victim, pipeline.due_us - SECOND_US, pipeline.now_us)
    return HoldCause.LATE, f"{victim.name}-0", lambda: pipeline.finish(victim)


def late_substream(pipeline: Pipeline, dice: Random) -> Situation:
    """Events of the partition come, and none of the substream."""
    pipeline.key = "k"
    pipeline.use(pipeline.policies, over=True)
    victim = victim_of(pipeline, dice)
    pipeline.produce(victim, pipeline.due_us - SECOND_US, pipeline.now_us)
    # Another substream of the partition goes on, which does not help this one.
    pipeline.produce(victim, pipeline.due_us + 9 * SECOND_US, pipeline.now_us, b"other")
    return HoldCause.SUBSTREAM, f"{victim.name}-0", lambda: pipeline.finish(victim)


def clock_far_ahead(pipeline: Pipeline, dice: Random) -> Situation:
    """One partition has an event of the future, the others stand at the clock: the results of that time lie ahead."""
    ahead_us = dice.randrange(100, 1000) * SECOND_US
    victim = victim_of(pipeline, dice)
    pipeline.produce(victim, pipeline.now_us, pipeline.now_us)
    pipeline.due_us += ahead_us
    for partition in pipeline.partitions:
        if partition is not victim:
            pipeline.produce(partition, pipeline.due_us + pipeline.policies.reorder_us + SECOND_US, pipeline.now_us)

    def go_on() -> None:
        # The clock gets there, with records that arrive then in every partition.
        pipeline.now_us = pipeline.due_us + (pipeline.policies.late_us or 0) + SECOND_US
        for partition in pipeline.partitions:
            pipeline.finish(partition)

    return HoldCause.AHEAD, "", go_on


def stopped_ingest(pipeline: Pipeline, dice: Random) -> Situation:
    """The ingest job does not run."""
    pipeline.run()
    pipeline.ingest_state = dice.choice(("stopped", "failed", "gone", "never started"))
    for partition in pipeline.partitions:
        pipeline.finish(partition)
    return HoldCause.STOPPED, "", lambda: setattr(pipeline, "ingest_state", "live")


def stopped_query(pipeline: Pipeline, dice: Random) -> Situation:
    """The query does not run."""
    pipeline.query_state = dice.choice(("stopped", "failed", "gone", "never started"))
    for partition in pipeline.partitions:
        pipeline.finish(partition)
    return HoldCause.STOPPED, "", lambda: setattr(pipeline, "query_state", "live")


def paused_broker(pipeline: Pipeline, dice: Random) -> Situation:
    """The query waits for the brokers."""
    pipeline.waits_for = "Kafka does not answer"
    for partition in pipeline.partitions:
        pipeline.finish(partition)
    return HoldCause.WAITING, "", lambda: setattr(pipeline, "waits_for", "")


def slow_query(pipeline: Pipeline, dice: Random) -> Situation:
    """The query has not read what ingest has written."""
    pipeline.run()
    pipeline.query_reads = False
    for partition in pipeline.partitions:
        pipeline.finish(partition)
    return HoldCause.BEHIND, "", lambda: setattr(pipeline, "query_reads", True)


SITUATIONS = (
    *(silent_partition, silence_in_time, never_spoke, slow_partition, held_reorder, late_tolerance, late_substream),
    *(clock_far_ahead, stopped_ingest, stopped_query, paused_broker, slow_query),
)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_the_cause_is_named_and_its_removal_releases_the_result(situation: Callable[[Pipeline, Random], Situation]) -> None:
    """In 20 drawn situations of each kind the one cause is named with its place; the result comes when it is removed, not before."""
    for number in range(20):
        dice = dice_of(f"{situation.__name__} {number}")
        pipeline = Pipeline.drawn(dice)
        cause, place, remove = situation(pipeline, dice)
        holds = pipeline.holds()
        assert {hold.cause for hold in holds} == {cause}, (number, [hold.in_words for hold in holds])
        assert not place or [hold.place for hold in holds] == [place]
        assert pipeline.complete_us <= pipeline.due_us
        # Nothing but the removal helps: time passes, and the stages run on.
        if cause not in (HoldCause.SILENT, HoldCause.LATE, HoldCause.REORDER, HoldCause.SUBSTREAM) or not pipeline.silence_counts:
            pipeline.now_us += SECOND_US
            assert pipeline.holds(), number
        until_us = holds[0].until_us
        remove()
        assert not pipeline.holds(), (number, [hold.in_words for hold in pipeline.holds()])
        if situation is silence_in_time:
            assert until_us == pipeline.now_us - MARGIN_US


def test_two_causes_are_both_named_and_both_must_go() -> None:
    """With two silent partitions both are named; one of them alone releases nothing."""
    for number in range(20):
        dice = dice_of(f"two causes {number}")
        pipeline = Pipeline.drawn(dice)
        while len(pipeline.partitions) < 2:
            model = Model(pipeline.policies, pipeline.over, 1)
            pipeline.partitions.append(Partition("raw9", model, model.new_state()))
        first, second, *others = dice.sample(pipeline.partitions, len(pipeline.partitions))
        for partition in others:
            pipeline.finish(partition)
        assert {hold.place for hold in pipeline.holds()} == {f"{first.name}-0", f"{second.name}-0"}
        pipeline.finish(first)
        assert [hold.place for hold in pipeline.holds()] == [f"{second.name}-0"]
        pipeline.finish(second)
        assert not pipeline.holds()


def test_the_cause_of_a_chained_query_is_found_behind_it() -> None:
    """A query over the results of another waits for what holds that one."""
    dice = dice_of("chained")
    pipeline = Pipeline.drawn(dice)
    victim = victim_of(pipeline, dice)
    pipeline.run()
    inner = pipeline.facts()
    outer = OutputFacts("totals", StageFacts("query totals", "live"), pipeline.complete_us, 0, (inner,), pipeline.due_us)
    assert [(hold.cause, hold.place) for hold in find_holds(outer, pipeline.now_us)] == [(HoldCause.SILENT, f"{victim.name}-0")]
    stopped = replace(inner, stage=StageFacts("query counts", "gone"))
    named = find_holds(replace(outer, sources=(stopped,)), pipeline.now_us)
    assert [hold.cause for hold in named] == [HoldCause.STOPPED, HoldCause.SILENT]


def test_a_hold_is_told_in_words_and_in_json() -> None:
    """A line names place, newest event, since, until and what to do; programs get the same as members."""
    dice = dice_of("words")
    pipeline = Pipeline.drawn(dice)
    victim = victim_of(pipeline, dice)
    pipeline.silence_counts = True
    pipeline.run()
    [hold] = find_holds(replace(pipeline.facts()), pipeline.now_us)
    told = hold.to_json()
    assert told["place"] == f"{victim.name}-0"
    assert told["until"].startswith("2026-01-05T08:0")
    for part in (told["place"], told["event"], told["since"], "at the latest", told["remedy"]):
        assert part in hold.in_words
