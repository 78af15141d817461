"""
The query job on one page: ordered topics in, final results out.

::

    planner --ranges--> (shuffle by bucket) --> stateful stage --reports--> driver
    ends of the topics                           Kafka -> reader's rule -> query -> Kafka, files

With OVER each ordered partition is a bucket. Without it there is one bucket, one for each partition, or the buckets of an exchange
(:mod:`query.plan.parallelism`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ordering.ticks import INFINITY
from query.absent_columns import CODE, absent_in_topics, first_records_warning
from query.config import Partition, QueryPlan
from query.plan.nodes import Plan
from query.reference.polling import poll_at_start
from query.script import read_script_text
from query.start.apply import apply
from query.start.binding import bound_result_ids, bound_topic_ids
from query.start.decide import WAYS_OUT, decide, plan_layout
from query.start.read_positions import finished_positions
from query.start.run_history import describe_run
from query.start.survey import configured_output, survey_run, survey_topics
from tidegate.platform.checkpoint.binding import read_binding, with_bound_tasks
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.known_topics import KnownTopics
from tidegate.platform.checkpoint.offset_log import last_batches
from tidegate.platform.checkpoint.open_batches import forget_stop
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.checkpoint.query_history import record_run
from tidegate.platform.checkpoint.refused_starts import refusals_noted
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.metrics.null_shares import NullShare
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.recovery_report import Recovery, RecoveryKind
from tidegate.platform.observe.reports import BucketReport
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.deferred import Deferred

if TYPE_CHECKING:  # what only prepares or describes a job needs no Spark
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from structlog.typing import FilteringBoundLogger

_log = get_logger("query")


def record_query(settings: Settings, plan: QueryPlan, script: Path, into: str | None) -> None:
    """Record which query writes from when on, so that each span of results can be verified by the query that wrote it."""
    topic, folder = plan.outputs[0].topic, Path(plan.checkpoint)
    topic_id = bound_result_ids(read_binding(folder) or {}).get(topic or "")
    if topic is None or topic_id is None:
        return
    run = describe_run(plan, read_script_text(script), into)
    record_run(settings.redis, folder, topic, topic_id, run)


def prepare(
    settings: Settings, plans: tuple[Plan, ...], start: Start | None = None, *, until_us: int = INFINITY, until_end: bool = False
) -> QueryPlan:
    """
    Survey topics and checkpoint, decide how the query continues, and apply that; return the plan of the job, which stops at *until_us*,
    microseconds. UnreachableError: Kafka does not answer. RefusedError: a topic is missing or wrong, or the checkpoint belongs to another
    query. RunEnded: the run that this start asks for is over.
    """
    output = configured_output(settings, plans[0].output)
    with refusals_noted(settings.redis, output.topic or output.name):
        return _prepare(settings, plans, start, until_us, until_end=until_end)


def _prepare(settings: Settings, plans: tuple[Plan, ...], start: Start | None, until_us: int, *, until_end: bool) -> QueryPlan:
    admin = Admin.connect(settings.kafka)
    for name in {name for plan in plans for name in plan.references}:
        poll_at_start(settings.references[name])
    topics = survey_topics(settings, plans, admin)
    settings = with_bound_tasks(settings, read_binding(topics.folder))
    layout = plan_layout(settings, plans, topics)
    run = survey_run(settings, layout, topics, admin, start)
    try:
        decision = decide(layout, topics, run, start, until_us=until_us, until_end=until_end)
    except RunEnded as ended:
        # Records beyond --until are none of the run's.
        if until_us == INFINITY and (read_to := finished_positions(layout)):
            ended.count_records_since(admin.ends(layout.partitions), read_to)
        raise
    return apply(decision, topics, admin)


def log_start(plan: QueryPlan, log: FilteringBoundLogger, topics: str) -> None:
    """Log the topics that the job reads (*topics*) and writes, its files, its pace, and which of its stores another command fills."""
    written = ", ".join(output.topic for output in plan.outputs if output.topic)
    files = ", ".join(output.files for output in plan.outputs if output.files)
    pacing = {"over": plan.over, "pace": str(plan.outputs[0].pace())}
    log.info("query starts", reads=topics, partitions=len(plan.logs), writes=written, files=files, **pacing)
    for output in plan.outputs:
        if output.stores and not output.sink_in_job:
            log.info("its stores are filled by another command", run=f"tidegate sink {output.name}", stores=", ".join(output.stores))


def warn_of_absent_columns(plan: QueryPlan) -> None:
    """Log which columns have no value in the newest records that the query reads: they are probably misspelled."""
    for what, fix in absent_in_topics(plan, Admin(plan.kafka, ANSWER_S)):
        _log.warning(what, code=CODE, fix=fix)


def warn_of_absent_in_first_records(absent: Iterable[tuple[str, str]]) -> None:
    """Log (input, column) of columns that a running job has not met in the first records that it read."""
    for input_name, column in absent:
        what, fix = first_records_warning(input_name, column)
        _log.warning(what, code=CODE, fix=fix)


def warn_of_null_columns(found: Iterable[NullShare]) -> None:
    """Log the columns that most recent records have no value in: a field that was renamed upstream is no error, but NULL."""
    for column in found:
        fix = "name the field as records have it now, or raise query.null_share_warn if so many are NULL by nature"
        _log.warning(column.as_dict()["in_words"], code=CODE, fix=fix)


def recovery(plan: QueryPlan) -> Recovery:
    """Return where the job continues, and how much of its input lies ahead."""
    folder = Path(plan.checkpoint)
    planned, done = last_batches(folder)
    ends = Admin(plan.kafka).ends(list(plan.partitions))
    without_checkpoint = RecoveryKind.CTIS if any(plan.promises) else RecoveryKind.NEW if plan.start_us is None else RecoveryKind.START
    how = RecoveryKind.CHECKPOINT if planned >= 0 else without_checkpoint
    positions = {**plan.starts, **finished_positions(plan)}
    return Recovery(how, positions, ends, batch=done if planned >= 0 else None, repeats_batch=planned > done, start_us=plan.start_us)


def make_end_lookup(plan: QueryPlan) -> Callable[[Sequence[Partition]], dict[Partition, int]]:
    """Return a function that asks the brokers for ends of partitions, and refuses a topic that is not the one the job began with."""
    binding = read_binding(Path(plan.checkpoint)) or {}
    topics = KnownTopics({**bound_topic_ids(binding), **bound_result_ids(binding)}, plan.checkpoint, WAYS_OUT)
    return partial(topics.find_ends, Admin(plan.kafka, ANSWER_S))


def start(spark: SparkSession, settings: Settings, plan: QueryPlan, on_reports: Callable[[list[BucketReport]], None]) -> StreamingQuery:
    """Start the job; the driver calls *on_reports* with the reports of each batch."""
    from query.stage.planned_range import RANGE_SCHEMA
    from tidegate.platform.spark.data_source import SOURCE_NAME, make_source
    from tidegate.platform.spark.session import StatefulStage, start_stage
    from tidegate.platform.spark.state_store import StageProcessor

    plan = _open_batches(spark, settings, plan)
    trigger_us = 0 if plan.until_end else settings.spark.trigger_us
    source = make_source(Deferred("query.stage.planner:QueryPlanner", plan), RANGE_SCHEMA, trigger_us, f"{SOURCE_NAME}_query_{plan.name}")
    processor = StageProcessor(Deferred("query.stage.processor:QueryStage", plan), plan.checkpoint)
    # Tasks without a bucket would take turns with the one that has it on the workers, and each worker would read and keep all of it.
    tasks = 1 if plan.buckets == 1 else plan.shuffle_partitions
    stage = StatefulStage(f"query-{plan.name}", plan.checkpoint, tasks, plan.until_end)
    return start_stage(spark, source, processor, stage, BucketReport.of_json, on_reports)


def _open_batches(spark: SparkSession, settings: Settings, plan: QueryPlan) -> QueryPlan:
    """Return the plan, with open batches if ``batch_span`` asks for them and the job can have them."""
    from tidegate.platform.spark.launch.task_slots import TASK_SLOTS

    if not settings.query.batch_span_us or plan.until_end:
        return plan
    forget_stop(Path(plan.checkpoint))
    reason = TASK_SLOTS.keep(f"query {plan.name}", plan.tasks, str(spark.sparkContext.master))
    if reason:
        _log.info("batches do not stay open", output=plan.name, reason=reason)
        return plan
    return replace(plan, batch_span_us=settings.query.batch_span_us)
