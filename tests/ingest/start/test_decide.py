"""How an input goes on, by tables: a survey and a request go in, an action or a refusal comes out. No service takes part."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.journal.skip_book import KnownSkips
from ingest.offsets import IngestOffset, PartitionJoin, PlannedPosition
from ingest.skips import Skip
from ingest.start.decide import InputStart, decide
from ingest.start.resume import Resumption
from ingest.start.survey import LogSurvey
from ordering.errors import RefusedError
from ordering.ticks import DAY_US, NEVER
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.output_start import BEGINNING, LAST_STOPPED, Start
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.settings.load import Settings, load

FOLDER = Path("checkpoints/ingest-raw.ordered")
BROKER_CLOCK = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "5000"}
RAW = Topic("raw", "id of raw", 2, BROKER_CLOCK)
ORDERED = Topic("raw.ordered", "id of ordered", 2, {})
FIRST = {("raw", 0): 7, ("raw", 1): 0}
NEW = LogSurvey(FOLDER, (RAW,), FIRST)
STARTED = Start("2001-01-01T00:00:00Z", 978_307_200_000_000)
RESUMPTION = Resumption({("raw", 0): PlannedPosition(10), ("raw", 1): PlannedPosition(20)}, start=STARTED)
POSITIONS = {("raw", 0): PlannedPosition(40), ("raw", 1): PlannedPosition(50)}


def settings_of(**changes: str) -> Settings:
    """The settings of one input."""
    fields = {"topic": "raw", "timestamp_by": "t", "late": "5s", **changes}
    return load(None, {f"inputs.raw.{name}": value for name, value in fields.items()}, env={})


SETTINGS = settings_of()


def running(**changes: Any) -> LogSurvey:
    """The survey of an input with a checkpoint that is bound to what it was begun with."""
    survey = replace(NEW, ordered=ORDERED, has_events=True, resumption=RESUMPTION)
    binding = decide(SETTINGS, "raw", replace(NEW, ordered=ORDERED)).binding
    offset = IngestOffset(POSITIONS)
    batches = {"checkpoint": "settled", "last_planned": 3, "last_finished": 3, "planned": offset, "done": offset}
    return replace(survey, binding=binding, **{**batches, **changes})


@pytest.mark.parametrize(
    ("survey", "requested", "action", "start", "resumption"),
    [
        (NEW, None, InputStart.BEGIN, BEGINNING, Resumption({("raw", 0): PlannedPosition(7), ("raw", 1): PlannedPosition(0)})),
        (NEW, STARTED, InputStart.BEGIN, STARTED, None),
        (NEW, Start(LAST_STOPPED), InputStart.BEGIN, Start(LAST_STOPPED), None),
        (replace(NEW, resumption=RESUMPTION), None, InputStart.BEGIN, STARTED, RESUMPTION),
        (replace(NEW, resumption=RESUMPTION), Start(STARTED.text, 5), InputStart.BEGIN, STARTED, RESUMPTION),
        (replace(NEW, resumption=RESUMPTION), Start("now", 9), InputStart.BEGIN, Start("now", 9), None),
        (
            replace(NEW, ordered=ORDERED),
            None,
            InputStart.BEGIN,
            BEGINNING,
            Resumption({key: PlannedPosition(at) for key, at in FIRST.items()}),
        ),
        (replace(NEW, ordered=ORDERED, has_events=True), STARTED, InputStart.RESUME, BEGINNING, None),
        (running(), None, InputStart.CONTINUE, STARTED, RESUMPTION),
        (running(), Start(LAST_STOPPED), InputStart.CONTINUE, STARTED, RESUMPTION),
    ],
)
def test_how_an_input_goes_on(
    survey: LogSurvey, requested: Start | None, action: InputStart, start: Start, resumption: Resumption | None
) -> None:
    """An earlier start that wrote nothing has settled what its words mean; whatever is written counts more than what is asked for."""
    decision = decide(SETTINGS, "raw", survey, requested)
    assert (decision.action, decision.start, decision.resumption) == (action, start, resumption)


@pytest.mark.parametrize(
    ("survey", "settings", "requested", "code", "named"),
    [
        (running(raw=(replace(RAW, topic_id="another"),)), SETTINGS, None, "TG-TOPIC-RECREATED", "topic raw has been deleted and made"),
        (running(ordered=None), SETTINGS, None, "TG-TOPIC-RECREATED", "topic raw.ordered has been deleted ("),
        (running(ordered=replace(ORDERED, topic_id="x")), SETTINGS, None, "TG-TOPIC-RECREATED", "raw.ordered has been deleted and"),
        (
            running(raw=(replace(RAW, config={"cleanup.policy": "compact,delete"}),)),
            SETTINGS,
            None,
            "TG-TOPIC-CONFIG",
            "topic raw has cleanup.policy=compact,delete: ",
        ),
        (running(), settings_of(late="6s"), None, "TG-CHECKPOINT-SETTINGS", "late: "),
        (running(), settings_of(output_partitions="3"), None, "TG-CHECKPOINT-SETTINGS", "output_partitions: 2 -> 3"),
        (running(), SETTINGS, BEGINNING, "TG-START-BOUND", "--start earliest"),
        (running(has_ended=True), SETTINGS, None, "TG-TOPIC-ENDED", "has ended"),
        (running(has_ended=True), SETTINGS, BEGINNING, "TG-START-BOUND", "--start earliest"),
        (running(first_offsets={("raw", 0): 41, ("raw", 1): 0}), SETTINGS, None, "TG-RETENTION", "needed from offset 40, there from"),
        (
            running(last_finished=-1, done=None, first_offsets={("raw", 0): 0, ("raw", 1): 21}),
            SETTINGS,
            None,
            "TG-RETENTION",
            "needed from offset 20, there from offset 21",
        ),
    ],
)
def test_what_is_refused(survey: LogSurvey, settings: Settings, requested: Start | None, code: str, named: str) -> None:
    """By name, before anything is created, bound or written."""
    with pytest.raises(RefusedError) as refusal:
        decide(settings, "raw", survey, requested)
    assert refusal.value.code == code
    assert named in refusal.value.what


def test_the_command_that_ended_a_topic_has_nothing_left_to_do() -> None:
    """Only ``--until-end`` ends a topic: without it, or with other settings, a start asks for more and is refused."""
    with pytest.raises(RunEnded) as ended:
        decide(SETTINGS, "raw", running(has_ended=True), STARTED, until_end=True)
    assert ended.value.code == "TG-TOPIC-ENDED"
    for settings, until_end in ((SETTINGS, False), (settings_of(late="6s"), True)):
        with pytest.raises(RefusedError) as refused:
            decide(settings, "raw", running(has_ended=True), STARTED, until_end=until_end)
        assert not isinstance(refused.value, RunEnded)


def test_records_that_came_after_the_end_are_counted() -> None:
    """Those of partitions that the run never knew too: a line says so, since nothing else does."""
    ended = RunEnded("over")
    assert ended.line("a way") == "it had ended"
    ended.count_records_since({("raw", 0): 41, ("raw", 1): 50, ("raw", 2): 3}, {("raw", 0): 40, ("raw", 1): 50})
    assert ended.line("a way") == "it had ended; 4 records have come since: a way"


def test_other_policies_are_shown_the_command_that_takes_them() -> None:
    """A new ordered topic beside the old one."""
    with pytest.raises(RefusedError) as refusal:
        decide(settings_of(late="6s"), "raw", running())
    assert refusal.value.example == "tidegate ingest raw --set inputs.raw.ordered_topic=raw.ordered.2"


def test_a_checkpoint_whose_last_batch_cannot_be_read_is_not_refused_for_what_it_needs() -> None:
    """Spark deletes old offsets: what is unknown is no reason to stop."""
    decide(SETTINGS, "raw", running(done=None, first_offsets={("raw", 0): 99, ("raw", 1): 99}))


LOST = running(first_offsets={("raw", 0): 60, ("raw", 1): 0})


@pytest.mark.parametrize(
    ("survey", "changes", "gaps"),
    [
        (LOST, {"on_lost_records": "gap"}, [(40, 60)]),
        (replace(LOST, skips=KnownSkips(asked=(Skip("raw", 0, 40, 60),))), {}, []),
        (replace(LOST, skips=KnownSkips((Skip("raw", 0, 40, 50),), (Skip("raw", 0, 50, 60),))), {}, []),
        (replace(LOST, skips=KnownSkips((Skip("raw", 0, 40, 50),))), {"on_lost_records": "gap"}, [(50, 60)]),
    ],
)
def test_lost_records_are_a_gap_if_the_user_says_so(survey: LogSurvey, changes: dict[str, str], gaps: list[tuple[int, int]]) -> None:
    """By a skip that was asked for, or by the setting; what is skipped already is not missed."""
    decision = decide(settings_of(**changes), "raw", survey)
    assert [gap.span for gap in decision.gaps] == gaps


def test_a_skip_that_ends_before_the_records_that_are_left_is_not_enough() -> None:
    """The error says what is still missing."""
    survey = replace(LOST, skips=KnownSkips(asked=(Skip("raw", 0, 40, 59), Skip("raw", 1, 59, 60))))
    with pytest.raises(RefusedError) as refusal:
        decide(SETTINGS, "raw", survey)
    assert (refusal.value.code, refusal.value.where) == ("TG-RETENTION", "raw-0@59")


@pytest.mark.parametrize(
    ("changes", "survey", "count"),
    [
        ({}, NEW, 2),
        ({}, replace(NEW, ordered=replace(ORDERED, partitions=5)), 2),
        ({}, replace(NEW, ordered=replace(ORDERED, partitions=5), has_events=True), 5),
        ({"output_partitions": "3"}, NEW, 3),
        ({}, replace(running(), raw=(replace(RAW, partitions=4),)), 2),
    ],
)
def test_n_is_the_settings_then_the_checkpoints_then_the_topics_then_the_inputs(
    changes: dict[str, str], survey: LogSurvey, count: int
) -> None:
    """An ordered topic that holds events keeps its number of partitions, whatever is added to the input."""
    assert decide(settings_of(**changes), "raw", survey).plan.output_partitions == count


def test_the_plan_has_the_roster_of_the_checkpoint() -> None:
    """A partition that joined stands behind the founders; one that is new joins while the job runs."""
    joins = {("raw", 0): PartitionJoin(1, 60)}
    survey = running(planned=IngestOffset({("raw", 0): PlannedPosition(40), ("raw", 1): PlannedPosition(50)}, joins=joins))
    plan = decide(SETTINGS, "raw", survey).plan
    assert (plan.partitions, plan.joins) == ((("raw", 1), ("raw", 0)), joins)
    assert plan.start_us == NEVER, "the start is applied with the resumption"


def test_what_shapes_events_is_bound_and_may_grow() -> None:
    """Two partitions more, or larger records of the raw topic: the checkpoint's values stay, and its numbers may rise."""
    grown = running(raw=(replace(RAW, partitions=4, config={**BROKER_CLOCK, "max.message.bytes": "9000"}),))
    decision = decide(SETTINGS, "raw", grown)
    assert decision.binding["input_partitions"] == "4"
    assert decision.plan.record_bytes_max == 5000
    assert json.loads(decision.binding["topic_ids"]) == {"raw": "id of raw"}


