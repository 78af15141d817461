"""``tidegate tune``: its forecasts equal runs of ``tidegate order`` over the same file, whatever the format; what it prints and draws."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from support.chance import dice_of
from typer.testing import CliRunner

from ingest.commands.tune import tune
from ingest.files.walk import FileWalk
from ingest.tuning.recorded_file import FileColumns, read_file
from ordering.policies import Action, Policies
from ordering.ticks import MINUTE_US, SECOND_US, format_tick
from ordering.tuning.forecast import EventWalk
from tidegate.platform.observe.console import report_errors
from tidegate.records.files.files import BLOCK_BYTES, detect_format, open_records, open_source
from tidegate.records.files.rows import OrderPlan

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(tune))
START_US = 1_767_600_000 * SECOND_US
COLUMNS = FileColumns("at", over="car", arrival="got", partition="lane")


def drawn_records(count: int = 600) -> list[dict[str, Any]]:
    """Return records of three partitions and five cars, out of order by up to a minute; a few have no event time."""
    dice, now_us, records = dice_of("tuning"), START_US, []
    for number in range(count):
        now_us += dice.randrange(0, 2 * SECOND_US)
        at_us = now_us - dice.choice((0, 1, 3, 9, 60)) * SECOND_US + (dice.randrange(0, 20) == 0) * 40 * SECOND_US
        record = {"at": format_tick(at_us), "got": format_tick(now_us), "car": f"c{dice.randrange(5)}", "lane": dice.randrange(3)}
        records.append(record if number % 50 else record | {"at": "never"})
    return records


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the drawn records as NDJSON."""
    path = tmp_path_factory.mktemp("tuning") / "cars.ndjson"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in drawn_records()))
    return path


def settings() -> Iterator[Policies]:
    """Yield 50 settings of the policies."""
    dice = dice_of("settings of a tuning")
    for _ in range(50):
        yield Policies(
            early_us=dice.choice((None, 0, 10 * SECOND_US, MINUTE_US)),
            early_action=dice.choice(list(Action)),
            late_us=dice.choice((0, SECOND_US, 5 * SECOND_US, 30 * SECOND_US, MINUTE_US)),
            late_action=dice.choice(list(Action)),
            reorder_us=dice.choice((0, SECOND_US, 4 * SECOND_US, 30 * SECOND_US)),
            out_of_order_action=dice.choice(list(Action)),
        )


def order_counts(path: Path, columns: FileColumns, policies: Policies) -> dict[str, int]:
    """Run ``tidegate order`` in process; return its counts."""
    paths = columns.paths()
    assert paths["--timestamp-by"] is not None
    fields = {name: paths[f"--{name}"] for name in ("over", "arrival", "partition")}
    walk = FileWalk(OrderPlan(policies=policies, timestamp_by=paths["--timestamp-by"], **fields))  # type: ignore[arg-type]
    with open_source(str(path)) as source:
        records = open_records(str(path), detect_format(str(path), source, None), source, ",", BLOCK_BYTES)
        if records.columns is not None:
            walk.names.resolve(records.columns)
        for block in records.blocks():
            walk.walk_block(block)
    counts = walk.summary.policies
    return {
        "early_dropped": counts.early,
        "early_moved": counts.early_adjusted,
        "late_moved": counts.late_adjusted,
        "late_dropped": counts.late_dropped,
        "out_of_order_moved": counts.out_of_order_adjusted,
        "out_of_order_dropped": counts.out_of_order_dropped,
    }


@pytest.mark.parametrize("over", ["car", None])
def test_a_forecast_counts_what_a_run_counts(file: Path, over: str | None) -> None:
    """Under each of 50 settings the counts are those of a run of ``tidegate order`` over the file."""
    columns = replace(COLUMNS, over=over)
    walk, touched = EventWalk(read_file(str(file), columns)), 0
    for policies in settings():
        forecast = walk.forecast(policies)
        assert {name: getattr(forecast, name) for name in order_counts(file, columns, policies)} == order_counts(file, columns, policies)
        touched += forecast.touched
    assert touched


def test_parquet_says_the_same_as_lines_of_json(file: Path, tmp_path: Path) -> None:
    """A Parquet file, read by columns, gives the forecast of the same records as NDJSON, and its runs the same counts."""
    table = pa.Table.from_pylist(drawn_records())
    path = tmp_path / "cars.parquet"
    pq.write_table(table.set_column(3, "lane", table["lane"].cast(pa.int32())), path)
    by_lines, by_columns = (EventWalk(read_file(str(each), COLUMNS)) for each in (file, path))
    policies = Policies(late_us=10 * SECOND_US, reorder_us=SECOND_US)
    assert by_lines.forecast(policies) == by_columns.forecast(policies)
    assert by_columns.forecast(policies).late_moved == order_counts(path, COLUMNS, policies)["late_moved"]


