"""The warm host of integration tests imports what jobs import, before they start."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.repository import ROOT
from support.stack.warm_host import IMPORTED


@pytest.mark.parametrize("name", IMPORTED)
def test_what_the_host_imports_is_there(name: str) -> None:
    """Whoever moves a module corrects its name: else no integration test could start a job."""
    assert find_spec(name) is not None


def test_a_host_without_a_jvm_ends_alone() -> None:
    """Its own group has pytest in it, and whoever has started that: signals must not reach them."""
    program = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'tests')!r}]; from support.stack.warm_jobs import HOST; HOST.program(); HOST.end_run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('alive')"], start_new_session=True, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
