"""``tidegate demo`` out of an installed wheel: the flights and the oracle that checks every result came with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.installing import install
from support.repository import ROOT

import tidegate.tools.commands.demo as command
from tidegate.tools.commands.demo import DemoMissingError, find_demo


def test_a_checkout_runs_its_own_example() -> None:
    """What ``make demo`` runs is the example itself."""
    assert find_demo() == ROOT / "examples" / "flights"


def test_an_installation_without_the_example_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, with a way out."""
    monkeypatch.setattr(command, "_PLACES", (tmp_path,))
    with pytest.raises(DemoMissingError) as missing:
        find_demo()
    assert (missing.value.code, missing.value.exit_code) == ("TG-DEMO-MISSING", 2)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That of an installed wheel, without a checkout, a lake or a PostgreSQL client; its data is small."""
    folder = tmp_path_factory.mktemp("wheel")
    site = folder / "site"
    environment = install(ROOT, site)
    data = site / "tidegate" / "flights_demo" / "flights.parquet"
    assert data.stat().st_size < 2**20
    # These packages are installed for the tests; a plain wheel does not bring them.
    hidden = folder / "hidden"
    hidden.mkdir()
    blocker = "import sys\nsys.modules['psycopg'] = None\nimport importlib.util as u\nf = u.find_spec\n"
    blocker += "u.find_spec = lambda name, *a: None if name == 'deltalake' else f(name, *a)\n"
    (hidden / "sitecustomize.py").write_text(blocker)
    return environment | {"PYTHONPATH": os.pathsep.join([str(hidden), environment["PYTHONPATH"]])}


@pytest.mark.heavy
@pytest.mark.integration
def test_the_demo_of_a_wheel_runs_outside_the_checkout(environment: dict[str, str], tmp_path: Path) -> None:
    """Level 3: every result is as the naive oracle says."""
    assert _results(tmp_path / "together", environment)


# Five processes with a JVM each. That one process and many write the same, `make test` shows in tests/integration/operations/test_run.py.
@pytest.mark.heavy
@pytest.mark.integration
@pytest.mark.deep
def test_the_demo_of_a_wheel_writes_the_same_by_a_process_each(environment: dict[str, str], tmp_path: Path) -> None:
    """Level 3: the stages in one process, and in a process each, write the same bytes."""
    assert _results(tmp_path / "together", environment) == _results(tmp_path / "apart", environment, "--apart")


def _results(folder: Path, environment: dict[str, str], *flags: str) -> dict[str, bytes]:
    """Run the demo in a new folder, with its own checks; return its result files."""
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "tidegate", "demo", "--flights", "2000", *flags]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for name in ("departures", "mean_delay", "daily"):
        assert f"check {name}: " in done.stdout
    assert "byte for byte as computed independently" in done.stdout
    assert "pip install 'tidegate[delta]'" in done.stdout
    out = folder / ".tidegate" / "demo" / "out"
    files = {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*.ndjson"))}
    assert {name.partition("/")[0] for name in files} == {"departures", "mean_delay", "daily"}
    return files
