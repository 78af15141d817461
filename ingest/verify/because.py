"""
Explains differences of an ordered topic: what each policy did with an event.

Law: an explanation only reads, and only after a difference was found.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.explain import ExplainingWalk
from ingest.verify.stage import OrderedStage, raw_place
from tidegate.platform.kafka.admin import Admin

_SHOWN_DIFFERENCES = 3
# A record so far from the beginning of its partition takes long to explain: every earlier one is walked.
_EXPLAINED_RECORDS = 2_000_000


def explain_events(stage: OrderedStage, admin: Admin) -> Iterator[str]:
    """Yield lines that explain the first differences of a stage."""
    plan = stage.replay.plan
    offsets_by_number: dict[int, set[int]] = {}
    for difference in stage.check.differences[:_SHOWN_DIFFERENCES] if stage.check else ():
        if difference.number < len(plan.partitions):
            offsets = {event.origin for event in (difference.a, difference.b) if event is not None}
            offsets_by_number.setdefault(difference.number, set()).update(offsets)
    for number, wanted in sorted(offsets_by_number.items()):
        partition = plan.partitions[number]
        start, end = admin.starts([partition])[partition], stage.replay.ends[partition]
        present = frozenset(place for place in wanted if start <= plan.settings.places.offset_of(place) < end)
        if plan.settings.places.offset_of(max(wanted)) - start > _EXPLAINED_RECORDS:
            # The command that the user can run if the answer is worth the wait.
            yield f"tidegate explain {stage.name} {' '.join(raw_place(stage, number, offset) for offset in sorted(wanted))}"
            continue
        walk = ExplainingWalk(plan, partition, stage.replay.facts[partition], present)
        for explanation in sorted(walk.explanations(start, end, lambda _: None), key=lambda explanation: explanation.offset):
            yield from str(explanation).split("\n")
        yield from (
            f"The record at {raw_place(stage, number, offset)} is no event: {reason}."
            for offset, reason in sorted(walk.unusable_offsets.items())
        )
        for offset in sorted(wanted - present):
            yield f"There is no record at {raw_place(stage, number, offset)}."
