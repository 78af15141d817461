"""The time zones that plans read clocks of: in ``AT TIME ZONE``, and in windows of local time."""

from __future__ import annotations

from collections.abc import Sequence

from query.plan.local_windows import LocalWindow
from query.plan.nodes import Plan, WindowedAggregate, exprs_in, walk
from query.plan.windows import windows_of
from tidegate.language.expressions.tree import Zoned
from tidegate.language.time_zones.zone import Zone


def zones_of(plans: Sequence[Plan]) -> tuple[Zone, ...]:
    """Return each zone once, in the order of names."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root))
    zones = {expr.zone for node in nodes for expr in exprs_in(node) if isinstance(expr, Zoned)}
    windows = (window for node in nodes if isinstance(node, WindowedAggregate) for window in windows_of(node.window))
    zones |= {window.zone for window in windows if isinstance(window, LocalWindow)}
    return tuple(sorted(zones, key=str))
