"""``tidegate test``: a case is good only when every byte is as expected, and a case that tests nothing is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from query.commands import cases
from query.local.case_run import Difference, compare_lines
from tidegate.platform.observe.console import report_errors

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(cases.check_cases))
GOOD = {
    "query.sql": "SELECT v INTO out FROM a TIMESTAMP BY at",
    "input.a.ndjson": '{"at":"2001-01-01","v":1}\n{"at":"2001-01-02","v":2}\n{"at":"2001-01-03","v":3}\n',
    "expected.out.ndjson": '{"v":1}\n{"v":2}\n{"v":3}\n',
}


def laid_out(folder: Path, files: dict[str, str]) -> None:
    """Write a case."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


def run(folder: Path) -> tuple[int, dict[str, Any]]:
    """Call the command; return its exit code and its verdicts."""
    result = CliRunner().invoke(APP, [str(folder), "--format", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout) if result.stdout else {"told": result.stderr}


def printed(folder: Path) -> str:
    """Return what the command prints for people."""
    return CliRunner().invoke(APP, [str(folder)]).stdout


def test_cases_are_found_however_deep(tmp_path: Path) -> None:
    """Each folder with a script is one; they are told in the order of their names."""
    laid_out(tmp_path / "b", GOOD)
    laid_out(tmp_path / "a" / "deep", GOOD)
    code, told = run(tmp_path)
    assert (code, told["good"], [one["case"] for one in told["cases"]]) == (0, 2, ["a/deep", "b"])
    assert "2 good, 0 differ, 0 broken" in printed(tmp_path)


def test_a_difference_is_shown_line_by_line(tmp_path: Path) -> None:
    """Expected beside found, with the line; exit code 1."""
    expected = '{"v":1}\n{"v":20}\n{"v":3}\n{"v":4}\n'
    laid_out(tmp_path, GOOD | {"expected.out.ndjson": expected, "case.toml": 'description = "three of four"'})
    code, told = run(tmp_path)
    out = told["cases"][0]["outputs"]["out"]
    assert (code, told["cases"][0]["verdict"]) == (1, "differs")
    assert (out["matched"], out["differing"], out["missing"], out["unexpected"]) == (2, 1, 1, 0)
    assert out["differences"] == [
        {"line": 2, "expected": '{"v":20}', "found": '{"v":2}'},
        {"line": 4, "expected": '{"v":4}', "found": None},
    ]
    text = printed(tmp_path)
    assert "three of four" in text
    assert "    line 2, differing\n      expected {" in text
    assert '      found    {"v":2}' in text


def test_the_order_is_part_of_what_is_promised() -> None:
    """Lines that changed places are no match."""
    found = compare_lines(["a", "b"], ["b", "a"])
    assert (found.matched, sorted(one.kind for one in found.differences)) == (1, ["missing", "unexpected"])
    assert compare_lines([], ["x"]).differences == [Difference(1, None, "x")]


def test_an_error_that_is_expected_must_be_that_error(tmp_path: Path) -> None:
    """Whole text, place included; no error at all is a difference too."""
    wrong_query = "SELECT v INTO FROM a"
    wrong = "TG-QUERY-OUTPUT: INTO names no output\n  where: query.sql:1:10\n  fix: write the name of the output after INTO\n"
    laid_out(
        tmp_path / "same",
        {"query.sql": wrong_query, "input.a.ndjson": "", "expected.error": wrong + "  example: INTO out"},
    )
    laid_out(tmp_path / "none", {"query.sql": GOOD["query.sql"], "input.a.ndjson": "", "expected.error": wrong})
    laid_out(tmp_path / "unexpected", GOOD | {"query.sql": wrong_query})
    code, told = run(tmp_path)
    verdicts = {one["case"]: one["verdict"] for one in told["cases"]}
    assert (code, verdicts) == (1, {"same": "good", "none": "differs", "unexpected": "differs"})


def test_records_that_cannot_be_used_must_be_expected(tmp_path: Path) -> None:
    """A dead record that nobody expects is a difference."""
    more = GOOD["input.a.ndjson"] + "nonsense\n"
    laid_out(tmp_path / "silent", GOOD | {"input.a.ndjson": more})
    dead = '{"reason":"json","input":"a","partition":null,"line":4,"value":"nonsense"}'
    laid_out(tmp_path / "told", GOOD | {"input.a.ndjson": more, "expected.dead.ndjson": dead})
    _, told = run(tmp_path)
    assert [one["verdict"] for one in told["cases"]] == ["differs", "good"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"expected.ouput.ndjson": ""}, "ouput is no output of the script"),
        ({"input.a.txt.bak": ""}, "input.a.txt.bak is no file of a case"),
        ({"case.toml": 'latte = "5s"'}, "there is no setting latte"),
        ({"case.toml": "late = 5"}, "late is no text"),
        ({"case.toml": 'late = "5"'}, "'5' is not a duration"),
        ({"case.toml": 'late_action = "keep"'}, "an action is adjust or drop"),
        ({"case.toml": "late"}, "the file is no TOML"),
        ({"input.b.ndjson": ""}, "the script does not read b"),
        ({"expected.error": "TG"}, "a case expects results or an error"),
        (
            {"query.sql": "SELECT v INTO out FROM a TIMESTAMP BY at; SELECT v INTO more FROM a TIMESTAMP BY at"},
            "nothing is expected of output more",
        ),
    ],
)
def test_a_case_that_would_test_nothing_is_broken(tmp_path: Path, change: dict[str, str], told: str) -> None:
    """What is misspelled is told, with exit code 2; other cases are run all the same."""
    laid_out(tmp_path / "broken", GOOD | change)
    laid_out(tmp_path / "good", GOOD)
    code, verdicts = run(tmp_path)
    assert (code, verdicts["good"], verdicts["broken"]) == (2, 1, 1)
    assert told in verdicts["cases"][-1]["error"]["what"]
    assert told in printed(tmp_path)


