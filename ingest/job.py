"""
The ingest job on one page: raw topic in, ordered topic out.

::

    planner --ranges--> (shuffle by input partition) --> stateful stage --reports--> driver
    ends, estimates                                       Kafka -> ordering.model.step -> Kafka
       | journal (Redis)

Spark carries ranges and reports. Events go from Kafka through the stage to Kafka and never touch the JVM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedInput
from ingest.fields import FieldReader
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import MAY_APPEAR, MAY_GROW, check_fingerprint
from ingest.journal.topic_identity import ANSWER_S, WAYS_OUT, TopicIdentity
from ingest.offsets import Offset, PlannedPosition
from ingest.planned_range import RANGE_SCHEMA
from ingest.planner.joining_partitions import match_topics, own_topics, read_planned_offset, with_roster
from ingest.start.output_start import refuse_other_start
from ingest.start.read_positions import check_still_there
from ingest.start.resume import Resumption, begin_topic, restore_lost_facts, resume_topic
from ordering.errors import RefusedError
from ordering.ticks import SECOND_US
from tidegate.checkpoint.binding import bind, bound, check_bound, check_same_topics, checkpoint_state, last_batches, offset_of
from tidegate.checkpoint.output_start import BEGINNING, LAST_STOPPED, Start, last_stopped
from tidegate.kafka.admin import Admin, Topic
from tidegate.kafka.channel_promises import ended
from tidegate.kafka.tails import finished
from tidegate.observe.logs import get_logger
from tidegate.observe.recovery_report import How, Recovery
from tidegate.payloads.formats import PayloadFormat
from tidegate.settings.inputs import InputSettings
from tidegate.settings.load import Settings
from tidegate.spark.deferred import Deferred
from tidegate.spark.planning import SOURCE_NAME, source_of
from tidegate.spark.session import OnReports, Stage, checkpoint_folder, start_stage
from tidegate.spark.state_store import StageProcessor
from tidegate.stack.rights import ingest_rights

PLANNER_WAIT_US = 2 * SECOND_US
"""How long the planner waits for Redis before it goes on without estimates: a lost journal must not slow the job."""
DEAD_LETTER_BYTES_MAX = 100 * 2**20
"""How large a record of a dead-letter topic may be that is made here: as large as the writer can send."""
_log = get_logger(__name__)


def order_by_imports(settings: Settings, names: Sequence[str]) -> list[str]:
    """
    Return the inputs *names*, each once, an input that drives another before that one.

    Raises:
        SettingError: There is no such input.
    """
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        driver = settings.input(name).import_ctis_from
        if driver is not None and driver in names and driver not in ordered:
            add(driver)
        ordered[name] = None

    for name in names:
        add(name)
    return list(ordered)


def prepare(settings: Settings, name: str, until_end: bool, start: Start | None = None) -> tuple[IngestPlan, Recovery]:
    """
    Look at topics, journal and checkpoint; make what is missing; return the plan of the job and where it goes on.

    Args:
        settings: All settings.
        name: Which input.
        until_end: Whether the job ends at the present end.
        start: The output start time asked for, if one was.

    Raises:
        SettingError: A schema file, or what the event time is computed from, cannot be used.
        UnreachableError: Kafka or Redis does not answer.
        RefusedError: A topic is missing or not as it must be, the checkpoint belongs to other settings or topics, another
            start was asked for than the run began with, what must be read is gone, or an ordered topic without its checkpoint
            cannot be gone on with.
    """
    chosen = settings.input(name)
    payloads = PayloadFormat.of(chosen, settings.schema_registry)
    FieldReader.of(chosen, payloads)  # what workers could not read by is found out here
    kafka = settings.kafka.client_properties()
    admin = Admin(kafka, settings.kafka.connect_timeout_us / 1e6)
    admin.check_reachable()
    journal = RedisJournal.open(settings.redis)
    folder = checkpoint_folder(settings, f"ingest-{chosen.ordered_topic}")
    excluded, planned = own_topics(settings), read_planned_offset(folder)
    raw = [admin.require(topic) for topic in _topics(chosen, admin, excluded, planned)]
    log_append = all(topic.log_append_time for topic in raw)
    _say_what_time_rests_on(chosen, log_append)
    topic_ids = {topic.name: topic.topic_id for topic in raw}
    before = bound(folder) or {}
    check_same_topics(json.loads(before.get("topic_ids", "{}")), topic_ids, str(folder), WAYS_OUT)
    partitions: tuple[Partition, ...] = tuple((topic.name, number) for topic in raw for number in range(topic.partitions))
    output_partitions = chosen.output_partitions or int(before.get("output_partitions", 0)) or _present_n(admin, chosen) or len(partitions)
    record_bytes_max = chosen.record_bytes_max or int(before.get("record_bytes_max", 0)) or _largest_record(raw)
    ordered = _ordered_topic(admin, chosen, output_partitions, record_bytes_max, before.get("ordered_topic_id"), folder)
    # What the ordered topic does not take must find room there.
    dead_letters = {"retention.ms": "-1", "max.message.bytes": str(DEAD_LETTER_BYTES_MAX)}
    admin.ensure(chosen.dead_letter_topic, 1, dead_letters, chosen.replication_factor)
    imported = _imported(settings, admin, chosen.import_ctis_from)
    read = [*topic_ids, *([imported.topic] if imported is not None else [])]
    admin.check_rights(ingest_rights(read, chosen.ordered_topic, chosen.dead_letter_topic))
    plan = IngestPlan(
        settings=chosen,
        kafka=kafka,
        redis=settings.redis.model_copy(update={"connect_timeout_us": min(settings.redis.connect_timeout_us, PLANNER_WAIT_US)}),
        partitions=partitions,
        topic_ids=topic_ids,
        tasks=settings.spark.shuffle_partitions,
        starts={partition: PlannedPosition(first) for partition, first in admin.starts(partitions).items()},
        output_partitions=output_partitions,
        estimates=frozenset(topic.name for topic in raw if _silence_advances_time(chosen, topic)),
        until_end=until_end,
        checkpoint=str(folder),
        imported=imported,
        ordered_topic_id=ordered.topic_id,
        excluded=excluded,
        payloads=payloads,
        record_bytes_max=record_bytes_max,
    )
    made_of = {
        **chosen.fingerprint(),
        **payloads.fingerprint(),
        "output_partitions": str(output_partitions),
        "input_partitions": str(len(partitions)),
        "record_bytes_max": str(record_bytes_max),
        "topic_ids": json.dumps(topic_ids, sort_keys=True),
    }
    own = {"ordered_topic_id": ordered.topic_id, "spark.shuffle_partitions": str(settings.spark.shuffle_partitions)}
    check_bound(folder, {**made_of, **own}, MAY_GROW, MAY_APPEAR)
    plan, recovery = _where_it_goes_on(plan, admin, journal, ordered, made_of, start)
    # Not before: a start that is refused because of its settings must not bind the folder to them.
    bind(folder, {**made_of, **own}, MAY_GROW, MAY_APPEAR)
    journal.close_connection()
    return plan, recovery


def _topics(chosen: InputSettings, admin: Admin, excluded: frozenset[str], planned: Offset | None) -> list[str]:
    """Return the topics of the input, sorted: those it lists, those its pattern matches, and those its checkpoint knows."""
    names = admin.partition_counts() if chosen.topic_pattern is not None else {}
    known = {topic for topic, _ in planned.partitions} if planned is not None else set()
    topics = sorted({*match_topics(chosen, names, excluded), *known})
    if not topics:
        raise RefusedError(
            f"no topic matches {chosen.topic_pattern!r}",
            code="TG-TOPIC-MISSING",
            where=f"inputs.{chosen.name}.topic_pattern",
            fix="create the first one, or change the pattern: the ordered topic needs to know what it is made of",
            example='topic_pattern = "flights-.*"',
        )
    return topics


def _present_n(admin: Admin, chosen: InputSettings) -> int:
    """Return N of an ordered topic that holds events, 0 if there is none: it stays, whatever has been added to the input since."""
    there = admin.find(chosen.ordered_topic)
    if there is None:
        return 0
    return there.partitions if any(admin.ends([(there.name, number) for number in range(there.partitions)]).values()) else 0


def _ordered_topic(
    admin: Admin, chosen: InputSettings, output_partitions: int, record_bytes_max: int, bound_id: str | None, folder: Path
) -> Topic:
    """Return the ordered topic, made when missing, except where a checkpoint says that it was there."""
    if bound_id is not None:
        there = admin.find(chosen.ordered_topic)
        now = there.topic_id if there is not None else ""
        fix = f"begin anew: delete {folder} too, or set ordered_topic to a topic that is not there yet"
        check_same_topics({chosen.ordered_topic: bound_id}, {chosen.ordered_topic: now}, str(folder), fix)
    kept = chosen.retention_us
    return admin.ensure_ordered_topic(chosen.ordered_topic, output_partitions, kept, record_bytes_max, chosen.replication_factor)


def _largest_record(raw: Sequence[Topic]) -> int:
    """Return how large a record of the raw topics may be, bytes."""
    return max(int(topic.config.get("max.message.bytes", 1_048_588)) for topic in raw)


def _where_it_goes_on(
    plan: IngestPlan, admin: Admin, journal: RedisJournal, ordered: Topic, made_of: Mapping[str, str], asked: Start | None
) -> tuple[IngestPlan, Recovery]:
    """Return the plan with its starts, and whether it is new, resumed from its checkpoint or from the topic's CTIs."""
    folder, topic = Path(plan.checkpoint), plan.settings.ordered_topic
    state, planned = checkpoint_state(folder), read_planned_offset(folder)
    if planned is not None:
        plan = with_roster(plan, planned.partitions, planned.joins)
    ends = admin.ends([(topic, number) for number in range(plan.output_partitions)])
    has_events = any(ends.values())
    found = Resumption.read(folder)
    if state == "empty" and not has_events:
        found = _begun(plan, admin, journal, asked, found)
        found.write(folder)
    start = found.start if found is not None else BEGINNING
    made = check_fingerprint(
        plan if found is None else found.apply_to(plan),
        journal,
        ordered,
        made_of,
        start,
        has_events=has_events,
        has_checkpoint=state != "empty",
    )
    if state == "empty" and has_events:
        refuse_other_start(asked, made.start, topic, str(folder))
        found = resume_topic(plan, admin, journal, made)
        found.write(folder)
    elif state != "empty":
        refuse_other_start(asked, start, topic, str(folder))
        if state == "settled" and has_events and finished(plan.kafka, topic, ends):
            raise ended(topic)
        check_still_there(folder, admin, plan.partitions, plan.starts if found is None else found.starts)
        if planned is not None:
            restore_lost_facts(plan, admin, journal, planned.partitions)
    plan = plan if found is None else found.apply_to(plan)
    if planned is not None:
        plan = with_roster(plan, planned.partitions, planned.joins)
    return plan, _recovery(plan, folder, start if found is None else found.start, admin.ends(plan.partitions))


