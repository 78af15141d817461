"""
The decision of a start: how a query's work is laid out and its run continues, or why it is refused, from the surveys alone.
Law: :func:`plan_layout` and :func:`decide` are pure. A start that they refuse has created, bound and written nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ordering.errors import RefusedError
from ordering.protocol.facts import text_digest
from ordering.ticks import INFINITY
from query.config import Feed, QueryPlan
from query.javascript.declarations import functions_of
from query.plan.nodes import Plan
from query.start.binding import RESULT_TOPIC_IDS, bound_result_ids, bound_topic_ids, make_binding, result_topics
from query.start.bound_geography import settle_geography
from query.start.bound_zones import settle_zones
from query.start.bucket_layout import check_partitions, exchange_tasks, plan_buckets, split_text, substream_keys
from query.start.output_start import ELSEWHERE, bound_start
from query.start.result_limits import result_limits
from query.start.survey import RunSurvey, TopicSurvey
from tidegate.platform.checkpoint.binding import check_binding, check_same_topics
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.output_start import BEGINNING, LAST_STOPPED, Start, refuse_other_start
from tidegate.platform.kafka.admin import check_readable
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.platform.spark.shuffle_keys import even_labels

WAYS_OUT = "write the results of the new topic to a new output, or delete the result topic and the checkpoint folder to begin anew"


@dataclass(frozen=True, slots=True)
class Decision:
    """How a query continues."""

    # The job, still without its read positions.
    plan: QueryPlan
    start: Start
    # That of a run that begins now has no result topics yet, since they may still have to be made.
    binding: dict[str, str]
    # Whether the run begins now.
    is_new: bool


def plan_layout(settings: Settings, plans: tuple[Plan, ...], topics: TopicSurvey) -> QueryPlan:
    """Return the topics of a job and how its work is split, as for a run from the beginning; RefusedError if it cannot be split."""
    feeds = tuple(
        Feed(name, topic.name, topic.partitions, topics.payloads[name], name not in settings.inputs)
        for name, topic in topics.ordered.items()
    )
    bucket_layout = plan_buckets(settings, plans, topics.outputs, feeds, topics.results)
    shuffle_partitions = settings.spark.shuffle_partitions if bucket_layout.exchange is None else exchange_tasks(settings)
    reference_names = dict.fromkeys(name for plan in plans for name in plan.references)
    layout = QueryPlan(
        plans=plans,
        outputs=topics.outputs,
        kafka=settings.kafka.client_properties(),
        feeds=feeds,
        over=plans[0].over is not None,
        by_partition=bucket_layout.by_partition,
        exchange=bucket_layout.exchange,
        labels=tuple(even_labels(bucket_layout.buckets, shuffle_partitions)),
        starts={},
        start_us=None,
        promises=tuple({} for _ in topics.outputs),
        until_us=INFINITY,
        until_end=False,
        events_per_batch=settings.query.max_events_per_batch,
        bytes_per_batch=settings.query.max_bytes_per_batch,
        join_pairs_max=settings.query.join_pairs_max,
        shuffle_partitions=shuffle_partitions,
        checkpoint=str(topics.folder),
        functions=functions_of(plans),
        references=topics.references,
        reference_settings={name: settings.references[name] for name in reference_names},
    )
    return replace(layout, split=text_digest(split_text(layout, substream_keys(settings, topics.ordered))))


def decide(
    layout: QueryPlan,
    topics: TopicSurvey,
    run: RunSurvey,
    requested: Start | None = None,
    *,
    until_us: int = INFINITY,
    until_end: bool = False,
) -> Decision:
    """
    Decide how the query of *layout* continues, if ``--start`` says *requested*. SettingError: an output requests another number of
    partitions than there are buckets. RefusedError: the checkpoint belongs to another query or other topics, the run has another start or
    has ended, results without a checkpoint would be written again, or an ordered topic does not keep its records. RunEnded, one of them: it
    has ended, and this start would have ended it there.
    """
    for topic in topics.ordered.values():
        check_readable(topic, is_ordered=True)
    for output in layout.outputs:
        check_partitions(output, layout.buckets)
    if run.binding is not None:
        start = bound_start(run.binding)
        ways_out = f"{ELSEWHERE}, or delete the result topic and the checkpoint folder"
        refuse_other_start(requested, start, f"the run into {layout.outputs[0].name}", str(topics.folder), ways_out)
    elif requested is not None and requested.text == LAST_STOPPED:
        start = run.stopped or Start(LAST_STOPPED)
    else:
        start = requested or BEGINNING
    ended = _find_ended(layout, topics, run)
    try:
        decision = _continue(layout, topics, run, start, until_us=until_us, until_end=until_end)
    except RefusedError as refusal:
        raise refusal if ended is None else ended from None
    if ended is not None:
        # Without a flag a run ends with its inputs, and --until is part of the binding.
        ends_there = until_end or until_us != INFINITY or run.have_inputs_ended
        raise RunEnded(ended.what, where=ended.where, fix=ended.fix) if ends_there else ended
    return decision


def _continue(layout: QueryPlan, topics: TopicSurvey, run: RunSurvey, start: Start, *, until_us: int, until_end: bool) -> Decision:
    for output, promises in zip(layout.outputs, run.promises, strict=True):
        _check_unwritten(output, topics, run, has_promises=bool(promises))
        _check_split(output, layout, run, has_promises=bool(promises))
    _check_same_results(layout, topics, run)
    plan = replace(
        layout,
        start_us=start.start_us,
        promises=run.promises,
        until_us=until_us,
        until_end=until_end,
        result_bytes_max=result_limits(layout.outputs, topics, run.binding),
    )
    if run.binding is not None:
        check_same_topics(bound_topic_ids(run.binding), topics.topic_ids, str(topics.folder), WAYS_OUT)
    where = str(topics.folder)
    binding = settle_geography(run.binding, settle_zones(run.binding, make_binding(plan, topics.topic_ids, start), where), where)
    if run.binding is not None and RESULT_TOPIC_IDS in run.binding:
        binding[RESULT_TOPIC_IDS] = run.binding[RESULT_TOPIC_IDS]
    way_out = "write INTO a new output, or delete the checkpoint folder and continue from the last results (docs/operate/starting.md)"
    check_binding(run.binding, binding, str(topics.folder), way_out=way_out, example="--start last-stopped")
    return Decision(plan, start, binding, is_new=run.binding is None)


def _check_same_results(layout: QueryPlan, topics: TopicSurvey, run: RunSurvey) -> None:
    """Refuse to continue into a result topic that was deleted: made anew, it would lack the results before."""
    current = {name: topics.results[name].topic_id if name in topics.results else "" for name in result_topics(layout.outputs)}
    fix = f"delete {topics.folder} too, to begin anew; or {ELSEWHERE}"
    check_same_topics(bound_result_ids(run.binding or {}), current, str(topics.folder), fix)


def _check_split(output: OutputSettings, layout: QueryPlan, run: RunSurvey, *, has_promises: bool) -> None:
    """
    Refuse to continue without a checkpoint if the work was split otherwise: keys would move between channels, which stop at different
    instants.
    """
    if run.binding is not None or not has_promises or layout.buckets == 1 or run.splits.get(output.name) == layout.split:
        return
    reason = f"the results in {output.topic} are spread over its partitions by other keys than those of this query"
    if run.splits.get(output.name) is None:
        reason = f"the CTIs of {output.topic} do not say by which keys its results are spread over its partitions"
    what = f"{reason}: a key whose partition changes would have results twice, or miss some"
    fix = f"bring the checkpoint back, run the query with the outputs, inputs and keys that it had (tidegate plan), or {ELSEWHERE}"
    raise RefusedError(what, code="TG-TOPIC-SPLIT", where=output.name, fix=fix)


def _find_ended(layout: QueryPlan, topics: TopicSurvey, run: RunSurvey) -> RefusedError | None:
    """Return the error for the first output that has ended, if one has."""
    for output in layout.outputs:
        if run.checkpoint == "settled" and (run.is_finished or output.name in run.ended):
            reason = f"output {output.name} has ended: its input was read to the final CTI, or the job reached its --until or --until-end"
            fix = f"write to a new output, or delete its topic and {topics.folder} to run again"
            return RefusedError(reason, code="TG-TOPIC-ENDED", where=output.name, fix=fix)
    return None


def _check_unwritten(output: OutputSettings, topics: TopicSurvey, run: RunSurvey, *, has_promises: bool) -> None:
    """Refuse an output that holds results of a run without a checkpoint that this start does not continue."""
    if run.checkpoint == "empty" and output.name in run.with_results and not has_promises:
        raise RefusedError(
            f"result topic {output.topic} holds results, but there is no checkpoint that says where to continue",
            code="TG-CHECKPOINT-LOST",
            where=str(topics.folder),
            fix="restore the checkpoint, continue from the last CTI of the topic (--start last-stopped), or name an output topic that is "
            "not there yet",
            example="--start last-stopped",
        )
