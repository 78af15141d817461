"""tidegate config: every value with its origin, in four forms; the manual of all settings is current."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import typer
from support.repository import ROOT
from typer.testing import CliRunner

from tidegate.platform.observe.console import report_errors
from tidegate.tools.commands.config import config, settings_manual

MANUAL = ROOT / "docs" / "reference" / "settings.md"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(config))


@pytest.fixture(autouse=True)
def _a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSWORD", "canary-cli")
    Path("tidegate.toml").write_text('[kafka.client]\nsasl.password = "env:PASSWORD"\n[inputs.flights]\ntimestamp_by = "scheduled"\n')


def run(*arguments: str, exit_code: int = 0) -> str:
    """Run the command; return what it printed."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    assert "canary" not in result.output
    return result.output


def test_every_value_stands_with_its_origin() -> None:
    """One line each, whole even in a pipe."""
    out = run("--set", "inputs.flights.late=4h")
    row = next(line for line in out.splitlines() if "inputs.flights.late " in line)
    assert row.split() == ["inputs.flights.late", "4h", "flag"]
    assert "tidegate.toml:4" in out
    assert "…" not in out


def test_json_is_for_programs() -> None:
    """Value and origin by key."""
    found = json.loads(run("--format", "json"))
    assert found["inputs.flights.timestamp_by"] == {"value": "scheduled", "origin": "tidegate.toml:4"}
    assert found["kafka.client.sasl.password"]["value"] == "***"


def test_toml_is_toml() -> None:
    """It parses, tables and all."""
    assert tomllib.loads(run("--format", "toml"))["inputs"]["flights"]["late"] == "5s"


def test_markdown_is_a_table() -> None:
    """For a report or a ticket."""
    assert "| inputs.flights.late | 5s | default |" in run("--format", "markdown")


def test_a_wrong_setting_ends_with_exit_code_2() -> None:
    """The report is on standard error, nothing else is printed."""
    assert "did you mean late, late_action or topic_pattern? docs/reference/settings.md lists all" in run(
        "--set", "inputs.flights.latte=4h", exit_code=2
    )


@pytest.mark.parametrize("form", ["text", "json", "toml", "markdown"])
def test_the_schema_tells_unit_default_and_meaning(form: str) -> None:
    """In every form, without reading any configuration."""
    Path("tidegate.toml").write_text("[broken")
    out = run("--schema", "--format", form)
    assert "16MiB" in out
    assert "How long events are held so that they can be put in order" in out


def test_the_manual_is_current() -> None:
    """docs/reference/settings.md is what the classes say; write it anew with tidegate config --schema --format markdown."""
    assert MANUAL.read_text("utf-8") == settings_manual()
