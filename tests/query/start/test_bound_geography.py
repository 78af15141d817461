"""Checkpoints of queries with geography are bound to the libraries that compute it."""

from __future__ import annotations

import pytest

from ordering.errors import RefusedError
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from query.start import bound_geography
from query.start.bound_geography import geography_binding, settle_geography
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.functions.geography import library_versions, package_versions
from tidegate.language.expressions.syntax.parse import parse_script

JOINED = "SELECT a.k FROM a JOIN b ON DATEDIFF(second, a, b) BETWEEN 0 AND 5 AND ST_WITHIN(a.place, b.area) = 1"
SELECTED = "SELECT k FROM a WHERE ABS(ST_DISTANCE(place, CreatePoint(1, 2))) > 5"
NONE = "SELECT k, ABS(v) AS v FROM a"


def plans_of(sql: str) -> tuple[Plan, ...]:
    """Bind a script."""
    return bind_outputs(parse_script(sql), [InputSchema("a"), InputSchema("b")], into="out")


@pytest.mark.parametrize("sql", [JOINED, SELECTED])
def test_a_query_with_geography_is_bound_to_what_computes_it(sql: str) -> None:
    """Wherever its functions stand; a query without them is bound to nothing."""
    assert geography_binding(plans_of(sql)) == {"geography": library_versions(), "geography_packages": package_versions()}
    assert geography_binding(plans_of(NONE)) == {}
    assert settle_geography({"plan": "x"}, {"plan": "x"}, "folder") == {"plan": "x"}


def test_other_packages_with_the_same_libraries_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint stays bound to those that it was made with."""
    bound = geography_binding(plans_of(SELECTED))
    monkeypatch.setattr(bound_geography, "package_versions", lambda: "shapely 9.0, pyproj 9.1")
    now = geography_binding(plans_of(SELECTED))
    assert now != bound
    assert settle_geography(bound, now, "folder") == bound


def test_other_libraries_are_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages to install are named."""
    bound = geography_binding(plans_of(SELECTED))
    monkeypatch.setattr(bound_geography, "library_versions", lambda: "GEOS 9.9.9, GeographicLib 9.9.9")
    with pytest.raises(RefusedError) as refused:
        settle_geography(bound, geography_binding(plans_of(SELECTED)), "folder")
    error = refused.value
    assert (error.code, error.where) == ("TG-CHECKPOINT-GEOGRAPHY", "folder")
    assert error.what == f"geography is computed by GEOS 9.9.9, GeographicLib 9.9.9 now: the run was begun with {library_versions()}"
    packages = dict(each.split() for each in package_versions().split(", "))
    assert error.example == f"pip install shapely=={packages['shapely']} pyproj=={packages['pyproj']}"
