"""
The query job on one page: ordered topics in, final results out.

::

    planner --ranges--> (shuffle by bucket) --> stateful stage --reports--> driver
    ends of the topics                           Kafka -> reader's rule -> query -> Kafka, files

With OVER each ordered partition is a bucket, and buckets run side by side; without it one bucket merges all partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ordering.errors import QueryError, RefusedError, SettingError
from ordering.protocol.frontier import Pace
from ordering.ticks import INFINITY
from query.config import Feed, Partition, QueryPlan
from query.plan.fingerprint import types_and_case
from query.plan.nodes import Plan, Project, Scan
from query.reference.files import load_references
from query.reference.forgetting import forget_past_versions
from query.reference.watch import check_unchanged
from query.reference.watch import take_up_versions as take_up
from query.script import read_script
from query.sql.bind import bind_outputs
from query.sql.reading import names_in
from query.stage.planned_range import RANGE_SCHEMA
from query.start.bucket_layout import check_over, check_partitions, exchange_binding, plan_split
from query.start.output_start import ResolvedStart, resolve_output_start, start_binding, write_promises
from query.start.read_positions import finished_positions, read_positions
from tidegate.access_rights import query_rights
from tidegate.checkpoint.binding import bind, check_binding, check_same_topics, checkpoint_state, last_batches, read_binding
from tidegate.checkpoint.known_topics import KnownTopics
from tidegate.checkpoint.output_start import Start
from tidegate.expressions.binding.catalog import InputSchema
from tidegate.kafka.admin import HEADER_ROOM_BYTES, Admin, Topic
from tidegate.kafka.tails import has_ended
from tidegate.observe.recovery_report import Recovery, RecoveryKind
from tidegate.payloads.formats import JSON, PayloadFormat
from tidegate.settings.load import Settings
from tidegate.settings.tables.outputs import OutputSettings
from tidegate.spark.data_source import make_source
from tidegate.spark.deferred import Deferred
from tidegate.spark.session import OnReports, Stage, checkpoint_folder, start_stage
from tidegate.spark.shuffle_keys import even_labels
from tidegate.spark.state_store import StageProcessor

FINISHED_FILE = "finished"
ANSWER_S = 5.0
"""How long a running job waits for the brokers' answers."""
BOUND_LATER = ("types", "case", "reads")
"""What checkpoints of earlier versions are not bound to; they go on, and are from then on."""
WAYS_OUT = "write the results of the new topic to a new output, or delete the result topic and the checkpoint folder to begin anew"


def read_plans(settings: Settings, script: Path, into: str | None) -> tuple[Plan, ...]:
    """
    Parse and bind a script against the configured inputs and outputs.

    Args:
        settings: The configuration.
        script: A file, or the name under which an installed package offers a query.
        into: The output given beside the script, where it has one only.

    Returns:
        A plan for each output, in the order of the script.

    Raises:
        QueryError: The script is wrong, or cannot be read.
        RefusedError: Reference data that it names cannot be read.
    """
    parsed = read_script(script)
    inputs = [InputSchema(name, table.timestamp_by, table.over, table.fields) for name, table in settings.inputs.items()]
    results = [InputSchema(name, is_result=True) for name, table in settings.outputs.items() if table.topic]
    references = [table.schema for table in load_references(settings.references, names_in(parsed)).values()]
    plans = bind_outputs(parsed, [*inputs, *results, *references], into=into, window_us_max=settings.query.window_max_us)
    check_over(plans, str(script))
    return plans


