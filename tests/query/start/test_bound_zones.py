"""Checkpoints are bound to the clocks of the zones that a query uses, and to those alone."""

from __future__ import annotations

import json

import pytest
from support.clocks import zone

from ordering.errors import RefusedError
from query.plan.local_windows import zones_of
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from query.start import bound_zones
from query.start.bound_zones import settle_zones, zones_binding
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.time_zones.database import database_version


def plans_of(sql: str) -> tuple[Plan, ...]:
    """Bind a script."""
    return bind_outputs(parse_script(sql), [InputSchema("a")], into="out")


ZONES = """WITH s AS (SELECT k, System.Timestamp() AT TIME ZONE 'Asia/Tokyo' AS t FROM a)
SELECT k, DATEPART(hour, t) AS h, COUNT(*) AS n FROM s
GROUP BY k, DATEPART(hour, t), Windows(TumblingWindow(hour, 1), TumblingWindow(day, 1, TimeZone('europe/berlin')))"""


def test_the_zones_of_windows_and_expressions_are_bound() -> None:
    """Each once, by name and by what its clock shows."""
    plans = plans_of(ZONES)
    assert [one.name for one in zones_of(plans)] == ["Asia/Tokyo", "Europe/Berlin"]
    binding = zones_binding(plans)
    assert json.loads(binding["time_zones"]) == {name: zone(name).digest for name in ("Asia/Tokyo", "Europe/Berlin")}
    assert binding["time_zone_database"] == database_version()


def test_a_query_without_zones_is_bound_to_no_database() -> None:
    """So its checkpoint says nothing of one, and is the same as ever."""
    assert zones_binding(plans_of("SELECT COUNT(*) AS n FROM a GROUP BY TumblingWindow(day, 1)")) == {}
    assert settle_zones({"plan": "x"}, {"plan": "x"}, "folder") == {"plan": "x"}


def test_another_version_with_the_same_clocks_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint stays bound to the version that it was made with."""
    bound = zones_binding(plans_of(ZONES))
    monkeypatch.setattr(bound_zones, "database_version", lambda: "2030a (tzdata 2030.1)")
    now = zones_binding(plans_of(ZONES))
    assert now != bound
    assert settle_zones(bound, now, "folder") == bound


def test_another_clock_is_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package to install is named."""
    bound = zones_binding(plans_of(ZONES))
    monkeypatch.setattr(bound_zones, "database_version", lambda: "2030a (tzdata 2030.1)")
    now = {**zones_binding(plans_of(ZONES)), "time_zones": json.dumps({"Asia/Tokyo": zone("Asia/Tokyo").digest, "Europe/Berlin": "other"})}
    with pytest.raises(RefusedError) as refused:
        settle_zones(bound, now, "folder")
    error = refused.value
    assert (error.code, error.where) == ("TG-CHECKPOINT-ZONES", "folder")
    assert error.what == f"the clocks of Europe/Berlin have changed: the run was begun with the time zone database {database_version()}"
    assert error.example == f"pip install tzdata=={database_version().partition('tzdata ')[2].rstrip(')')}"
    assert "2030a" in error.fix
