"""Warnings of an ingest job: events that break a policy, and silence that moves no time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from support.ingest_plans import ingest_plan

from ingest.offsets import PlannedPosition
from ingest.time_warnings import PolicyBreakWarning, stands_still_because, start_warnings
from ordering.ticks import SECOND_US
from tidegate.platform.observe.reports import BrokenPolicies, IngestReport
from tidegate.platform.settings.tables.inputs import InputSettings


def settings_of(**more: str) -> InputSettings:
    """README's input."""
    return InputSettings.model_validate({"__name__": "taxis", "timestamp_by": "at", "late": "1m", "reorder": "5s", **more})


def breaks(events: int, late: int = 0, out_of_order: int = 0, median_us: dict[str, int] | None = None) -> list[IngestReport]:
    """What a batch reports."""
    return [IngestReport("taxis", 0, breaks=BrokenPolicies(events, 0, late, out_of_order, median_us or {}))]


def test_a_backfill_is_told_once_with_policy_distance_and_what_to_do() -> None:
    """19,646 of 20,000 events were lifted in silence."""
    watch = PolicyBreakWarning(settings_of())
    assert watch.accept_reports(breaks(20_000, late=19_646)) is True
    assert watch.accept_reports(breaks(20_000, late=19_646)) is False
    assert watch.finding is not None
    assert watch.finding["policy"] == "late"
    assert watch.finding["in_words"] == 'of the recent events 98 % are late (late = "1m")'
    assert "docs/operate/backfill.md" in watch.finding["fix"]


def test_the_median_stands_behind_its_policy() -> None:
    """The worst policy comes first, and says what to do."""
    watch = PolicyBreakWarning(settings_of())
    watch.accept_reports(breaks(1_000, late=3, out_of_order=400, median_us={"out_of_order": 90 * SECOND_US, "late": 125_300_000}))
    assert watch.finding is not None
    assert watch.finding["in_words"] == (
        'of the recent events 40 % are out of order (reorder = "5s", median 1m30s behind the largest event time); '
        'under 1 % are late (late = "1m", median 2m5s behind arrival)'
    )
    assert watch.finding["fix"].startswith("raise reorder")


def test_a_tenth_is_no_finding_and_what_is_over_is_forgotten() -> None:
    """Few events say nothing; a finding ends when the recent events are mostly within the policies."""
    watch = PolicyBreakWarning(settings_of())
    watch.accept_reports(breaks(90, late=90))
    assert watch.finding is None, "too few"
    watch = PolicyBreakWarning(settings_of())
    assert watch.accept_reports(breaks(1_000, late=100)) is False
    assert watch.accept_reports(breaks(1_000, late=300)) is True
    assert watch.accept_reports(breaks(1_000)) is False, "it wavers"
    assert watch.accept_reports(breaks(100_000)) is True
    assert watch.finding is None


PLAN = ingest_plan(
    settings=settings_of(),
    partitions=(("taxis", 0),),
    topic_ids={"taxis": "id"},
    starts={("taxis", 0): PlannedPosition(0)},
)


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({}, {}, 'the producers\' (CreateTime): use LogAppendTime or arrival = "ingest"'),
        ({"estimates": frozenset({"taxis"})}, {}, ""),
        ({"until_end": True}, {}, ""),
        ({}, {"idle": "off"}, 'since idle = "off"'),
        ({"estimates": frozenset({"taxis"})}, {"late": "off"}, 'since late = "off"'),
    ],
)
def test_silence_that_moves_no_time_is_explained(changes: dict[str, Any], settings: dict[str, str], said: str) -> None:
    """Held events stay held when producers stop, and the job looks well."""
    found = stands_still_because(replace(PLAN, settings=settings_of(**settings), **changes))
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("changes", "settings", "log_append", "said"),
    [
        ({}, {}, False, ["arrival times are the producers' clocks", "the last events stay held: use LogAppendTime"]),
        ({}, {"idle": "off"}, False, ["arrival times are the producers' clocks", 'the last events stay held: .*idle = "off"']),
        ({}, {"arrival": "ingest", "idle": "off"}, False, ['the last events stay held: .*idle = "off"']),
        ({"estimates": frozenset({"taxis"})}, {}, True, []),
        ({"estimates": frozenset({"taxis"})}, {"early": "off", "timestamp_by": "at"}, True, ["early is off"]),
    ],
)
def test_a_start_names_each_weakness_of_time_once(
    changes: dict[str, Any], settings: dict[str, str], log_append: bool, said: list[str]
) -> None:
    """A topic with CreateTime has two effects and one remedy: one warning."""
    plan = replace(PLAN, settings=settings_of(**settings), **changes)
    found = " ".join(start_warnings(plan, uses_log_append_time=log_append))
    assert re.fullmatch("".join(f".*{words}" for words in said) + ".*" if said else "", found), found
    assert found.count("LogAppendTime") == ("use LogAppendTime" in " ".join(said))
