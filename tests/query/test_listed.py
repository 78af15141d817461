"""Queries that the configuration lists are known by name: to ``plan``, ``lint`` and whoever starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ordering.errors import SettingError
from query.__main__ import plan
from query.commands.lint import lint
from query.listed import RequestedQuery, find_query, listed_query
from tidegate.platform.observe.console import report_errors
from tidegate.platform.settings.load import load

CONFIG = """
[inputs.rides]
topic = "rides"
timestamp_by = "at"

[outputs.fares]
topic = "fares"

[queries.fares]
script = "scripts/fares.sql"
into = "fares"
start = "last-stopped"

[queries.short]
script = "scripts/short.sql"
"""
FARES = "SELECT COUNT(*) AS n FROM rides TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two queries, one of them wrong."""
    (tmp_path / "tidegate.toml").write_text(CONFIG)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/fares.sql").write_text(FARES)
    (tmp_path / "scripts/short.sql").write_text("SELECT FROM rides")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: object, *arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it has printed."""
    app = typer.Typer()
    app.command()(report_errors(command))  # type: ignore[type-var]
    ended = CliRunner().invoke(app, list(arguments))
    return ended.exit_code, ended.output


def test_a_name_stands_for_its_table_and_flags_win(folder: Path) -> None:
    """A file of that name would be meant itself."""
    settings = load()
    assert find_query(settings, Path("fares")) == RequestedQuery(Path("scripts/fares.sql"), "fares", "last-stopped")
    assert find_query(settings, Path("fares"), "other", "now") == RequestedQuery(Path("scripts/fares.sql"), "other", "now")
    assert find_query(settings, Path("scripts/fares.sql"), "fares") == RequestedQuery(Path("scripts/fares.sql"), "fares")
    (folder / "fares").write_text(FARES)
    assert find_query(settings, Path("fares")) == RequestedQuery(Path("fares"))


def test_plan_knows_the_name(folder: Path) -> None:
    """With its output."""
    code, printed = run(plan, "fares", "--format", "json")
    assert code == 0, printed
    assert "fares" in printed


def test_lint_without_arguments_looks_at_all_listed_queries(folder: Path) -> None:
    """The right one and the wrong one; one error is enough for exit code 1."""
    code, printed = run(lint, "--format", "json")
    queries = {report["script"]: report["findings"] for report in json.loads(printed)["queries"]}
    assert code == 1
    assert list(queries) == ["scripts/fares.sql", "scripts/short.sql"]
    assert not [finding for finding in queries["scripts/fares.sql"] if finding["is_error"]]
    assert [finding["code"] for finding in queries["scripts/short.sql"] if finding["is_error"]]
    assert run(lint, "fares")[0] == 0
    assert run(lint, "short")[0] == 1


def test_lint_without_anything_to_look_at_says_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an error with an example."""
    monkeypatch.chdir(tmp_path)
    assert run(lint)[0] == 2


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ('[queries.a]\nscript = "a.sql"\ninto = "fare"\n[outputs.fares]\ntopic = "t"', "there is no output fare"),
        (
            '[outputs.r]\ntopic = "t"\n[queries.a]\nscript = "a.sql"\ninto = "r"\n[queries.b]\nscript = "b.sql"\ninto = "r"',
            "output r is written by queries a and b",
        ),
        ("[queries.a]\ninto = 'x'", "script"),
    ],
)
def test_tables_that_cannot_be_are_refused(tmp_path: Path, table: str, what: str) -> None:
    """When the configuration is read."""
    (tmp_path / "t.toml").write_text(table)
    with pytest.raises(SettingError, match=what):
        load(tmp_path / "t.toml")


def test_an_unknown_name_is_answered_with_the_known_ones(folder: Path) -> None:
    """As for inputs and outputs."""
    with pytest.raises(SettingError, match="there is no query fare"):
        listed_query(load(), "fare")
