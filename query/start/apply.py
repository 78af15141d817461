"""
Applies the decision of a start: creates topics, copies reference data, writes promises, binds the checkpoint.
Law: a start that is refused does not bind the checkpoint's folder, so every way out stays open.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from query.config import QueryPlan
from query.reference.forgetting import forget_all_versions, forget_past_versions
from query.reference.tables import ReferenceTable
from query.reference.watch import check_unchanged, take_up_versions
from query.start.binding import result_binding, result_topics
from query.start.decide import Decision
from query.start.output_start import read_log_starts, write_log_starts, write_promises
from query.start.read_positions import read_positions, settle_logs
from query.start.result_limits import ensure_plain_topic
from query.start.survey import TopicSurvey
from query.start.written_places import check_cut_files, check_untaken
from tidegate.basics.access_rights import query_rights
from tidegate.platform.checkpoint.binding import bind
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.dead_letters import ensure_dead_letter_topic


def locate(decision: Decision, admin: Admin) -> QueryPlan:
    """
    Return the plan with its read positions; nothing is written. RefusedError: records at these positions are gone, reference data was
    changed, another job writes one of the outputs, or a file would be replaced by a part of it.
    """
    plan, folder = decision.plan, Path(decision.plan.checkpoint)
    if decision.is_new:
        check_untaken(plan)
        check_cut_files(plan)
    else:
        check_unchanged(folder, plan.reference_settings)
    starts = settle_logs(admin, plan) if decision.is_new else read_log_starts(folder)
    plan = replace(plan, log_starts=starts)
    return replace(plan, starts=read_positions(admin, plan))


def apply(decision: Decision, topics: TopicSurvey, admin: Admin) -> QueryPlan:
    """Apply the decision of a start; return the plan, RefusedError if a later check fails."""
    plan = locate(decision, admin)
    letter_bytes_max, result_ids = _create_topics(plan, admin)
    plan = replace(plan, letter_bytes_max=letter_bytes_max)
    folder, binding = topics.folder, decision.binding
    if plan.references:
        plan = replace(plan, references=_take_up_references(plan, folder, is_new=decision.is_new))
    if decision.is_new:
        write_promises(folder, plan.promises)
        write_log_starts(folder, plan.log_starts)
        binding = {**binding, **result_binding(result_ids)}
    bind(folder, binding)
    return plan


def _take_up_references(plan: QueryPlan, folder: Path, *, is_new: bool) -> dict[str, ReferenceTable]:
    if is_new:
        # No run has looked anything up in what a start took up that was killed before it bound the folder.
        forget_all_versions(folder)
    forget_past_versions(folder)
    return take_up_versions(folder, plan.reference_settings).tables(plan.reference_settings, 0)


def _create_topics(plan: QueryPlan, admin: Admin) -> tuple[int, dict[str, str]]:
    """Return the size that dead letters are cut to, and the ids of the result topics, plain ones too, by name."""
    made: dict[str, Topic] = {}
    for output, bytes_max in zip(plan.outputs, plan.result_bytes_max, strict=True):
        if output.topic and bytes_max is not None:
            made[output.topic] = admin.ensure_ordered_topic(
                output.topic, plan.buckets, output.retention_us, bytes_max, output.replication_factor
            )
        if output.plain_topic and bytes_max is not None:
            made[output.plain_topic] = ensure_plain_topic(admin, output, plan.buckets, bytes_max)
    first = plan.outputs[0]
    letter_bytes_max = ensure_dead_letter_topic(
        admin, plan.dead_letter_topic, first.dead_letter_retention_us, first.dead_letter_bytes_max, first.replication_factor
    )
    written = [output.topic for output in plan.outputs if output.topic]
    admin.check_rights(query_rights([feed.topic for feed in plan.feeds], written, plan.dead_letter_topic))
    return letter_bytes_max, {name: made[name].topic_id for name in result_topics(plan.outputs)}
