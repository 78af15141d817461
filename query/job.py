"""
The query job on one page: ordered topics in, final results out.

::

    planner --ranges--> (shuffle by bucket) --> stateful stage --reports--> driver
    ends of the topics                           Kafka -> reader's rule -> query -> Kafka, files

With OVER each ordered partition is a bucket, and buckets run side by side; without it one bucket merges all partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ordering.errors import QueryError, RefusedError, SettingError
from ordering.frontier import Pace
from ordering.ticks import INFINITY
from query.config import Feed, Partition, QueryPlan
from query.offsets import RANGE_SCHEMA, Offset
from query.plan import Plan, Project, Scan
from query.reference_files import load_references
from query.script import read_script
from query.spreading import spreading_of
from query.sql.bind import bind_outputs
from query.sql.reading import names_in
from query.starting import beginning, start_bound
from tidegate.runtime.binding import bind, bound, check_same_topics, checkpoint_state, last_batches, offset_of
from tidegate.runtime.deferred import Deferred
from tidegate.runtime.kafka.admin import HEADER_ROOM_BYTES, Admin, Topic
from tidegate.runtime.kafka.tails import finished
from tidegate.runtime.keeping import StageProcessor
from tidegate.runtime.known_topics import KnownTopics
from tidegate.runtime.labels import even_labels
from tidegate.runtime.output_start import Start
from tidegate.runtime.payloads.formats import JSON, PayloadFormat
from tidegate.runtime.planning import source_of
from tidegate.runtime.recovery import How, Recovery
from tidegate.runtime.rights import query_rights
from tidegate.runtime.scalars.bind import InputNames
from tidegate.runtime.scalars.catalog import InputSchema
from tidegate.runtime.scalars.errors import Source
from tidegate.runtime.scalars.expressions import Expr
from tidegate.runtime.setting_tables import OutputSettings
from tidegate.runtime.settings import Settings
from tidegate.runtime.spark import OnReports, Stage, checkpoint_folder, start_stage

TAIL_RECORDS = 1_000
FINISHED_FILE = "finished"
ANSWER_S = 5.0
"""How long a running job waits for the brokers' answers."""
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
    _check_over(settings, plans, str(script))
    return plans


def _check_over(settings: Settings, plans: Sequence[Plan], where: str) -> None:
    """Refuse what has no meaning yet: substreams of results, of several inputs, or of some of them only."""
    scans = scans_of(plans)
    over = [scan for scan in scans if scan.over is not None]
    if not over:
        return
    if any(scan.input in settings.outputs for scan in over):
        what = f"OVER is not supported yet on {over[0].input}, the result of another query"
    elif len({scan.input for scan in scans}) > 1:
        what = "OVER is not supported yet in a query that reads several inputs"
    elif len(over) < len(scans):
        what = f"OVER is missing where {over[0].input} is named again"
    else:
        return
    fix = "leave OVER out: the query then advances by the floor of all substreams"
    raise QueryError(what, code="TG-QUERY-NOT-YET", where=where, fix=fix)


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
    kafka = settings.kafka.client_properties()
    admin = Admin(kafka, settings.kafka.connect_timeout_us / 1e6)
    admin.check_reachable()
    outputs = tuple(_output(settings, plan.output) for plan in plans)
    inputs = tuple(dict.fromkeys(scan.input for scan in scans_of(plans)))
    payloads = {name: payloads_of(settings, plans, name) for name in inputs}
    ordered = [admin.require(*_topic_of(settings, name)) for name in inputs]
    feeds = tuple(Feed(name, topic.name, topic.partitions, payloads[name]) for name, topic in zip(inputs, ordered, strict=True))
    over = plans[0].over is not None
    by_partition = not over and _spreads(settings, plans, outputs, feeds, admin)
    buckets = feeds[0].partitions if over or by_partition else 1
    record_bytes_max = max(*(int(topic.config.get("max.message.bytes", 1_048_588)) - HEADER_ROOM_BYTES for topic in ordered), 1_048_588)
    for output in outputs:
        _check_partitions(output, buckets)
        if output.topic:
            admin.ensure_ordered_topic(output.topic, buckets, output.retention_us, record_bytes_max, output.replication_factor)
        if output.plain_topic:
            retention = {"retention.ms": "-1"} if output.retention_us is None else {}
            admin.ensure(output.plain_topic, buckets, retention, output.replication_factor)
    folder = checkpoint_folder(settings, f"query-{outputs[0].topic or outputs[0].name}")
    began = beginning(start, folder, outputs, kafka, settings.redis)
    for output, promises in zip(outputs, began.promises, strict=True):
        _check_unwritten(admin, kafka, output, buckets, folder, promised=bool(promises))
    # Only what is not refused binds the folder: it is then free for whichever way out is taken.
    _bind(folder, settings, plans, outputs, feeds, ordered, began.start, until_us)
    planned = QueryPlan(
        plans=plans,
        outputs=outputs,
        kafka=kafka,
        feeds=feeds,
        over=over,
        by_partition=by_partition,
        labels=tuple(even_labels(buckets, settings.spark.shuffle_partitions)),
        starts={},
        start_us=began.start.start_us,
        promises=began.promises,
        until_us=until_us,
        until_end=until_end,
        events_per_batch=settings.query.max_events_per_batch,
        checkpoint=str(folder),
        references=load_references(settings.references, {name for plan in plans for name in plan.references}),
    )
    prepared = replace(planned, starts=_starts(admin, list(planned.partitions), planned.read_from_us))
    admin.ensure(prepared.dead_letter_topic, 1, {"retention.ms": "-1"}, outputs[0].replication_factor)
    topics = [output.topic for output in outputs if output.topic]
    admin.check_rights(query_rights([feed.topic for feed in feeds], topics, prepared.dead_letter_topic))
    return prepared


