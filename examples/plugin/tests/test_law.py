"""Everything the plugin offers under the law: the same bytes whatever is cut, killed, repeated or started in the middle."""

from __future__ import annotations

from typing import Any

from debounce import debounce
from far_flights import Lines, far_flights, kilometres, spread

from tidegate.testing import SinkUnderTest, law_of, run_query

FLIGHTS = [
    {"scheduled": "", "origin": "OSL", "distance": 1200},
    {"scheduled": "", "origin": "JFK", "distance": 3000},
    {"scheduled": "", "origin": "JFK", "distance": 90},
]
EVERYTHING = {"kilometres": kilometres, "spread": spread, "debounce": debounce}
SPREADS = (
    "SELECT origin, uda.spread(CAST(distance AS bigint)) AS s FROM debounce(flights, origin, second, 5) TIMESTAMP BY scheduled "
    "GROUP BY origin, TumblingWindow(second, 20)"
)


def test_the_query_and_its_function_keep_the_law() -> None:
    """As `tidegate query far_flights` runs them."""
    law_of(far_flights(), {"flights": FLIGHTS}, functions=EVERYTHING)


def test_the_aggregate_and_the_operator_keep_the_law() -> None:
    """In a script that calls both."""
    law_of(SPREADS, {"flights": FLIGHTS}, functions=EVERYTHING)


def test_the_sink_keeps_the_law() -> None:
    """Broken off at each line of its code, and published again."""
    law_of(SinkUnderTest(lambda folder: Lines(folder)))


def test_flights_as_late_as_real_ones_are_all_counted(rows_like: Any) -> None:
    """The profile beside this file was measured on 113,493 flights; with more tolerance than the latest needs, none is dropped or moved."""
    rows = rows_like("flights.toml", 2_000, seed=1, examples=FLIGHTS)
    run = run_query(far_flights(), {"flights": rows}, {"late": "3d", "reorder": "3d", "early": "1d"}, functions=EVERYTHING, cuts=[500, 900])
    assert {fate.kind for fate in run.fates} == {"in order"}
    assert sum(row["flights"] for row in run.rows) == sum(row["distance"] >= 1000 for row in rows)


def test_a_late_flight_counts_in_its_hour(virtual_time: Any) -> None:
    """Time goes on only as the test says."""
    flights = [virtual_time.event("scheduled", origin="OSL", distance=1000)]
    virtual_time.advance("1h")
    flights.append(virtual_time.event("scheduled", late="40m", origin="OSL", distance=2000))
    run = run_query(far_flights(), {"flights": flights}, {"late": "2h", "reorder": "1h"}, functions=EVERYTHING)
    assert [(row["flights"], row["farthest_km"]) for row in run.rows] == [(1, 1609.3), (1, 3218.7)]
