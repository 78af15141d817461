"""``tidegate plan`` where no broker answers: everything but what is to be read; and what it says of what brokers tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ordering.ticks import INFINITY
from query.__main__ import plan as command
from query.preview.display import PlanReport, describe_keys
from query.preview.forecast import ASSUMED_REPLAY, Forecast, KeptRows, PlannedRead
from query.preview.glance import retention_warnings
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.observe.console import report_errors
from tidegate.platform.observe.recovery_report import Recovery, RecoveryKind, ReplayReport

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(command))
CONFIG = """
[kafka]
bootstrap = "127.0.0.1:9" # the discard port: nothing listens there
connect_timeout = "1s"

[inputs.flights]
timestamp_by = "scheduled"
over = "origin"
retention = "30m"

[outputs.departures]
topic = "departures"
cti_every = "1m"
"""
SQL = """
WITH hourly AS (
    SELECT origin, COUNT(*) AS n FROM flights TIMESTAMP BY scheduled OVER origin GROUP BY origin, TumblingWindow(hour, 1))
SELECT origin, n - LAG(n) OVER (PARTITION BY origin LIMIT DURATION(hour, 2)) AS more INTO departures FROM hourly
"""
HOUR_US = 3_600_000_000


def run(folder: Path, sql: str, *arguments: str, tables: str = "") -> tuple[int, str]:
    """Call the command; return exit code and what it prints."""
    (folder / "tidegate.toml").write_text(CONFIG + tables)
    (folder / "q.sql").write_text(sql)
    result = CliRunner().invoke(APP, [str(folder / "q.sql"), "--config", str(folder / "tidegate.toml"), *arguments])
    return result.exit_code, result.stdout


def test_a_plan_is_shown_without_a_broker(tmp_path: Path) -> None:
    """Operators, keys, look-back, pace, parallelism and why; and a warning by the retention that the settings say."""
    code, told = run(tmp_path, SQL)
    lines = told.splitlines()
    assert code == 0
    assert lines[0] == "Output departures"
    assert lines[4].strip() == "Scan flights, timestamp by scheduled, over origin"
    assert "look-back: 3h" in lines
    assert "keys: substreams of origin, partitions of origin, groups of origin" in lines
    assert "pace: every 1m" in lines
    assert "fields of flights: origin" in lines
    assert "parallelism: one bucket for each partition of the ordered topic: time advances substream by substream" in lines
    assert "state: at most the events of 3h; how many that are is not known: no Kafka broker answers" in told
    assert lines[-1].startswith("warning TG-LINT-RETENTION: departures looks 3h back, flights keeps 30m; a start may need")


def test_the_same_for_programs(tmp_path: Path) -> None:
    """One object; durations in words and in microseconds."""
    code, told = run(tmp_path, SQL, "--format", "json")
    fields = json.loads(told)
    (output,) = fields["outputs"]
    assert code == 0
    assert (output["output"], output["inputs"], output["over"], output["lookback"], output["lookback_us"]) == (
        "departures", ["flights"], "origin", "3h", 3 * HOUR_US,
    )  # fmt: skip
    assert [(each["depth"], each["operator"]) for each in output["operators"]] == [
        (0, "Project"), (1, "Analyze"), (2, "WindowedAggregate"), (3, "Scan"),
    ]  # fmt: skip
    assert [column["name"] for column in output["columns"]] == ["origin", "more"]
    assert (fields["state"], fields["reading"], fields["parallelism"]["buckets"]) == (None, None, None)
    assert "no Kafka broker answers" in fields["unknown"]
    assert fields["warnings"][0]["code"] == "TG-LINT-RETENTION"


REFERRED = """
SELECT f.origin AS origin INTO departures FROM flights TIMESTAMP BY scheduled OVER origin f
JOIN daily d ON f.origin = d.k JOIN always a ON f.origin = a.k JOIN listed l ON f.origin = l.k
"""


def test_reference_data_says_which_files_there_are_and_when_others_are_taken_up(tmp_path: Path) -> None:
    """Files of a pattern while a job runs, what settings name at a start."""
    for name in ("d-2001-01-01", "d-2001-01-02", "a"):
        (tmp_path / f"{name}.csv").write_text("k\n1\n")
    tables = f"""