def scans_of(plans: Sequence[Plan]) -> tuple[Scan, ...]:
    """Return all that plans read, each scan once, in the order of the script."""
    return tuple(dict.fromkeys(scan for plan in plans for scan in plan.scans))


def _output(settings: Settings, name: str) -> OutputSettings:
    output = settings.output(name)
    if output.files:
        # Workers may run in other folders, on a cluster on other machines: there the path must be shared.
        return output.model_copy(update={"files": str(Path(output.files).absolute())})
    return output


def _bind(
    folder: Path,
    settings: Settings,
    plans: Sequence[Plan],
    outputs: Sequence[OutputSettings],
    feeds: Sequence[Feed],
    ordered: Sequence[Topic],
    start: Start,
    until_us: int,
) -> None:
    """
    Bind the checkpoint to what it is a checkpoint of.

    Raises:
        RefusedError: It is one of something else.
    """
    known = bound(folder) or {}
    ids = {topic.name: topic.topic_id for topic in ordered}
    known_ids = {topic.name: known.get(_id_key(at), topic.topic_id) for at, topic in enumerate(ordered)}
    check_same_topics(known_ids, ids, str(folder), WAYS_OUT)
    paces = {str(output.pace()) for output in outputs}
    if len(paces) > 1:
        raise SettingError(
            "the outputs of one script heed CTIs at one pace",
            code="TG-SETTING-PACE",
            where=", ".join(f"outputs.{output.name}" for output in outputs),
            fix="give them the same cti_every_events, cti_every and cti_delay, or run each SELECT as its own query",
        )
    bind(
        folder,
        {
            "plan": "\n".join(plan.explain() for plan in plans),
            **start_bound(start),
            # A bounded recount leaves what lies beyond: nothing can go on from it in the order of the log.
            **({} if until_us == INFINITY else {"until": str(until_us)}),
            "partitions": ",".join(str(feed.partitions) for feed in feeds),
            **{_id_key(at): topic.topic_id for at, topic in enumerate(ordered)},
            "output": _outputs_bound(outputs),
            "spark.shuffle_partitions": str(settings.spark.shuffle_partitions),
            # Checkpoints from before there was a pace know nothing of it, and go on.
            **({} if outputs[0].pace() == Pace() else {"pace": str(outputs[0].pace())}),
            **{f"{key}{at or ''}": value for at, feed in enumerate(feeds) for key, value in _format_bound(feed.payloads).items()},
        },
    )


def _id_key(at: int) -> str:
    """Return under which name a checkpoint remembers the id of a topic; the first one's is that of the time when there was one."""
    return f"ordered_topic_id{at or ''}"


def _outputs_bound(outputs: Sequence[OutputSettings]) -> str:
    """Return what a checkpoint remembers of outputs."""
    every = [[output.topic, output.files, output.file_format, output.file_span_us, *_further(output)] for output in outputs]
    return json.dumps(every[0] if len(every) == 1 else every)


def _further(output: OutputSettings) -> list[str]:
    """Return the destinations that outputs had none of when the first checkpoints were bound."""
    return [f"{name} {value}" for name, value in (("plain topic", output.plain_topic), ("sink", output.sink)) if value]


def payloads_of(settings: Settings, plans: Sequence[Plan], name: str) -> PayloadFormat:
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


