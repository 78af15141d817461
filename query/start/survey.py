"""
The survey of a start: what topics, files and checkpoint hold, before anything is decided. It only reads. It has two parts: the topics
determine how the work can be laid out, and the layout determines which run is surveyed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ordering.errors import QueryError
from query.config import QueryPlan
from query.operators.joins.reference_patterns import check_patterns
from query.plan.columns_read import headers_read
from query.plan.nodes import Plan, Project
from query.reference.files import load_references
from query.reference.tables import ReferenceTable
from query.sql.bind import DEFAULT_OUTPUT
from query.start.output_start import Promises, read_promises, read_result_promises, read_split
from sinks.file_places import absolute_place
from tidegate.ordered_topic.promises import has_ended
from tidegate.platform.checkpoint.binding import checkpoint_folder, read_binding
from tidegate.platform.checkpoint.damage import check_whole
from tidegate.platform.checkpoint.offset_log import checkpoint_state
from tidegate.platform.checkpoint.output_start import LAST_STOPPED, Start, read_last_stop
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.payloads.formats import JSON, PayloadFormat

# In the checkpoint's folder once the job has come to its end.
FINISHED_FILE = "finished"


@dataclass(frozen=True, slots=True)
class TopicSurvey:
    """What a job reads and writes."""

    folder: Path
    outputs: tuple[OutputSettings, ...]
    # The ordered topic of each input, in the order of the script.
    ordered: Mapping[str, Topic]
    payloads: Mapping[str, PayloadFormat]
    # The result topics and plain topics that are there.
    results: Mapping[str, Topic] = field(default_factory=dict)
    references: Mapping[str, ReferenceTable] = field(default_factory=dict)

    @property
    def topic_ids(self) -> dict[str, str]:
        return {topic.name: topic.topic_id for topic in self.ordered.values()}


@dataclass(frozen=True, slots=True)
class RunSurvey:
    """What exists of a run."""

    binding: Mapping[str, str] | None
    # Whether Spark has planned nothing yet, has a batch to finish, or has finished all it planned.
    checkpoint: Literal["empty", "pending", "settled"]
    # Whether the job came to its end.
    is_finished: bool = False
    # Names of the outputs whose topics hold results.
    with_results: frozenset[str] = frozenset()
    # Names of the outputs whose topics end in final CTIs; only looked up if the checkpoint has no batch to finish.
    ended: frozenset[str] = frozenset()
    # Whether all ordered topics that the job reads have ended; only looked up if the job or one of its outputs has.
    have_inputs_ended: bool = False
    # The last promises of each output's channels: when the run began, or the present ones if it is to resume from them.
    promises: Promises = ()
    # With ``last-stopped``: the start that follows a run without promises; else None.
    stopped: Start | None = None
    # If it is to resume from promises: by the name of the output, how its results are split (:data:`ordering.protocol.facts.SPLIT`).
    splits: Mapping[str, int | None] = field(default_factory=dict)


def query_folder(settings: Settings, plans: Sequence[Plan]) -> Path:
    """Return the checkpoint folder of the job that writes the outputs of *plans*."""
    first = configured_output(settings, plans[0].output)
    return checkpoint_folder(settings, f"query-{first.topic or first.name}")


def survey_topics(settings: Settings, plans: Sequence[Plan], admin: Admin) -> TopicSurvey:
    """Survey what *plans* read and write; RefusedError if an ordered topic or reference data is missing."""
    outputs = tuple(configured_output(settings, plan.output) for plan in plans)
    inputs = tuple(dict.fromkeys(name for plan in plans for name in plan.inputs))
    payloads = {name: payload_format(settings, plans, name) for name in inputs}
    ordered = {name: admin.require(*_ordered_topic(settings, name)) for name in inputs}
    written = {topic for output in outputs for topic in (output.topic, output.plain_topic) if topic}
    results = {topic: admin.find(topic) for topic in sorted(written)}
    references = load_references(settings.references, {name for plan in plans for name in plan.references})
    check_patterns(plans, references)
    return TopicSurvey(
        folder=query_folder(settings, plans),
        outputs=outputs,
        ordered=ordered,
        payloads=payloads,
        results={name: topic for name, topic in results.items() if topic is not None},
        references=references,
    )


def survey_run(settings: Settings, layout: QueryPlan, topics: TopicSurvey, admin: Admin, requested: Start | None) -> RunSurvey:
    """Survey the run of a job that is started with *requested*; RefusedError if it is unknown where it stopped, or the folder damaged."""
    folder, binding, state = topics.folder, read_binding(topics.folder), checkpoint_state(topics.folder)
    check_whole(folder, is_bound=binding is not None)
    ends_by_output = {}
    for output in layout.outputs:
        topic = topics.results.get(output.topic or "")
        partitions = topic.all_partitions if topic is not None else []
        ends_by_output[output.name] = admin.ends(partitions) if partitions else {}
    with_results = frozenset(name for name, ends in ends_by_output.items() if any(ends.values()))
    ended = frozenset(
        output.name
        for output in layout.outputs
        if state == "settled" and output.name in with_results
        if has_ended(layout.kafka, admin.starts(ends_by_output[output.name]), ends_by_output[output.name])
    )
    promises, stopped, splits = read_promises(folder, len(layout.outputs)), None, {}
    if binding is None:
        promises = tuple({} for _ in layout.outputs)
        # Promises are read only for this start, since that takes a walk over the ends of the result topics.
        if requested is not None and requested.text == LAST_STOPPED:
            # If the pace counts events, the CTIs that it uses depend on where it began to count, and so does the order between substreams.
            is_counting = any(output.cti_every_events is not None for output in layout.outputs)
            by_substream = layout.over and (len(layout.feeds) > 1 or is_counting)
            promises = tuple(read_result_promises(layout.kafka, admin, output, by_substream=by_substream) for output in layout.outputs)
            written = [(output.name, topics.results[output.topic or ""]) for output in layout.outputs if output.name in with_results]
            splits = {name: read_split(layout.kafka, admin, topic) for name, topic in written if layout.buckets > 1}
            first = layout.outputs[0]
            stopped = None if any(promises) else read_last_stop(settings.redis, first.topic or first.name)
    is_finished = (folder / FINISHED_FILE).exists()
    have_inputs_ended = (is_finished or bool(ended)) and all(_has_topic_ended(layout, admin, topic) for topic in topics.ordered.values())
    return RunSurvey(binding, state, is_finished, with_results, ended, have_inputs_ended, promises, stopped, splits)


def _has_topic_ended(layout: QueryPlan, admin: Admin, topic: Topic) -> bool:
    return has_ended(layout.kafka, admin.starts(topic.all_partitions), admin.ends(topic.all_partitions))


def payload_format(settings: Settings, plans: Sequence[Plan], name: str) -> PayloadFormat:
    """Return the format of an input's payloads; QueryError if the query would pass on payloads as results that no query can read."""
    if name not in settings.inputs:
        return JSON
    payloads = replace(PayloadFormat.of(settings.input(name), settings.schema_registry), headers=headers_read(plans, name))
    passing = [plan for plan in plans if isinstance(plan.root, Project) and not plan.root.columns and name in plan.inputs]
    if payloads.name != "json" and passing:
        message = f"SELECT * over payloads in {payloads.name} is not supported yet: results are JSON"
        raise QueryError(message, code="TG-QUERY-NOT-YET", where=name, fix="name the fields")
    return payloads


def configured_output(settings: Settings, name: str) -> OutputSettings:
    """Return the settings of an output. QueryError (TG-QUERY-OUTPUT) or SettingError: there is none of this name."""
    if name == DEFAULT_OUTPUT and name not in settings.outputs:
        message, fix = f"a statement without INTO writes to {name}, and there is no [outputs.{name}]", "write INTO name, or give --into"
        raise QueryError(message, code="TG-QUERY-OUTPUT", where="outputs", fix=fix)
    output = settings.output(name)
    if output.files:
        # Workers may run in other folders, on a cluster on other machines: there the path must be shared.
        return output.model_copy(update={"files": absolute_place(output.files)})
    return output


def _ordered_topic(settings: Settings, name: str) -> tuple[str, str]:
    if name in settings.inputs:
        return settings.input(name).ordered_topic, f"start `tidegate ingest {name}` first: it makes the topic"
    return str(settings.output(name).topic), f"start the query that writes INTO {name} first: it makes the topic"
