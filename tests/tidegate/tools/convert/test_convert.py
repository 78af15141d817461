"""Projects of Stream Analytics and Eventstreams, converted: what can be, runs; of the rest a note says why; and no secret is copied."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from query.commands.cases import check_cases
from query.commands.lint import lint
from query.script_plans import read_plans
from tidegate.platform.observe.console import report_errors
from tidegate.platform.settings.load import load
from tidegate.tools.convert.command import convert

HERE = Path(__file__).parent
SECRETS = ("c2VjcmV0", "RootManageSharedAccessKey")


def run(command: Any, *words: object) -> tuple[int, str]:
    """Call a command; return its exit code and output."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report_errors(command))
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    """The converted project, which is the working folder; and the report."""
    code, output = run(convert, HERE / "asa", "--into", tmp_path / "tide", "--format", "json")
    assert code == 0
    monkeypatch.chdir(tmp_path / "tide")
    return tmp_path / "tide", json.loads(output)


def test_a_project_runs_from_its_conversion_to_good_cases(project: tuple[Path, dict[str, Any]]) -> None:
    """Lint finds nothing, the plan can be made, and the test case of the CI tool is good."""
    folder, report = project
    assert run(lint)[0] == 0
    assert [plan.output for plan in read_plans(load(), Path("toll.sql"), None)] == ["counts", "expired", "dashboard"]
    code, output = run(check_cases, "cases", "--format", "json")
    assert (code, json.loads(output)["good"]) == (0, 1)
    assert sorted(report["files"]) == sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_settings_have_what_the_job_had(project: tuple[Path, dict[str, Any]]) -> None:
    """Policies, event time, topics of event hubs, types of functions."""
    settings = load(env={"TOLLNS_CONNECTION_STRING": "Endpoint=sb://tollns"})
    entries = settings.inputs["entry_stream"]
    assert (entries.topics, entries.timestamp_by, entries.late_us, entries.reorder_us) == (
        ("entries",),
        "EntryTime",
        30_000_000,
        10_000_000,
    )
    assert (entries.late_action, entries.out_of_order_action) == ("drop", "drop")
    assert (settings.functions["maskPlate"].takes, settings.functions["maskPlate"].gives) == (("nvarchar(max)",), "nvarchar(max)")
    assert (settings.outputs["counts"].topic, settings.outputs["expired"].files) == ("toll-counts", "out/expired")
    client = settings.kafka.client_properties()
    assert client["bootstrap.servers"] == "tollns.servicebus.windows.net:9093"
    assert (client["sasl.username"], client["sasl.password"]) == ("$ConnectionString", "Endpoint=sb://tollns")


def test_no_secret_is_in_any_file(project: tuple[Path, dict[str, Any]]) -> None:
    """Keys of hubs and accounts stay where they are."""
    folder, report = project
    texts = [path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()] + [json.dumps(report)]
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    assert '"sasl.password" = "env:TOLLNS_CONNECTION_STRING"' in (folder / "tidegate.toml").read_text("utf-8")


def test_what_has_no_counterpart_is_named_with_the_reason(project: tuple[Path, dict[str, Any]]) -> None:
    """A function in C#, a test case without its file, an output without a sink, an older compatibility level."""
    folder, report = project
    parts = {(part["part"], part["outcome"]): part for part in report["parts"]}
    assert "CSharpFunction" in parts["function score", "none"]["why"]
    assert "gone.json" in parts["test case Case 2 - lost", "none"]["why"]
    assert "Power BI" in parts["output dashboard", "partly"]["why"]
    assert ("compatibility level 1.1", "partly") in parts
    assert "not compared" in parts["test case Case 1 - booths", "partly"]["why"]
    assert all(part["part"] in (folder / "conversion.md").read_text("utf-8") for part in report["parts"])


def test_a_project_of_visual_studio_is_read_too(tmp_path: Path) -> None:
    """XML instead of asaproj.json, by the same files."""
    job = tmp_path / "job"
    shutil.copytree(HERE / "asa", job)
    listed = json.loads((job / "asaproj.json").read_text("utf-8"))["configurations"]
    (job / "asaproj.json").unlink()
    items = "".join(f'<Configure Include="{each["filePath"]}"><SubType>{each["subType"]}</SubType></Configure>' for each in listed)
    namespace = "urn:msbuild"
    text = f'<Project xmlns="{namespace}"><ItemGroup>{items}</ItemGroup><ItemGroup><Script Include="toll.asaql" /></ItemGroup></Project>'
    (job / "toll.asaproj").write_text(text, "utf-8-sig")
    assert run(convert, job, "--into", tmp_path / "b")[0] == run(convert, HERE / "asa", "--into", tmp_path / "a")[0] == 0
    assert (tmp_path / "a" / "toll.sql").read_bytes() == (tmp_path / "b" / "toll.sql").read_bytes()
    # But for the lines that name the schema and the folder.
    first, second = ((tmp_path / name / "tidegate.toml").read_text().splitlines()[2:] for name in ("a", "b"))
    assert first == second


