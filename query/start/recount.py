"""
A recount: the plan of a query job as it ran, to compute its results once more from the topics as they stand.

Law: nothing is created, bound or written. With the job's checkpoint the recount is refused unless settings, query and topics are those of
the job; without one, how the results are spread over partitions must be what their CTIs say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti
from ordering.ticks import INFINITY, NEVER, format_tick
from query.config import Partition, QueryPlan
from query.plan.nodes import Plan
from query.reference.lookup import KnownReferences
from query.reference.watch import TakenVersions
from query.start.binding import RESULT_TOPIC_IDS, make_binding
from query.start.bound_geography import settle_geography
from query.start.bound_zones import settle_zones
from query.start.decide import plan_layout
from query.start.output_start import Promises, bound_start, read_log_starts, read_promises, read_split
from query.start.read_positions import planned_positions, read_positions, settle_logs
from query.start.result_limits import result_limits
from query.start.run_history import log_starts_of, output_key, promises_of, with_pace
from query.start.survey import TopicSurvey, survey_topics
from tidegate.ordered_topic.promises import read_end
from tidegate.platform.checkpoint.binding import differences, read_binding, with_bound_tasks
from tidegate.platform.checkpoint.output_start import BEGINNING, Start
from tidegate.platform.checkpoint.query_history import RecordedRun
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as the history of its topic knows it: with it a recount begins as the run did."""

    # How it began.
    run: RecordedRun
    # Whether the results before it are those of runs that the history knows too; else all results are taken to be this run's.
    goes_on: bool
    # Whether it is the job's present run, whose checkpoint may be here.
    is_present: bool

    @property
    def start(self) -> Start:
        start_us = self.run.start_us
        return BEGINNING if start_us is None else Start(format_tick(start_us), start_us)

    def promises(self, outputs: Sequence[OutputSettings]) -> Promises:
        """Return what earlier runs had promised in the channels of each output."""
        return tuple(promises_of(self.run, output_key(output)) if self.goes_on else {} for output in outputs)


@dataclass(frozen=True)
class Recount:
    """What a recount needs."""

    # The job, with the positions from which its logs are read.
    plan: QueryPlan
    topics: TopicSurvey
    # The output start of the job.
    start: Start
    # The offset after the last record to be read of each ordered partition.
    ends: Mapping[Partition, int]
    # The same of each partition of the result topics. They are read first, so no result in them is from later records.
    result_ends: Mapping[Partition, int]
    # Whether the job came to its end there, with its input or before it (``--until-end``).
    has_ended: bool
    # How many records have come since then.
    records_after_end: int
    # Results from here on are computed, microseconds; None: all that the job has written. With OVER over several inputs, or over results,
    # the order between keys depends on where a run begins: such a query is computed from its beginning.
    from_us: int | None
    # Whether the job's checkpoint is here, and settings and query were compared with it.
    has_checkpoint: bool
    # The versions of reference data that the job took up.
    references: KnownReferences | None
    # Whether the job once went on without its checkpoint.
    was_resumed: bool


def plan_recount(
    settings: Settings,
    plans: tuple[Plan, ...],
    admin: Admin,
    requested: Start | None = None,
    since_us: int | None = None,
    *,
    known: KnownRun | None = None,
) -> Recount:
    """
    Return the recount of a job from its start on, or from *since_us* on, microseconds, if that is later. *requested* is the start of a job
    whose checkpoint is not here; *known*, if the history has it, the run that is to be computed again. RefusedError: the settings are not
    the job's (TG-VERIFY-SETTINGS), or records that it needs are gone (TG-RETENTION).
    """
    topics = survey_topics(settings, plans, admin)
    is_earlier = known is not None and not known.is_present
    if is_earlier and known is not None:
        topics = replace(topics, outputs=with_pace(topics.outputs, known.run))
    binding = None if is_earlier else read_binding(topics.folder)
    settings = with_bound_tasks(settings, binding)
    layout = plan_layout(settings, plans, topics)
    begun = requested or BEGINNING if known is None else known.start
    start = begun if binding is None else bound_start(binding)
    plan = replace(layout, start_us=start.start_us, result_bytes_max=result_limits(layout.outputs, topics, binding))
    if binding is None:
        _check_split(plan, topics, admin)
    else:
        plan = replace(plan, until_us=int(binding["until"]) if binding.get("until") else INFINITY)
        _check_settings(plan, topics, binding, start)
    result_ends = admin.ends(
        partition for output in plan.outputs if (topic := topics.results.get(output.topic or "")) for partition in topic.all_partitions
    )
    present_ends = admin.ends(plan.partitions)
    closed = None if is_earlier else _find_close(plan, admin, present_ends, result_ends)
    is_later = since_us is not None and since_us > (NEVER if start.start_us is None else start.start_us)
    from_us = since_us if is_later and not (plan.over and (len(plan.feeds) > 1 or plan.feeds[0].is_result)) else None
    # Without the checkpoint, whose positions are those at which the job stands now.
    folder, located = topics.folder, replace(plan, start_us=plan.start_us if from_us is None else from_us, checkpoint="")
    log_starts = read_log_starts(folder) if from_us is None and not is_earlier else {}
    if known is not None and known.goes_on and from_us is None:
        located, log_starts = replace(located, promises=known.promises(located.outputs)), log_starts_of(known.run)
    located = replace(located, log_starts=log_starts or settle_logs(admin, located))
    versions = TakenVersions.read(folder) if plan.references else None
    return Recount(
        plan=replace(located, starts=read_positions(admin, located), checkpoint=str(folder)),
        topics=topics,
        start=start,
        ends=present_ends if closed is None else closed,
        result_ends=result_ends,
        has_ended=closed is not None,
        records_after_end=0 if closed is None else sum(present_ends.values()) - sum(closed.values()),
        from_us=from_us,
        has_checkpoint=binding is not None,
        references=None if versions is None else _known_references(versions, plan),
        was_resumed=not is_earlier and any(read_promises(folder, len(plan.outputs))),
    )


