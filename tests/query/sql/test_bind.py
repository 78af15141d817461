"""Names, types and windows find their meaning; plans print what they will do."""

from __future__ import annotations

import re

import pytest
from support.repository import ROOT

from ordering.errors import QueryError, SettingError
from ordering.ticks import DAY_US, HOUR_US, MINUTE_US
from query.plan.nodes import Plan, WindowedAggregate
from query.plan.windows import Window
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import Cast, Field, Property

FLIGHTS = InputSchema("flights", timestamp_by="scheduled", over="origin")
DEPARTURES = InputSchema("departures", over="origin", is_result=True)
EXAMPLES = ROOT / "examples" / "flights"


def bound(text: str, *inputs: InputSchema) -> Plan:
    """Bind a script with the output ``out``."""
    return bind_script(parse_script(text), inputs or (InputSchema("i"), FLIGHTS, DEPARTURES), into="out")


def window(text: str) -> Window:
    """Bind one window function."""
    root = bound(f"SELECT COUNT(*) FROM i GROUP BY {text}").root
    assert isinstance(root, WindowedAggregate)
    return root.window


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TumblingWindow(hour, 1)", Window(HOUR_US, HOUR_US)),
        ("tumblingwindow(hh, 1)", Window(HOUR_US, HOUR_US)),
        ("TumblingWindow(Duration(day, 7))", Window(7 * DAY_US, 7 * DAY_US)),
        ("TumblingWindow(Duration(hour, 1), Offset(millisecond, -1))", Window(HOUR_US, HOUR_US, HOUR_US - 1_000)),
        ("TumblingWindow(minute, 10, 3)", Window(10 * MINUTE_US, 10 * MINUTE_US, 3 * MINUTE_US)),
        ("HoppingWindow(minute, 60, 15)", Window(HOUR_US, 15 * MINUTE_US)),
        ("HoppingWindow(Duration(hour, 1), Hop(minute, 15))", Window(HOUR_US, 15 * MINUTE_US)),
        ("HoppingWindow(Hop(n, 15), Duration(hour, 1), Offset(s, 70))", Window(HOUR_US, 15 * MINUTE_US, 70_000_000)),
    ],
)
def test_windows_are_read_in_all_their_forms(text: str, expected: Window) -> None:
    """Positional and named arguments, abbreviated units, offsets taken modulo the hop."""
    assert window(text) == expected


def test_longer_windows_are_a_matter_of_a_setting() -> None:
    """Seven days is the limit unless the caller raises it."""
    script = parse_script("SELECT COUNT(*) FROM i GROUP BY TumblingWindow(day, 8)")
    with pytest.raises(QueryError):
        bind_script(script, [InputSchema("i")], into="out")
    assert bind_script(script, [InputSchema("i")], into="out", window_us_max=8 * DAY_US).lookback_us == 8 * DAY_US


def test_a_plan_prints_itself() -> None:
    """Output on top, the scan at the bottom, then look-back and types."""
    plan = bound(
        "SELECT f.Origin, COUNT(*) AS n, SUM(CAST(delay AS bigint)) / 2 AS half, MAX(delay) AS most, System.Timestamp() AS at "
        "FROM Flights f TIMESTAMP BY Scheduled OVER origin WHERE delay > 0 OR f.note LIKE 'x%' "
        "GROUP BY origin, TumblingWindow(hour, 1) HAVING COUNT(*) > 1"
    )
    assert plan.explain() == (
        "Output out\n"
        "  WindowedAggregate tumbling 1h by origin: Origin AS Origin, COUNT(*) AS n, SUM(CAST(delay AS bigint)) / 2 AS half, "
        "MAX(delay) AS most, System.Timestamp() AS at, having COUNT(*) > 1\n"
        "    Filter (delay > 0) OR (note LIKE 'x%')\n"
        "      Scan flights, timestamp by scheduled, over origin\n"
        "look-back: 1h\n"
        "columns: Origin any, n bigint, half bigint, most any, at datetime"
    )
    assert (plan.inputs, str(plan.over), plan.lookback_us) == (("flights",), "origin", HOUR_US)
    assert isinstance(plan.root, WindowedAggregate)


def test_columns_without_a_name_get_one() -> None:
    """A field's last name, a function's own name, else Column and its number; spelled as in the script."""
    plan = bound("SELECT a.B.cD, LEN(x), System.Timestamp(), 1 + 1, [two words] FROM i")
    assert [name for name, _ in plan.columns] == ["cD", "LEN", "Timestamp", "Column4", "two words"]


def test_a_filter_may_pass_payloads_as_they_are() -> None:
    """SELECT * alone is the payload itself."""
    assert bound("SELECT * FROM i WHERE a = 1").columns == (("*", "any"),)


def test_declared_types_are_the_inputs() -> None:
    """A declared field has one kind for ever; a subfield of a record is free."""
    schema = InputSchema("i", fields={"delay": "float", "a.b": "bigint", "r": "record"})
    plan = bound("SELECT Delay, a.B AS b, a.c AS c, r, r.x AS x FROM i", schema)
    assert plan.columns == (("Delay", "float"), ("b", "bigint"), ("c", "any"), ("r", "record"), ("x", "any"))


