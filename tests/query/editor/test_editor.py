"""What editors are told of a script beside a configuration: completion, meaning of names, mistakes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from query.editor.completion import OfferKind, complete
from query.editor.findings import find_mistakes
from query.editor.hover import describe
from query.editor.names import EditedScript
from query.editor.project import Projects, ScriptProject
from query.lint import lint_script
from tidegate.language.expressions.syntax.parse import parse_script

CONFIGURATION = """
[inputs.taxis]
timestamp_by = "at"
over = "car"
fields = { car = "bigint", fare = "float", "place.lat" = "float", "place.lon" = "float", "odd name" = "bigint" }

[inputs.rain]
timestamp_by = "DATEADD(second, s, '1970-01-01T00:00:00Z')"

[references.zones]
path = "zones.csv"
fields = { zone = "nvarchar(max)" }

[outputs.busy]
topic = "busy"

[functions.double]
code = "function main(x) { return 2 * x; }"
takes = ["bigint"]
gives = "bigint"

[queries.rides]
script = "rides.sql"
into = "busy"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project: its configuration, and a function beside its scripts."""
    (tmp_path / "tidegate.toml").write_text(CONFIGURATION)
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "half.js").write_text("function main(x) { return x / 2; }")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def project(folder: Path) -> ScriptProject:
    """What is known of it."""
    return Projects().around(folder / "rides.sql")


def edited(marked: str, project: ScriptProject, path: Path | None = Path("rides.sql")) -> tuple[EditedScript, int]:
    """A script, and the place of the ^ in it, which is left out."""
    before, _, behind = marked.partition("^")
    return EditedScript(before + behind, project, path), len(before)


def offered(marked: str, project: ScriptProject, *kinds: OfferKind) -> list[str]:
    """What is offered at the ^, as it would be written."""
    script, offset = edited(marked, project)
    return [offer.written for offer in complete(script, offset).offers if not kinds or offer.kind in kinds]


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("SELECT car FROM ^", ["taxis", "rain", "busy", "zones"]),
        ("SELECT car FROM ta^", ["taxis"]),
        ("SELECT car FROM taxis JOIN Z^", ["zones"]),
        ("SELECT car INTO ^ FROM taxis", ["busy"]),
        ("WITH s AS (SELECT car FROM taxis) SELECT car FROM ^", ["s", "taxis", "rain", "busy", "zones"]),
        ("SELECT car FROM [ta^", ["[taxis]"]),
        ("SELECT car FROM [ta^]", ["[taxis"]),
    ],
)
def test_inputs_and_outputs_are_offered_where_they_stand(marked: str, names: list[str], project: ScriptProject) -> None:
    """Inputs, steps and reference data behind FROM and JOIN, outputs behind INTO."""
    assert offered(marked, project) == names


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("SELECT ^ FROM taxis TIMESTAMP BY at", ["car", "fare", "place", "[odd name]", "at"]),
        ("SELECT f^ FROM taxis TIMESTAMP BY at", ["fare"]),
        ("SELECT F^ FROM taxis TIMESTAMP BY at", ["fare"]),
        ("SELECT t.^ FROM taxis t TIMESTAMP BY at", ["car", "fare", "place", "[odd name]", "at"]),
        ("SELECT t.place.^ FROM taxis t TIMESTAMP BY at", ["lat", "lon"]),
        ("SELECT place.l^ FROM taxis TIMESTAMP BY at", ["lat", "lon"]),
        ("SELECT z.^ FROM taxis t JOIN zones z ON t.car = z.zone", ["zone"]),
        ("SELECT [o^ FROM taxis", ["[odd name]"]),
        ("WITH s AS (SELECT fare AS f2, car FROM taxis) SELECT ^ FROM s", ["f2", "car"]),
        ("WITH s AS (SELECT *, 1 AS one FROM taxis) SELECT o^ FROM s", ["one", "[odd name]"]),
        ("CREATE TABLE a (x bigint, y float); SELECT ^ FROM a", ["x", "y"]),
        ("SELECT ca^", ["car"]),
        ("SELECT nothing.^ FROM taxis", []),
    ],
)
def test_columns_of_what_is_read_are_offered(marked: str, names: list[str], project: ScriptProject) -> None:
    """Those declared, the event time and the key; of a step those that it names. An odd name comes in brackets."""
    assert offered(marked, project, OfferKind.COLUMN) == names


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("SELECT DATEA^ FROM taxis", ["DATEADD"]),
        ("SELECT car FROM taxis GROUP BY tumb^", ["TumblingWindow"]),
        ("SELECT udf.^ FROM taxis", ["half", "double"]),
        ("SELECT System.^ FROM taxis", ["Timestamp()", "Window().Id"]),
        ("SELECT ud^ FROM taxis", ["udf.half", "udf.double"]),
    ],
)
def test_functions_are_offered(marked: str, names: list[str], project: ScriptProject) -> None:
    """Those of the language, and those in JavaScript of the configuration and beside the script."""
    assert offered(marked, project, OfferKind.FUNCTION) == names


@pytest.mark.parametrize(
    "marked", ["SELECT 'ab^' FROM taxis", "SELECT 'ab^", "SELECT 1^ FROM taxis", "-- c^\nSELECT 1", "SELECT /* c^ */ 1", "/* c^"]
)
def test_nothing_is_offered_within_texts_numbers_and_comments(marked: str, project: ScriptProject) -> None:
    """There nothing is a name."""
    assert offered(marked, project) == []


def test_types_and_units_are_offered_where_they_stand(project: ScriptProject) -> None:
    """A type behind CAST(x AS, units first in windows and durations."""
    assert "bigint" in offered("SELECT CAST(fare AS ^) FROM taxis", project, OfferKind.TYPE)
    assert not offered("SELECT fare AS ^ FROM taxis", project, OfferKind.TYPE)
    assert "minute" in offered("SELECT 1 FROM taxis GROUP BY TumblingWindow(m^", project, OfferKind.KEYWORD)


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        (
            "SELECT dateadd^(hour, 1, at) FROM taxis",
            ["DATEADD(unit, n, time)", "The time n units later.", "Stream Analytics: better", "Manual:"],
        ),
        ("SELECT 1 FROM taxis GROUP BY Tumbling^Window(hour, 1)", ["TumblingWindow(unit, size)", "docs/queries/windows.md#windows"]),
        ("SELECT System.Time^stamp() FROM taxis", ["System.Timestamp()"]),
        ("SELECT udf.do^uble(car) FROM taxis", ["udf.double(bigint)", "[functions.double] gives bigint"]),
        ("SELECT udf.half^(car) FROM taxis", ["functions/half.js"]),
        (
            "SELECT car FROM ta^xis TIMESTAMP BY at OVER car",
            ["**taxis**: the input of topic taxis, TIMESTAMP BY at, OVER car", "- `fare` float"],
        ),
        ("SELECT t^.fare FROM taxis t", ["**taxis**"]),
        ("SELECT t.fa^re FROM taxis t", ["`fare` float: a column of taxis"]),
        ("SELECT place.la^t FROM taxis t", ["`place.lat` float: a column of taxis"]),
        ("SELECT a INTO bu^sy FROM taxis", ["**busy**: an output, topic busy"]),
        ("SELECT a FROM taxis JOIN zo^nes ON 1 = 1", ["**zones**: reference data", "- `zone` nvarchar(max)"]),
        ("WITH s AS (SELECT car FROM taxis) SELECT car FROM s^", ["**s**: a step", "- `car`"]),
    ],
)
def test_a_name_is_explained(marked: str, shown: list[str], project: ScriptProject) -> None:
    """Functions by their page of the manual, inputs and outputs by their settings, columns by their types."""
    found = describe(*edited(marked, project))
    assert found is not None
    assert [part for part in shown if part not in found[2]] == []


@pytest.mark.parametrize("marked", ["SELECT unk^nown FROM taxis", "SELECT 'ca^r' FROM taxis", "SELECT 1 ^ FROM taxis", "-- ca^r", "^"])
def test_nothing_is_said_of_what_is_not_known(marked: str, project: ScriptProject) -> None:
    """Neither of other names, nor of texts."""
    assert describe(*edited(marked, project)) is None


@pytest.mark.parametrize(
    ("marked", "code"),
    [
        ("SELECT car + 1 INTO busy FROM taxis TIMESTAMP BY at OVER car", "TG-LINT-ALIAS"),
        ("SELECT car INTO busy FROM ^taxi TIMESTAMP BY at", "TG-QUERY-INPUT"),
        ("SELECT car INTO busy FROM taxis TIMESTAMP BY ^fare OVER car", "TG-QUERY-TIMESTAMP"),
        ("SELECT car INTO busy\nFROM taxis TIMESTAMP BY at OVER car\nWHERE ^DATEADDD(hour, 1, at) > 1", "TG-QUERY-FUNCTION"),
        ("SELECT car INTO busy FROM taxis ^WHERE", "TG-QUERY-SYNTAX"),
        ("SELECT udf.^double(car, 1) AS x INTO busy FROM taxis TIMESTAMP BY at OVER car", "TG-QUERY-FUNCTION"),
    ],
)
def test_mistakes_are_those_of_lint_with_their_places(marked: str, code: str, project: ScriptProject, folder: Path) -> None:
    """Of an error at the end of what is written the last word is marked."""
    script, offset = edited(marked, project, folder / "other.sql")
    (found,) = find_mistakes(script)
    assert found.finding.code == code
    assert found.start < found.end
    if "^" in marked:
        assert found.start == offset


def test_a_listed_script_has_the_output_that_its_table_names(project: ScriptProject, folder: Path) -> None:
    """As in a job; another script names its own."""
    assert project.lint_context(folder / "rides.sql").settings["into"] == "busy"
    assert project.lint_context(folder / "other.sql").settings["into"] is None


def test_findings_are_the_linters(project: ScriptProject, folder: Path) -> None:
    """The same codes and advice as `tidegate lint --config`."""
    sql = "SELECT car, fare * 2, place.lat = 0.5 AS eq INTO busy FROM taxis TIMESTAMP BY at OVER car WHERE fare = NULL"
    script = EditedScript(sql, project, folder / "rides.sql")
    due = lint_script(parse_script(sql, "script"), project.lint_context(folder / "rides.sql"))
    assert [each.finding for each in find_mistakes(script)] == due
    assert len(due) > 2


def test_a_changed_configuration_is_read_again(folder: Path) -> None:
    """And while it is wrong, what it said before still counts."""
    projects, script, file = Projects(), folder / "rides.sql", folder / "tidegate.toml"
    assert "taxis" in projects.around(script).streams
    for number, (text, streams, lines) in enumerate(
        [
            (CONFIGURATION.replace("inputs.taxis", "inputs.cabs"), {"cabs", "rain", "busy"}, []),
            ("[inputs.cabs\n", {"cabs", "rain", "busy"}, [0]),
            ("\n[inputs.cabs]\nlat = '5s'\nover = 7\n", {"cabs", "rain", "busy"}, [2, 3]),
            ("[inputs.cabs]\n", {"cabs"}, []),
        ],
        start=1,
    ):
        file.write_text(text)
        os.utime(file, ns=(number, number))
        project = projects.around(script)
        assert set(project.streams) == streams
        assert [problem.line for problem in project.problems] == lines


def test_without_a_configuration_any_input_may_be_named(tmp_path: Path) -> None:
    """As in lint without --config."""
    project = Projects().around(tmp_path / "q.sql")
    assert project == ScriptProject()
    assert find_mistakes(EditedScript("SELECT k INTO o FROM a TIMESTAMP BY at", project)) == []
    assert "DATEADD" in offered("SELECT DATEA^ FROM a", project)
