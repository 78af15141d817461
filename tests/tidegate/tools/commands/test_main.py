"""The ``tidegate`` program: commands by entry point, loaded when called; errors in words, with an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ordering.errors import RefusedError
from tidegate.platform.observe.console import report_error, wants_json
from tidegate.tools.commands.main import CommandError, load_command, summarize_command


def tidegate(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, in *folder*."""
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60)


def test_help_names_every_command_without_loading_spark() -> None:
    """Help comes at once: neither Spark nor pandas nor Kafka's client is imported for it."""
    program = (
        "import sys; sys.argv = ['tidegate', '--help']\n"
        "from tidegate.tools.commands.main import main\n"
        "try: main()\n"
        "except SystemExit: print('loaded:', *sorted({'pyspark', 'pandas', 'pyarrow', 'confluent_kafka', 'duckdb'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown.rstrip().endswith("loaded:")
    for command in ("up", "down", "status", "config", "ingest", "query", "plan", "order"):
        assert f" {command} " in shown
    assert "cannot be loaded" not in shown


def test_a_command_that_cannot_be_imported_hurts_nobody_else() -> None:
    """Its line in the help says so; calling it is an error with the reason."""
    broken = EntryPoint("broken", "no_such_package.commands:run", "tidegate.commands")
    assert summarize_command(broken) == "(cannot be loaded)"
    with pytest.raises(CommandError, match="no_such_package") as failed:
        load_command(broken)
    assert failed.value.code == "TG-COMMAND"


def test_an_error_is_told_in_words_on_standard_error_with_its_exit_code(tmp_path: Path) -> None:
    """No traceback; code, what and how to mend it; standard output stays empty."""
    failed = tidegate("up", "--dir", str(tmp_path), JAVA_HOME=str(tmp_path))
    assert failed.returncode == 4
    assert failed.stdout == ""
    assert failed.stderr.lstrip().startswith("TG-STACK-JAVA: no Java was found")
    assert "fix: install a Java runtime" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_an_error_is_one_json_object_where_json_was_asked_for(tmp_path: Path) -> None:
    """A program that reads the command's JSON can read its errors too."""
    failed = tidegate("up", "--dir", str(tmp_path), "--format", "json", JAVA_HOME=str(tmp_path))
    error = json.loads(failed.stderr.splitlines()[-1])["error"]
    assert (error["code"], error["exit_code"], failed.returncode) == ("TG-STACK-JAVA", 4, 4)
    assert error["fix"]


def test_a_package_of_the_same_name_from_elsewhere_is_named(tmp_path: Path) -> None:
    """``sinks`` is a name that others use: a command does not run on somebody else's."""
    intruder = tmp_path / "sinks"
    intruder.mkdir()
    (intruder / "__init__.py").touch()
    failed = tidegate("status", folder=tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert failed.returncode == 2
    assert "TG-SHADOWED" in failed.stderr
    assert str(intruder) in failed.stderr


def test_json_is_asked_for_by_either_spelling() -> None:
    """``--format json`` and ``--format=json``, nothing else."""
    assert wants_json(["up", "--format", "json"])
    assert wants_json(["--format=json", "up"])
    assert not wants_json(["up", "json", "--format", "text"])


def test_an_error_for_people_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting's table is written in brackets; they are text, not markup."""
    report_error(RefusedError("[inputs.flights] is bound", where="tidegate.toml:3", example="[inputs.flights]\nlate = '1h'"), as_json=False)
    shown = capsys.readouterr().err
    assert "[inputs.flights] is bound" in shown
    assert "where: tidegate.toml:3" in shown