def prepare(
    settings: Settings, plans: tuple[Plan, ...], start: Start | None = None, *, until_us: int = INFINITY, until_end: bool = False
) -> QueryPlan:
    """
    Look at topics and checkpoint; make what is missing; return the plan of the job.

    Args:
        settings: The configuration.
        plans: What is computed.
        start: The output start that is asked for, None if none is.
        until_us: Results below this instant, microseconds, and then the job stops.
        until_end: Whether the job reads to the present end, closes everything and stops.

    Raises:
        UnreachableError: Kafka does not answer.
        RefusedError: A topic is missing or not as it must be, or the checkpoint belongs to another query.
    """
    admin = Admin(settings.kafka.client_properties(), settings.kafka.connect_timeout_us / 1e6)
    admin.check_reachable()
    whole, ordered = plan_layout(settings, plans, admin)
    outputs, buckets = whole.outputs, whole.buckets
    record_bytes_max = max(*(int(topic.config.get("max.message.bytes", 1_048_588)) - HEADER_ROOM_BYTES for topic in ordered), 1_048_588)
    for output in outputs:
        check_partitions(output, buckets)
        if output.topic:
            admin.ensure_ordered_topic(output.topic, buckets, output.retention_us, record_bytes_max, output.replication_factor)
        if output.plain_topic:
            retention = {"retention.ms": "-1"} if output.retention_us is None else {}
            admin.ensure(output.plain_topic, buckets, retention, output.replication_factor)
    planned, began = resolve_start(settings, whole, ordered, admin, start, until_us)
    prepared = replace(planned, until_end=until_end, starts=read_positions(admin, planned))
    # Only what is not refused binds the folder: it is then free for whichever way out is taken.
    folder = Path(prepared.checkpoint)
    write_promises(folder, began)
    bind(folder, _binding(settings, prepared, ordered, began.start), may_appear=BOUND_LATER)
    if prepared.references:
        forget_past_versions(folder)
        prepared = replace(prepared, references=take_up(folder, prepared.reference_settings).tables(prepared.reference_settings, 0))
    admin.ensure(prepared.dead_letter_topic, 1, {"retention.ms": "-1"}, outputs[0].replication_factor)
    topics = [output.topic for output in outputs if output.topic]
    admin.check_rights(query_rights([feed.topic for feed in prepared.feeds], topics, prepared.dead_letter_topic))
    return prepared


def plan_layout(settings: Settings, plans: tuple[Plan, ...], admin: Admin) -> tuple[QueryPlan, list[Topic]]:
    """
    Return what a job reads and writes and how its work is split, as a run from the beginning, and the topics that it reads.

    Nothing is made or bound.

    Raises:
        UnreachableError: Kafka does not answer.
        RefusedError: An ordered topic is missing.
    """
    outputs = tuple(_output(settings, plan.output) for plan in plans)
    inputs = tuple(dict.fromkeys(scan.input for scan in all_scans(plans)))
    payloads = {name: payload_format(settings, plans, name) for name in inputs}
    ordered = [admin.require(*_topic_of(settings, name)) for name in inputs]
    feeds = tuple(
        Feed(name, topic.name, topic.partitions, payloads[name], name not in settings.inputs)
        for name, topic in zip(inputs, ordered, strict=True)
    )
    over = plans[0].over is not None
    folder = checkpoint_folder(settings, f"query-{outputs[0].topic or outputs[0].name}")
    split = plan_split(settings, plans, outputs, feeds, admin, read_binding(folder))
    reference_names = tuple(dict.fromkeys(name for plan in plans for name in plan.references))
    layout = QueryPlan(
        plans=plans,
        outputs=outputs,
        kafka=settings.kafka.client_properties(),
        feeds=feeds,
        over=over,
        by_partition=split.by_partition,
        exchange=split.exchange,
        labels=tuple(even_labels(split.buckets, settings.spark.shuffle_partitions)),
        starts={},
        start_us=None,
        promises=tuple({} for _ in outputs),
        until_us=INFINITY,
        until_end=False,
        events_per_batch=settings.query.max_events_per_batch,
        # Workers may run in other folders, and read copies of reference data there.
        checkpoint=str(checkpoint_folder(settings, f"query-{outputs[0].topic or outputs[0].name}").absolute()),
        references=load_references(settings.references, reference_names),
        reference_settings={name: settings.references[name] for name in reference_names},
    )
    return layout, ordered


def resolve_start(
    settings: Settings, layout: QueryPlan, ordered: Sequence[Topic], admin: Admin, start: Start | None, until_us: int = INFINITY
) -> tuple[QueryPlan, ResolvedStart]:
    """
    Return the job as it begins or goes on if it is started like this, where in its topics left open; nothing is made or bound.

    Args:
        settings: The configuration.
        whole: The job as a run from the beginning.
        ordered: The topics it reads.
        admin: Asks the brokers.
        start: The output start that is asked for, None if none is.
        until_us: Results below this instant, microseconds.

    Raises:
        RefusedError: It cannot be started like this.
    """
    folder = Path(layout.checkpoint)
    resolved = resolve_output_start(
        start, folder, layout.outputs, layout.kafka, settings.redis, by_key=layout.over and len(layout.feeds) > 1
    )
    for output, promises in zip(layout.outputs, resolved.promises, strict=True):
        _check_unwritten(admin, layout.kafka, output, folder, promised=bool(promises))
    planned = replace(layout, start_us=resolved.start.start_us, promises=resolved.promises, until_us=until_us)
    binding = _binding(settings, planned, ordered, resolved.start)
    check_binding(read_binding(folder), binding, str(folder), may_appear=BOUND_LATER)
    check_unchanged(folder, planned.reference_settings)
    return planned, resolved


