"""
A failure that ``law_of`` found, as a case: ``tidegate test`` runs it alone and says what differed. Levels 2 and 3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from query.commands import cases
from query.testing.disturbance import Disturbance
from query.testing.user_code import load_place
from query.testing.walk import Interruption
from tidegate.platform.observe.console import report_errors
from tidegate.query.extending import ScalarFunction
from tidegate.testing import LawBrokenError, law_of

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(cases.check_cases))
RIDES: list[dict[str, Any]] = [{"at": "", "k": "a", "v": 0.5}, {"at": "", "k": "b", "v": 2.0}, {"at": "", "k": "c", "v": None}]
SQL = "SELECT k, udf.numbered(k) AS x FROM rides TIMESTAMP BY at{over} WHERE CAST(v AS bit) IS NOT NULL"
# A module of a user, with one beside it: the fault is the number of a call, kept in a global.
MODULE = """
import pyarrow as pa
from endings import ENDING

from tidegate.query.extending import ScalarFunction

CALLS = [0]


def count(texts):
    found = []
    for text in texts.to_pylist():
        CALLS[0] += 1
        found.append(f"{text}{CALLS[0]}{ENDING}")
    return pa.array(found, pa.string())


numbered = ScalarFunction(count, ("nvarchar(max)",), "nvarchar(max)")
steady = ScalarFunction(lambda texts: texts, ("nvarchar(max)",), "nvarchar(max)")
"""


def run(folder: Path) -> tuple[int, dict[str, Any]]:
    """Call ``tidegate test``; return its exit code and its verdicts."""
    result = CliRunner().invoke(APP, [str(folder), "--format", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A user's module."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "endings.py").write_text("ENDING = '.'\n")
    (tmp_path / "own" / "numbers_of_calls.py").write_text(MODULE)
    return tmp_path / "own" / "numbers_of_calls.py"


@pytest.mark.parametrize("over", ["", " OVER k"])
def test_tidegate_test_says_what_differed(over: str, module: Path, tmp_path: Path) -> None:
    """
    Its function is found again; order of results with OVER, dead letters and policies are those of the case. The verdict is good once the
    function is corrected.
    """
    case, policies = tmp_path / "case", {"late": "1h", "late_action": "drop"}
    function = load_place(f"{module}:numbered", tmp_path)
    with pytest.raises(LawBrokenError) as caught:
        law_of(SQL.format(over=over), {"rides": RIDES}, policies=policies, functions={"numbered": function}, case_folder=case, shrink_s=1)
    assert f'numbered = "{module}:numbered"' in str(caught.value)
    code, told = run(case)
    assert code == 1
    assert told["cases"][0]["disturbed"] == caught.value.sentence
    printed = CliRunner().invoke(APP, [str(case)]).stdout
    assert f"  disturbed: {caught.value.sentence}\n" in printed

    module.write_text(MODULE.replace("{CALLS[0]}", ""))
    code, told = run(case)
    assert told["cases"][0]["disturbed"] is None
    # The expected results have the numbers of calls.
    assert code == 1
    (case / "case.toml").write_text((case / "case.toml").read_text().replace(":numbered", ":steady"))
    expected = case / "expected.output.ndjson"
    keys = [json.loads(line)["k"] for line in expected.read_text().splitlines()]
    expected.write_text("".join(f'{{"k":"{key}","x":"{key}"}}\n' for key in keys))
    assert run(case)[0] == 0


def test_a_case_has_the_tables_and_the_script_of_its_query(module: Path, tmp_path: Path) -> None:
    """The script is the user's own file, with its functions in JavaScript; reference data are copied."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "twice.js").write_text("function main(v) { return v * 2; }")
    script = tmp_path / "zones.sql"
    script.write_text(
        "SELECT udf.numbered(z.name) AS x, udf.twice(r.v) AS t INTO zones FROM rides r TIMESTAMP BY at JOIN names z ON r.k = z.k"
    )
    names = [{"k": "a", "name": "north"}, {"k": "b", "name": "south"}]
    correct = {"numbered": load_place(f"{module}:steady", tmp_path)}
    law_of(script, {"rides": RIDES}, functions=correct, references={"names": names}, examples=2)
    with pytest.raises(LawBrokenError):
        law_of(
            script,
            {"rides": RIDES},
            functions={"numbered": load_place(f"{module}:numbered", tmp_path)},
            references={"names": names},
            case_folder=tmp_path / "case",
            shrink_s=1,
        )
    assert not (tmp_path / "case" / "query.sql").exists()
    code, told = run(tmp_path / "case")
    assert (code, told["broken"]) == (1, 0)
    assert "undisturbed it is" in told["cases"][0]["disturbed"]


