"""``tidegate lint``: each rule finds what it names, where it stands, and nothing in a script that is as it should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from query.commands.lint import lint as command
from query.lint import LintContext, lint_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.observe.console import report_errors

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(command))
PLAIN = "SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)"


def found_in(sql: str, **around: Any) -> list[tuple[str, str]]:
    """Return code and place of each finding."""
    return [(one.code, one.where.partition(":")[2]) for one in lint_script(parse_script(sql, "q.sql"), LintContext(**around))]


@pytest.mark.parametrize(
    ("grouped", "places"),
    [
        ("WINDOWSTART, window_end", ["WINDOWSTART", "window_end"]),
        ("window.start", ["window.start"]),
        ("window.[start], [windowend], windows, started", []),
    ],
)
def test_the_edges_of_a_window_under_names_of_other_sqls_are_told_what_to_write(grouped: str, places: list[str]) -> None:
    """They would group by fields that no event has. In brackets, or as a column of a step, they are meant."""
    sql = f"SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY k, {grouped}, TumblingWindow(hour, 1)"
    told = [one for one in lint_script(parse_script(sql, "q.sql"), LintContext()) if one.code == "TG-LINT-WORD"]
    assert [one.where for one in told] == [f"q.sql:1:{sql.index(place) + 1}" for place in places]
    assert all("System.Timestamp()" in one.fix and "docs/queries/windows.md#windows" in one.fix for one in told)
    step = "WITH s AS (SELECT k, v AS windowstart, w AS window_end, u AS window FROM a TIMESTAMP BY at) "
    sql = step + sql.replace("a TIMESTAMP BY at", "s")
    assert "TG-LINT-WORD" not in {one.code for one in lint_script(parse_script(sql, "q.sql"), LintContext())}


@pytest.mark.parametrize(
    ("sql", "findings"),
    [
        (PLAIN, []),
        ("WITH s AS (SELECT * FROM a TIMESTAMP BY at) SELECT k INTO out FROM s", [("TG-LINT-STAR", "1:19")]),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE v = 0.5", [("TG-LINT-FLOAT", "1:48")]),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE CAST(v AS float) <> w", [("TG-LINT-FLOAT", "1:53")]),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE v > 0.5 AND k = 1", []),
        (PLAIN.replace("SELECT k,", "SELECT"), [("TG-LINT-KEY", "1:63")]),
        (PLAIN.replace("k,", "UPPER(k) AS up,", 1), []),
        (PLAIN.replace(" AS n", " + 1"), [("TG-LINT-ALIAS", "1:11")]),
        ("SELECT v + 1 INTO out FROM a TIMESTAMP BY at", [("TG-LINT-ALIAS", "1:8")]),
        ("SELECT TopOne() OVER (ORDER BY v) AS row INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)", []),
        ("SELECT COLLECT() AS rows INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)", []),
        ("SELECT MAX(k) AS k INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)", []),
        (
            "SELECT TopOne(w) OVER (ORDER BY k) AS w INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)",
            [("TG-LINT-KEY", "1:82")],
        ),
        (PLAIN.replace("SELECT", "SELECT DATEADD(hour, -1, System.Timestamp()) AS start,"), [("TG-LINT-START", "1:8")]),
        (PLAIN.replace("SELECT", "SELECT DATEADD(minute, -60, System.Timestamp()) AS start,"), [("TG-LINT-START", "1:8")]),
        (PLAIN.replace("SELECT", "SELECT DATEADD(hour, -2, System.Timestamp()) AS before,"), []),
        (
            PLAIN.replace("SELECT", "SELECT DATEADD(hour, -1, System.Timestamp()) AS start,").replace(
                "hour, 1)", "Duration(hour, 1), Offset(microsecond, -1))"
            ),
            [],
        ),
        ("SELECT k INTO out FROM a TIMESTAMP BY at OVER k", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at OVER k, PartitionId", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE k LIKE 'abc'", [("TG-LINT-LIKE", "1:48")]),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE k = NULL OR k IS NULL", [("TG-LINT-NULL", "1:48")]),
        ('SELECT "k" AS "b" INTO out FROM a TIMESTAMP BY at WHERE [k] = \'red\'', [("TG-LINT-QUOTES", "1:8")]),
        ('SELECT "[my][Field]" AS b INTO out FROM a TIMESTAMP BY at', []),
        ('SELECT k INTO out FROM a TIMESTAMP BY at WHERE k = "red"', [("TG-LINT-QUOTES", "1:52")]),
        ('SELECT CASE k WHEN "x" THEN 1 END AS n INTO out FROM a TIMESTAMP BY at', [("TG-LINT-QUOTES", "1:20")]),
        ('SELECT k INTO out FROM a TIMESTAMP BY at WHERE PATINDEX("r%", k) = 1', [("TG-LINT-QUOTES", "1:57")]),
        ('SELECT a.k, "too late" AS n INTO out FROM a JOIN b ON DATEDIFF(minute, a, b) BETWEEN 0 AND 5', [("TG-LINT-QUOTES", "1:13")]),
        ('CREATE TABLE a (red bigint); SELECT k INTO out FROM a TIMESTAMP BY at WHERE k = "red"', [("TG-LINT-QUOTES", "1:81")]),
        ("SELECT t.k INTO out FROM toll t TIMESTAMP BY at WHERE tol.v = 1", [("TG-LINT-PREFIX", "1:55")]),
        ("SELECT t.k INTO out FROM toll t TIMESTAMP BY at WHERE u.v = 1", [("TG-LINT-PREFIX", "1:55")]),
        ("SELECT tol.k INTO out FROM toll TIMESTAMP BY at", [("TG-LINT-PREFIX", "1:8")]),
        ("SELECT place.k INTO out FROM toll TIMESTAMP BY at WHERE place.v = 1", []),
        ("SELECT sensor.k INTO out FROM sensors TIMESTAMP BY at", []),
        ("CREATE TABLE toll (tol.v bigint); SELECT t.k INTO out FROM toll t TIMESTAMP BY at WHERE tol.v = 1", []),
        ("SELECT e.ArrayValue AS v, t.k INTO out FROM toll t TIMESTAMP BY at CROSS APPLY GetArrayElements(t.l) AS e", []),
        ("SELECT v * 2 AS w INTO out FROM a TIMESTAMP BY at WHERE w > 1", [("TG-LINT-WHERE", "1:57")]),
        ("SELECT TRY_CAST(v AS float) AS v INTO out FROM a TIMESTAMP BY at WHERE v > 1", []),
        ("CREATE TABLE a (w bigint); SELECT v * 2 AS w INTO out FROM a TIMESTAMP BY at WHERE w > 1", []),
        ("SELECT USER AS a, user AS b, [NOW] AS c, LOCALTIME() AS d INTO out FROM a TIMESTAMP BY at", [("TG-QUERY-FUNCTION", "1:42")]),
        ("SELECT USER AS a, user AS b, [NOW] AS c, a.NOW AS d INTO out FROM a TIMESTAMP BY at", [("TG-LINT-WORD", "1:8")]),
        ("CREATE TABLE a ([user] bigint); SELECT USER INTO out FROM a TIMESTAMP BY at", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE v LIKE '[0-9]%' AND CAST(v AS bigint) > 5", [("TG-LINT-GUARD", "1:73")]),
        (
            "SELECT k INTO out FROM a TIMESTAMP BY at WHERE TRY_CAST(v AS bigint) IS NULL OR CAST(v AS bigint) > 5",
            [("TG-LINT-GUARD", "1:86")],
        ),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE v IS NOT NULL AND CAST(v AS bigint) > 5 AND CAST(v AS bigint) < 9", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE v LIKE '1%' AND CASE WHEN v LIKE '1%' THEN CAST(v AS bigint) END > 5", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE k = 'x' AND CAST(v AS bigint) > 5", []),
        ("WITH s AS (SELECT k, CAST(v AS bigint) AS w FROM a TIMESTAMP BY at) SELECT k INTO out FROM s", [("TG-LINT-UNREAD", "1:27")]),
        ("WITH s AS (SELECT k, TRY_CAST(v AS bigint) AS w, v FROM a TIMESTAMP BY at) SELECT k INTO out FROM s", []),
        ("WITH s AS (SELECT k, CAST(v AS bigint) AS w FROM a TIMESTAMP BY at) SELECT k, w INTO out FROM s", []),
        (
            "CREATE TABLE a (v bigint); WITH s AS (SELECT k, v FROM a TIMESTAMP BY at) SELECT k INTO out FROM s",
            [("TG-LINT-UNREAD", "1:49")],
        ),
        (
            "WITH s AS (SELECT k, SUM(v) AS w, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)) "
            "SELECT k, n INTO out FROM s",
            [("TG-LINT-UNREAD", "1:22")],
        ),
        (
            "WITH s AS (SELECT k, CAST(COUNT(*) AS nvarchar(max)) AS w FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(hour, 1)) "
            "SELECT k INTO out FROM s",
            [],
        ),
        ("SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(second, 5, 10)", [("TG-LINT-HOP", "1:63")]),
        ("SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY Windows(Hopping(second, 5, 10))", [("TG-LINT-HOP", "1:71")]),
        (
            "SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(Duration(second, 90), Hop(minute, 2))",
            [("TG-LINT-HOP", "1:63")],
        ),
        ("SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(Duration(minute, 2), Hop(second, 90))", []),
        ("SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(second, 10, 5)", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at WHERE k LIKE 'ab[c]'", []),
        ("SELECT LAG(v) OVER (LIMIT DURATION(hour, 1)) AS b INTO out FROM a TIMESTAMP BY at", [("TG-LINT-PARTITION", "1:8")]),
        ("SELECT LAG(v) OVER (PARTITION BY k LIMIT DURATION(hour, 1)) AS b INTO out FROM a TIMESTAMP BY at", []),
        ("SELECT LAG(v) OVER (LIMIT DURATION(hour, 1)) AS b INTO out FROM a TIMESTAMP BY at OVER k, PartitionId", []),
        ("SELECT k INTO out FROM a TIMESTAMP BY at PARTITION BY k INTO 4", [("TG-LINT-SPREAD", "1:55")]),
        ("SELECT EventProcessedUtcTime INTO out FROM a TIMESTAMP BY at", [("TG-LINT-PROCESSED", "1:8")]),
        ("CREATE TABLE a (EventProcessedUtcTime datetime) SELECT EventProcessedUtcTime INTO out FROM a TIMESTAMP BY at", []),
        ("SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at", [("TG-QUERY-GROUP", "1:8")]),
        ("SELECT k INTO out FRM a", [("TG-QUERY-SYNTAX", "1:19")]),
    ],
)
def test_what_a_rule_finds(sql: str, findings: list[tuple[str, str]], tmp_path: Path) -> None:
    """Code, line and column."""
    script = tmp_path / "q.sql"
    script.write_text(sql)
    told = json.loads(CliRunner().invoke(APP, [str(script), "--format", "json"]).stdout)
    assert [(one["code"], one["where"].removeprefix(f"{script}:")) for one in told["findings"]] == findings


def test_several_findings_come_in_the_order_of_the_script() -> None:
    """Lines first, then columns; what two outputs share is told once."""
    sql = """WITH s AS (SELECT * FROM a TIMESTAMP BY at WHERE name LIKE 'abc'),
     t AS (SELECT COUNT(*) + 1 FROM s GROUP BY k, TumblingWindow(second, 5))
