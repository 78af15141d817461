"""``AT TIME ZONE``: what functions make of local times, and where a zone stays and where it ends."""

from __future__ import annotations

import json

import pytest
from support.clocks import instant_of, reading_of, us_of
from support.query_oracle import Event, iso
from support.script_runs import answers_of

from ordering.errors import QueryError
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

BERLIN = "AT TIME ZONE 'Europe/Berlin'"
# The night in which the clocks of Berlin are set back, and the one in which they are put forward.
AUTUMN, SPRING = "2024-10-27T00:30:00", "2024-03-31T00:30:00"
LONG = {"late": "9999-12-31T23:30:00Z", "first": "1800-01-01T00:00:00Z"}


def value_of(expression: str, at: str = AUTUMN) -> object:
    """The value for one event at an instant, which its field ``at`` has too."""
    event = Event(0, us_of(at), {"at": f"{at}Z", "n": 5, "x": None, "word": "w", **LONG})
    (text,) = answers_of(f"SELECT {expression} AS v FROM a", {"a": [event]}).values()
    return json.loads(text)["v"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"at {BERLIN}", "2024-10-27T02:30:00+02:00"),
        (f"DATEADD(hour, 1, at {BERLIN})", "2024-10-27T02:30:00+01:00"),
        (f"DATEADD(day, 1, at {BERLIN})", "2024-10-28T02:30:00+01:00"),
        (f"DATEADD(month, -3, at {BERLIN})", "2024-07-27T02:30:00+02:00"),
        (f"DATEADD(millisecond, 5, at {BERLIN})", "2024-10-27T02:30:00.005+02:00"),
        (f"DATEPART(hour, at {BERLIN})", 2),
        (f"DATENAME(weekday, at {BERLIN})", "Sunday"),
        ("DATENAME(weekday, at AT TIME ZONE 'America/New_York')", "Saturday"),
        ("DAY(at AT TIME ZONE 'America/New_York')", 26),
        ("YEAR(at AT TIME ZONE 'america/new_york')", 2024),
        ("DATEPART(minute, at AT TIME ZONE 'Asia/Kolkata')", 0),
        ("at AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Kolkata'", "2024-10-27T06:00:00+05:30"),
        ("at AT TIME ZONE 'UTC'", "2024-10-27T00:30:00+00:00"),
        (f"DATEDIFF(day, at {BERLIN}, DATEADD(hour, 22, at))", 0),
        (f"DATEDIFF(day, at {BERLIN}, DATEADD(hour, 23, at) {BERLIN})", 1),
        (f"DATEDIFF(hour, at {BERLIN}, DATEADD(hour, 1, at {BERLIN}))", 1),
        (f"at {BERLIN} = at", True),
        (f"at {BERLIN} < '2024-10-27T00:31:00Z'", True),
        (f"at {BERLIN} IN ('2024-10-27T00:30:00Z')", True),
        (f"CAST(at {BERLIN} AS nvarchar(max))", "2024-10-27T02:30:00+02:00"),
        (f"SUBSTRING(at {BERLIN}, 1, 10)", "2024-10-27"),
        (f"word + ' ' + at {BERLIN}", "w 2024-10-27T02:30:00+02:00"),
        (f"CONCAT(at {BERLIN}, '!')", "2024-10-27T02:30:00+02:00!"),
        (f"COALESCE(x {BERLIN}, at {BERLIN})", "2024-10-27T02:30:00+02:00"),
        (f"CASE WHEN n = 5 THEN at {BERLIN} END", "2024-10-27T02:30:00+02:00"),
        (f"IIF(n = 5, at {BERLIN}, NULL)", "2024-10-27T02:30:00+02:00"),
        (f"NULLIF(at {BERLIN}, late)", "2024-10-27T02:30:00+02:00"),
        (f"DATEPART(hour, COALESCE(x {BERLIN}, at {BERLIN}))", 2),
        (f"COALESCE(at {BERLIN}, System.Timestamp())", "2024-10-27T00:30:00Z"),
        (f"x {BERLIN}", None),
        (f"DATEPART(hour, x {BERLIN})", None),
        (f"late {BERLIN}", None),
        ("late AT TIME ZONE 'America/New_York'", "9999-12-31T18:30:00-05:00"),
        (f"first {BERLIN}", "1800-01-01T00:53:28+00:53:28"),
        (f"System.Timestamp() {BERLIN}", "2024-10-27T02:30:00+02:00"),
        (f"LAST(at {BERLIN}) OVER (LIMIT DURATION(hour, 1))", "2024-10-27T02:30:00+02:00"),
        (f"MAX(at {BERLIN}) OVER (LIMIT DURATION(hour, 1))", "2024-10-27T02:30:00+02:00"),
        (f"GetType(at {BERLIN})", "nvarchar(max)"),
        (f"COUNT(at {BERLIN}) OVER (LIMIT DURATION(hour, 1))", 1),
    ],
)
def test_what_functions_make_of_a_local_time(expression: str, expected: object) -> None:
    """By hand: the first 02:30 of the night in which the clock of Berlin is set back."""
    assert value_of(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"at {BERLIN}", "2024-03-31T01:30:00+01:00"),
        (f"DATEADD(hour, 1, at {BERLIN})", "2024-03-31T03:30:00+02:00"),
        (f"DATEADD(day, -1, DATEADD(hour, 1, at {BERLIN}))", "2024-03-30T03:30:00+01:00"),
        # 02:30 of the next day is skipped: half an hour after the change.
        (f"DATEADD(day, 1, DATEADD(minute, 60, DATEADD(day, -1, at {BERLIN})))", "2024-03-31T03:30:00+02:00"),
    ],
)
def test_a_reading_that_the_clock_skips(expression: str, expected: str) -> None:
    """By hand: in spring there is no 02:30."""
    assert value_of(expression, SPRING) == expected


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Asia/Kathmandu"])
def test_calendar_days_are_those_of_python(name: str) -> None:
    """Midday, every 11 hours of 400 days: the same reading a day later, and parts of the reading."""
    times = [us_of("2011-06-01") + step * 11 * 3_600_000_000 for step in range(800)]
    local = f"System.Timestamp() AT TIME ZONE '{name}'"
    sql = f"SELECT DATEADD(day, 1, {local}) AS v, DATEPART(hour, {local}) AS h FROM a"
    rows = map(json.loads, answers_of(sql, {"a": [Event(0, at, {}) for at in times]}).values())
    day_us = 86_400_000_000
    for at, row in zip(times, rows, strict=True):
        later = instant_of(name, reading_of(name, at) + day_us)
        assert row["v"][:19] == iso(reading_of(name, later))[:19]
        assert row["h"] == reading_of(name, at) % day_us // 3_600_000_000


