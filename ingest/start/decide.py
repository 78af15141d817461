"""
The decision of a start: how an input continues, or why it is refused, from the survey and the settings alone.
Law: :func:`decide` is pure. A start that it refuses has created, bound and written nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ingest.config import IngestPlan
from ingest.journal.topic_fingerprint import MAY_GROW, WAYS_OUT
from ingest.offsets import PlannedPosition, Positions
from ingest.planner.joining_partitions import with_roster
from ingest.skips import Skip
from ingest.start.read_positions import gap_error
from ingest.start.resume import Resumption
from ingest.start.skips import find_gaps
from ingest.start.survey import LogSurvey
from ordering.protocol.keys import KEY_BYTES_MAX
from ordering.ticks import DAY_US, MINUTE_US, SECOND_US, format_duration, parse_duration
from tidegate.ordered_topic.promises import ended_error
from tidegate.platform.checkpoint.binding import TASKS, check_binding, check_same_topics, with_bound_tasks
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.output_start import BEGINNING, Start, refuse_other_start
from tidegate.platform.kafka.admin import Topic, check_readable
from tidegate.platform.kafka.client_properties import EVENT_BYTES_MAX
from tidegate.platform.settings.input_topics import own_topics
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.inputs import InputSettings

# How long the planner waits for Redis before it continues without the journal: a lost journal must not slow the job.
PLANNER_WAIT_US = 2 * SECOND_US


class InputStart(Enum):
    """How an input continues."""

    BEGIN = "begin an ordered topic that holds nothing"
    RESUME = "resume from the ordered topic's CTIs: it holds events, but there is no checkpoint"
    CONTINUE = "resume from the checkpoint"


@dataclass(frozen=True, slots=True)
class StartDecision:
    """How an input continues."""

    action: InputStart
    # For BEGIN and RESUME its read positions are not known yet; the id of an ordered topic that does not exist yet is empty.
    plan: IngestPlan
    # The settings that shape the ordered topic's events.
    fingerprint: Mapping[str, str]
    # Where the job began; None if it is not known yet.
    resumption: Resumption | None
    # The output start time of a run that begins.
    start: Start
    # Lost records that are skipped from now on, by ``on_lost_records``.
    gaps: tuple[Skip, ...] = ()

    @property
    def binding(self) -> dict[str, str]:
        return {**self.fingerprint, "ordered_topic_id": self.plan.ordered_topic_id, TASKS: str(self.plan.tasks)}


def decide(settings: Settings, name: str, survey: LogSurvey, requested: Start | None = None, *, until_end: bool = False) -> StartDecision:
    """
    Decide how the input *name* continues; *requested* is the value of ``--start``. Raises RefusedError: the checkpoint belongs to other
    settings or topics, the run has another start or has ended, or needed records are gone or may go. RunEnded, one of them: it has ended,
    and this start would have ended it there.
    """
    chosen, known = settings.input(name), survey.binding or {}
    check_same_topics(json.loads(known.get("topic_ids", "{}")), survey.topic_ids, str(survey.folder), WAYS_OUT)
    _check_same_ordered_topic(chosen, survey)
    for topic in survey.raw:
        check_readable(topic, is_ordered=False)
    plan = plan_input(settings, chosen, survey, until_end=until_end)
    fingerprint = make_fingerprint(plan, survey)
    action = InputStart.CONTINUE if survey.checkpoint != "empty" else InputStart.RESUME if survey.has_events else InputStart.BEGIN
    resumption, start = _resumption(action, plan, survey, requested)
    decision = StartDecision(action, plan, fingerprint, resumption, start)
    example = f"tidegate ingest {name} --set inputs.{name}.ordered_topic={chosen.ordered_topic}.2"
    check_binding(survey.binding, decision.binding, str(survey.folder), MAY_GROW, way_out="write to a new ordered topic", example=example)
    if action is InputStart.CONTINUE:
        check_start(requested, start, chosen.ordered_topic, survey)
        if survey.has_ended:
            # Only --until-end ends an ordered topic.
            ended = ended_error(chosen.ordered_topic)
            raise RunEnded(ended.what, where=ended.where, fix=ended.fix) if until_end else ended
        gaps = _find_gaps(survey, plan.starts if resumption is None else resumption.starts)
        if gaps and chosen.on_lost_records == "stop":
            raise gap_error(gaps[0], name)
        decision = replace(decision, gaps=gaps)
    return decision


def check_start(requested: Start | None, known: Start | None, ordered_topic: str, survey: LogSurvey) -> None:
    """Raise RefusedError (TG-START-BOUND) if *requested* is not the *known* start with which an ordered topic was begun."""
    ways_out = f"write to a new ordered topic (set ordered_topic), or delete {ordered_topic} and {survey.folder}"
    refuse_other_start(requested, known, f"ordered topic {ordered_topic}", ordered_topic, ways_out)


def _check_same_ordered_topic(chosen: InputSettings, survey: LogSurvey) -> None:
    if survey.binding is None:
        return
    bound_id, topic_id = survey.binding["ordered_topic_id"], survey.ordered.topic_id if survey.ordered is not None else ""
    fix = f"begin anew: delete {survey.folder} too, or set ordered_topic to a topic that is not there yet"
    check_same_topics({chosen.ordered_topic: bound_id}, {chosen.ordered_topic: topic_id}, str(survey.folder), fix)


def make_fingerprint(plan: IngestPlan, survey: LogSurvey) -> dict[str, str]:
    """Return the settings that shape the ordered topic's events."""
    return {
        **plan.settings.fingerprint(),
        **survey.payloads.fingerprint(),
        "output_partitions": str(plan.output_partitions),
        "input_partitions": str(len(survey.partitions)),
        "record_bytes_max": str(plan.record_bytes_max),
        **({"arrival_max_ahead": format_duration(plan.arrival_max_ahead_us)} if plan.settings.arrival == "broker" else {}),
        **({} if plan.key_bytes_max is None else {"key_bytes_max": str(plan.key_bytes_max)}),
        "topic_ids": json.dumps(survey.topic_ids, sort_keys=True),
    }