VERSIONED = {
    "query.sql": "SELECT a.v AS v, p.name AS name INTO out FROM a TIMESTAMP BY at JOIN p ON a.v = p.v",
    "input.a.ndjson": '{"at":"2001-01-01T12:00:00Z","v":1}\n{"at":"2001-01-02T00:00:00Z","v":1}\n',
    "reference.p.2001-01-01.csv": "v,name\n1,old\n",
    "reference.p.2001-01-02.csv": "v,name\n1,new\n",
    "expected.out.ndjson": '{"v":1,"name":"old"}\n{"v":1,"name":"new"}\n',
}


def test_reference_data_may_have_a_version_for_each_day(tmp_path: Path) -> None:
    """The day stands in the name of the file."""
    laid_out(tmp_path, VERSIONED)
    assert run(tmp_path)[0] == 0


@pytest.mark.parametrize("name", ["reference.p.csv", "reference.p.2001-01-03.ndjson"])
def test_versions_that_do_not_go_together_are_refused(tmp_path: Path, name: str) -> None:
    """One without a day would be valid always, one of another format would not be found."""
    laid_out(tmp_path, VERSIONED | {name: "v,name\n"})
    code, told = run(tmp_path)
    assert code == 2
    assert "p has versions and a file without a day, or of another format" in told["cases"][0]["error"]["what"]


def test_a_folder_without_cases_is_an_error(tmp_path: Path) -> None:
    """A misspelled folder must not look like success."""
    code, told = run(tmp_path)
    assert (code, "TG-TEST-NONE" in told["told"]) == (2, True)


def test_policies_are_those_of_the_case(tmp_path: Path) -> None:
    """case.toml is written as the flags of tidegate local."""
    events = '{"at":"2001-01-01T00:00:02Z","v":2}\n{"at":"2001-01-01T00:00:01Z","v":1}\n'
    files = GOOD | {"input.a.ndjson": events, "expected.out.ndjson": '{"v":1}\n{"v":2}\n'}
    laid_out(tmp_path / "held", files | {"case.toml": 'reorder = "5s"'})
    laid_out(tmp_path / "dropped", files | {"case.toml": 'out_of_order_action = "drop"', "expected.out.ndjson": '{"v":2}\n'})
    assert run(tmp_path)[0] == 0


def test_a_case_may_test_the_script_and_the_configuration_of_its_project(tmp_path: Path) -> None:
    """case.toml names them from the folder of the case; the configuration's policies hold."""
    laid_out(tmp_path, {"shown.sql": GOOD["query.sql"], "tidegate.toml": '[inputs.a]\ntimestamp_by = "at"\nlate = "off"\nearly = "off"'})
    own = {name: text for name, text in GOOD.items() if name != "query.sql"}
    laid_out(tmp_path / "cases" / "one", own | {"case.toml": 'script = "../../shown.sql"\nconfig = "../../tidegate.toml"'})
    code, told = run(tmp_path / "cases")
    assert (code, told["good"]) == (0, 1), told


@pytest.mark.parametrize(
    ("files", "told_as"),
    [
        ({"case.toml": 'script = "../none.sql"'}, "there is no file"),
        ({"case.toml": 'description = "no script"'}, "there is no query.sql"),
        ({"case.toml": 'script = "query.sql"', "query.sql": GOOD["query.sql"]}, "one would not be used"),
        ({"case.toml": 'script = "shown.sql"', "shown.sql": GOOD["query.sql"]}, "shown.sql is no file of a case"),
    ],
)
def test_a_case_without_a_script_of_its_own_is_broken(files: dict[str, str], told_as: str, tmp_path: Path) -> None:
    """A case whose script cannot be found, or of which one would not be used, tests nothing."""
    own = {name: text for name, text in GOOD.items() if name != "query.sql"}
    laid_out(tmp_path, own | files)
    code, told = run(tmp_path)
    assert (code, told["broken"]) == (2, 1)
    assert told_as in json.dumps(told["cases"])