def _known_references(versions: TakenVersions, plan: QueryPlan) -> KnownReferences:
    added = [(version.table, version.effective_us) for version in versions.added]
    return KnownReferences(added, versions.tables(plan.reference_settings, len(added)))


def _check_settings(plan: QueryPlan, topics: TopicSurvey, binding: Mapping[str, str], start: Start) -> None:
    # Where results go decides nothing about them.
    destinations = {"output", RESULT_TOPIC_IDS}
    where = str(topics.folder)
    current = settle_geography(binding, settle_zones(binding, make_binding(plan, topics.topic_ids, start), where), where)
    now = {name: value for name, value in current.items() if name not in destinations}
    changed = differences({name: value for name, value in binding.items() if name not in destinations}, now)
    if changed:
        raise RefusedError(
            f"the job that writes INTO {plan.name} runs under other settings: {'; '.join(changed)}",
            code="TG-VERIFY-SETTINGS",
            where=str(topics.folder),
            fix="verify with the query and the settings of the job",
        )


def _check_split(plan: QueryPlan, topics: TopicSurvey, admin: Admin) -> None:
    for output in plan.outputs:
        topic = topics.results.get(output.topic or "")
        split = None if topic is None or plan.buckets == 1 else read_split(plan.kafka, admin, topic)
        if topic is not None and (topic.partitions != plan.buckets or (split is not None and split != plan.split)):
            raise RefusedError(
                f"the results in {topic.name} are spread over its {topic.partitions} partitions by other keys than those of this query",
                code="TG-VERIFY-SETTINGS",
                where=topic.name,
                fix="verify with the query and the settings of the job that wrote them (tidegate plan)",
            )


def _find_close(
    plan: QueryPlan, admin: Admin, ends: Mapping[Partition, int], result_ends: Mapping[Partition, int]
) -> Mapping[Partition, int] | None:
    """Return up to where a job whose results have ended has read; None if they have not ended."""
    finals = _final_ctis(plan, admin, result_ends)
    if finals is None:
        return None
    # The batch with the end may never be recorded as finished: a job stops as soon as the end is reported, which is before that.
    if planned := planned_positions(plan):
        return {**ends, **planned}
    closed = dict(ends)
    for bucket in range(plan.buckets):
        # Their final CTI has the sum of the positions.
        logs, next_offset = plan.logs_of(bucket), finals[bucket].next_offset
        if len(logs) == 1:
            closed[plan.partitions[logs[0]]] = next_offset
        elif sum(ends[plan.partitions[log]] for log in logs) != next_offset:
            raise RefusedError(
                f"the job that wrote INTO {plan.name} has ended, and it is not known where it stood in each partition that it read",
                code="TG-VERIFY-END",
                where=", ".join(feed.topic for feed in plan.feeds),
                fix="verify where the job's checkpoint is, or only up to a time before the end (--until)",
            )
    return closed


def _final_ctis(plan: QueryPlan, admin: Admin, result_ends: Mapping[Partition, int]) -> Mapping[int, Cti] | None:
    topic = next((output.topic for output in plan.outputs if output.topic and _of_topic(result_ends, output.topic)), None)
    if topic is None:
        return None
    ends = _of_topic(result_ends, topic)
    return read_end(plan.kafka, admin.starts(ends), ends)


def _of_topic(offsets: Mapping[Partition, int], topic: str) -> dict[Partition, int]:
    return {partition: offset for partition, offset in offsets.items() if partition[0] == topic}
