"""
Warnings that the time of an input does not advance as its user expects: events break a policy, or silence advances no time.

Law: warnings change no event. They depend on the driver's run: another run over the same log may warn at other places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ingest.config import IngestPlan
from ordering.ticks import MILLISECOND_US, SECOND_US, format_duration
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.settings.tables.inputs import InputSettings

POLICIES = ("early", "late", "out_of_order")
SHARE_MAX = 0.1
# The number of events on which a share is based: at least so many, and about so many of the newest.
EVENTS_MIN, EVENTS_RECENT = 100, 10_000

_DISTANCES = {
    "early": "{} ahead of arrival",
    "late": "{} behind arrival",
    "out_of_order": "{} behind the largest event time",
}
_BACKFILL = "if they are of the past, produce them with timestamps of the past: docs/operate/backfill.md"
_FIXES = {
    "early": 'raise early, keep such events (early_action = "adjust"), or correct the clocks of the producers; "Backfill and replay" '
    "(docs/operate/backfill.md) if stamps are of the past",
    "late": f"raise late if events come so late; {_BACKFILL}",
    "out_of_order": "raise reorder to the disorder that is usual; events then wait so long for their results",
}

_BROKER_CLOCK = 'use LogAppendTime or arrival = "ingest"'
_CREATE_TIME_STANDS_STILL = f"silence moves no time here, since the topic's timestamps are the producers' (CreateTime): {_BROKER_CLOCK}"


def least_broken(counts: Mapping[str, int]) -> int:
    """Return the least number of events that broke a policy: a late event that was adjusted may also count as out of order."""
    return counts["early"] + max(counts["late"], counts["out_of_order"])


def stands_still_because(plan: IngestPlan) -> str:
    """Return a text that says why silence advances no time in some topic of an input, with the fix; empty if it advances time in all."""
    settings = plan.settings
    # The end of the input releases the held events.
    if plan.until_end:
        return ""
    if settings.policies().late_us is None:
        return 'silence moves no time here, since late = "off": set late'
    if plan.estimates >= plan.topic_ids.keys():
        return ""
    if settings.idle == "off":
        return 'silence moves no time here, since idle = "off"'
    return _CREATE_TIME_STANDS_STILL


def start_warnings(plan: IngestPlan, *, uses_log_append_time: bool) -> Iterator[str]:
    """Yield a warning for each setting that makes the time of an input unreliable."""
    settings, stands_still = plan.settings, stands_still_because(plan)
    if settings.arrival == "broker" and not uses_log_append_time:
        clocks = "arrival times are the producers' clocks, since the raw topic is set to CreateTime"
        if stands_still == _CREATE_TIME_STANDS_STILL:
            clocks += f", and if producers stop, the last events stay held: {_BROKER_CLOCK}"
            stands_still = ""
        yield clocks
    if settings.timestamp_by is not None and settings.early_us is None:
        yield "early is off: one event with a wrong time in the future makes all later events of its timeline out of order"
    if stands_still:
        yield f"if producers stop, the last events stay held: {stands_still}"


class PolicyBreakWarning:
    """Watches the share of recent events that break a policy of an input; ``finding`` describes it while it is above a tenth."""

    def __init__(self, settings: InputSettings) -> None:
        self._tolerances = {
            "early": settings.early_us,
            "late": settings.policies().late_us,
            "out_of_order": settings.policies().reorder_us,
        }
        self._recent: Counter[str] = Counter()
        self._median_us: dict[str, int] = {}
        self.finding: dict[str, Any] | None = None

    def accept_reports(self, reports: Iterable[IngestReport]) -> bool:
        """Add a batch's reports; return whether the finding has appeared or gone."""
        for report in reports:
            self._median_us |= report.breaks.median_us
            self._recent.update(report.breaks.counts | {"events": report.breaks.events})
        events = self._recent["events"]
        if events > EVENTS_RECENT:
            self._recent = Counter({name: count * EVENTS_RECENT // events for name, count in self._recent.items()})
        had_finding, self.finding = self.finding is not None, self._find()
        return had_finding != (self.finding is not None)

    def _find(self) -> dict[str, Any] | None:
        events = self._recent["events"]
        broken = least_broken(self._recent)
        # A finding stays until the share has fallen to half the bound, so that a share that wavers is reported once.
        bound = SHARE_MAX if self.finding is None else SHARE_MAX / 2
        if events < EVENTS_MIN or broken <= bound * events:
            return None
        shares = {policy: self._recent[policy] / events for policy in POLICIES if self._recent[policy]}
        worst = max(shares, key=shares.__getitem__)
        in_words = "; ".join(
            self._policy_in_words(policy, shares[policy]) for policy in sorted(shares, key=shares.__getitem__, reverse=True)
        )
        return {
            "policy": worst,
            "shares": {policy: round(share, 3) for policy, share in shares.items()},
            "median_us": {policy: self._median_us[policy] for policy in shares if policy in self._median_us},
            "in_words": f"of the recent events {in_words}",
            "fix": _FIXES[worst],
        }

    def _policy_in_words(self, policy: str, share: float) -> str:
        setting = "reorder" if policy == "out_of_order" else policy
        percent = "under 1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %")
        tolerance_us = self._tolerances[policy]
        words = f"{percent} are {policy.replace('_', ' ')} ({setting} = {format_duration(tolerance_us or 0)!r}"
        if policy in self._median_us:
            words += f", median {_DISTANCES[policy].format(_round_duration(self._median_us[policy]))}"
        return words.replace("'", '"') + ")"


def _round_duration(duration_us: int) -> str:
    unit_us = SECOND_US if duration_us >= 10 * SECOND_US else MILLISECOND_US
    return format_duration(duration_us // unit_us * unit_us) if duration_us >= unit_us else "under 1ms"