STEP = f"WITH s AS (SELECT at {BERLIN} AS local, k FROM a) "


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (STEP + "SELECT DATEPART(hour, local) AS h, local FROM s", ['{"h":2,"local":"2024-10-27T02:30:00+02:00"}']),
        (STEP + "SELECT * FROM s WHERE local < '2024-10-27T01:00:00Z'", ['{"local":"2024-10-27T02:30:00+02:00","k":"x"}']),
        (STEP + ", t AS (SELECT * FROM s) SELECT local AS l FROM t", ['{"l":"2024-10-27T02:30:00+02:00"}']),
        (STEP + "SELECT l.local AS v FROM s l JOIN s r ON l.k = r.k AND DATEDIFF(hour, l, r) = 0", ['{"v":"2024-10-27T02:30:00+02:00"}']),
        (
            f"SELECT at {BERLIN} AS local, COUNT(*) AS n FROM a GROUP BY at {BERLIN}, TumblingWindow(hour, 1)",
            ['{"local":"2024-10-27T02:30:00+02:00","n":1}'],
        ),
        (
            f"SELECT MIN(at {BERLIN}) AS v, COLLECT(at {BERLIN}) AS c FROM a "
            "GROUP BY TumblingWindow(hour, 1) HAVING v < '2024-10-27T01:00:00Z'",
            ['{"v":"2024-10-27T02:30:00+02:00","c":["2024-10-27T02:30:00+02:00"]}'],
        ),
        (
            f"SELECT DATEPART(hour, at {BERLIN}) AS h, COUNT(*) AS n FROM a GROUP BY DATEPART(hour, at {BERLIN}), TumblingWindow(hour, 1)",
            ['{"h":2,"n":1}'],
        ),
        (
            f"SELECT TOP 1 at {BERLIN} AS local, COUNT(*) AS n FROM a GROUP BY at, TumblingWindow(hour, 1) ORDER BY local",
            ['{"local":"2024-10-27T02:30:00+02:00","n":1}'],
        ),
        (f"SELECT at {BERLIN} AS v FROM a UNION SELECT k AS v FROM a", ['{"v":"2024-10-27T02:30:00+02:00"}', '{"v":"x"}']),
        (
            f"WITH s AS (SELECT LAST(at {BERLIN}) OVER (LIMIT DURATION(hour, 1)) AS l FROM a) SELECT DATEPART(hour, l) AS h FROM s",
            ['{"h":2}'],
        ),
    ],
)
def test_a_zone_goes_from_step_to_step(sql: str, expected: list[str]) -> None:
    """Until a result: there it is a text."""
    event = Event(0, us_of(AUTUMN), {"at": f"{AUTUMN}Z", "k": "x"})
    assert answers_of(sql, {"a": [event]}).values() == expected


