"""
Applies the decision of a start: creates topics, determines and writes what is missing, binds the checkpoint.
Law: the checkpoint is bound last. A start that is refused before that leaves nothing that binds another start: only empty topics, and in
the journal facts that were in force already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import MAY_GROW, check_fingerprint
from ingest.planner.joining_partitions import with_roster
from ingest.start.decide import Action, Decision
from ingest.start.output_start import refuse_other_start
from ingest.start.resume import Resumption, begin_topic, restore_lost_facts, resume_topic
from ingest.start.survey import Survey
from tidegate.access_rights import ingest_rights
from tidegate.checkpoint.binding import bind
from tidegate.checkpoint.output_start import LAST_STOPPED, Start, read_last_stop
from tidegate.kafka.admin import Admin, Topic
from tidegate.observe.recovery_report import Recovery, RecoveryKind

# The largest record that the writer can send: one too large for the ordered topic must fit into the dead-letter topic.
DEAD_LETTER_BYTES_MAX = 100 * 2**20


def apply(decision: Decision, survey: Survey, admin: Admin, journal: RedisJournal, requested: Start | None) -> tuple[IngestPlan, Recovery]:
    """Do what a start has decided; return the plan and where it continues, RefusedError if a later check fails."""
    ordered = _create_topics(decision.plan, admin)
    plan = replace(decision.plan, ordered_topic_id=ordered.topic_id)
    decision = replace(decision, plan=plan)
    resumption = _resumption(decision, survey, admin, journal, ordered, requested)
    plan = resumption.apply_to(plan)
    if survey.planned is not None:
        # The checkpoint's roster: partitions may have joined since the job began.
        plan = with_roster(plan, survey.planned.partitions, survey.planned.joins)
    recovery = _recovery(plan, survey, resumption.start, admin.ends(plan.partitions))
    bind(survey.folder, decision.binding, MAY_GROW)
    return plan, recovery


def _create_topics(plan: IngestPlan, admin: Admin) -> Topic:
    chosen = plan.settings
    ordered = admin.ensure_ordered_topic(
        chosen.ordered_topic, plan.output_partitions, chosen.retention_us, plan.record_bytes_max, chosen.replication_factor
    )
    dead_letters = {"retention.ms": "-1", "max.message.bytes": str(DEAD_LETTER_BYTES_MAX)}
    admin.ensure(chosen.dead_letter_topic, 1, dead_letters, chosen.replication_factor)
    read = [*plan.topic_ids, *([plan.imported.topic] if plan.imported is not None else [])]
    admin.check_rights(ingest_rights(read, chosen.ordered_topic, chosen.dead_letter_topic))
    return ordered


def _resumption(
    decision: Decision, survey: Survey, admin: Admin, journal: RedisJournal, ordered: Topic, requested: Start | None
) -> Resumption:
    """Return where the job began; if it begins now, determine that and write it to the checkpoint's folder."""
    plan, action = decision.plan, decision.action
    resumption = decision.resumption
    if action is Action.BEGIN:
        resumption = resumption or _begin(plan, admin, journal, decision.start)
        resumption.write(survey.folder)
    origin = check_fingerprint(
        plan if resumption is None else resumption.apply_to(plan),
        journal,
        ordered,
        decision.fingerprint,
        decision.start if resumption is None else resumption.start,
        has_events=survey.has_events,
        has_checkpoint=action is Action.CONTINUE,
    )
    if action is Action.RESUME:
        refuse_other_start(requested, origin.start, ordered.name, str(survey.folder))
        resumption = resume_topic(plan, admin, journal, origin)
        resumption.write(survey.folder)
    elif survey.planned is not None:
        restore_lost_facts(plan, admin, journal, survey.planned.partitions)
    return resumption or Resumption(plan.starts)


def _begin(plan: IngestPlan, admin: Admin, journal: RedisJournal, start: Start) -> Resumption:
    if start.text == LAST_STOPPED:
        start = read_last_stop(plan.redis, plan.settings.ordered_topic)
    return begin_topic(plan, admin, journal, start)


def _recovery(plan: IngestPlan, survey: Survey, start: Start, ends: Mapping[Partition, int]) -> Recovery:
    positions = plan.starts if survey.done is None else survey.done.partitions
    has_checkpoint = survey.last_planned >= 0
    how = (
        RecoveryKind.CHECKPOINT
        if has_checkpoint
        else RecoveryKind.CTIS
        if plan.promises
        else RecoveryKind.START
        if start.start_us is not None
        else RecoveryKind.NEW
    )
    return Recovery(
        how,
        {partition: position.next_offset for partition, position in positions.items()},
        dict(ends),
        batch=survey.last_finished if has_checkpoint else None,
        repeats_batch=survey.last_planned > survey.last_finished,
        start_us=start.start_us,
    )
