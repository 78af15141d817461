"""
Which tolerances are worth their delay: for a share of events that may be touched, the late and reorder tolerances with the least delay.

A larger ``reorder`` puts more events in order unchanged and keeps the watermark behind by as much. A larger ``late`` moves fewer events as
late and bounds the delay less, in silence most of all. Law: the delay of a proposal is the least that the tolerances tried have for its
share; of those within a twentieth of it, the smallest ``late`` is proposed. Of two points of a curve, none has both more delay and more
events touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordering.arrays import Ints
from ordering.policies import LATE_US_MAX, Policies
from ordering.ticks import DAY_US, HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US, format_duration
from ordering.tuning.forecast import EventWalk, delay_of, quantiles

# The shares of events touched for which a curve has points.
SHARES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.5)
# The shares of events above the late tolerances that are tried.
_LATE_SHARES = (0.0, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.03, 0.1, 0.3)
_NEAR = 0.05
# Up to a bound, tolerances are rounded up to whole steps.
_STEPS = (
    *((SECOND_US, 10 * MILLISECOND_US), (2 * MINUTE_US, SECOND_US), (2 * HOUR_US, MINUTE_US)),
    *((2 * DAY_US, 10 * MINUTE_US), (2**62, HOUR_US)),
)


@dataclass(frozen=True, slots=True)
class Point:
    """Tolerances, the events they touch (move or drop) and the watermark delay with them, microseconds."""

    late_us: int
    reorder_us: int
    touched: int
    touched_share: float
    delay_p50_us: int
    delay_p99_us: int

    def to_json(self) -> dict[str, Any]:
        return {
            "late": format_duration(self.late_us),
            "reorder": format_duration(self.reorder_us),
            "touched": self.touched,
            "touched_share": round(self.touched_share, 9),
            "watermark_delay_s": {"p50": self.delay_p50_us / SECOND_US, "p99": self.delay_p99_us / SECOND_US},
        }


@dataclass(frozen=True, slots=True)
class TradeOff:
    """
    The proposal for the share that was asked for (None: no tolerance keeps it), and the curve, from the fewest events touched on. Both have
    the early tolerance ``early_us`` (None: off), which is larger than the given one if that alone touched half the share.
    """

    share: float
    early_us: int | None
    proposal: Point | None
    curve: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        proposal = None if self.proposal is None else self.proposal.to_json()
        early = "off" if self.early_us is None else format_duration(self.early_us)
        return {"share": self.share, "early": early, "proposal": proposal, "curve": [point.to_json() for point in self.curve]}


def round_up(us: int) -> int:
    """Return a tolerance that people would write, and not below *us*."""
    step = next(step for bound, step in _STEPS if us <= bound)
    return -(-us // step) * step


def find_trade_off(walk: EventWalk, policies: Policies, share: float) -> TradeOff:
    """Return the curve, and the proposal that touches at most *share* of the events; all actions are those of *policies*."""
    if not len(walk):
        return TradeOff(share, policies.early_us, None, ())
    policies = replace(policies, early_us=_early_for(walk, policies.early_us, share))
    shares = tuple(sorted({*SHARES, share}))
    candidates: dict[float, list[Point]] = {each: [] for each in shares}
    for late_us in _late_candidates(walk, share):
        for each, point in _points(walk, replace(policies, late_us=late_us, reorder_us=0), shares):
            candidates[each].append(point)
    best = {each: _choose(points) for each, points in candidates.items() if points}
    return TradeOff(share, policies.early_us, best.get(share), _undominated(best.values()))


def _early_for(walk: EventWalk, early_us: int | None, share: float) -> int | None:
    if early_us is None or np.count_nonzero(walk.lateness_us < -early_us) <= share * len(walk) / 2:
        return early_us
    least = quantiles(walk.lateness_us, (share / 10,))[0]
    return max(round_up(max(-least, 0)), early_us)


def _late_candidates(walk: EventWalk, share: float) -> list[int]:
    lateness = walk.lateness_us
    bounds = quantiles(lateness, [1 - each for each in (*_LATE_SHARES, share, share / 2)])
    return sorted({min(round_up(max(bound, 0)), LATE_US_MAX) for bound in bounds})


def _points(walk: EventWalk, policies: Policies, shares: Sequence[float]) -> list[tuple[float, Point]]:
    """Return for each share the least reorder that keeps it; none if early and late events alone are more."""
    assert policies.late_us is not None
    judged, total = walk.judge(policies), len(walk)
    touched = judged.rejected | judged.lifted
    touched_count = int(np.count_nonzero(touched))
    behind = judged.behind_us[~touched] if touched_count else judged.behind_us
    allowed = [(share, int(share * total) - touched_count) for share in shares if int(share * total) >= touched_count]
    if not allowed:
        return []
    reorders = [round_up(max(bound, 0)) for bound in _bounds(behind, [count for _, count in allowed])]
    # Not bounded by late, so that they serve every reorder tolerance.
    points, lags = [], quantiles(judged.lag_us, (0.5, 0.99))
    for (share, _), reorder_us in zip(allowed, reorders, strict=True):
        chosen = replace(policies, reorder_us=reorder_us)
        count = touched_count + int(np.count_nonzero(behind > reorder_us))
        p50_us, p99_us = (delay_of(lag_us, chosen) for lag_us in lags)
        points.append((share, Point(policies.late_us, reorder_us, count, count / total, p50_us, p99_us)))
    return points


def _bounds(behind_us: Ints, counts: Sequence[int]) -> list[int]:
    """Return for each count the least value that at most so many of *behind_us* exceed."""
    size = len(behind_us)
    places = [size - 1 - count for count in counts if count < size]
    if not places:
        return [0] * len(counts)
    parted = np.partition(behind_us, sorted(set(places)))
    return [int(parted[size - 1 - count]) if count < size else 0 for count in counts]


def _choose(points: Sequence[Point]) -> Point:
    best_us = min(point.delay_p99_us for point in points)
    near = [point for point in points if point.delay_p99_us <= best_us + abs(best_us) * _NEAR]
    return min(near, key=lambda point: (point.late_us, point.delay_p99_us))


def _undominated(points: Any) -> tuple[Point, ...]:
    kept: list[Point] = []
    for point in sorted(set(points), key=lambda each: (each.touched, each.delay_p99_us)):
        if not kept or point.delay_p99_us < kept[-1].delay_p99_us:
            kept.append(point)
    return tuple(kept)