def test_an_unknown_declared_type_is_refused() -> None:
    """The setting is named, with the nearest type."""
    with pytest.raises(SettingError) as caught:
        InputSchema("i", fields={"delay": "bigit"})
    assert (caught.value.where, caught.value.fix) == ("inputs.i.fields.delay", "did you mean bigint?")


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT [CURRENT_USER] AS u, [sysdate] AS d FROM i WHERE "Current_Date" IS NULL',
        "SELECT x.CURRENT_USER AS u FROM i x",
        "SELECT user AS u, USER AS v, now AS n, localtime AS l FROM i",
        "CREATE TABLE i (Current_User nvarchar(max), sysdate datetime); SELECT CURRENT_USER AS u, SYSDATE AS d FROM i",
        "SELECT at AS sysdate FROM clocks TIMESTAMP BY SysDate OVER SESSION_USER",
        "WITH s AS (SELECT k AS current_user FROM i) SELECT CURRENT_USER AS u FROM s",
        "SELECT MAX(v) AS sysdate FROM i GROUP BY TumblingWindow(day, 1) HAVING sysdate > 3",
    ],
)
def test_a_field_may_be_called_as_the_clock_is_elsewhere(sql: str) -> None:
    """In brackets or behind its input's name, or if it is known; other names that are functions elsewhere are fields anyway."""
    clocks = InputSchema("clocks", timestamp_by="SYSDATE", over="session_user")
    assert bound(sql, InputSchema("i"), clocks).root.columns


def test_over_may_be_left_out() -> None:
    """Then the query advances by the floor."""
    assert bound("SELECT origin FROM flights TIMESTAMP BY scheduled").over is None


def test_an_output_may_be_called_rows() -> None:
    """Elsewhere ROWS FROM begins a list of functions."""
    assert bind_script(parse_script("SELECT v INTO rows FROM i"), [InputSchema("i")]).output == "rows"


def test_members_of_a_declared_record_are_found_in_a_text_too() -> None:
    """The record is converted first; a member may have a type of its own. A plain path of the configuration reads records alone."""
    schema = InputSchema("i", over="r.k", fields={"r": "record", "r.x": "float"}, timestamp_by="r.at")
    plan = bound("SELECT r.x, r.y, i.r.z FROM i TIMESTAMP BY r.at OVER r.k", schema)
    x, y, z = (column.expr for column in plan.root.columns)
    assert isinstance(x, Cast)
    assert x.kind is Kind.FLOAT
    for member in (x.arg, y, z):
        assert isinstance(member, Property)
        assert isinstance(member.arg, Cast)
        assert member.arg.declared
    assert plan.scans[0].over == Field(("r", "k"))


def test_partition_id_in_over_is_implied() -> None:
    """ASA demands it; here it says nothing new."""
    assert str(bound("SELECT origin FROM flights TIMESTAMP BY scheduled OVER origin, PartitionId").over) == "origin"


def test_a_result_is_read_at_its_system_timestamp() -> None:
    """TIMESTAMP BY is absent or System.Timestamp(); OVER works on it."""
    assert bound("SELECT origin FROM departures").over is None
    assert bound("SELECT origin FROM departures TIMESTAMP BY System.Timestamp()").scans[0].timestamp_by is None
    assert str(bound("SELECT origin FROM departures TIMESTAMP BY System.Timestamp() OVER Origin").over) == "Origin"


def test_timestamp_by_may_be_an_expression() -> None:
    """It must be the input's, spelled in any case."""
    schema = InputSchema("i", timestamp_by="COALESCE(sent, [made at])")
    assert bound("SELECT a FROM i TIMESTAMP BY coalesce(Sent, [Made At])", schema).scans[0].timestamp_by is not None


def test_equal_aggregates_are_computed_once() -> None:
    """Names are compared ignoring case."""
    root = bound("SELECT SUM(a) AS x, sum(A) + SUM(b) AS y FROM i GROUP BY TumblingWindow(hour, 1)").root
    assert isinstance(root, WindowedAggregate)
    assert [str(total) for total in root.totals] == ["SUM(a)", "SUM(b)"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("System.Timestamp(f)", "f.System.Timestamp()"),
        ("f.System.Timestamp()", "f.System.Timestamp()"),
        ("d.System.Timestamp", "d.System.Timestamp()"),
        ("DATEDIFF(second, f, d)", "DATEDIFF(second, f.System.Timestamp(), d.System.Timestamp())"),
        ("GetMetadataPropertyValue(f, 'eventid')", "f.EventId"),
        ("GetMetadataPropertyValue(f, 'EventHub.SequenceNumber')", "f.Offset"),
        ("GetMetadataPropertyValue(f, '[IoTHub].[ConnectionDeviceId]')", "f.IoTHub.ConnectionDeviceId"),
        ("GetMetadataPropertyValue(f, '[User].[tenant]')", "f.[User].[tenant]"),
        ("GetMetadataPropertyValue(f, 'user.TENANT')", "f.[User].[tenant]"),
        ("GetMetadataPropertyValue(f, '[User].[a.B]')", "f.[User].[a.B]"),
        ("GetMetadataPropertyValue(f, '[User].[A.b]')", "f.[User].[a.b]"),
    ],
)
def test_a_side_of_a_join_has_a_time_and_metadata_of_its_own(written: str, meant: str) -> None:
    """In all spellings; the columns of both sides stand one after the other, each under the name of its side."""
    script = parse_script(f"SELECT {written} AS x FROM flights f JOIN departures d ON DATEDIFF(second, f, d) BETWEEN 0 AND 5")
    flights = InputSchema("flights", headers=("a.b", "a.B", "tenant"))
    plan = bind_script(script, [flights, InputSchema("departures", is_result=True)])
    assert str(plan.root.columns[0].expr) == meant