def plan_input(settings: Settings, chosen: InputSettings, survey: LogSurvey, *, until_end: bool = False) -> IngestPlan:
    """Return the job as it would start on an empty topic, with the roster of its checkpoint."""
    known = survey.binding or {}
    largest_record = max(int(topic.config.get("max.message.bytes", 1_048_588)) for topic in survey.raw)
    # A topic that holds events keeps its number of partitions, even if the input has grown.
    present_n = survey.ordered.partitions if survey.ordered is not None and survey.has_events else 0
    plan = IngestPlan(
        settings=chosen,
        kafka=settings.kafka.client_properties(),
        redis=settings.redis.model_copy(update={"connect_timeout_us": min(settings.redis.connect_timeout_us, PLANNER_WAIT_US)}),
        partitions=survey.partitions,
        topic_ids=survey.topic_ids,
        tasks=with_bound_tasks(settings, survey.binding).spark.shuffle_partitions,
        starts={partition: PlannedPosition(first) for partition, first in survey.first_offsets.items()},
        output_partitions=chosen.output_partitions or int(known.get("output_partitions", 0)) or present_n or len(survey.partitions),
        estimates=frozenset(topic.name for topic in survey.raw if silence_advances_time(chosen, topic)),
        until_end=until_end,
        checkpoint=str(survey.folder),
        imported=survey.imported,
        ordered_topic_id=survey.ordered.topic_id if survey.ordered is not None else "",
        excluded=own_topics(settings),
        payloads=survey.payloads,
        record_bytes_max=chosen.record_bytes_max or int(known.get("record_bytes_max", 0)) or min(largest_record, EVENT_BYTES_MAX),
        arrival_max_ahead_us=find_max_ahead(chosen, known, survey.raw),
        key_bytes_max=_longest_key(chosen, survey.binding),
    )
    return plan if survey.planned is None else with_roster(plan, survey.planned.partitions, survey.planned.joins)


def find_max_ahead(chosen: InputSettings, known: Mapping[str, str], raw: Sequence[Topic]) -> int:
    """
    Return how far ahead of the clock a record may be stamped, microseconds; *known* is the binding of the checkpoint, *raw* the topics.

    The default is small if producers stamp records, because one of them could push time far ahead. It is large if brokers do: the planner's
    clock may be far behind theirs without harm.
    """
    if chosen.arrival_max_ahead_us is not None:
        return chosen.arrival_max_ahead_us
    if "arrival_max_ahead" in known:
        return parse_duration(known["arrival_max_ahead"])
    return DAY_US if all(topic.uses_log_append_time for topic in raw) else 2 * MINUTE_US


def _longest_key(chosen: InputSettings, binding: Mapping[str, str] | None) -> int | None:
    """Return the most bytes of a substream's key; None without substreams, and for a checkpoint that is bound to no limit."""
    if chosen.over is None:
        return None
    bound = str(KEY_BYTES_MAX) if binding is None else binding.get("key_bytes_max")
    return chosen.key_bytes_max or (None if bound is None else int(bound))


def silence_advances_time(chosen: InputSettings, topic: Topic) -> bool:
    """Return whether idle estimates are made for a raw topic."""
    # Producers' clocks may show any time; those of the brokers and of ingest advance during silence.
    return chosen.idle == "on" or (chosen.idle == "auto" and (topic.uses_log_append_time or chosen.arrival == "ingest"))


def _resumption(action: InputStart, plan: IngestPlan, survey: LogSurvey, requested: Start | None) -> tuple[Resumption | None, Start]:
    """Return where the job began, if that is known, and its output start time."""
    known = survey.resumption
    if action is InputStart.CONTINUE:
        return known, known.start if known is not None else BEGINNING
    if action is InputStart.RESUME:
        return None, BEGINNING
    start = requested or (known.start if known is not None else BEGINNING)
    if start == BEGINNING:
        return Resumption(plan.starts), start
    # An earlier start that wrote nothing has given `now` or `last-stopped` a time: it stays.
    return (known, known.start) if known is not None and start.text == known.start.text else (None, start)


def _find_gaps(survey: LogSurvey, starts: Positions) -> tuple[Skip, ...]:
    if survey.done is None and survey.last_finished >= 0:
        return ()
    return find_gaps(survey.first_offsets, starts if survey.done is None else survey.done.partitions, survey.skips.all)