SELECT Column1 * 2 INTO one FROM t;
SELECT Column1 AS n INTO two FROM t"""
    assert found_in(sql) == [
        ("TG-LINT-STAR", "1:19"),
        ("TG-LINT-LIKE", "1:50"),
        ("TG-LINT-ALIAS", "2:19"),
        ("TG-LINT-KEY", "2:48"),
        ("TG-LINT-ALIAS", "3:8"),
    ]


def test_a_topic_that_forgets_too_early_is_told() -> None:
    """A restart reads back what the windows need."""
    schemas = [InputSchema("a", "at")]
    assert found_in(PLAIN, schemas=schemas, retentions_us={"a": 60_000_000}) == [("TG-LINT-RETENTION", "1:8")]
    assert found_in(PLAIN, schemas=schemas, retentions_us={"a": 3_600_000_000}) == []


def test_an_input_whose_early_is_off_is_told(tmp_path: Path) -> None:
    """One wrong event moves time for all; without the setting nothing is said."""
    config = '[inputs.a]\ntimestamp_by = "at"\n'
    for line, findings in (("", 0), ('early = "off"\n', 1)):
        (tmp_path / "tidegate.toml").write_text(config + line)
        code, printed = run(tmp_path, PLAIN, "--config", str(tmp_path / "tidegate.toml"))
        assert (code, printed.count("TG-LINT-EARLY")) == (0, findings)


def test_a_record_that_the_settings_name_is_no_misspelled_input(tmp_path: Path) -> None:
    """Although it resembles the input's name: TIMESTAMP BY has to repeat the setting."""
    (tmp_path / "tidegate.toml").write_text('[inputs.orders]\ntimestamp_by = "order.at"\nover = "order.shop"\n')
    script = "SELECT o.order.id AS id, order.shop AS shop INTO out FROM orders o TIMESTAMP BY order.at OVER order.shop"
    code, printed = run(tmp_path, script, "--config", str(tmp_path / "tidegate.toml"))
    assert (code, printed.count("TG-LINT-PREFIX")) == (0, 0), printed


