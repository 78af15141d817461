"""
What is known of a query without its brokers, and how long a command waits for brokers that it does not need.

Law: nothing is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordering.ticks import format_duration
from query.plan.nodes import UNBOUNDED, Plan

# How long plan and lint wait for a broker that they do not need.
GLANCE_S = 2.0


def retention_warnings(plans: Sequence[Plan], retentions_us: Mapping[str, int]) -> list[str]:
    """Return a warning for each input whose topic keeps events for less time (microseconds by input) than a plan looks back."""
    short = [(plan, name) for plan in plans for name in plan.inputs if retentions_us.get(name, UNBOUNDED) < plan.lookback_us]
    return [f"{plan.output} looks {_describe_lookback(plan)}, {name} keeps {format_duration(retentions_us[name])}" for plan, name in short]


def _describe_lookback(plan: Plan) -> str:
    return "back without limit" if plan.lookback_us == UNBOUNDED else f"{format_duration(plan.lookback_us)} back"
