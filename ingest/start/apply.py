"""
Applies the decision of a start: creates topics, finds the read positions, restores lost facts, binds the checkpoint.
Law: the checkpoint is bound last; only skips take effect after that. A start that is refused before binds no later start: it leaves only
empty topics, and in the journal facts that were already in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import MAY_GROW, check_fingerprint
from ingest.planner.joining_partitions import with_roster
from ingest.start.decide import InputStart, StartDecision, check_start
from ingest.start.resume import Resumption, begin_topic, restore_lost_facts, resume_topic
from ingest.start.skips import apply_skips
from ingest.start.survey import LogSurvey
from tidegate.basics.access_rights import ingest_rights
from tidegate.platform.checkpoint.binding import bind
from tidegate.platform.checkpoint.output_start import LAST_STOPPED, Start, read_last_stop
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.dead_letters import ensure_dead_letter_topic
from tidegate.platform.observe.recovery_report import Recovery, RecoveryKind


def apply(
    decision: StartDecision, survey: LogSurvey, admin: Admin, journal: RedisJournal, requested: Start | None
) -> tuple[IngestPlan, Recovery]:
    """Apply a decision; return the plan and the point where the job continues. Raises RefusedError: a later check fails."""
    ordered, plan = _create_topics(decision.plan, admin, can_choose_partitions=not survey.has_events)
    decision = replace(decision, plan=plan)
    resumption, fingerprint = _resumption(decision, survey, admin, journal, ordered, requested)
    plan = resumption.apply_to(replace(plan, fingerprint=fingerprint))
    if survey.planned is not None:
        # The checkpoint's roster: partitions may have joined since the job began.
        plan = with_roster(plan, survey.planned.partitions, survey.planned.joins)
    bind(survey.folder, decision.binding, MAY_GROW)
    plan = apply_skips(plan, survey, decision.gaps, admin, journal)
    return plan, _recovery(plan, survey, resumption.start, admin.ends(plan.partitions))


def _create_topics(plan: IngestPlan, admin: Admin, *, can_choose_partitions: bool) -> tuple[Topic, IngestPlan]:
    """Create the topics that are missing; return the ordered topic, and the plan with its id and the sizes to which letters are cut."""
    chosen = plan.settings
    ordered = admin.ensure_ordered_topic(
        chosen.ordered_topic,
        plan.output_partitions,
        chosen.retention_us,
        plan.record_bytes_max,
        chosen.replication_factor,
        setting="output_partitions" if can_choose_partitions else "",
    )
    letters = list(dict.fromkeys(topic for topic in (chosen.dead_letter_topic, chosen.dropped_topic) if topic is not None))
    sizes = {
        topic: ensure_dead_letter_topic(
            admin, topic, chosen.dead_letter_retention_us, chosen.dead_letter_bytes_max, chosen.replication_factor
        )
        for topic in letters
    }
    read = [*plan.topic_ids, *([plan.imported.topic] if plan.imported is not None else [])]
    admin.check_rights(ingest_rights(read, chosen.ordered_topic, *letters))
    dropped_bytes_max = sizes[chosen.dropped_topic or chosen.dead_letter_topic]
    letter_bytes_max = sizes[chosen.dead_letter_topic]
    plan = replace(plan, ordered_topic_id=ordered.topic_id, letter_bytes_max=letter_bytes_max, dropped_bytes_max=dropped_bytes_max)
    return ordered, plan


def _resumption(
    decision: StartDecision, survey: LogSurvey, admin: Admin, journal: RedisJournal, ordered: Topic, requested: Start | None
) -> tuple[Resumption, str]:
    """
    Return where the job began, and the ordered topic's fingerprint. If the job begins or resumes now, find the positions and write them to
    the checkpoint's folder.
    """
    plan, action = decision.plan, decision.action
    resumption = decision.resumption
    if action is InputStart.BEGIN:
        resumption = resumption or _begin(plan, admin, journal, decision.start)
        resumption.write(survey.folder)
    origin = check_fingerprint(
        plan if resumption is None else resumption.apply_to(plan),
        journal,
        ordered,
        decision.fingerprint,
        decision.start if resumption is None else resumption.start,
        has_events=survey.has_events,
        has_checkpoint=action is InputStart.CONTINUE,
    )
    if action is InputStart.RESUME:
        check_start(requested, origin.start, ordered.name, survey)
        resumption = resume_topic(plan, admin, journal, origin)
        resumption.write(survey.folder)
    elif survey.planned is not None:
        restore_lost_facts(plan, admin, journal, survey.planned.partitions)
    return resumption or Resumption(plan.starts), origin.fingerprint


def _begin(plan: IngestPlan, admin: Admin, journal: RedisJournal, start: Start) -> Resumption:
    if start.text == LAST_STOPPED:
        start = read_last_stop(plan.redis, plan.settings.ordered_topic)
    return begin_topic(plan, admin, journal, start)


def _recovery(plan: IngestPlan, survey: LogSurvey, start: Start, ends: Mapping[Partition, int]) -> Recovery:
    positions = plan.starts if survey.done is None else survey.done.partitions
    has_checkpoint = survey.last_planned >= 0
    from_start = RecoveryKind.NEW if start.start_us is None else RecoveryKind.START
    return Recovery(
        RecoveryKind.CHECKPOINT if has_checkpoint else RecoveryKind.CTIS if plan.promises else from_start,
        {partition: position.next_offset for partition, position in positions.items()},
        dict(ends),
        batch=survey.last_finished if has_checkpoint else None,
        repeats_batch=survey.last_planned > survey.last_finished,
        start_us=start.start_us,
        skips=tuple(skip.describe() for skip in plan.skips if not skip.is_undone),
    )
