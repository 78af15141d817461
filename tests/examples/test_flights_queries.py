"""The demo's three scripts, run without Kafka and Spark: flights, departures, days."""

from __future__ import annotations

import json
import pickle

from support.query_oracle import Event
from support.query_runs import CompiledQuery, answers, compile_plan
from support.repository import ROOT

from ordering.ticks import HOUR_US, parse_tick
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

EXAMPLES = ROOT / "examples" / "flights"
INPUTS = [InputSchema("flights", timestamp_by="scheduled", over="origin"), InputSchema("departures", over="origin", is_result=True)]
FLIGHTS = [
    ("2001-01-01T06:00:00Z", "ATL", 19),
    ("2001-01-01T06:05:00Z", "ATL", -4),
    ("2001-01-01T06:10:00Z", "SAV", 0),
    ("2001-01-01T07:00:00Z", "ATL", None),
    ("2001-01-02T00:00:00Z", "SAV", 30),
    ("2001-01-02T00:01:00Z", "SAV", 31),
]


def query(name: str) -> CompiledQuery:
    """Compile one of the scripts, as a worker gets it."""
    plan = bind_script(parse_script((EXAMPLES / f"{name}.sql").read_text(), f"{name}.sql"), INPUTS)
    return pickle.loads(pickle.dumps(compile_plan(plan)))


def flights() -> list[Event]:
    """Ordered flights; each airport is a substream."""
    subs = {"ATL": 0, "SAV": 1}
    return [
        Event(subs[origin], parse_tick(scheduled), {"scheduled": scheduled, "origin": origin, "destination": "JFK", "delay": delay})
        for scheduled, origin, delay in FLIGHTS
    ]


def test_departures_per_origin_and_hour() -> None:
    """A flight at the full hour belongs to the hour it ends."""
    found = answers(query("departures"), flights())
    assert [(row["key"], row["value"].decode()) for row in found] == [
        (b"ATL", '{"origin":"ATL","window_end":"2001-01-01T06:00:00Z","departures":1}'),
        (b"ATL", '{"origin":"ATL","window_end":"2001-01-01T07:00:00Z","departures":2}'),
        (b"SAV", '{"origin":"SAV","window_end":"2001-01-01T07:00:00Z","departures":1}'),
        (b"SAV", '{"origin":"SAV","window_end":"2001-01-02T00:00:00Z","departures":1}'),
        (b"SAV", '{"origin":"SAV","window_end":"2001-01-02T01:00:00Z","departures":1}'),
    ]


def test_mean_delay_of_the_last_hour_each_quarter() -> None:
    """Flights without a delay count as flights."""
    events = [Event(0, event.system_us, event.payload) for event in flights()[:4]]
    found = [row["value"].decode() for row in answers(query("mean_delay"), events)]
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
    hours = [Event(0, row["system_us"], json.loads(row["value"])) for row in answers(query("departures"), flights())]
    assert [row["value"].decode() for row in answers(query("daily"), hours)] == [
        '{"day_end":"2001-01-02T00:00:00Z","departures":5,"airport_hours":4}',
        '{"day_end":"2001-01-03T00:00:00Z","departures":1,"airport_hours":1}',
    ]


def test_a_job_knows_how_far_to_look_back() -> None:
    """Look-back is known from the plan alone."""
    assert query("departures").plan.lookback_us == HOUR_US
