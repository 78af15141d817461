"""
The query job on one page: ordered topic in, final results out.

::

    planner --ranges--> (shuffle by bucket) --> stateful stage --reports--> driver
    ends of the topic                            Kafka -> reader's rule -> query -> Kafka, files

With OVER each ordered partition is a bucket, and buckets run side by side; without it one bucket merges all partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ordering.errors import QueryError, RefusedError, SettingError
from ordering.frontier import Pace
from query.config import Partition, QueryPlan
from query.offsets import RANGE_SCHEMA, Offset
from query.plan import Plan, Project
from query.sql.bind import bind_script
from tidegate.runtime.binding import bind, bound, check_same_topics, checkpoint_state, last_batches, offset_of
from tidegate.runtime.deferred import Deferred
from tidegate.runtime.kafka.admin import HEADER_ROOM_BYTES, Admin
from tidegate.runtime.kafka.tails import finished
from tidegate.runtime.keeping import StageProcessor
from tidegate.runtime.known_topics import KnownTopics
from tidegate.runtime.labels import even_labels
from tidegate.runtime.payloads.formats import JSON, PayloadFormat
from tidegate.runtime.planning import source_of
from tidegate.runtime.recovery import How, Recovery
from tidegate.runtime.rights import query_rights
from tidegate.runtime.scalars.catalog import InputSchema
from tidegate.runtime.scalars.parse import parse_script
from tidegate.runtime.setting_tables import OutputSettings
from tidegate.runtime.settings import Settings
from tidegate.runtime.spark import OnReports, Stage, checkpoint_folder, start_stage

TAIL_RECORDS = 1_000
FINISHED_FILE = "finished"
ANSWER_S = 5.0
"""How long a running job waits for the brokers' answers."""
WAYS_OUT = "write the results of the new topic to a new output, or delete the result topic and the checkpoint folder to begin anew"


def read_plan(settings: Settings, script: Path, into: str | None) -> Plan:
    """
    Parse and bind a script against the configured inputs and outputs.

    Raises:
        QueryError: The script is wrong, or cannot be read.
    """
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(
            f"the script cannot be read: {error}", code="TG-QUERY-FILE", where=str(script), fix="give the path of a text file in UTF-8"
        ) from None
    inputs = [InputSchema(name, table.timestamp_by, table.over, table.fields) for name, table in settings.inputs.items()]
    results = [InputSchema(name, is_result=True) for name, table in settings.outputs.items() if table.topic]
    parsed = parse_script(text, str(script))
    plan = bind_script(parsed, [*inputs, *results], into=into, window_us_max=settings.query.window_max_us)
    if len(plan.inputs) > 1:
        raise QueryError(
            f"a query job that reads several inputs ({', '.join(plan.inputs)}) is not supported yet",
            code="TG-QUERY-NOT-YET",
            where=str(script),
            fix="read one input in each job",
        )
    if plan.over is not None and plan.input in settings.outputs:
        raise QueryError(
            f"OVER is not supported yet on {plan.input}, the result of another query",
            code="TG-QUERY-NOT-YET",
            where=str(script),
            fix="leave OVER out: the query then advances by the floor of all substreams",
        )
    return plan


