"""How far a job is behind: for how long the oldest record that it has not read has been seen, whether that grows, and when it ends."""

from __future__ import annotations

import pytest

from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.observe.job_lag import JobLag, UnreadAge, seconds_behind
from tidegate.platform.observe.reports import IngestReport

PLACE = ("results", 0)


def test_the_age_is_that_of_the_oldest_end_that_is_not_stored() -> None:
    """It rises while nothing is stored, falls to that of the next end, and is 0 once all is there; each store has its own."""
    now = [0.0]
    ages = UnreadAge(lambda: now[0])
    for end in (10, 20, 20, 30):
        ages.record({PLACE: end}, {"fast": {PLACE: 0}, "slow": {PLACE: 0}})
        now[0] += 5
    assert ages.age_s({PLACE: 0}) == 20
    assert ages.age_s({PLACE: 9}) == 20
    assert ages.age_s({PLACE: 10}) == 15
    assert ages.age_s({PLACE: 20}) == 5
    assert ages.age_s({PLACE: 30}) == 0
    ages.record({PLACE: 30}, {"fast": {PLACE: 30}, "slow": {PLACE: 12}})
    assert ages.age_s({PLACE: 12}) == 15
    ages.record({PLACE: 30}, {"fast": {PLACE: 30}, "slow": {PLACE: 30}})
    assert ages.age_s({PLACE: 30}) == 0


def test_an_outage_of_days_costs_little_memory() -> None:
    """The oldest end stays exact, whatever is forgotten between."""
    now = [0.0]
    ages = UnreadAge(lambda: now[0])
    for end in range(1, 100_000, 7):
        ages.record({PLACE: end}, {"store": {PLACE: 0}})
        now[0] += 2
    assert ages.age_s({PLACE: 0}) == now[0]
    assert sum(map(len, ages._seen.values())) <= 1_000


def test_a_lag_that_shrinks_is_cleared_when_the_slowest_partition_is() -> None:
    """The change is that of the newest minute; a lag is never cleared while that of one partition does not shrink."""
    now = [0.0]
    lag = JobLag(lambda: now[0])
    places = [("a", 0), ("a", 1)]

    def look(at_s: float, *lags: int) -> dict[str, float | None]:
        now[0] = at_s
        lag.record(
            dict.fromkeys(places, 1_000),
            {place: 1_000 - each for place, each in zip(places, lags, strict=True)},
            dict(zip(places, lags, strict=True)),
        )
        return lag.as_dict()

    assert look(0.0, 600, 400) == {"lag_s": 0.0, "events_per_s": None, "lag_change": None, "cleared_in_s": None}
    assert look(10.0, 500, 100) == {"lag_s": 10.0, "events_per_s": 40.0, "lag_change": -40.0, "cleared_in_s": 50.0}
    assert look(20.0, 600, 0) == {"lag_s": 20.0, "events_per_s": 20.0, "lag_change": -20.0, "cleared_in_s": None}
    assert look(75.0, 600, 600)["lag_change"] == pytest.approx(600 / 55, abs=0.1)
    assert look(76.0, 0, 0)["cleared_in_s"] == 0.0
    assert look(200.0, 0, 0) == {"lag_s": 0.0, "events_per_s": None, "lag_change": None, "cleared_in_s": 0.0}


def report(partition: int, next_offset: int, arrival_s: int | None) -> IngestReport:
    """Return the report of a partition."""
    return IngestReport("t", partition, next_offset=next_offset, arrival_us=NEVER if arrival_s is None else arrival_s * SECOND_US)


def test_the_slowest_partition_with_unread_records_says_how_far_a_job_is_behind() -> None:
    """A partition that is read to its end is not behind, however long ago its last record came."""
    reports = [report(0, 10, 5), report(1, 10, 90), report(2, 10, 80)]
    now_us = 100 * SECOND_US
    assert seconds_behind(reports, {("t", 0): 10, ("t", 1): 12, ("t", 2): 11}, now_us) == 20.0
    assert seconds_behind(reports, {("t", number): 10 for number in range(3)}, now_us) == 0.0
    assert seconds_behind([report(0, 0, None)], {("t", 0): 3}, now_us) is None
