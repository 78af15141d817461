"""The example of a plugin is installed as its users would install it, and found by what it offers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.repository import ROOT

pytestmark = pytest.mark.heavy
PLUGIN = ROOT / "examples" / "plugin"
CONFIG = """
[inputs.flights]
topic = "flights"
timestamp_by = "scheduled"
over = "origin"

[outputs.far_flights]
topic = "far-flights"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the plugin is installed."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(site), str(PLUGIN)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


DOORS = {"query.api", "query.extending", "sinks.base", "sinks.registry"}


def test_it_and_its_page_import_through_the_doors_alone() -> None:
    """What packages import is promised to stay; other modules may move."""
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    texts = [path.read_text("utf-8") for path in sorted(PLUGIN.rglob("*.py"))] + [page]
    imported = {
        name for text in texts for name in re.findall(r"^(?:from|import) ((?:query|sinks|tidegate|ordering|ingest)[\w.]*)", text, re.M)
    }
    assert {"query.api", "query.extending"} <= imported <= DOORS


def test_its_own_tests_pass(installed: dict[str, str]) -> None:
    """They need no broker."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", str(PLUGIN / "tests")]
    done = subprocess.run(command, env=installed, cwd=PLUGIN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_query_is_found_by_name(installed: dict[str, str], tmp_path: Path) -> None:
    """And the function that it calls with it."""
    (tmp_path / "tidegate.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "tidegate", "plan", "far_flights"]
    done = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WindowedAggregate tumbling 1h by origin" in done.stdout
    assert "udf.kilometres" in done.stdout.lower()
    assert "Output far_flights" in done.stdout


def test_its_aggregate_and_its_operator_are_found_by_name(installed: dict[str, str], tmp_path: Path) -> None:
    """By any script."""
    (tmp_path / "tidegate.toml").write_text(CONFIG)
    (tmp_path / "q.sql").write_text(
        "SELECT carrier, uda.spread(CAST(delay AS bigint)) AS s INTO far_flights "
        "FROM debounce(flights, carrier, minute, 5) TIMESTAMP BY scheduled OVER origin GROUP BY carrier, TumblingWindow(hour, 1)"
    )
    command = [sys.executable, "-m", "tidegate", "plan", "q.sql"]
    done = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Custom debounce(carrier, 5m): *, carrier" in done.stdout
    assert "UDA.SPREAD" in done.stdout