def _format_bound(payloads: PayloadFormat) -> dict[str, str]:
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


def overs_of(settings: Settings, names: Iterable[str]) -> dict[str, Expr | None]:
    """Return the substream key of each input, as expressions name it; None where it has none, or is the result of a query."""
    overs: dict[str, Expr | None] = dict.fromkeys(names)
    for name in overs:
        table = settings.inputs.get(name)
        if table is not None and table.over:
            schema = InputSchema(name, table.timestamp_by, table.over, table.fields)
            overs[name] = InputNames(Source("", name), schema).field(tuple(table.over.split(".")))
    return overs


def parallelism_of(settings: Settings, plans: Sequence[Plan]) -> str:
    """Return into how many buckets the work of a query is split and why, as far as settings tell, in words."""
    if plans[0].over is not None:
        return "one bucket for each partition of the ordered topic: time advances substream by substream"
    names = tuple(dict.fromkeys(scan.input for scan in scans_of(plans)))
    return spreading_of(plans, overs_of(settings, names), dict.fromkeys(names, 1)).why


def _spreads(settings: Settings, plans: Sequence[Plan], outputs: Sequence[OutputSettings], feeds: Sequence[Feed], admin: Admin) -> bool:
    """Decide whether each ordered partition is a bucket: where the plan allows it, and no result topic was made for one bucket."""
    overs, partitions = overs_of(settings, [feed.input for feed in feeds]), {feed.input: feed.partitions for feed in feeds}
    if not spreading_of(plans, overs, partitions).by_partition:
        return False
    if any(output.partitions == 1 for output in outputs):
        return False
    topics = [topic for output in outputs if output.topic and (topic := admin.find(output.topic)) is not None]
    return not any(topic.partitions == 1 for topic in topics)


def _check_partitions(output: OutputSettings, buckets: int) -> None:
    if output.partitions in (None, buckets):
        return
    why = "as many as the ordered topic it reads" if buckets > 1 else "one, as its work is not spread (tidegate plan says why)"
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


def _check_unwritten(admin: Admin, kafka: dict[str, str], output: OutputSettings, buckets: int, folder: Path, *, promised: bool) -> None:
    """Refuse to write where a run has ended, or where one left results without a checkpoint and nobody goes on from their CTIs."""
    state = checkpoint_state(folder)
    if state == "pending":
        return
    ends = admin.ends([(output.topic, number) for number in range(buckets)]) if output.topic else {}
    ended = (folder / FINISHED_FILE).exists() or (bool(ends) and output.topic and finished(kafka, output.topic, ends))
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
    how = How.CHECKPOINT if planned >= 0 else How.CTIS if any(plan.promises) else How.NEW if plan.start_us is None else How.START
    here = {**plan.starts, **walked(plan)}
    return Recovery(how, here, ends, batch=done if planned >= 0 else None, repeats=planned > done, start_us=plan.start_us)


def walked(plan: QueryPlan) -> dict[Partition, int]:
    """Return the next offset of each partition by the last batch that was finished; nothing before the first."""
    folder = Path(plan.checkpoint)
    stored = offset_of(folder, last_batches(folder)[1])
    return {} if stored is None else {plan.partitions[log]: at for log, at in Offset.from_json(stored).positions.items()}


def look(plan: QueryPlan) -> Callable[[Sequence[Partition]], dict[Partition, int]]:
    """Return what asks the brokers where partitions end, and refuses where it is not the one that the job began with."""
    admin, folder = Admin(plan.kafka, ANSWER_S), Path(plan.checkpoint)
    known = bound(folder) or {}
    topics = KnownTopics({feed.topic: known.get(_id_key(at), "") for at, feed in enumerate(plan.feeds)}, str(folder), WAYS_OUT)

    def ends(partitions: Sequence[Partition]) -> dict[Partition, int]:
        topics.check(admin)
        return admin.ends(partitions)

    return ends


def start(spark: SparkSession, settings: Settings, plan: QueryPlan, on_reports: OnReports) -> StreamingQuery:
    """Start the job; *on_reports* is called in the driver with the reports of each batch."""
    trigger_us = 0 if plan.until_end else settings.spark.trigger_us
    source = source_of(Deferred("query.source:Planner", plan), RANGE_SCHEMA, trigger_us)
    processor = StageProcessor(Deferred("query.processor:QueryStage", plan), plan.checkpoint)
    stage = Stage(f"query-{plan.name}", plan.checkpoint, plan.until_end)
    return start_stage(spark, source, processor, stage, on_reports)
