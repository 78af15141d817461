"""The plan of a query job as a start makes it, with the values that most tests do not care about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ordering.ticks import INFINITY
from query.config import Feed, QueryPlan
from query.plan.nodes import Plan
from tidegate.platform.settings.tables.outputs import OutputSettings


def query_plan(plans: Sequence[Plan], feeds: Sequence[Feed], outputs: dict[str, dict[str, Any]], **changes: Any) -> QueryPlan:
    """
    Return a plan, from the beginning of its topics to no end.

    Args:
        outputs: Their settings by name, in the order of *plans*.
        changes: Other values of its fields.
    """
    plan = QueryPlan(
        tuple(plans),
        tuple(OutputSettings.model_validate({"__name__": name, **settings}) for name, settings in outputs.items()),
        {},
        tuple(feeds),
        over=False,
        by_partition=False,
        labels=(0,),
        starts={},
        start_us=None,
        promises=tuple({} for _ in plans),
        until_us=INFINITY,
        until_end=False,
        events_per_batch=1,
        bytes_per_batch=1,
        join_pairs_max=1_000,
        shuffle_partitions=1,
        checkpoint="",
    )
    return replace(plan, **changes)