def all_scans(plans: Sequence[Plan]) -> tuple[Scan, ...]:
    """Return all that plans read, each scan once, in the order of the script."""
    return tuple(dict.fromkeys(scan for plan in plans for scan in plan.scans))


def _output(settings: Settings, name: str) -> OutputSettings:
    output = settings.output(name)
    if output.files:
        # Workers may run in other folders, on a cluster on other machines: there the path must be shared.
        return output.model_copy(update={"files": str(Path(output.files).absolute())})
    return output


def _binding(settings: Settings, planned: QueryPlan, ordered: Sequence[Topic], start: Start) -> dict[str, str]:
    """
    Return what the checkpoint is bound to: what it is a checkpoint of.

    Raises:
        RefusedError: It is one of topics that have been made again since.
    """
    folder, outputs, feeds = Path(planned.checkpoint), planned.outputs, planned.feeds
    known = read_binding(folder) or {}
    ids = {topic.name: topic.topic_id for topic in ordered}
    reads = ",".join(topic.name for topic in ordered)
    # Another topic is none that was made again: what differs is then told below.
    are_same = known.get("reads", reads) == reads
    known_ids = {topic.name: known.get(_id_key(at), topic.topic_id) for at, topic in enumerate(ordered) if are_same}
    check_same_topics(known_ids, ids, str(folder), WAYS_OUT)
    paces = {str(output.pace()) for output in outputs}
    if len(paces) > 1:
        raise SettingError(
            "the outputs of one script heed CTIs at one pace",
            code="TG-SETTING-PACE",
            where=", ".join(f"outputs.{output.name}" for output in outputs),
            fix="give them the same cti_every_events, cti_every and cti_delay, or run each SELECT as its own query",
        )
    return {
        "plan": "\n".join(plan.explain() for plan in planned.plans),
        **types_and_case(planned.plans),
        **start_binding(start),
        # A bounded recount leaves what lies beyond: nothing can go on from it in the order of the log.
        **({} if planned.until_us == INFINITY else {"until": str(planned.until_us)}),
        "partitions": ",".join(str(feed.partitions) for feed in feeds),
        "reads": reads,
        **{_id_key(at): topic.topic_id for at, topic in enumerate(ordered)},
        "output": _outputs_binding(outputs),
        "spark.shuffle_partitions": str(settings.spark.shuffle_partitions),
        **exchange_binding(planned.exchange),
        # Checkpoints from before there was a pace know nothing of it, and go on.
        **({} if outputs[0].pace() == Pace() else {"pace": str(outputs[0].pace())}),
        **{f"{key}{at or ''}": value for at, feed in enumerate(feeds) for key, value in _format_binding(feed.payloads).items()},
    }


def _id_key(topic_index: int) -> str:
    """Return under which name a checkpoint remembers the id of a topic; the first one's is that of the time when there was one."""
    return f"ordered_topic_id{topic_index or ''}"


def _outputs_binding(outputs: Sequence[OutputSettings]) -> str:
    """Return what a checkpoint remembers of outputs."""
    every = [[output.topic, output.files, output.file_format, output.file_span_us, *_optional_destinations(output)] for output in outputs]
    return json.dumps(every[0] if len(every) == 1 else every)


def _optional_destinations(output: OutputSettings) -> list[str]:
    """Return the destinations that outputs had none of when the first checkpoints were bound."""
    return [f"{name} {value}" for name, value in (("plain topic", output.plain_topic), ("sink", output.sink)) if value]


def payload_format(settings: Settings, plans: Sequence[Plan], name: str) -> PayloadFormat:
    """
    Return how the payloads of the events of an input are written.

    Raises:
        SettingError: A schema file cannot be used.
        QueryError: The query would hand on as results what no later query could read.
    """
    if name not in settings.inputs:
        return JSON
    payloads = PayloadFormat.of(settings.input(name), settings.schema_registry)
    passing = [plan for plan in plans if isinstance(plan.root, Project) and not plan.root.columns and name in plan.inputs]
    if payloads.name != "json" and passing:
        raise QueryError(
            f"SELECT * over payloads in {payloads.name} is not supported yet: results are JSON",
            code="TG-QUERY-NOT-YET",
            where=name,
            fix="name the fields",
        )
    return payloads