[references.daily]
path = "{tmp_path}/d-{{date}}.csv"
[references.always]
path = "{tmp_path}/a.csv"
[references.listed]
effective = {{ "2001-01-03" = "{tmp_path}/a.csv" }}
"""
    newest = "the newest valid from 2001-01"
    assert [line for line in run(tmp_path, REFERRED, tables=tables)[1].splitlines() if line.startswith("reference ")] == [
        f"reference always: {tmp_path}/a.csv, always valid; files are read at a start, and must not change",
        f"reference daily: 2 versions, {newest}-02T00:00:00Z on; new files of {tmp_path}/d-{{date}}.csv are read while it runs",
        f"reference listed: 1 version, {newest}-03T00:00:00Z on; files are read at a start, and must not change",
    ]
    told = json.loads(run(tmp_path, REFERRED, "--format", "json", tables=tables)[1])["references"]
    assert [(each["name"], each["taken_up"], [one["valid_from"] for one in each["versions"]]) for each in told] == [
        ("always", "at a start", [None]),
        ("daily", "while it runs", ["2001-01-01T00:00:00Z", "2001-01-02T00:00:00Z"]),
        ("listed", "at a start", ["2001-01-03T00:00:00Z"]),
    ]


def test_what_a_start_would_read_only_brokers_know(tmp_path: Path) -> None:
    """Asked for it, the plan is refused where none answers; a start that is no time is wrong use."""
    assert run(tmp_path, SQL, "--start", "2001-01-01T00:00:00Z")[0] == 4
    assert run(tmp_path, SQL, "--start", "soon")[0] == 2


def plans_of(sql: str) -> Any:
    """Bind a script."""
    return bind_outputs(parse_script(sql), [InputSchema("a", "at"), InputSchema("b", "at")], into="out")


def test_keys_are_told_by_what_they_are_for() -> None:
    """A join's, a group's, a look-back's."""
    joined = "SELECT a.k FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON DATEDIFF(second, a, b) BETWEEN 0 AND 5 AND a.k = b.x"
    assert describe_keys(plans_of(joined)[0]) == ["matches of a.k = b.x"]
    assert describe_keys(plans_of("SELECT k FROM a TIMESTAMP BY at")[0]) == []


def test_retention_shorter_than_the_look_back_is_told_for_each_input() -> None:
    """As long as it, or for ever, is enough; whatever looks back without limit needs everything."""
    (plan,) = plans_of("SELECT COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY TumblingWindow(hour, 1)")
    assert retention_warnings([plan], {"a": HOUR_US - 1, "b": 5}) == ["out looks 1h back, a keeps 59m59s999ms999us"]
    assert retention_warnings([plan], {"a": HOUR_US}) == []
    assert retention_warnings([plan], {}) == []


def shown(reading: PlannedRead | None, *kept: KeptRows) -> list[str]:
    """Show a plan with what brokers tell."""
    plans = plans_of("SELECT COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY TumblingWindow(hour, 1)")
    return list(PlanReport(plans, "one bucket", {}, Forecast(1, kept, (), reading), "", ()).lines())[4:]


def test_what_is_kept_is_an_estimate() -> None:
    """Rows and bytes; nothing where nothing is looked back on; no bytes where there is no record to measure."""
    assert shown(None, KeptRows("a", HOUR_US, 120_000, 41.7), KeptRows("b", 0, 0, None), KeptRows("c", INFINITY, 0, None)) == [
        "state: at most 120,000 rows, 5 MB of a: the events of 1h, 42 B each (an estimate from the newest records)",
        "state: none of b: nothing is looked back on",
        "state: at most 0 rows, 0 B of c: all events (an estimate from the newest records)",
    ]
    assert KeptRows("a", HOUR_US, 999, 1).as_dict() == {"input": "a", "rows": 999, "bytes": 999, "is_estimate": True}


def test_what_is_read_and_how_long_it_takes_says_what_it_rests_on() -> None:
    """A rate that was measured, or the assumption."""
    recovery = Recovery(RecoveryKind.START, {("o", 0): 100, ("o", 1): 7}, {("o", 0): 500_100, ("o", 1): 7}, start_us=2 * HOUR_US)
    assumed = PlannedRead("1970-01-01T02:00:00Z", recovery, HOUR_US, ASSUMED_REPLAY, is_measured=False)
    assert shown(assumed) == [
        "reads, with --start 1970-01-01T02:00:00Z: new (output start 1970-01-01T02:00:00Z), events from 1970-01-01T01:00:00Z on",
        "  o-0 from offset 100 to 500,100: 500,000 records",
        "  o-1 from offset 7 to 7: 0 records",
        "catches up in about 15s: 500,000 records at 100,000/s after 10s to start (assumed: no run of it has been measured)",
    ]
    measured = PlannedRead("earliest", Recovery(RecoveryKind.NEW, {}, {}), None, ReplayReport(600_000, 2.0, 6.5), is_measured=True)
    told = "catches up in about 6s: 0 records at 300,000/s after 6s to start (measured when a run of it last caught up)"
    assert shown(measured)[-1] == told
    assert measured.as_dict() == {
        "start": "earliest",
        "how": "new",
        "goes_on_from": "new",
        "read_from": None,
        "partitions": [],
        "records": 0,
        "rate": 300_000,
        "start_s": 6.5,
        "rate_is_measured": True,
        "catches_up_in_s": 6.5,
    }


@pytest.mark.parametrize(("octets", "words"), [(999, "999 B"), (1_000, "1 kB"), (41_700_000, "42 MB"), (2_000_000_000_000, "2,000 GB")])
def test_sizes_are_told_in_their_largest_unit(octets: int, words: str) -> None:
    """No finer than that."""
    assert f"1 rows, {words} of a" in KeptRows("a", 1, 1, octets).in_words()
