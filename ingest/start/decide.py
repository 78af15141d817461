"""
The decision of a start: how an input continues, or why it is refused, from the survey and the settings alone.
Law: :func:`decide` is pure. A start that it refuses has created, bound and written nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ingest.config import IngestPlan, Partition
from ingest.journal.topic_fingerprint import MAY_GROW
from ingest.journal.topic_identity import WAYS_OUT
from ingest.offsets import PlannedPosition
from ingest.planner.joining_partitions import own_topics, with_roster
from ingest.start.output_start import refuse_other_start
from ingest.start.read_positions import check_still_available
from ingest.start.resume import Resumption
from ingest.start.survey import Survey
from ordering.ticks import SECOND_US
from tidegate.checkpoint.binding import check_binding, check_same_topics
from tidegate.checkpoint.output_start import BEGINNING, Start
from tidegate.kafka.admin import Topic
from tidegate.kafka.channel_promises import ended_error
from tidegate.settings.load import Settings
from tidegate.settings.tables.inputs import InputSettings

# How long the planner waits for Redis before it goes on without estimates: a lost journal must not slow the job.
PLANNER_WAIT_US = 2 * SECOND_US


class Action(Enum):
    """How an input goes on."""

    BEGIN = "begin an ordered topic that holds nothing"
    RESUME = "go on from the ordered topic's CTIs: it holds events, but there is no checkpoint"
    CONTINUE = "go on from the checkpoint"


@dataclass(frozen=True, slots=True)
class Decision:
    """How an input goes on."""

    action: Action
    # For BEGIN and RESUME the read positions are still to be determined; the id of an ordered topic that does not exist yet is empty.
    plan: IngestPlan
    # The settings that shape the ordered topic's events.
    fingerprint: Mapping[str, str]
    # Where the job began; None if that is still to be determined.
    resumption: Resumption | None
    # The output start time of a run that begins.
    start: Start

    @property
    def binding(self) -> dict[str, str]:
        return {
            **self.fingerprint,
            "ordered_topic_id": self.plan.ordered_topic_id,
            "spark.shuffle_partitions": str(self.plan.tasks),
        }


def decide(settings: Settings, name: str, survey: Survey, requested: Start | None = None, *, until_end: bool = False) -> Decision:
    """
    Decide how the input *name* continues, if ``--start`` says *requested*; RefusedError if the checkpoint belongs to other settings or
    topics, the run has another start or has ended, or needed records are gone.
    """
    chosen, known = settings.input(name), survey.binding or {}
    check_same_topics(json.loads(known.get("topic_ids", "{}")), survey.topic_ids, str(survey.folder), WAYS_OUT)
    _check_same_ordered_topic(chosen, survey)
    plan = _plan(settings, chosen, survey, until_end=until_end)
    fingerprint = {
        **chosen.fingerprint(),
        **survey.payloads.fingerprint(),
        "output_partitions": str(plan.output_partitions),
        "input_partitions": str(len(survey.partitions)),
        "record_bytes_max": str(plan.record_bytes_max),
        "topic_ids": json.dumps(survey.topic_ids, sort_keys=True),
    }
    action = Action.CONTINUE if survey.checkpoint != "empty" else Action.RESUME if survey.has_events else Action.BEGIN
    resumption, start = _resumption(action, plan, survey, requested)
    decision = Decision(action, plan, fingerprint, resumption, start)
    check_binding(survey.binding, decision.binding, str(survey.folder), MAY_GROW)
    if action is Action.CONTINUE:
        refuse_other_start(requested, start, chosen.ordered_topic, str(survey.folder))
        if survey.has_ended:
            raise ended_error(chosen.ordered_topic)
        _check_retention(survey, plan.starts if resumption is None else resumption.starts)
    return decision


def _check_same_ordered_topic(chosen: InputSettings, survey: Survey) -> None:
    if survey.binding is None:
        return
    bound_id, topic_id = survey.binding["ordered_topic_id"], survey.ordered.topic_id if survey.ordered is not None else ""
    fix = f"begin anew: delete {survey.folder} too, or set ordered_topic to a topic that is not there yet"
    check_same_topics({chosen.ordered_topic: bound_id}, {chosen.ordered_topic: topic_id}, str(survey.folder), fix)


def _plan(settings: Settings, chosen: InputSettings, survey: Survey, *, until_end: bool) -> IngestPlan:
    """Return the job as it would start on an empty topic, with the roster of its checkpoint."""
    known = survey.binding or {}
    # A topic that holds events keeps its number of partitions, even if the input has grown.
    present_n = survey.ordered.partitions if survey.ordered is not None and survey.has_events else 0
    plan = IngestPlan(
        settings=chosen,
        kafka=settings.kafka.client_properties(),
        redis=settings.redis.model_copy(update={"connect_timeout_us": min(settings.redis.connect_timeout_us, PLANNER_WAIT_US)}),
        partitions=survey.partitions,
        topic_ids=survey.topic_ids,
        tasks=settings.spark.shuffle_partitions,
        starts={partition: PlannedPosition(first) for partition, first in survey.first_offsets.items()},
        output_partitions=chosen.output_partitions or int(known.get("output_partitions", 0)) or present_n or len(survey.partitions),
        estimates=frozenset(topic.name for topic in survey.raw if silence_advances_time(chosen, topic)),
        until_end=until_end,
        checkpoint=str(survey.folder),
        imported=survey.imported,
        ordered_topic_id=survey.ordered.topic_id if survey.ordered is not None else "",
        excluded=own_topics(settings),
        payloads=survey.payloads,
        record_bytes_max=chosen.record_bytes_max or int(known.get("record_bytes_max", 0)) or _largest_record(survey.raw),
    )
    return plan if survey.planned is None else with_roster(plan, survey.planned.partitions, survey.planned.joins)


def _largest_record(raw: tuple[Topic, ...]) -> int:
    return max(int(topic.config.get("max.message.bytes", 1_048_588)) for topic in raw)


def silence_advances_time(chosen: InputSettings, topic: Topic) -> bool:
    """Return whether idle estimates are made for a raw topic."""
    # Producers' clocks may show any time; those of the brokers and of ingest advance during silence.
    return chosen.idle == "on" or (chosen.idle == "auto" and (topic.uses_log_append_time or chosen.arrival == "ingest"))


def _resumption(action: Action, plan: IngestPlan, survey: Survey, requested: Start | None) -> tuple[Resumption | None, Start]:
    """Return where the job began, if that is known, and its output start time."""
    known = survey.resumption
    if action is Action.CONTINUE:
        return known, known.start if known is not None else BEGINNING
    if action is Action.RESUME:
        return None, BEGINNING
    start = requested or (known.start if known is not None else BEGINNING)
    if start == BEGINNING:
        return Resumption(plan.starts), start
    # If an earlier start wrote nothing, the meaning that it gave to `now` or `last-stopped` stays.
    return (known, known.start) if known is not None and start.text == known.start.text else (None, start)


def _check_retention(survey: Survey, starts: Mapping[Partition, PlannedPosition]) -> None:
    if survey.done is None and survey.last_finished >= 0:
        return
    check_still_available(survey.first_offsets, starts if survey.done is None else survey.done.partitions)