def _format_binding(payloads: PayloadFormat) -> dict[str, str]:
    """Return what a checkpoint remembers of the format; nothing of JSON, as checkpoints from before there were others."""
    if payloads.name == "json":
        return {}
    columns = {"csv": f"csv {payloads.csv_delimiter} {','.join(payloads.csv_columns)}"}
    return {"payloads": columns.get(payloads.name, payloads.name), **payloads.fingerprint()}


def _topic_of(settings: Settings, name: str) -> tuple[str, str]:
    """Return the ordered topic of an input, and what to do where it is missing."""
    if name in settings.inputs:
        return settings.input(name).ordered_topic, f"start `tidegate ingest {name}` first: it makes the topic"
    return str(settings.output(name).topic), f"start the query that writes INTO {name} first: it makes the topic"


def _check_unwritten(admin: Admin, kafka: Mapping[str, str], output: OutputSettings, folder: Path, *, promised: bool) -> None:
    """Refuse to write where a run has ended, or where one left results without a checkpoint and nobody goes on from their CTIs."""
    state = checkpoint_state(folder)
    if state == "pending":
        return
    topic = admin.find(output.topic) if output.topic else None
    ends = admin.ends([(topic.name, number) for number in range(topic.partitions)]) if topic else {}
    ended = (folder / FINISHED_FILE).exists() or (bool(ends) and output.topic and has_ended(kafka, output.topic, ends))
    if state == "settled" and ended:
        raise RefusedError(
            f"output {output.name} has ended: its input was read to the final CTI, or the job came to where it was to stop",
            code="TG-TOPIC-ENDED",
            where=output.name,
            fix=f"write to a new output, or delete its topic and {folder} to run again",
        )
    if state == "empty" and any(ends.values()) and not promised:
        raise RefusedError(
            f"result topic {output.topic} holds results, but there is no checkpoint that says how far they go",
            code="TG-CHECKPOINT-LOST",
            where=str(folder),
            fix="bring the checkpoint back, go on from the last CTI of the topic (--start last-stopped), or name an output topic that is "
            "not there yet",
            example="--start last-stopped",
        )


def recovery(plan: QueryPlan) -> Recovery:
    """
    Return where the job goes on, and how much of its input lies ahead.

    Raises:
        UnreachableError: Kafka does not answer.
    """
    folder = Path(plan.checkpoint)
    planned, done = last_batches(folder)
    ends = Admin(plan.kafka).ends(list(plan.partitions))
    how = (
        RecoveryKind.CHECKPOINT
        if planned >= 0
        else RecoveryKind.CTIS
        if any(plan.promises)
        else RecoveryKind.NEW
        if plan.start_us is None
        else RecoveryKind.START
    )
    here = {**plan.starts, **finished_positions(plan)}
    return Recovery(how, here, ends, batch=done if planned >= 0 else None, repeats_batch=planned > done, start_us=plan.start_us)


def make_end_lookup(plan: QueryPlan) -> Callable[[Sequence[Partition]], dict[Partition, int]]:
    """Return what asks the brokers where partitions end, and refuses where it is not the one that the job began with."""
    admin, folder = Admin(plan.kafka, ANSWER_S), Path(plan.checkpoint)
    known = read_binding(folder) or {}
    topics = KnownTopics({feed.topic: known.get(_id_key(at), "") for at, feed in enumerate(plan.feeds)}, str(folder), WAYS_OUT)

    def ends(partitions: Sequence[Partition]) -> dict[Partition, int]:
        topics.check(admin)
        return admin.ends(partitions)

    return ends


def start(spark: SparkSession, settings: Settings, plan: QueryPlan, on_reports: OnReports) -> StreamingQuery:
    """Start the job; *on_reports* is called in the driver with the reports of each batch."""
    trigger_us = 0 if plan.until_end else settings.spark.trigger_us
    source = make_source(Deferred("query.stage.planner:Planner", plan), RANGE_SCHEMA, trigger_us)
    processor = StageProcessor(Deferred("query.stage.processor:QueryStage", plan), plan.checkpoint)
    stage = Stage(f"query-{plan.name}", plan.checkpoint, plan.until_end)
    return start_stage(spark, source, processor, stage, on_reports)
