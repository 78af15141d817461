"""The Python that Spark's helpers run in: the running one, without the archives that Spark puts first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.platform.spark.launch.lean_python import lean_python

TELL = "import os, sys; print(sys.prefix, os.environ.get('PYTHONPATH', ''), *sys.argv[1:], sep='|')"


def told(program: str, path: str) -> list[str]:
    """Run *program* with a PYTHONPATH; return its prefix, that path, and an argument with a blank in it."""
    run = [program, "-c", TELL, "an argument"]
    return subprocess.run(run, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout.strip().split("|")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10.9.9-src.zip:/s/jars/spark-core.jar:/mine", "/s/jars/spark-core.jar:/mine"),
        ("/mine:/other", "/mine:/other"),
        ("", ""),
    ],
)
def test_it_is_the_running_python_without_sparks_archives(given: str, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else on the path stays, and so do the arguments."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert told(lean_python(), given) == [sys.prefix, left, "an argument"]
    assert lean_python() == lean_python()


def test_without_a_place_for_it_the_running_python_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs start as before, only slower."""
    (tmp_path / "tidegate").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lean_python() == sys.executable