def _begun(plan: IngestPlan, admin: Admin, journal: RedisJournal, asked: Start | None, found: Resumption | None) -> Resumption:
    """Return where an empty topic is begun: *found* is where an earlier start meant to, before it wrote anything."""
    start = asked or (found.start if found is not None else BEGINNING)
    if start == BEGINNING:
        return Resumption(plan.starts)
    if found is not None and start.said == found.start.said:
        return found
    return begin_topic(plan, admin, journal, last_stopped(plan.redis, plan.settings.ordered_topic) if start.said == LAST_STOPPED else start)


def _recovery(plan: IngestPlan, folder: Path, began: Start, ends: Mapping[Partition, int]) -> Recovery:
    planned, done = last_batches(folder)
    stored = offset_of(folder, done)
    here = plan.starts if stored is None else Offset.from_json(stored).partitions
    how = How.CHECKPOINT if planned >= 0 else How.CTIS if plan.promises else How.START if began.start_us is not None else How.NEW
    return Recovery(
        how,
        {partition: at.next_offset for partition, at in here.items()},
        dict(ends),
        batch=done if planned >= 0 else None,
        repeats=planned > done,
        start_us=began.start_us,
    )


def _silence_advances_time(chosen: InputSettings, topic: Topic) -> bool:
    # A producer's clock may tell of long ago; the broker's and ours go on while nothing comes.
    return chosen.idle == "on" or (chosen.idle == "auto" and (topic.log_append_time or chosen.arrival == "ingest"))