def test_a_function_without_a_name_is_told(tmp_path: Path) -> None:
    """No module has it, so no other process can find it; the case says so, and the command which function is missing."""
    reversing = ScalarFunction(lambda texts: texts.take(list(range(len(texts)))[::-1]), ("nvarchar(max)",), "nvarchar(max)")
    made = {"numbered": reversing}
    with pytest.raises(LawBrokenError, match="# numbered is no name of a module: tidegate test does not find it"):
        law_of(SQL.format(over=""), {"rides": RIDES}, functions=made, case_folder=tmp_path / "case", shrink_s=0)
    code, told = run(tmp_path / "case")
    assert code in (1, 2)
    assert "udf.numbered" in json.dumps(told)


@pytest.mark.parametrize(
    "disturbance",
    [
        *map(Disturbance, ("undisturbed", "again", "apart", "shared", "elsewhere")),
        *(Disturbance(kind, place=place) for kind in ("repeated", "torn", "started") for place in (0, 7)),
        Disturbance("interrupted", (Interruption(3, "restart"), Interruption(5, "cut"), Interruption(7, "kill", 2))),
    ],
)
def test_a_disturbance_is_written_and_read(disturbance: Disturbance) -> None:
    """As the text of a case; each of them can be run, and changes nothing where the code is right."""
    assert Disturbance.parse(str(disturbance)) == disturbance


EVENTS = [("01", "a"), ("02", "a"), ("12", "b")]
CASE = {
    "query.sql": "SELECT k, COUNT(*) AS n INTO counts FROM rides TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)",
    "input.rides.ndjson": "".join(
        f'{{"at":"2026-01-01T00:00:{at}Z","k":"{key}"}}\n' for at, key in [("01", "a"), ("02", "a"), ("12", "b")]
    ),
    "expected.counts.ndjson": '{"k":"a","n":2}\n{"k":"b","n":1}\n',
}


@pytest.mark.parametrize(
    "text",
    ["undisturbed", "again", "shared", "elsewhere", "repeated 2", "torn 2", "torn 3", "started 2", "restart 1, kill 2 back 1, cut 3"],
)
def test_a_case_may_be_disturbed_by_hand(text: str, tmp_path: Path) -> None:
    """A query without a fault stays good."""
    for name, content in {**CASE, "case.toml": f'disturbance = "{text}"'}.items():
        (tmp_path / name).write_text(content)
    code, told = run(tmp_path)
    assert (code, told["cases"][0]["disturbed"]) == (0, None), told


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ('disturbance = "restrat 3"', "'restrat 3' is no disturbance"),
        ('disturbance = "torn 0"', "'torn 0' is no disturbance"),
        ('functions = "f"', "functions is no table"),
        ("[functions]\nf = 5", "f is no text"),
        ('[functions]\nf = "none.py:f"', "f cannot be loaded from none.py:f: ValueError: there is no module"),
        ('[functions]\nf = "own.py:g"', "f cannot be loaded from own.py:g: AttributeError"),
        ('[functions]\nf = "own.py:f"', "f cannot be loaded from own.py:f: ValueError: it is a int"),
    ],
)
def test_a_wrong_setting_is_told(settings: str, what: str, tmp_path: Path) -> None:
    """The case is broken: it would test less than it says."""
    (tmp_path / "own.py").write_text("f = 5\n")
    (tmp_path / "case").mkdir()
    for name, content in {**CASE, "case.toml": settings.replace("own.py", "../own.py")}.items():
        (tmp_path / "case" / name).write_text(content)
    code, told = run(tmp_path)
    assert code == 2
    assert what.replace("own.py", "../own.py") in told["cases"][0]["error"]["what"]