def test_columns_of_results_are_texts() -> None:
    """Stores and files see their type."""
    script = parse_script(f"SELECT System.Timestamp() {BERLIN} AS local, System.Timestamp() AS at FROM a")
    plan = bind_script(script, [InputSchema("a")], into="out")
    assert plan.columns == (("local", "nvarchar(max)"), ("at", "datetime"))
    assert "System.Timestamp() AT TIME ZONE 'Europe/Berlin'" in plan.explain()


@pytest.mark.parametrize(
    ("sql", "code", "what"),
    [
        ("SELECT at AT TIME ZONE 'Europe/Berln' AS v FROM a", "ZONE", "there is no time zone Europe/Berln"),
        ("SELECT at AT TIME ZONE zone AS v FROM a", "TYPE", "a time zone is a constant"),
        ("SELECT 5 AT TIME ZONE 'Europe/Berlin' AS v FROM a", "TYPE", "bigint cannot be converted to datetime"),
        (f"SELECT CAST(System.Timestamp() {BERLIN} AS datetime) AS v FROM a", "TYPE", "is a datetime already"),
        (f"SELECT DATEDIFF(day, at {BERLIN}, at AT TIME ZONE 'UTC') AS v FROM a", "ZONE", "two time zones have different calendars"),
        (f"SELECT v FROM a TIMESTAMP BY DATEADD(day, 1, at {BERLIN})", "TIMESTAMP", "an event time is an instant"),
        (f"WITH u AS (SELECT at {BERLIN} AS v FROM a UNION SELECT at FROM a) SELECT v FROM u", "ZONE", "v is a local time"),
        ("SELECT COUNT(*) AS n FROM a GROUP BY SlidingWindow(hour, 1, TimeZone('UTC'))", "WINDOW", "SlidingWindow takes no TimeZone"),
        ("SELECT COUNT(*) AS n FROM a GROUP BY TumblingWindow(hour, 1, TimeZone('Berlin'))", "ZONE", "there is no time zone Berlin"),
        ("SELECT COUNT(*) AS n FROM a GROUP BY TumblingWindow(hour, 1, TimeZone(UTC))", "TYPE", "a time zone is a constant"),
        ("SELECT COUNT(*) AS n FROM a GROUP BY TumblingWindow(hour, 1, TimeZone())", "WINDOW", "TimeZone takes the name of one zone"),
        ("SELECT COUNT(*) AS n FROM a GROUP BY HoppingWindow(hour, 3, 2, TimeZone('UTC'))", "WINDOW", "is made of whole hops"),
    ],
)
def test_what_has_no_meaning_is_refused(sql: str, code: str, what: str) -> None:
    """With its place and a fix."""
    with pytest.raises(QueryError) as refused:
        bind_script(parse_script(sql), [InputSchema("a", is_free=True)], into="out")
    assert (refused.value.code, what in refused.value.what, bool(refused.value.fix)) == (f"TG-QUERY-{code}", True, True)