def run(tmp_path: Path, sql: str, *arguments: str) -> tuple[int, str]:
    """Call the command; return exit code and what it prints."""
    script = tmp_path / "q.sql"
    script.write_text(sql)
    result = CliRunner().invoke(APP, [str(script), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_warnings_leave_the_exit_code_unless_it_is_strict(tmp_path: Path) -> None:
    """Errors never do."""
    sql = PLAIN.replace(" AS n", " + 1")
    code, told = run(tmp_path, sql)
    assert (code, "1:11: warning TG-LINT-ALIAS: COUNT(*) + 1 is called Column2" in told, "0 errors, 1 warnings" in told) == (0, True, True)
    assert run(tmp_path, sql, "--strict")[0] == 1
    assert run(tmp_path, PLAIN, "--strict")[0] == 0
    code, told = run(tmp_path, "SELECT k INTO a FROM a TIMESTAMP BY at", "--into", "out")
    assert (code, "error TG-QUERY-OUTPUT" in told) == (1, True)
    assert run(tmp_path, "SELECT k FROM a TIMESTAMP BY at", "--into", "out")[0] == 0
    assert CliRunner().invoke(APP, [str(tmp_path / "missing.sql")]).exit_code == 1


def test_reference_data_is_named_or_configured(tmp_path: Path) -> None:
    """Without its name a table would be taken for a stream, which needs a distance in time."""
    sql = "SELECT p.city AS city INTO out FROM a TIMESTAMP BY at JOIN places p ON a.origin = p.code"
    assert run(tmp_path, sql)[0] == 1
    assert run(tmp_path, sql, "--reference", "places")[0] == 0
    config = tmp_path / "tidegate.toml"
    config.write_text('[inputs.a]\ntimestamp_by = "at"\n[references.places]\npath = "places.csv"\n')
    assert run(tmp_path, sql, "--config", str(config))[0] == 0


def test_a_configuration_says_which_inputs_there_are(tmp_path: Path) -> None:
    """What it does not name is an error; retention and topics come from it."""
    config = tmp_path / "tidegate.toml"
    config.write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[inputs.a]\ntimestamp_by = "at"\nretention = "10m"\n[outputs.out]\ntopic = "out"\n'
    )
    given = ("--config", str(config))
    code, told = run(tmp_path, PLAIN, *given)
    assert (code, "out looks 1h back, a keeps 10m" in told) == (0, True)
    assert "no records were looked at: " in told
    code, told = run(tmp_path, PLAIN.replace("FROM a", "FROM b"), *given)
    assert (code, "there is no input b" in told) == (1, True)
    code, told = run(tmp_path, "SELECT * INTO out FROM a TIMESTAMP BY at", *given)
    assert (code, "output out passes on whatever its input has" in told) == (0, True)