def _say_what_time_rests_on(chosen: InputSettings, log_append: bool) -> None:
    if not log_append and chosen.arrival == "broker":
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
    processor = StageProcessor(Deferred("ingest.stage.processor:IngestStage", plan), plan.checkpoint)
    stage = Stage(f"ingest-{plan.settings.name}", plan.checkpoint, plan.until_end)
    trigger_us = 0 if plan.until_end else settings.spark.trigger_us
    return start_stage(spark, source(plan, trigger_us), processor, stage, on_reports)


def source(plan: IngestPlan, trigger_us: int = 0) -> type[DataSource]:
    """Return the source of the job's ranges, named apart from those of other inputs in the same session."""
    own_name = f"{SOURCE_NAME}_{plan.settings.name}"

    # It travels to processes that need nothing of the plan: nothing of it may stand in here.
    class Source(source_of(Deferred("ingest.planner.planner:Planner", plan), RANGE_SCHEMA, trigger_us)):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return own_name

    return Source


def make_end_lookup(plan: IngestPlan) -> Callable[[Sequence[Partition]], dict[Partition, int]]:
    """Return what asks the brokers where partitions end, and refuses where a topic is not the one that the job began with."""
    admin = Admin(plan.kafka, ANSWER_S)
    identity = TopicIdentity(plan)

    def ends(partitions: Sequence[Partition]) -> dict[Partition, int]:
        identity.check(admin)
        return admin.ends(partitions)

    return ends