def prepare(settings: Settings, plan: Plan, start_us: int | None, until_end: bool) -> QueryPlan:
    """
    Look at topics and checkpoint; make what is missing; return the plan of the job.

    Raises:
        UnreachableError: Kafka does not answer.
        RefusedError: A topic is missing or not as it must be, or the checkpoint belongs to another query.
    """
    payloads = payloads_of(settings, plan)
    kafka = settings.kafka.client_properties()
    admin = Admin(kafka, settings.kafka.connect_timeout_us / 1e6)
    admin.check_reachable()
    output = settings.output(plan.output)
    if output.files:
        # Workers may run in other folders, on a cluster on other machines: there the path must be shared.
        output = output.model_copy(update={"files": str(Path(output.files).absolute())})
    ordered = admin.require(*_topic_of(settings, plan))
    partitions = [(ordered.name, partition) for partition in range(ordered.partitions)]
    over = plan.over is not None
    buckets = ordered.partitions if over else 1
    _check_partitions(output, buckets, over)
    record_bytes_max = max(int(ordered.config.get("max.message.bytes", 1_048_588)) - HEADER_ROOM_BYTES, 1_048_588)
    if output.topic:
        admin.ensure_ordered_topic(output.topic, buckets, output.retention_us, record_bytes_max, output.replication_factor)
    folder = checkpoint_folder(settings, f"query-{output.topic or output.name}")
    known = bound(folder) or {}
    check_same_topics(
        {ordered.name: known.get("ordered_topic_id", ordered.topic_id)}, {ordered.name: ordered.topic_id}, str(folder), WAYS_OUT
    )
    bind(
        folder,
        {
            "plan": plan.explain(),
            "start": "" if start_us is None else str(start_us),
            "ordered_topic_id": ordered.topic_id,
            "partitions": str(ordered.partitions),
            "output": json.dumps([output.topic, output.files, output.file_format, output.file_span_us]),
            "spark.shuffle_partitions": str(settings.spark.shuffle_partitions),
            # Checkpoints from before there was a pace know nothing of it, and go on.
            **({} if output.pace() == Pace() else {"pace": str(output.pace())}),
            **_format_bound(payloads),
        },
    )
    _check_unwritten(admin, kafka, output, buckets, folder)
    read_from_us = None if start_us is None else start_us - plan.lookback_us
    prepared = QueryPlan(
        plan=plan,
        output=output,
        kafka=kafka,
        topic=ordered.name,
        partitions=ordered.partitions,
        over=over,
        labels=tuple(even_labels(buckets, settings.spark.shuffle_partitions)),
        starts=_starts(admin, partitions, read_from_us),
        start_us=start_us,
        until_end=until_end,
        events_per_batch=settings.query.max_events_per_batch,
        checkpoint=str(folder),
        payloads=payloads,
    )
    admin.ensure(prepared.dead_letter_topic, 1, {"retention.ms": "-1"}, output.replication_factor)
    admin.check_rights(query_rights(ordered.name, output.topic, prepared.dead_letter_topic))
    return prepared


def payloads_of(settings: Settings, plan: Plan) -> PayloadFormat:
    """
    Return how the payloads of the events that a query reads are written.

    Raises:
        SettingError: A schema file cannot be used.
        QueryError: The query would hand on as results what no later query could read.
    """
    if plan.input not in settings.inputs:
        return JSON
    payloads = PayloadFormat.of(settings.input(plan.input), settings.schema_registry)
    if payloads.name != "json" and isinstance(plan.root, Project) and not plan.root.columns:
        raise QueryError(
            f"SELECT * over payloads in {payloads.name} is not supported yet: results are JSON",
            code="TG-QUERY-NOT-YET",
            where=plan.input,
            fix="name the fields",
        )
    return payloads


def _format_bound(payloads: PayloadFormat) -> dict[str, str]:
    """Return what a checkpoint remembers of the format; nothing of JSON, as checkpoints from before there were others."""
    if payloads.name == "json":
        return {}
    columns = {"csv": f"csv {payloads.csv_delimiter} {','.join(payloads.csv_columns)}"}
    return {"payloads": columns.get(payloads.name, payloads.name), **payloads.fingerprint()}


def _topic_of(settings: Settings, plan: Plan) -> tuple[str, str]:
    """Return the ordered topic a query reads, and what to do where it is missing."""
    if plan.input in settings.inputs:
        return settings.input(plan.input).ordered_topic, f"start `tidegate ingest {plan.input}` first: it makes the topic"
    return str(settings.output(plan.input).topic), f"start the query that writes INTO {plan.input} first: it makes the topic"


def _check_partitions(output: OutputSettings, buckets: int, over: bool) -> None:
    if output.partitions in (None, buckets):
        return
    why = "as many as the ordered topic it reads" if over else "one, as the query has no substreams to spread"
    raise SettingError(
        f"the result topic of this query has {buckets} partitions: {why}",
        code="TG-SETTING-PARTITIONS",
        where=f"outputs.{output.name}.partitions",
        fix="leave partitions out",
        example=f"partitions = {buckets}",
    )