def test_an_eventstream_becomes_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are steps, destinations and derived streams are outputs; an operator that is not known has a note."""
    code, output = run(convert, HERE / "fabric", "--into", tmp_path / "tide", "--format", "json")
    assert code == 0
    parts = {part["part"]: part["outcome"] for part in json.loads(output)["parts"]}
    assert (parts["operator PerStreet"], parts["operator Odd"], parts["output Lake"]) == ("converted", "none", "partly")
    monkeypatch.chdir(tmp_path / "tide")
    plans = read_plans(load(), Path("eventstream.sql"), None)
    assert [(plan.output, [name for name, _ in plan.columns]) for plan in plans] == [
        ("Lake", ["Street", "AVG_No_Bikes"]),
        ("Few", ["street", "bikes", "j"]),
    ]
    assert run(lint)[0] == 0


def column(name: str) -> dict[str, Any]:
    """Return a reference to a column, as definitions have it."""
    return {"expressionType": "ColumnReference", "node": None, "columnName": name, "columnPathSegments": []}


MINUTE = {"value": 1, "unit": "Minute"}
OPERATORS = [
    ("Join", {"joinType": "Inner", "joinOn": [{"left": column("k"), "right": column("k")}], "duration": MINUTE}, "DATEDIFF(minute, l, r)"),
    (
        "Aggregate",
        {
            "aggregations": [
                {"aggregateFunction": "Maximum", "column": column("v"), "alias": "m", "partitionBy": [column("k")], "duration": MINUTE}
            ]
        },
        "MAX([v]) OVER (PARTITION BY [k] LIMIT DURATION(minute, 1)) AS [m]",
    ),
    ("Expand", {"column": column("v"), "ignoreMissingOrEmpty": True}, "CROSS APPLY GetArrayElements(e.[v])"),
    ("Union", {}, "UNION"),
    (
        "GroupBy",
        {
            "aggregations": [{"aggregateFunction": "Count", "column": column("v"), "alias": "n"}],
            "groupBy": [column("k")],
            "window": {"type": "Hopping", "properties": {"duration": {"value": 2, "unit": "Minute"}, "hop": MINUTE}},
        },
        "HoppingWindow(Duration(minute, 2), Hop(minute, 1))",
    ),
    (
        "GroupBy",
        {
            "aggregations": [{"aggregateFunction": "Sum", "column": column("v"), "alias": "n"}],
            "groupBy": [],
            "window": {"type": "Session", "properties": {"timeout": MINUTE, "maximumDuration": {"value": 1, "unit": "Hour"}}},
        },
        "SessionWindow(Timeout(minute, 1), MaxDuration(hour, 1))",
    ),
]


@pytest.mark.parametrize(("kind", "properties", "written"), OPERATORS)
def test_each_operator_of_an_eventstream_is_a_step_that_runs(kind: str, properties: dict[str, Any], written: str, tmp_path: Path) -> None:
    """Also as the REST API answers: the definition as a part in base64."""
    nodes = [{"name": "A", "type": "CustomEndpoint", "properties": {}}, {"name": "B", "type": "CustomEndpoint", "properties": {}}]
    inputs = [{"name": "A"}, {"name": "B"}] if kind in ("Join", "Union") else [{"name": "A"}]
    graph = {
        "sources": nodes,
        "operators": [{"name": "Op", "type": kind, "inputNodes": inputs, "properties": properties}],
        "streams": [],
        "destinations": [{"name": "Out", "type": "CustomEndpoint", "properties": {}, "inputNodes": [{"name": "Op"}]}],
    }
    payload = base64.b64encode(json.dumps(graph).encode()).decode()
    (tmp_path / "eventstream.json").write_text(json.dumps({"definition": {"parts": [{"path": "eventstream.json", "payload": payload}]}}))
    code, output = run(convert, tmp_path, "--into", tmp_path / "tide", "--format", "json")
    assert code == 0
    assert written in (tmp_path / "tide" / "eventstream.sql").read_text("utf-8")
    settings = load(tmp_path / "tide" / "tidegate.toml", env={})
    assert [plan.output for plan in read_plans(settings, tmp_path / "tide" / "eventstream.sql", None)] == ["Out"]
    assert not [part for part in json.loads(output)["parts"] if part["outcome"] == "none"]


def test_a_folder_without_a_project_and_broken_files_are_errors(tmp_path: Path) -> None:
    """With their place; nothing is written."""
    code, output = run(convert, tmp_path, "--into", tmp_path / "tide")
    assert code == 2
    assert "TG-CONVERT-PROJECT" in output
    (tmp_path / "asaproj.json").write_text("{", "utf-8")
    code, output = run(convert, tmp_path, "--into", tmp_path / "tide")
    assert code == 2
    assert "TG-CONVERT-FILE" in output
    assert not (tmp_path / "tide").exists()
