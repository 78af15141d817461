"""
The kit outside of the checkout: a wheel with the extra ``testing`` in an empty environment of each Python that this machine has, and the
tests of the plugin there, among them those on a real Kafka. Level 1: a stage that was killed writes the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.repository import ROOT

# It installs a gigabyte for each interpreter, and starts servers and JVMs of its own.
pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.deep]
PLUGIN = ROOT / "examples" / "plugin"
OLDEST, NEWEST = 11, 14
UV = Path(sys.executable).with_name("uv")


def run(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Run a command in a folder without the checkout's paths; fail with what it says."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV") and "PYTEST" not in name}
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False, timeout=1_200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def find_interpreter(version: str) -> str | None:
    """Return this machine's interpreter of a version, None if it has none; that of the tests is one of them."""
    if version == f"3.{sys.version_info.minor}":
        return sys.executable
    # Those of pyenv are behind shims that run only the version that is chosen.
    folders = [*map(str, Path.home().glob(".pyenv/versions/*/bin")), os.environ["PATH"]]
    command = [str(UV), "python", "find", "--no-python-downloads", "--no-project", "--system", version]
    environment = {**os.environ, "PATH": os.pathsep.join(folders)}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of Tidegate and of the plugin."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in (ROOT, PLUGIN):
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, package], folder)
    return sorted(folder.glob("*.whl"))


@pytest.mark.parametrize("version", [f"3.{minor}" for minor in range(OLDEST, NEWEST + 1)])
def test_the_plugin_is_tested_beside_a_wheel(version: str, wheels: list[Path], tmp_path: Path) -> None:
    """Nothing of the checkout is there: only the wheels, what they ask for, and the plugin's tests."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        pytest.skip(f"this machine has no Python {version}")
    python = tmp_path / "venv" / "bin" / "python"
    run([interpreter, "-m", "venv", tmp_path / "venv"], tmp_path)
    asked = [f"{wheel}[testing]" if wheel.name.startswith("tidegate-0") else str(wheel) for wheel in wheels]
    jars = ["--config-settings-package", "pyspark:--build-option=--compression=stored"]
    run([UV, "pip", "install", "--quiet", "--python", python, *jars, *asked], tmp_path, UV_SYSTEM_CERTS="1")
    shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    shutil.copy(PLUGIN / "pyproject.toml", tmp_path)  # the settings of pytest
    said = run([python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "temp", "tests"], tmp_path)
    assert " passed" in said
    assert "skipped" not in said
    run([python, "-P", "-c", f"import tidegate.testing; assert {str(tmp_path)!r} in tidegate.testing.__file__"], tmp_path)
