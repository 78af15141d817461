"""Everything the plugin offers under the law: the same bytes whatever is cut, killed, repeated or started in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from debounce import debounce
from far_flights import Lines, far_flights, kilometres, spread

from tidegate.query.extending import ScalarFunction
from tidegate.testing import LawBrokenError, SinkUnderTest, law_of, ordered_topic, run_query

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


def _number_rows(origins: pa.Array) -> pa.Array:
    """Number the rows of a batch: a mistake, since batches end anywhere."""
    return pa.array([f"{origin}{number}" for number, origin in enumerate(origins.to_pylist())])


numbered = ScalarFunction(_number_rows, takes=("nvarchar(max)",), gives="nvarchar(max)")


def test_a_mistake_is_found(tmp_path: Path) -> None:
    """With a sentence, and a case that `tidegate test` runs."""
    sql = "SELECT udf.numbered(origin) AS n FROM flights TIMESTAMP BY scheduled"
    with pytest.raises(LawBrokenError, match="undisturbed it is"):
        law_of(sql, {"flights": FLIGHTS}, functions={"numbered": numbered}, case_folder=tmp_path / "case", shrink_s=2)
    assert "disturbance = " in (tmp_path / "case" / "case.toml").read_text()


def test_an_early_flight_comes_before_a_late_one(virtual_time: Any) -> None:
    """What ingest writes, event by event."""
    flights = [virtual_time.event("scheduled", origin="OSL"), virtual_time.event("scheduled", late="5m", origin="JFK")]
    ordered = ordered_topic(flights, {"late": "1h", "reorder": "10m"}, timestamp_by="scheduled")
    assert [event.row["origin"] for event in ordered] == ["JFK", "OSL"]


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
