"""The examples of packages are installed as their users would install them, and found by what they offer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.installing import install
from support.repository import ROOT

pytestmark = pytest.mark.heavy
PLUGIN, STORE = ROOT / "examples" / "plugin", ROOT / "examples" / "sqlite"
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
    return install(PLUGIN, tmp_path_factory.mktemp("site"))


DOORS = {f"tidegate.{module}" for module in ("query.api", "query.extending", "sinks.base", "sinks.registry", "sinks.extending", "testing")}


def test_they_and_their_pages_import_through_the_doors_alone() -> None:
    """What packages import is promised to stay; other modules may move."""
    pages = [ROOT / "docs" / "queries" / "extending.md", ROOT / "docs" / "operate" / "sinks.md"]
    texts = [path.read_text("utf-8") for path in [*sorted(PLUGIN.rglob("*.py")), *sorted(STORE.rglob("*.py")), *pages]]
    imported = {
        name
        for text in texts
        for name in re.findall(r"^(?:from|import) ((?:query|sinks|tidegate|ordering|ingest)(?:\.\w+)*)\b(?!_)", text, re.M)
    }
    assert {"tidegate.query.api", "tidegate.query.extending", "tidegate.sinks.extending"} <= imported <= DOORS


@pytest.mark.parametrize("package", [PLUGIN, STORE])
def test_their_own_tests_pass(package: Path, tmp_path: Path) -> None:
    """Those that need no broker, and of those that ask for the law one for each kind; ``test_wheel_outside.py`` runs all of them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", str(package / "tests")]
    command += ["-m", "not stack"] if package == PLUGIN else []
    command += ["-k", "not aggregate"] if package == PLUGIN and not os.environ.get("TIDEGATE_TEST_ALL_CASES") else []
    done = subprocess.run(command, env=install(package, tmp_path), cwd=package, capture_output=True, text=True, check=False)
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
