"""New projects: what ``tidegate new`` writes runs, and it replaces nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
import typer
import yaml
from support.stack.commands import run_command
from typer.testing import CliRunner

from ordering.errors import SettingError
from tidegate.platform.settings.load import load
from tidegate.tools.project.command import new
from tidegate.tools.project.files import read_template, write_project


def tidegate(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program in *folder*, without Java and Spark's variables."""
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    return run_command(folder, *arguments, environment=environment)


def test_the_commands_that_a_new_project_prints_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked; the case is good, and the query has results from the sample, of which a late position is counted."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(new)
    made = CliRunner().invoke(app, ["my taxis", "--format", "json"])
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    cd, test, local, _ = told["next"]
    assert shlex.split(cd) == ["cd", "my taxis"]
    folder = tmp_path / "my taxis"
    assert set(told["files"]) == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tested = tidegate(*shlex.split(test)[1:], folder=folder)
    assert tested.stdout.splitlines() == ["good    rides", "1 good, 0 differ, 0 broken"]
    run = tidegate(*shlex.split(local)[1:], folder=folder)
    assert len(run.stdout.splitlines()) == 26
    assert "late" in run.stderr


def test_editors_find_the_schema_of_the_configuration(tmp_path: Path) -> None:
    """Its first line names the file beside it, which takes the configuration and finds a misspelled setting."""
    write_project(tmp_path, read_template())
    text = (tmp_path / "tidegate.toml").read_text()
    named = re.match(r"#:schema (\S+)\n", text)
    assert named is not None
    validator = jsonschema_rs.validator_for(json.loads((tmp_path / named[1]).read_text()))
    validator.validate(tomllib.loads(text))
    assert not validator.is_valid(tomllib.loads(text.replace("timestamp_by", "timestmap_by")))


def test_a_changed_query_fails_its_case(tmp_path: Path) -> None:
    """The case tests the project's own script and configuration, not a copy of them."""
    write_project(tmp_path, read_template())
    script, config = tmp_path / "rides.sql", tmp_path / "tidegate.toml"
    script.write_text(script.read_text().replace("AVG(speed)", "MAX(speed)"))
    assert tidegate("test", "cases", folder=tmp_path).returncode == 1
    write_project(other := tmp_path / "other", read_template())
    (other / "tidegate.toml").write_text(config.read_text().replace('reorder = "5s"', 'reorder = "2m"'))
    assert tidegate("test", "cases", folder=other).returncode == 1


def test_a_new_project_replaces_no_file(tmp_path: Path) -> None:
    """One file of that name, and none is written."""
    (tmp_path / "rides.sql").write_text("SELECT 1")
    with pytest.raises(SettingError) as refused:
        write_project(tmp_path, read_template())
    assert refused.value.code == "TG-NEW-EXISTS"
    assert "rides.sql is there already" in refused.value.what
    assert [path.name for path in tmp_path.iterdir()] == ["rides.sql"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A file stands where a folder must be: in words, and nothing is left."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(SettingError) as refused:
        write_project(tmp_path / "taken" / "project", read_template())
    assert refused.value.code == "TG-NEW-FOLDER"


def test_the_configuration_is_accepted_and_its_ports_are_the_usual_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compose file has Kafka and Redis where the configuration finds them, on this machine alone."""
    write_project(tmp_path, read_template())
    monkeypatch.chdir(tmp_path)
    settings = load(env={})
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert services["kafka"]["ports"] == [f"127.0.0.1:{settings.kafka.bootstrap.rpartition(':')[2]}:9092"]
    assert services["redis"]["ports"] == ["127.0.0.1:6379:6379"]
    assert "localhost:6379" in settings.redis.address
    # What the stages' environment overrides are settings.
    assert load(env=services["ingest"]["environment"] | {"TIDEGATE_CONFIG": "tidegate.toml"})
    assert services["rides"]["command"] == ["query", "/project/rides.sql"]
