"""The working folder is on no import path: not on that of ``python -m tidegate``, and not on that of a process it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hostile_modules import plant_modules

from tidegate.basics.safe_path import protect_processes
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.starting import _set_environment

TELL = "import sys; print(*sys.path, sep='|')"
IMPORTED_BY_M = "import runpy, sys; print(*sys.modules)"


def test_python_m_runs_no_file_of_the_working_folder(tmp_path: Path) -> None:
    """Only ``tidegate.py`` and what ``-m`` itself imports would run: Python finds them before a line of ours runs."""
    by_python = subprocess.run([sys.executable, "-c", IMPORTED_BY_M], capture_output=True, text=True, check=True).stdout.split()
    plant_modules(tmp_path, without={"tidegate", *by_python})
    told = subprocess.run([sys.executable, "-m", "tidegate", "config"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert not (tmp_path / "imported").exists()


def test_processes_started_later_do_not_search_their_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither by ``-m``, nor by an empty entry of PYTHONPATH; the entries that name a folder stay."""
    monkeypatch.setenv("PYTHONPATH", f":/first::{tmp_path}:")
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # so that it is taken away again
    protect_processes()
    assert os.environ["PYTHONPATH"] == f"/first:{tmp_path}"
    (tmp_path / "work").mkdir()
    told = subprocess.run([sys.executable, "-c", TELL], cwd=tmp_path / "work", capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"/first|{tmp_path}|")
    assert not {"", ".", str(tmp_path / "work")} & set(told.strip().split("|"))


def test_a_working_folder_that_pythonpath_names_stays_on_the_path(tmp_path: Path) -> None:
    """With PYTHONSAFEPATH Python adds none, so the first entry is the user's: a foreign package in it is named, not passed over."""
    (tmp_path / "sinks.py").touch()
    safe = os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path)}
    told = subprocess.run([sys.executable, "-m", "tidegate", "config"], cwd=tmp_path, env=safe, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert str(tmp_path / "sinks.py") in told.stderr


def test_executors_elsewhere_get_the_variable_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They do not inherit the environment of the driver."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings = Settings.model_validate({"spark": {"master": "spark://elsewhere:7077"}})
    assert _set_environment(settings, tmp_path)["PYTHONSAFEPATH"] == "1"
    assert os.environ["PYTHONSAFEPATH"] == "1"