@pytest.mark.parametrize(
    ("written", "code", "what"),
    [
        ("System.Timestamp(x)", "TG-QUERY-FIELD", "no input is called x here"),
        ("System.Timestamp(f, d)", "TG-QUERY-FUNCTION", "takes nothing, or the name of an input"),
        ("System.Timestamp(r)", "TG-QUERY-FIELD", "r is reference data and has no System.Timestamp() of its own"),
        ("System.Timestamp(flights)", "TG-QUERY-FIELD", "flights is called f here"),
        ("GetMetadataPropertyValue(d, 'EventId')", "TG-QUERY-NOT-YET", "EventId of d, the result of a query, is not supported yet"),
        ("GetMetadataPropertyValue(f, k)", "TG-QUERY-FUNCTION", "takes the name of an input and a constant text"),
        ("GetMetadataPropertyValue(f, '[User].[tenannt]')", "TG-QUERY-HEADER", "keeps no header tenannt"),
        (
            "GetMetadataPropertyValue(d, '[User].[k]')",
            "TG-QUERY-NOT-YET",
            "[User].[k] of departures, the result of a query, is not supported yet",
        ),
        ("GetMetadataPropertyValue(r, '[User].[k]')", "TG-QUERY-FIELD", "r is reference data and has no [User].[k] of its own"),
        ("GetMetadataPropertyValue(f, '[User]')", "TG-QUERY-FUNCTION", "there is no property [User]"),
        ("GetMetadataPropertyValue(f, '[User].[a].[b]')", "TG-QUERY-FUNCTION", "there is no property [User].[a].[b]"),
        ("GetMetadataPropertyValue(f, '[Blob].[Name]')", "TG-QUERY-NOT-YET", "the property [Blob].[Name] is not supported yet"),
        ("GetMetadataPropertyValue(f, 'Colour')", "TG-QUERY-FUNCTION", "there is no property Colour"),
    ],
)
def test_what_a_side_of_a_join_has_not_is_refused(written: str, code: str, what: str) -> None:
    """With its place and a fix; the id of a result would differ between chains of queries."""
    sql = f"SELECT {written} AS x FROM flights f JOIN departures d ON DATEDIFF(second, f, d) BETWEEN 0 AND 5 JOIN r ON r.k = f.k"
    flights = InputSchema("flights", headers=("tenant", "trace"))
    inputs = [flights, InputSchema("departures", is_result=True), InputSchema("r", is_reference=True)]
    with pytest.raises(QueryError, match=re.escape(what)) as caught:
        bind_script(parse_script(sql), inputs)
    assert (caught.value.code, bool(caught.value.fix)) == (code, True)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT k FROM a TIMESTAMP BY t OVER j, k", "a is ordered over k, j, not over j, k"),
        ("SELECT k FROM a TIMESTAMP BY t OVER k", "a is ordered over k, j, not over k"),
        ("SELECT COUNT(*) AS n FROM a TIMESTAMP BY t OVER k, j GROUP BY k, TumblingWindow(second, 1)", "the grouping keys must include j"),
        (
            "SELECT x.k FROM a TIMESTAMP BY t OVER k, j x JOIN a TIMESTAMP BY t OVER k, j y "
            "ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN 0 AND 1",
            "ON does not require that j, a key of OVER, is equal on both sides",
        ),
        (
            "SELECT k FROM d TIMESTAMP BY System.Timestamp() OVER k, j",
            "OVER with several keys of d, the result of a query, is not supported yet",
        ),
    ],
)
def test_each_key_of_over_counts(sql: str, what: str) -> None:
    """All of them, in the order of the setting; keys of groups may come in any order."""
    inputs = [InputSchema("a", "t", over="k, j"), InputSchema("d", is_result=True)]
    with pytest.raises(QueryError, match=re.escape(what)):
        bind_script(parse_script(sql), inputs)
    counting = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t OVER k, j, PartitionId GROUP BY j, k, TumblingWindow(second, 1)"
    bind_script(parse_script(counting), inputs)


@pytest.mark.parametrize("name", ["departures", "mean_delay", "daily"])
def test_the_scripts_of_the_demo_bind(name: str) -> None:
    """Their outputs are named as their files."""
    plan = bind_script(parse_script((EXAMPLES / f"{name}.sql").read_text(), f"{name}.sql"), [FLIGHTS, DEPARTURES])
    assert plan.output == name
