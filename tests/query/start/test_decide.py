"""How a query goes on, by tables: surveys and a request go in, a start or a refusal comes out. No service takes part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ordering.errors import RefusedError, SettingError
from ordering.ticks import INFINITY
from query.config import Promise, QueryPlan
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from query.start.binding import result_binding
from query.start.decide import Decision, decide, plan_layout
from query.start.survey import RunSurvey, TopicSurvey
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.output_start import BEGINNING, LAST_STOPPED, Start
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.settings.load import Settings, load
from tidegate.records.payloads.formats import JSON

SQL = "SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)"
BY_CITY = SQL.replace("k,", "city,")
FOLDER = Path("/checkpoints/query-out")
ORDERED = Topic("a.ordered", "id of a", 2, {})
STARTED = Start("2001-01-01T00:00:00Z", 978_307_200_000_000)
STOPPED = Start(LAST_STOPPED, 5_000)
LAST = Start(LAST_STOPPED)
NONE: tuple[dict[int, Promise], ...] = ({},)
PROMISES = ({0: Promise(5_000, 3, 0, 4_000), 1: Promise(6_000, 1, 0, 4_000)},)
NEW = RunSurvey(None, "empty", promises=NONE)


def settings_of(**changes: str) -> Settings:
    """One input with substreams, one output."""
    tables = {"inputs.a.topic": "a", "inputs.a.timestamp_by": "t", "inputs.a.over": "k", "outputs.out.topic": "out"}
    return load(
        None, {**tables, "spark.shuffle_partitions": "2", **{f"outputs.out.{key}": value for key, value in changes.items()}}, env={}
    )


SETTINGS = settings_of()


def plans_of(sql: str) -> tuple[Plan, ...]:
    """Bind a script."""
    return bind_outputs(parse_script(sql), [InputSchema("a", "t", "k")], into=None)


def topics_of(settings: Settings = SETTINGS, **changes: Any) -> TopicSurvey:
    """What the brokers have."""
    return replace(TopicSurvey(FOLDER, (settings.output("out"),), {"a": ORDERED}, {"a": JSON}), **changes)


def layout_of(settings: Settings = SETTINGS, sql: str = SQL, **changes: Any) -> QueryPlan:
    """The job as a run from the beginning."""
    return plan_layout(settings, plans_of(sql), topics_of(settings, **changes))


def decided(run: RunSurvey, requested: Start | None = None, settings: Settings = SETTINGS, sql: str = SQL, **changes: Any) -> Decision:
    """Decide how a job goes on."""
    return decide(layout_of(settings, sql, **changes), topics_of(settings, **changes), run, requested)


def running(start: Start = STARTED, **changes: Any) -> RunSurvey:
    """A run with a checkpoint."""
    run = RunSurvey(decided(NEW, start).binding, "settled", with_results=frozenset({"out"}), promises=PROMISES)
    return replace(run, **changes)


def resuming(sql: str = SQL) -> RunSurvey:
    """A run that lost its checkpoint, of a query."""
    splits = {"out": layout_of(sql=sql).split}
    return replace(NEW, promises=PROMISES, with_results=frozenset({"out"}), splits=splits)


@pytest.mark.parametrize(
    ("run", "requested", "start", "promises"),
    [
        (NEW, None, BEGINNING, NONE),
        (NEW, STARTED, STARTED, NONE),
        (replace(NEW, stopped=STOPPED), LAST, STOPPED, NONE),
        (resuming(), LAST, LAST, PROMISES),
        (running(), None, STARTED, PROMISES),
        (running(), STARTED, STARTED, PROMISES),
        (running(), LAST, STARTED, PROMISES),
        (running(LAST), None, LAST, PROMISES),
        (running(checkpoint="pending", ended=frozenset({"out"})), None, STARTED, PROMISES),
    ],
)
def test_how_a_query_goes_on(run: RunSurvey, requested: Start | None, start: Start, promises: Any) -> None:
    """A run keeps its first start; one without its checkpoint goes on from promises, or from what it reported to Redis."""
    decision = decided(run, requested)
    assert (decision.start, decision.plan.promises, decision.is_new) == (start, promises, run.binding is None)
    assert (decision.plan.start_us, decision.plan.starts) == (start.start_us, {}), "read positions are found out later"


@pytest.mark.parametrize(
    ("run", "requested", "changes", "code", "named"),
    [
        (running(), BEGINNING, {}, "TG-START-BOUND", "--start earliest"),
        (running(ended=frozenset({"out"})), None, {}, "TG-TOPIC-ENDED", "output out has ended"),
        (running(is_finished=True), None, {}, "TG-TOPIC-ENDED", "output out has ended"),
        (replace(NEW, with_results=frozenset({"out"})), None, {}, "TG-CHECKPOINT-LOST", "holds results"),
        (replace(NEW, with_results=frozenset({"out"})), STARTED, {}, "TG-CHECKPOINT-LOST", "holds results"),
        (resuming(), LAST, {"sql": BY_CITY}, "TG-TOPIC-SPLIT", "by other keys"),
        (resuming(BY_CITY), LAST, {"sql": BY_CITY.replace("city", "street")}, "TG-TOPIC-SPLIT", "by other keys"),
        (resuming(BY_CITY), LAST, {"sql": BY_CITY.replace("city,", "city, street,")}, "TG-TOPIC-SPLIT", "by other keys"),
        (replace(resuming(), splits={}), LAST, {}, "TG-TOPIC-SPLIT", "do not say"),
        (running(), None, {"ordered": {"a": replace(ORDERED, topic_id="x")}}, "TG-TOPIC-RECREATED", "a.ordered has been deleted and made"),
        (running(), None, {"ordered": {"a": replace(ORDERED, partitions=3)}}, "TG-CHECKPOINT-SETTINGS", "partitions: 2 -> 3"),
        (running(), None, {"sql": BY_CITY}, "TG-CHECKPOINT-SETTINGS", "exchange: "),
        (running(), None, {"settings": settings_of(cti_every="1m")}, "TG-CHECKPOINT-SETTINGS", "pace: "),
        (running(), None, {"settings": settings_of(topic="another")}, "TG-CHECKPOINT-SETTINGS", "output: "),
    ],
)
def test_what_is_refused(run: RunSurvey, requested: Start | None, changes: dict[str, Any], code: str, named: str) -> None:
    """By name, before anything is created, bound or written."""
    with pytest.raises(RefusedError) as refusal:
        decided(run, requested, **changes)
    assert refusal.value.code == code
    assert named in refusal.value.what


def test_a_changed_query_is_shown_both_ways_out() -> None:
    """As the manual has them: begin anew, or continue."""
    with pytest.raises(RefusedError) as refusal:
        decided(running(), sql=BY_CITY)
    assert "INTO a new output, or delete the checkpoint folder" in refusal.value.fix
    assert refusal.value.example == "--start last-stopped"


def test_a_changed_query_continues_if_its_keys_keep_their_partitions() -> None:
    """Level 3: other windows leave each key in its bucket."""
    assert decided(resuming(BY_CITY), LAST, sql=BY_CITY.replace("minute", "hour")).plan.promises == PROMISES


def test_an_output_asks_for_as_many_partitions_as_there_are_buckets() -> None:
    """One bucket for what has no key: the setting is wrong, and says which number is right."""
    sql = "SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY t GROUP BY TumblingWindow(minute, 1)"
    with pytest.raises(SettingError) as refusal:
        decided(NEW, settings=settings_of(partitions="2"), sql=sql)
    assert (refusal.value.code, refusal.value.example) == ("TG-SETTING-PARTITIONS", "partitions = 1")


@pytest.mark.parametrize("over", [{"ended": frozenset({"out"})}, {"is_finished": True}])
def test_a_run_that_is_over_is_told_from_a_start_that_asks_for_more(over: dict[str, Any]) -> None:
    """
    The command that would end where the run has ended has nothing left to do. Without its flag, with another query or without its results
    it asks for more: refused, never taken for the same.
    """

    def refused(run: RunSurvey, sql: str = SQL, **flags: Any) -> RefusedError:
        with pytest.raises(RefusedError) as refusal:
            decide(layout_of(sql=sql), topics_of(), run, STARTED, **flags)
        assert refusal.value.code == "TG-TOPIC-ENDED"
        return refusal.value

    assert isinstance(refused(running(**over), until_end=True), RunEnded)
    assert isinstance(refused(running(**over, have_inputs_ended=True)), RunEnded)
    assert not isinstance(refused(running(**over)), RunEnded), "its inputs go on, so it would not end"
    assert not isinstance(refused(running(**over), sql=BY_CITY, until_end=True), RunEnded)
    remade = {**running().binding, **result_binding({"out": "id of out"})}
    assert not isinstance(refused(running(**over, binding=remade, have_inputs_ended=True)), RunEnded)
    bounded = replace(running(**over), binding=decide(layout_of(), topics_of(), NEW, STARTED, until_us=9_000).binding)
    assert isinstance(refused(bounded, until_us=9_000), RunEnded)
    assert not isinstance(refused(bounded, until_us=9_001), RunEnded)
    with pytest.raises(RefusedError) as other_start:
        decide(layout_of(), topics_of(), running(**over), BEGINNING, until_end=True)
    assert other_start.value.code == "TG-START-BOUND"


def test_a_bounded_recount_is_another_run() -> None:
    """What lies beyond its end was left out: nothing can go on from it."""
    bounded = decide(layout_of(), topics_of(), NEW, until_us=9_000)
    assert (bounded.plan.until_us, decided(NEW).plan.until_us) == (9_000, INFINITY)
    with pytest.raises(RefusedError) as refusal:
        decided(RunSurvey(bounded.binding, "pending", promises=NONE))
    assert "until: 9000 -> " in refusal.value.what


def test_tasks_share_the_bytes_of_a_batch() -> None:
    """Each settles after its share: however large records are, all tasks together hold what one batch may."""
    with_over, merged = layout_of(sql=SQL.replace("t GROUP BY k,", "t OVER k GROUP BY k,")), layout_of(sql=BY_CITY.replace("city, ", ""))
    assert (with_over.buckets, with_over.bytes_per_task) == (2, 128 * 2**20)
    assert (merged.buckets, merged.bytes_per_task) == (1, 256 * 2**20)


@pytest.mark.parametrize(("found", "words"), [({}, "has been deleted (id id of out -> none)"), ({"out": "other id"}, "made again")])
def test_a_result_topic_that_was_deleted_is_not_written_on(found: dict[str, str], words: str) -> None:
    """Made anew it would lack what stood in it."""
    binding = {**running().binding, **result_binding({"out": "id of out", "other": "x"})}
    there = {name: Topic(name, topic_id, 1, {}) for name, topic_id in found.items()}
    with pytest.raises(RefusedError) as refused:
        decided(running(binding=binding), STARTED, results=there)
    assert refused.value.code == "TG-TOPIC-RECREATED"
    assert words in refused.value.what
    assert str(FOLDER) in refused.value.fix
    with pytest.raises(RefusedError) as refused:
        decided(running(binding=binding, is_finished=True), STARTED, results=there)
    assert refused.value.code == "TG-TOPIC-ENDED"
    same = {"out": Topic("out", "id of out", 1, {})}
    assert decided(running(binding=binding), STARTED, results=same).binding == binding


def test_a_plain_topic_beside_a_result_topic_is_not_made_anew_either() -> None:
    """Its readers know of no other topic that holds what it lacks."""
    binding = {**running().binding, **result_binding({"out": "id of out", "plain": "id of plain"})}
    there = {"out": Topic("out", "id of out", 1, {})}
    with pytest.raises(RefusedError) as refused:
        decided(running(binding=binding), STARTED, settings_of(plain_topic="plain"), results=there)
    assert (refused.value.code, "topic plain has been deleted" in refused.value.what) == ("TG-TOPIC-RECREATED", True)


@pytest.mark.parametrize("setting", ["cleanup.policy=compact", "message.timestamp.type=LogAppendTime"])
def test_an_ordered_topic_that_was_set_up_otherwise_is_not_read(setting: str) -> None:
    """Compaction removes events between others; a broker's stamps do not tell from where on events are needed."""
    name, _, value = setting.partition("=")
    with pytest.raises(RefusedError) as refused:
        decided(NEW, ordered={"a": replace(ORDERED, config={name: value})})
    assert (refused.value.code, refused.value.where) == ("TG-TOPIC-CONFIG", "a.ordered")
    assert setting in refused.value.what


def test_a_checkpoint_that_names_no_result_topics_goes_on() -> None:
    """Those of earlier development versions."""
    assert decided(running(), STARTED).binding == running().binding