def test_an_arrival_may_be_computed(tmp_path: Path) -> None:
    """Event times with delays beside them are records in the order of their arrivals, in Parquet and in NDJSON."""
    rows = [{"at": 1_767_600_000 + second, "delay": delay} for second, delay in enumerate((0, 90, 1, 2, 0, 30))]
    times = pa.array([row["at"] * SECOND_US for row in rows], pa.timestamp("us"))
    pq.write_table(pa.table({"at": times, "delay": [row["delay"] for row in rows]}), tmp_path / "a.parquet")
    texts = [{"at": format_tick(row["at"] * SECOND_US), "delay": row["delay"]} for row in rows]
    (tmp_path / "a.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in texts))
    forecasts = []
    for name, arrival in (("a.parquet", "DATEADD(second, delay, at)"), ("a.ndjson", "DATEADD(second, delay, CAST(at AS datetime))")):
        columns = FileColumns("at", arrival=arrival, by_arrival=True)
        forecasts.append(EventWalk(read_file(str(tmp_path / name), columns)).forecast(Policies(late_us=20 * SECOND_US)))
    assert forecasts[0] == forecasts[1]
    assert (forecasts[0].late_moved, forecasts[0].out_of_order_moved) == (2, 1)


def run(*arguments: object) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of the command."""
    result = CliRunner().invoke(APP, list(map(str, arguments)), env={"COLUMNS": "140"})
    return result.exit_code, result.stdout, result.stderr


def test_the_command_proposes_tolerances_and_draws_their_curve(file: Path, tmp_path: Path) -> None:
    """The proposal is that of the computation, in words and in JSON; SVG and PNG are drawn."""
    flags = (file, "--timestamp-by", "at", "--over", "car", "--arrival", "got", "--partition", "lane", "--touch", "5", "--early", "1m")
    code, text, errors = run(*flags, "--plot", tmp_path / "curve.svg")
    assert code == 0, errors
    code, answer, errors = run(*flags, "--format", "json", "--plot", tmp_path / "curve.png")
    told = json.loads(answer)
    best = told["proposal"]
    assert f"For at most 5 % moved: late = {best['late']}, reorder = {best['reorder']}" in text
    assert told["proposed"]["touched_share"] <= 0.05
    assert told["changes"]["late"] == {"old": "5s", "new": best["late"]}
    svg = (tmp_path / "curve.svg").read_text()
    assert f"late {best['late']}, reorder {best['reorder']}" in svg
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    # What is proposed does what was forecast.
    policies = Policies(early_us=MINUTE_US, late_us=_us(best["late"]), reorder_us=_us(best["reorder"]))
    counts = order_counts(file, COLUMNS, policies)
    by_policy = told["proposed"]["by_policy"]
    assert (counts["late_moved"], counts["out_of_order_moved"]) == (by_policy["late"]["moved"], by_policy["out_of_order"]["moved"])


def test_questions_are_answered_as_the_command_would(file: Path) -> None:
    """Each line of standard input gets the object that the same flags print, or its error; a line too many ends nothing."""
    flags = (file, "--timestamp-by", "at", "--over", "car", "--arrival", "got", "--partition", "lane", "--format", "json")
    lines = [
        '{"late": "30s", "late_action": "drop", "reorder": "4s", "touch": 5, "window": ["1m", "5m/1m"]}',
        '{"late": "off"}',
        '{"late": "soon"}',
        "[]",
        '{"later": "5s"}',
        '{"touch": "much"}',
        "{}",
    ]
    asked = CliRunner().invoke(APP, [*map(str, flags), "--ask"], input="".join(f"{line}\n" for line in lines))
    answers = [json.loads(line) for line in asked.stdout.splitlines()]
    windows = "--window", "1m", "--window", "5m/1m"
    tried = run(*flags, "--late", "30s", "--late-action", "drop", "--reorder", "4s", "--touch", "5", *windows)
    assert answers[0] == json.loads(tried[1])
    assert answers[0]["tried_changes"] == {
        "late": {"old": "5s", "new": "30s"},
        "reorder": {"old": "0s", "new": "4s"},
        "late_action": {"old": "adjust", "new": "drop"},
    }
    minute = answers[0]["now"]["results"][0]
    assert 0 < minute["changed"] <= minute["windows"]
    assert [each["error"]["code"] for each in answers[2:6]] == ["TG-DURATION", "TG-SETTING-VALUE", "TG-SETTING-NAME", "TG-SETTING-VALUE"]
    assert answers[6] == json.loads(run(*flags)[1])
    assert len(answers) == len(lines)


def test_text_compares_what_is_tried_with_what_is_in_force(file: Path) -> None:
    """A row for each, with the windows that change."""
    code, text, errors = run(file, "--timestamp-by", "at", "--arrival", "got", "--late", "2m", "--window", "1m")
    assert code == 0, errors
    assert "in force" in text
    assert "changed, 1m" in text


def _us(text: str) -> int:
    from ordering.ticks import parse_duration

    return parse_duration(text)


def test_a_name_of_a_user_is_no_markup(tmp_path: Path) -> None:
    """A file's name with angle brackets and quotes stays text in the picture."""
    path = tmp_path / 'a<script>"&.ndjson'
    path.write_text('{"at": 1767600000, "got": 1767600001}\n')
    code, _, errors = run(path, "--timestamp-by", "at", "--arrival", "got", "--plot", tmp_path / "a.svg")
    assert code == 0, errors
    assert "<script>" not in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--timestamp-by", "at"), "TG-TUNE-ARRIVAL"),
        (("--arrival", "got"), "TG-SETTING-FLAG"),
        (("--timestamp-by", "nothing", "--arrival", "got"), "TG-ORDER-FIELD"),
        (("--timestamp-by", "at", "--arrival", "got", "--touch", "101"), "TG-SETTING-VALUE"),
        (("--timestamp-by", "at", "--arrival", "got", "--plot", "curve.gif"), "TG-SETTING-VALUE"),
        (("--timestamp-by", "at", "--arrival", "got", "--reorder", "off"), "TG-SETTING-VALUE"),
    ],
)
def test_a_wrong_flag_is_named(file: Path, flags: tuple[str, ...], code: str) -> None:
    """Each mistake has its code, and nothing is printed as an answer."""
    exit_code, answer, errors = run(file, *flags)
    assert exit_code == 2
    assert code in errors
    assert not answer


def test_a_name_that_is_neither_input_nor_file_is_refused() -> None:
    """The error names the inputs that there are."""
    exit_code, _, errors = run("nothing-here", "--timestamp-by", "at")
    assert exit_code == 2
    assert "TG-SETTING-NAME" in errors
