"""Packages of the examples, installed as their users would install them, without touching the environment of the tests."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def install(package: Path, site: Path) -> dict[str, str]:
    """Install a package into a folder; return the environment in which a process finds it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(site), str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))}


@contextmanager
def installed_here(package: Path, site: Path) -> Iterator[None]:
    """Have this process, and those that it starts meanwhile, find a package."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = install(package, site)["PYTHONPATH"]
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
