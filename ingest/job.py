"""
The ingest job on one page: raw topic in, ordered topic out.

::

    planner --ranges--> (shuffle by input partition) --> stateful stage --reports--> driver
    ends, estimates                                       Kafka -> ordering.step -> Kafka
       | journal (Redis)

Spark carries ranges and reports. Events go from Kafka through the stage to Kafka and never touch the JVM.
"""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ingest.config import IngestPlan, Partition
from ingest.imports import ImportedInput
from ingest.journal_redis import RedisJournal
from ingest.offsets import RANGE_SCHEMA, Planned
from ingest.promises import ended
from ingest.resume import Resumption, check_made_of, resume
from ordering.ticks import SECOND_US
from tidegate.runtime.binding import bind, checkpoint_state
from tidegate.runtime.deferred import Deferred
from tidegate.runtime.kafka.admin import Admin
from tidegate.runtime.kafka.tails import finished
from tidegate.runtime.keeping import StageProcessor
from tidegate.runtime.logs import get_logger
from tidegate.runtime.planning import source_of
from tidegate.runtime.setting_inputs import InputSettings
from tidegate.runtime.settings import Settings
from tidegate.runtime.spark import OnReports, Stage, checkpoint_folder, even_labels, start_stage

PLANNER_WAIT_US = 2 * SECOND_US
"""How long the planner waits for Redis before it goes on without estimates: a lost journal must not slow the job."""
_log = get_logger(__name__)


def prepare(settings: Settings, name: str, until_end: bool) -> IngestPlan:
    """
    Look at topics, journal and checkpoint; make what is missing; return the plan of the job.

    Raises:
        UnreachableError: Kafka or Redis does not answer.
        RefusedError: A topic is missing or not as it must be, the checkpoint belongs to other settings, or an ordered
            topic without its checkpoint cannot be gone on with.
    """
    chosen = settings.input(name)
    kafka = settings.kafka.client_properties()
    admin = Admin(kafka, settings.kafka.connect_timeout_us / 1e6)
    admin.check_reachable()
    journal = RedisJournal.open(settings.redis)
    raw = [admin.require(topic) for topic in sorted(chosen.topics)]
    partitions: tuple[Partition, ...] = tuple((topic.name, number) for topic in raw for number in range(topic.partitions))
    log_append = all(topic.log_append_time for topic in raw)
    _say_what_time_rests_on(chosen, log_append)
    output_partitions = chosen.output_partitions or len(partitions)
    largest = max(int(topic.config.get("max.message.bytes", 1_048_588)) for topic in raw)
    ordered = admin.ensure_ordered_topic(chosen.ordered_topic, output_partitions, chosen.retention_us, largest, chosen.replication_factor)
    admin.ensure(chosen.dead_letter_topic, 1, {"retention.ms": "-1"}, chosen.replication_factor)
    topic_ids = {topic.name: topic.topic_id for topic in raw}
    folder = checkpoint_folder(settings, f"ingest-{chosen.ordered_topic}")
    plan = IngestPlan(
        settings=chosen,
        kafka=kafka,
        redis=settings.redis.model_copy(update={"connect_timeout_us": min(settings.redis.connect_timeout_us, PLANNER_WAIT_US)}),
        partitions=partitions,
        topic_ids=topic_ids,
        labels=tuple(even_labels(len(partitions), settings.spark.shuffle_partitions)),
        starts={partition: Planned(start) for partition, start in admin.starts(partitions).items()},
        output_partitions=output_partitions,
        estimates=chosen.idle == "on" or (chosen.idle == "auto" and log_append),
        until_end=until_end,
        checkpoint=str(folder),
        imported=_imported(settings, admin, chosen.import_ctis_from),
    )
    made_of = {
        **chosen.fingerprint(),
        "output_partitions": str(output_partitions),
        "input_partitions": str(len(partitions)),
        "topic_ids": json.dumps(topic_ids, sort_keys=True),
    }
    state = checkpoint_state(folder)
    ends = admin.ends([(chosen.ordered_topic, number) for number in range(output_partitions)])
    began = check_made_of(plan, journal, ordered, made_of, has_events=any(ends.values()), has_checkpoint=state != "empty")
    own = {"ordered_topic_id": ordered.topic_id, "spark.shuffle_partitions": str(settings.spark.shuffle_partitions)}
    bind(folder, {**made_of, **own})
    if state == "settled" and any(ends.values()) and finished(kafka, chosen.ordered_topic, ends):
        raise ended(chosen.ordered_topic)
    if state == "empty" and any(ends.values()):
        resume(plan, admin, journal, began).write(folder)
    journal.close_connection()
    resumed = Resumption.find(folder)
    return plan if resumed is None else replace(plan, starts=resumed.starts, promises=resumed.promises)


def _say_what_time_rests_on(chosen: InputSettings, log_append: bool) -> None:
    if not log_append:
        _log.warning("arrival times are the producers' clocks: the raw topic is set to CreateTime", topic=",".join(chosen.topics))
    if chosen.policies().late_us is None:
        _log.warning("late is off: silence cannot advance time", input=chosen.name)


def _imported(settings: Settings, admin: Admin, name: str | None) -> ImportedInput | None:
    """Return the input whose CTIs are imported."""
    if name is None:
        return None
    topic = admin.require(settings.input(name).ordered_topic, f"start tidegate ingest {name} first: its CTIs are imported")
    return ImportedInput(name, topic.name, topic.partitions)


def start(spark: SparkSession, settings: Settings, plan: IngestPlan, on_reports: OnReports) -> StreamingQuery:
    """Start the job; *on_reports* is called in the driver with the reports of each batch."""
    source = source_of(Deferred("ingest.source:Planner", plan), RANGE_SCHEMA)
    processor = StageProcessor(Deferred("ingest.processor:IngestStage", plan), plan.checkpoint)
    stage = Stage(f"ingest-{plan.settings.name}", plan.checkpoint, plan.until_end)
    return start_stage(spark, settings, source, processor, stage, on_reports)
