"""
A script of every kind of query, over the events of drawn topics: ``k`` their key, ``w`` 0 or 1, ``v`` a number now and then
text, ``g`` of any kind, ``list`` an array now and then something else.

``{x}`` stands for the input; with OVER each script is read a second time, as ``{x}`` then names the substreams. Times are in
microseconds, so that windows are as long as the disorder of drawn topics.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pyarrow as pa

from ordering.ticks import NEVER
from query.engine.program import Program
from query.javascript.declarations import declare_functions
from query.plan.nodes import Plan
from query.reference.tables import ReferenceTable, Version
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import Script, parse_script
from tidegate.platform.settings.tables.functions import FunctionSettings

INPUT = "keyed"

KINDS = {
    "passed_on": "SELECT k, v, System.Timestamp() AS at, PartitionId AS p FROM {x} WHERE w = 1",
    "star": "SELECT * FROM {x} WHERE w = 1",
    "star_and_more": "SELECT *, v * 2 AS v FROM {x}",
    "tumbling": "SELECT k, g, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo, MAX(g) AS hi FROM {x} GROUP BY k, g, TumblingWindow(mcs, 7)",
    "hopping": "SELECT k, AVG(v) AS a, COUNT(v) AS n FROM {x} WHERE w = 1 GROUP BY k, HoppingWindow(mcs, 9, 4) HAVING COUNT(*) > 1",
    "local": "SELECT k, g, System.Timestamp() AT TIME ZONE 'Africa/Monrovia' AS at, COUNT(*) AS n, SUM(v) AS s FROM {x} "
    "GROUP BY k, g, TumblingWindow(Duration(mcs, 7), TimeZone('Africa/Monrovia'))",
    "local_hopping": "SELECT k, DATEPART(mcs, System.Timestamp() AT TIME ZONE 'Asia/Kathmandu') AS at, COUNT(v) AS n, "
    "COUNT(DISTINCT v) AS d FROM {x} GROUP BY k, HoppingWindow(Duration(mcs, 9), Hop(mcs, 3), Offset(mcs, 1), TimeZone('Asia/Kathmandu'))",
    "sliding": "SELECT k, System.Timestamp() AS at, COUNT(*) AS n, SUM(v) AS s FROM {x} GROUP BY k, SlidingWindow(mcs, 6)",
    "session": "SELECT k, g, MIN(System.Timestamp()) AS first, COUNT(*) AS n, SUM(v) AS s FROM {x} "
    "GROUP BY k, g, SessionWindow(mcs, 3, 10) OVER (PARTITION BY k)",
    "session_of_all_keys": "SELECT k, COUNT(*) AS n, MAX(v) AS hi FROM {x} GROUP BY k, SessionWindow(mcs, 2, 7)",
    "snapshot": "SELECT k, System.Timestamp() AS at, COUNT(*) AS n, COLLECT(v) AS c FROM {x} GROUP BY k, SnapshotWindow()",
    "several_windows": "SELECT k, System.Window().Id AS id, System.Timestamp() AS at, COUNT(*) AS n, SUM(v) AS s FROM {x} "
    "GROUP BY k, Windows(Window('a', TumblingWindow(mcs, 5)), Window('b', SlidingWindow(mcs, 4)), Window('c', SessionWindow(mcs, 2, 6)))",
    "whole_windows": "SELECT k, COUNT(DISTINCT v) AS d, STDEV(v) AS s, PERCENTILE_CONT(0.3) OVER (ORDER BY v) AS p, "
    "PERCENTILE_DISC(0.5) OVER (ORDER BY v) AS q FROM {x} GROUP BY k, HoppingWindow(mcs, 12, 5)",
    "collected": "SELECT k, COLLECT() AS c, TopOne() OVER (ORDER BY v DESC) AS t, CollectTop(2, g) OVER (ORDER BY v) AS f "
    "FROM {x} GROUP BY k, TumblingWindow(mcs, 8)",
    "collected_sliding": "SELECT k, COLLECT(v) AS c, TopOne(g) OVER (ORDER BY v) AS t FROM {x} GROUP BY k, SlidingWindow(mcs, 5)",
    "looking_back": "SELECT k, v, LAG(v, 1, 0) OVER (PARTITION BY k LIMIT DURATION(mcs, 9)) AS before, "
    "LAST(g) OVER (PARTITION BY k LIMIT DURATION(mcs, 20) WHEN w = 1) AS last, ISFIRST(mcs, 6) OVER (PARTITION BY k) AS first, "
    "SUM(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 7) WHEN w = 1) AS s FROM {x} WHERE w = 1",
    "looking_back_at_all": "SELECT k, LAG(v, 2) OVER (LIMIT DURATION(mcs, 9)) AS before, ISFIRST(mcs, 5) AS first, "
    "COUNT(*) OVER (LIMIT DURATION(mcs, 5)) AS n FROM {x}",
    "running_totals": "SELECT k, v, SUM(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 30)) AS s, "
    "COUNT(*) OVER (LIMIT DURATION(mcs, 25)) AS n, MIN(g) OVER (PARTITION BY k, w LIMIT DURATION(mcs, 40) WHEN v > 0) AS lo, "
    "AVG(v) OVER (LIMIT DURATION(mcs, 8)) AS a, MAX(v) OVER (PARTITION BY v % 2 LIMIT DURATION(mcs, 30)) AS hi FROM {x}",
    "looking_back_on_rows": "SELECT k, v, STDEVP(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 8)) AS s, "
    "PERCENTILE_DISC(0.5) OVER (PARTITION BY k ORDER BY v LIMIT DURATION(mcs, 5) WHEN w = 1) AS d, "
    "COLLECT(g) OVER (PARTITION BY k LIMIT DURATION(mcs, 3)) AS c, "
    "TopOne(g) OVER (PARTITION BY k ORDER BY v DESC LIMIT DURATION(mcs, 9)) AS t FROM {x}",
    "applied": "SELECT x.k, e.ArrayIndex AS i, e.ArrayValue AS e FROM {x} x CROSS APPLY GetArrayElements(x.list) AS e",
    "applied_and_counted": "WITH e AS (SELECT x.k AS k, e.ArrayValue AS e FROM {x} x OUTER APPLY GetArrayElements(x.list) AS e) "
    "SELECT k, e, COUNT(*) AS n FROM e GROUP BY k, e, TumblingWindow(mcs, 6)",
    "united": "SELECT k, v FROM {x} WHERE w = 1 UNION SELECT k, g AS v FROM {x}",
    "united_and_counted": "WITH u AS (SELECT k, v FROM {x} UNION SELECT k, v FROM {x} WHERE w = 1) "
    "SELECT k, COUNT(*) AS n, COLLECT(v) AS c FROM u GROUP BY k, HoppingWindow(mcs, 6, 3)",
    "joined": "SELECT a.k AS k, a.v AS v, b.v AS u, System.Timestamp() AS at FROM {x} a JOIN {x} b "
    "ON DATEDIFF(mcs, a, b) BETWEEN -2 AND 4 AND a.k = b.k AND b.w = 1",
    "left_joined": "SELECT a.k AS k, a.v AS v, b.v AS u, b.g AS g, System.Timestamp() AS at FROM {x} a LEFT JOIN {x} b "
    "ON DATEDIFF(mcs, a, b) BETWEEN 1 AND 5 AND a.k = b.k AND a.g = b.g",
    "joined_thrice": "SELECT * FROM {x} a JOIN {x} b ON DATEDIFF(mcs, a, b) BETWEEN 0 AND 2 AND a.k = b.k AND a.w = 0 "
    "LEFT JOIN {x} c ON DATEDIFF(mcs, b, c) BETWEEN -3 AND 1 AND b.k = c.k AND b.v < c.v",
    "joined_across_keys": "SELECT a.k AS k, b.k AS l, a.v AS v FROM {x} a JOIN {x} b ON DATEDIFF(mcs, a, b) BETWEEN 0 AND 2 AND a.v = b.v",
    "looked_up": "SELECT x.k AS k, r.rate AS rate, r.name AS name FROM {x} x LEFT JOIN r ON x.k = r.k AND x.w = r.w",
    "window_over_lag": "WITH s AS (SELECT k, v - LAG(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 12)) AS d FROM {x}) "
    "SELECT k, SUM(d) AS s, COUNT(d) AS n FROM s GROUP BY k, TumblingWindow(mcs, 6)",
    "window_over_join": "WITH s AS (SELECT a.k AS k, b.v AS v FROM {x} a LEFT JOIN {x} b "
    "ON DATEDIFF(mcs, a, b) BETWEEN 1 AND 3 AND a.k = b.k) "
    "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s GROUP BY k, SessionWindow(mcs, 3, 8) OVER (PARTITION BY k)",
    "lag_over_window": "WITH s AS (SELECT k, COUNT(*) AS n, System.Timestamp() AS at FROM {x} GROUP BY k, SlidingWindow(mcs, 3)) "
    "SELECT k, at, n, LAG(n) OVER (PARTITION BY k LIMIT DURATION(mcs, 10)) AS before FROM s",
    "join_of_windows": "WITH s AS (SELECT k, COUNT(*) AS n FROM {x} GROUP BY k, TumblingWindow(mcs, 4)) "
    "SELECT a.k AS k, a.n AS n, b.n AS m FROM s a LEFT JOIN s b ON DATEDIFF(mcs, a, b) BETWEEN 1 AND 4 AND a.k = b.k",
    "windows_of_windows": "WITH s AS (SELECT k, SUM(v) AS v FROM {x} GROUP BY k, TumblingWindow(mcs, 3)), "
    "t AS (SELECT k, MAX(v) AS v, COUNT(*) AS n FROM s GROUP BY k, HoppingWindow(mcs, 9, 3)) "
    "SELECT k, AVG(v) AS a, SUM(n) AS n FROM t GROUP BY k, SessionWindow(mcs, 4, 12) OVER (PARTITION BY k)",
    "shifted": "WITH s AS (SELECT k, v, w FROM {x}) SELECT k, v, System.Timestamp() AS at FROM shift(s, mcs, 5) WHERE w = 1",
    "shifted_and_not": "WITH s AS (SELECT k, SUM(v) AS v FROM {x} GROUP BY k, TumblingWindow(mcs, 3)), "
    "l AS (SELECT k, v FROM shift(s, mcs, 4)) SELECT k, v INTO one FROM l; "
    "SELECT a.k AS k, a.v AS v, b.v AS u INTO two FROM s a LEFT JOIN l b ON DATEDIFF(mcs, a, b) BETWEEN -2 AND 2 AND a.k = b.k; "
    "SELECT k, COUNT(*) AS n INTO three FROM shift(l, mcs, 3) GROUP BY k, HoppingWindow(mcs, 9, 3)",
    "looked_up_ahead": "WITH s AS (SELECT k, w FROM {x}) "
    "SELECT x.k AS k, r.rate AS rate, r.name AS name FROM shift(s, mcs, 6) x LEFT JOIN r ON x.k = r.k AND x.w = r.w",
    "matched": "SELECT * FROM {x} MATCH_RECOGNIZE (LIMIT DURATION(mcs, 9) PARTITION BY k MEASURES FIRST(k) AS k, FIRST(A.v) AS v, "
    "LAST(g) AS g, COUNT(*) AS n, SUM(B.w) AS s, Classifier() AS c AFTER MATCH SKIP TO NEXT ROW PATTERN (A B* (C | .)) "
    "DEFINE A AS w = 0, B AS w = 1, C AS C.w = 0) AS m",
    "matched_by_earlier_rows": "SELECT m.k AS k, m.at AS at, m.n AS n FROM {x} MATCH_RECOGNIZE (LIMIT DURATION(mcs, 7) PARTITION BY k "
    "MEASURES FIRST(k) AS k, System.Timestamp() AS at, COUNT(B.w) AS n AFTER MATCH SKIP TO NEXT ROW PATTERN (A+ B{1,3}) "
    "DEFINE A AS A.w >= 0, B AS B.w <> LAST(A.w) OR MAX(B.w) > A.w) AS m",
    "scripted": "SELECT k, udf.half(v) AS h, udf.half(g) AS j FROM {x}",
    "scripted_windows": "SELECT k, uda.path(v) AS p, COUNT(*) AS n FROM {x} GROUP BY k, HoppingWindow(mcs, 9, 4)",
    "anomalies": "SELECT k, AnomalyDetection_SpikeAndDip(v, 90, 4, 'spikesanddips') OVER (PARTITION BY k LIMIT DURATION(mcs, 12)) AS s, "
    "AnomalyDetection_ChangePoint(v, 80, 4) OVER (PARTITION BY k LIMIT DURATION(mcs, 15) WHEN w = 1) AS c FROM {x}",
    "places": "SELECT k, ST_DISTANCE(CreatePoint(w, v), CreatePoint(0, 1)) AS d, ST_WITHIN(CreatePoint(v, w), CreatePolygon("
    "CreatePoint(0, 0), CreatePoint(0, 6), CreatePoint(6, 6), CreatePoint(6, 0), CreatePoint(0, 0))) AS inside FROM {x}",
    "near": "SELECT a.k AS k, a.v AS v, b.v AS u FROM {x} a JOIN {x} b ON DATEDIFF(mcs, a, b) BETWEEN 0 AND 3 AND a.k = b.k "
    "AND ST_DISTANCE(CreatePoint(a.w, a.v), CreatePoint(b.w, b.v)) < 200000",
    "several_outputs": "WITH s AS (SELECT k, SUM(v) AS v, COUNT(*) AS n FROM {x} GROUP BY k, TumblingWindow(mcs, 3)) "
    "SELECT k, v INTO one FROM s WHERE n > 1; SELECT k, MAX(v) AS m INTO two FROM s GROUP BY k, SlidingWindow(mcs, 7); "
    "SELECT k, w, LAG(w) OVER (PARTITION BY k LIMIT DURATION(mcs, 9)) AS b INTO three FROM {x}; SELECT * INTO four FROM s",
}
"""Name and script of each."""

FUNCTIONS = {
    "half": "function main(v) { if (v === 5) throw new Error('five'); return typeof v === 'number' ? v / 2 : String(v); }",
    "path": "function main() { this.init = function () { this.seen = []; }; "
    "this.accumulate = function (v, at) { this.seen.push(String(v)); }; "
    "this.computeResult = function () { return this.seen.join(' '); }; }",
}
"""The functions in JavaScript that scripts call."""
FUNCTION_TABLES = "\n".join(f"[functions.{name}]\ncode = {json.dumps(code)}\n" for name, code in FUNCTIONS.items())
"""The same as tables of a configuration."""

_TEXT = {"k": "nvarchar(max)"}


def schema_of(*, typed: bool) -> InputSchema:
    """Return what is known of the input: its key may be declared as text."""
    return InputSchema(INPUT, "t", "k", _TEXT if typed else {})


def _values(*records: dict[str, Any]) -> pa.Array:
    return pa.array([json.dumps(record).encode() for record in records], pa.binary())


FIRST = {"k": "a", "w": 1, "rate": 1}, {"k": "b", "w": 0, "rate": 2}, {"k": "a", "w": 1, "rate": 3}
SECOND = {"k": "1", "w": 1, "rate": 4}, {"k": "a", "w": 0, "rate": 5, "name": "x"}
"""The records of the two versions of the reference data."""


def reference_from(second_us: int) -> ReferenceTable:
    """Return the reference data whose second version is valid from an instant on, microseconds."""
    return ReferenceTable(InputSchema("r", is_reference=True), (Version(NEVER, _values(*FIRST)), Version(second_us, _values(*SECOND))))


REFERENCE = reference_from(10**6 + 12)


def script_of(kind: str, *, over: bool) -> str:
    """Return the script of a kind. With OVER rows of different keys never match, and ON must say so."""
    return KINDS[kind] + (" AND a.k = b.k" if over and kind == "joined_across_keys" else "")


def read_kinds(sql: str, name: str) -> Script:
    """Read a script of kinds, with the functions that it calls."""
    tables = {called: FunctionSettings.model_validate({"__name__": called, "code": code}) for called, code in FUNCTIONS.items()}
    return declare_functions(parse_script(sql, name), tables)


@cache
def plans_of(kind: str, *, over: bool, typed: bool) -> tuple[Plan, ...]:
    """Bind the script of a kind."""
    sql = script_of(kind, over=over).replace("{x}", f"{INPUT} TIMESTAMP BY t{' OVER k' if over else ''}")
    into = None if "INTO" in sql else "out"
    return bind_outputs(read_kinds(sql, f"{kind}.sql"), [schema_of(typed=typed), REFERENCE.schema], into=into)


def program_of_kind(kind: str, *, over: bool, typed: bool) -> Program:
    """Return the query ready to run, a new one each time, as each bucket has its own."""
    return Program(plans_of(kind, over=over, typed=typed), references={REFERENCE.schema.name: REFERENCE})