def _starts(admin: Admin, partitions: list[Partition], read_from_us: int | None) -> dict[Partition, int]:
    """Return where to start reading; refuse where what must be read is gone."""
    starts = admin.starts(partitions)
    if read_from_us is not None:
        # Starting earlier is sound, and the last records hold the final CTIs of a topic that has ended before that time.
        found, ends = admin.offsets_from(partitions, read_from_us), admin.ends(partitions)
        return {partition: min(found[partition], max(starts[partition], ends[partition] - TAIL_RECORDS)) for partition in partitions}
    cut = [f"{topic}-{partition}@{offset}" for (topic, partition), offset in starts.items() if offset > 0]
    if cut:
        raise RefusedError(
            "retention has deleted the beginning of the ordered topic",
            code="TG-RETENTION",
            where=", ".join(cut),
            fix="start from a time that is still there, and give the topic a longer retention",
            example="--start 2001-01-02T00:00:00Z",
        )
    return starts


def _check_unwritten(admin: Admin, kafka: dict[str, str], output: OutputSettings, buckets: int, folder: Path) -> None:
    """Refuse to write where a run has ended, or where one left results whose checkpoint is gone."""
    state = checkpoint_state(folder)
    if state == "pending":
        return
    ends = admin.ends([(output.topic, number) for number in range(buckets)]) if output.topic else {}
    ended = (folder / FINISHED_FILE).exists() or (bool(ends) and output.topic and finished(kafka, output.topic, ends))
    if state == "settled" and ended:
        raise RefusedError(
            f"output {output.name} has ended: its input was read to the final CTI",
            code="TG-TOPIC-ENDED",
            where=output.name,
            fix=f"write to a new output, or delete its topic and {folder} to run again",
        )
    if state == "empty" and any(ends.values()):
        raise RefusedError(
            f"result topic {output.topic} holds results, but there is no checkpoint that says how far they go",
            code="TG-CHECKPOINT-LOST",
            where=str(folder),
            fix="bring the checkpoint back, or name an output topic that is not there yet",
        )


def recovery(plan: QueryPlan) -> Recovery:
    """
    Return where the job goes on, and how much of its input lies ahead.

    Raises:
        UnreachableError: Kafka does not answer.
    """
    folder = Path(plan.checkpoint)
    planned, done = last_batches(folder)
    ends = Admin(plan.kafka).ends([(plan.topic, number) for number in range(plan.partitions)])
    how = How.CHECKPOINT if planned >= 0 else How.NEW if plan.start_us is None else How.START
    here = {**plan.starts, **walked(plan)}
    return Recovery(how, here, ends, batch=done if planned >= 0 else None, repeats=planned > done, start_us=plan.start_us)


def walked(plan: QueryPlan) -> dict[Partition, int]:
    """Return the next offset of each partition by the last batch that was finished; nothing before the first."""
    folder = Path(plan.checkpoint)
    stored = offset_of(folder, last_batches(folder)[1])
    return {} if stored is None else {(plan.topic, number): at for number, at in Offset.from_json(stored).positions.items()}


def look(plan: QueryPlan) -> Callable[[Sequence[Partition]], dict[Partition, int]]:
    """Return what asks the brokers where partitions end, and refuses where it is not the one that the job began with."""
    admin, folder = Admin(plan.kafka, ANSWER_S), Path(plan.checkpoint)
    topics = KnownTopics({plan.topic: (bound(folder) or {}).get("ordered_topic_id", "")}, str(folder), WAYS_OUT)

    def ends(partitions: Sequence[Partition]) -> dict[Partition, int]:
        topics.check(admin)
        return admin.ends(partitions)

    return ends


def start(spark: SparkSession, settings: Settings, plan: QueryPlan, on_reports: OnReports) -> StreamingQuery:
    """Start the job; *on_reports* is called in the driver with the reports of each batch."""
    trigger_us = 0 if plan.until_end else settings.spark.trigger_us
    source = source_of(Deferred("query.source:Planner", plan), RANGE_SCHEMA, trigger_us)
    processor = StageProcessor(Deferred("query.processor:QueryStage", plan), plan.checkpoint)
    stage = Stage(f"query-{plan.output.name}", plan.checkpoint, plan.until_end)
    return start_stage(spark, source, processor, stage, on_reports)
