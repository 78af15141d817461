"""
The ingest job on one page: raw topic in, ordered topic out.

::

    planner --ranges--> (shuffle by input partition) --> stateful stage --reports--> driver
    ends, estimates                                       Kafka -> ordering.model.step -> Kafka
       | journal (Redis)

Spark carries ranges and reports. Events go from Kafka through the stage to Kafka and never touch the JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import TopicIdentity
from ingest.planned_range import RANGE_SCHEMA
from ingest.planner.joining_partitions import NewPartitions
from ingest.planner.opening import why_closed
from ingest.start.apply import apply
from ingest.start.decide import decide
from ingest.start.survey import survey_start
from ingest.time_warnings import start_warnings
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.open_batches import forget_stop
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.checkpoint.refused_starts import refusals_noted
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.recovery_report import Recovery
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.data_source import SOURCE_NAME, make_source
from tidegate.platform.spark.deferred import Deferred
from tidegate.platform.spark.session import StatefulStage, start_stage
from tidegate.platform.spark.state_store import StageProcessor

_log = get_logger("ingest")


def prepare(settings: Settings, name: str, until_end: bool, start: Start | None = None) -> tuple[IngestPlan, Recovery]:
    """
    Survey topics, journal and checkpoint, decide how the input *name* continues, and apply the decision; return the plan and the point
    where the job continues. Raises SettingError: a schema file or the event time's expression cannot be used; UnreachableError: Kafka or
    Redis does not answer; RefusedError: a topic is missing or wrong, the checkpoint belongs to other settings, topics or another start, or
    needed records are gone; RunEnded: the run that this start asks for is over.
    """
    with refusals_noted(settings.redis, settings.input(name).ordered_topic):
        return _prepare(settings, name, until_end, start)


def _prepare(settings: Settings, name: str, until_end: bool, start: Start | None) -> tuple[IngestPlan, Recovery]:
    admin = Admin.connect(settings.kafka)
    journal = RedisJournal.open(settings.redis, input_name=name)
    survey = survey_start(settings, name, admin, journal)
    try:
        decision = decide(settings, name, survey, start, until_end=until_end)
    except RunEnded as ended:
        if survey.done is not None:
            read_to = {partition: position.next_offset for partition, position in survey.done.partitions.items()}
            ended.count_records_since(admin.ends(survey.partitions), read_to)
        raise
    uses_log_append_time = all(topic.uses_log_append_time for topic in survey.raw)
    for warning in start_warnings(decision.plan, uses_log_append_time=uses_log_append_time):
        _log.warning(warning, input=name, topic=",".join(decision.plan.settings.topics))
    plan, recovery = apply(decision, survey, admin, journal, start)
    journal.close_connection()
    return plan, recovery


def start(
    spark: SparkSession,
    settings: Settings,
    plan: IngestPlan,
    on_reports: Callable[[list[IngestReport]], None],
) -> StreamingQuery:
    """Start the job; the driver calls *on_reports* with the reports of each batch."""
    plan = _open_batches(spark, settings, plan)
    processor = StageProcessor(Deferred("ingest.stage.processor:IngestStage", plan), plan.checkpoint)
    stage = StatefulStage(f"ingest-{plan.settings.name}", plan.checkpoint, plan.tasks, plan.until_end)
    trigger_us = 0 if plan.until_end else settings.spark.trigger_us
    return start_stage(spark, source(plan, trigger_us), processor, stage, IngestReport.of_json, on_reports)


def _open_batches(spark: SparkSession, settings: Settings, plan: IngestPlan) -> IngestPlan:
    """Return the plan, with open batches if ``batch_span`` asks for them and the job can have them."""
    if not plan.settings.batch_span_us or plan.until_end:
        return plan
    forget_stop(Path(plan.checkpoint))
    reason = why_closed(plan, str(spark.sparkContext.master))
    if reason:
        _log.info("batches do not stay open", input=plan.settings.name, reason=reason)
        return plan
    return replace(plan, stays_open=True)


def source(plan: IngestPlan, trigger_us: int = 0) -> type[DataSource]:
    """Return the data source of the job's ranges. Inputs share a session, so its name contains the input's."""
    planner = Deferred("ingest.planner.planner:IngestPlanner", plan)
    return make_source(planner, RANGE_SCHEMA, trigger_us, f"{SOURCE_NAME}_{plan.settings.name}")


def make_end_lookup(plan: IngestPlan) -> Callable[[Sequence[Partition]], dict[Partition, int]]:
    """
    Return a function that asks the brokers for ends of partitions, and refuses a topic that was replaced since the job began. If batches
    stay open, it also ends the open one when there are new partitions: they join between two batches.
    """
    admin = Admin(plan.kafka, ANSWER_S)
    find_ends = partial(TopicIdentity(plan).find_ends, admin)
    if not plan.settings.batch_span_us:
        return find_ends
    arrivals = NewPartitions(plan, admin)

    def find_ends_and_partitions(partitions: Sequence[Partition]) -> dict[Partition, int]:
        arrivals.end_batch_if_new(time.monotonic())
        return find_ends(partitions)

    return find_ends_and_partitions