def test_how_far_ahead_a_stamp_may_lie_depends_on_who_stamps_and_is_bound() -> None:
    """
    Level 1: what judged the first record judges every replay.

    Producers are allowed two minutes, brokers a day: no producer can push their clock, and the planner's may be wrong.
    """
    by_producers = (replace(RAW, config={}),)
    assert decide(SETTINGS, "raw", NEW).binding["arrival_max_ahead"] == "1d"
    assert decide(SETTINGS, "raw", replace(NEW, raw=by_producers)).binding["arrival_max_ahead"] == "2m"
    assert decide(SETTINGS, "raw", running(raw=by_producers)).plan.arrival_max_ahead_us == DAY_US, "the bound value stays"
    assert decide(settings_of(arrival_max_ahead="1h"), "raw", NEW).binding["arrival_max_ahead"] == "1h"
    assert "arrival_max_ahead" not in decide(settings_of(arrival="ingest"), "raw", NEW).binding
    with pytest.raises(RefusedError, match="arrival_max_ahead: 1d -> 1h"):
        decide(settings_of(arrival_max_ahead="1h"), "raw", running())


def test_the_longest_key_is_bound_and_a_checkpoint_without_it_has_none() -> None:
    """Level 1: a replay judges keys as before, also of a topic that was begun before there was a limit."""
    over = settings_of(over="k")
    begun = decide(over, "raw", replace(NEW, ordered=ORDERED))
    assert (begun.plan.key_bytes_max, begun.binding["key_bytes_max"]) == (4096, "4096")
    assert decide(SETTINGS, "raw", NEW).plan.key_bytes_max is None, "without substreams there is no key to keep"
    with pytest.raises(RefusedError, match="key_bytes_max: 4096 -> 2048"):
        decide(settings_of(over="k", key_bytes_max="2KiB"), "raw", replace(running(), binding=begun.binding))
    older = {name: value for name, value in begun.binding.items() if name != "key_bytes_max"}
    plan = decide(over, "raw", replace(running(), binding=older)).plan
    assert plan.key_bytes_max is None


@pytest.mark.parametrize(
    ("idle", "arrival", "clock", "counts"),
    [
        ("auto", "broker", "LogAppendTime", True),
        ("auto", "broker", "CreateTime", False),
        ("auto", "ingest", "CreateTime", True),
        ("on", "broker", "CreateTime", True),
        ("off", "broker", "LogAppendTime", False),
    ],
)
def test_silence_advances_time_by_clocks_that_go_on(idle: str, arrival: str, clock: str, counts: bool) -> None:
    """A producer's clock may show any time."""
    survey = replace(NEW, raw=(replace(RAW, config={"message.timestamp.type": clock}),))
    plan = decide(settings_of(idle=idle, arrival=arrival), "raw", survey).plan
    assert plan.estimates == ({"raw"} if counts else set())
