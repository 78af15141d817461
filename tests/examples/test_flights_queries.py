"""The demo's three scripts, run without Kafka and Spark under the demo's configuration: flights, departures, days."""

from __future__ import annotations

from typing import Any

import pytest
from support.repository import ROOT

from tidegate.testing import QueryRun, law_of, run_query

EXAMPLES = ROOT / "examples" / "flights"
CONFIG = EXAMPLES / "tidegate.toml"
FLIGHTS: list[dict[str, Any]] = [
    {"scheduled": scheduled, "origin": origin, "destination": "JFK", "delay": delay}
    for scheduled, origin, delay in [
        ("2001-01-01T06:00:00Z", "ATL", 19),
        ("2001-01-01T06:05:00Z", "ATL", -4),
        ("2001-01-01T06:10:00Z", "SAV", 0),
        ("2001-01-01T07:00:00Z", "ATL", None),
        ("2001-01-02T00:00:00Z", "SAV", 30),
        ("2001-01-02T00:01:00Z", "SAV", 31),
    ]
]


def run(name: str, **inputs: list[dict[str, Any]]) -> QueryRun:
    """Run one of the scripts."""
    return run_query(EXAMPLES / f"{name}.sql", inputs, config=CONFIG)


def hours() -> list[dict[str, Any]]:
    """The departures of each hour; the time of a result is its System.Timestamp."""
    return [{**row, "EventEnqueuedUtcTime": row["window_end"]} for row in run("departures", flights=FLIGHTS).rows]


def test_departures_per_origin_and_hour() -> None:
    """A flight at the full hour belongs to the hour it ends."""
    assert [(result.key, result.value.decode()) for result in run("departures", flights=FLIGHTS).results] == [
        (b"ATL", '{"origin":"ATL","window_end":"2001-01-01T06:00:00Z","departures":1}'),
        (b"ATL", '{"origin":"ATL","window_end":"2001-01-01T07:00:00Z","departures":2}'),
        (b"SAV", '{"origin":"SAV","window_end":"2001-01-01T07:00:00Z","departures":1}'),
        (b"SAV", '{"origin":"SAV","window_end":"2001-01-02T00:00:00Z","departures":1}'),
        (b"SAV", '{"origin":"SAV","window_end":"2001-01-02T01:00:00Z","departures":1}'),
    ]


def test_mean_delay_of_the_last_hour_each_quarter() -> None:
    """Flights without a delay count as flights."""
    found = [result.value.decode() for result in run("mean_delay", flights=FLIGHTS[:4]).results]
    assert found[:4] == [
        '{"window_end":"2001-01-01T06:00:00Z","mean_delay":19.0,"flights":1}',
        '{"window_end":"2001-01-01T06:15:00Z","mean_delay":5.0,"flights":3}',
        '{"window_end":"2001-01-01T06:30:00Z","mean_delay":5.0,"flights":3}',
        '{"window_end":"2001-01-01T06:45:00Z","mean_delay":5.0,"flights":3}',
    ]
    assert found[4] == '{"window_end":"2001-01-01T07:00:00Z","mean_delay":-2.0,"flights":3}'
    assert found[-1] == '{"window_end":"2001-01-01T07:45:00Z","mean_delay":null,"flights":1}'


def test_days_are_counted_from_the_results_of_hours() -> None:
    """Stages chain: the payload of one is the input of the next."""
    assert [result.value.decode() for result in run("daily", departures=hours()).results] == [
        '{"day_end":"2001-01-02T00:00:00Z","departures":5,"airport_hours":4}',
        '{"day_end":"2001-01-03T00:00:00Z","departures":1,"airport_hours":1}',
    ]


@pytest.mark.parametrize("name", ["departures", "mean_delay", "daily"])
def test_they_keep_the_law(name: str) -> None:
    """Levels 2 and 3: whatever is cut, killed, torn off, or started in the middle, which takes what the plan says that it looks back."""
    law_of(EXAMPLES / f"{name}.sql", {"departures": hours()} if name == "daily" else {"flights": FLIGHTS}, config=CONFIG, examples=2)
