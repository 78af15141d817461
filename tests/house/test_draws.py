"""
What tests draw: the same on every machine, in every run.

Law: in the default profile, which examples a test gets depends on the test alone. Neither the other tests of its process, nor seeds, nor an
earlier run's database, nor the hashes of Python change them.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.repository import ROOT

DRAWN_FILE = "TIDEGATE_TEST_DRAWN_FILE"
# Functions that draw by chance, which the law of queries must find.
PLANTED = "tests/tidegate/testing/test_law.py"
CAMPAIGNS = ("tests/faults/", "tests/fuzz/run.py", "tests/support/chance.py", PLANTED)
"""Campaigns show their seed and take it back; containers draw free ports."""
WITHOUT_SEED = {"Random", "default_rng", "RandomState"}


@given(st.lists(st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9), min_size=50), st.integers(0, 2**63))
def test_drawn_values_are_written_where_they_are_asked_for(values: list[object], number: int) -> None:
    """Of use to the test below alone: constants of modules would be among them, if they were drawn."""
    if DRAWN_FILE in os.environ:
        with Path(os.environ[DRAWN_FILE]).open("a") as file:
            print(values, number, file=file)


def test_the_same_values_are_drawn_whatever_surrounds_a_test(tmp_path: Path) -> None:
    """With other modules imported, another seed, other hashes, in another process, as on a build server."""
    plain = _drawn(tmp_path / "plain", ())
    assert plain.count("\n") > 5
    other = "-p", "query.sql.bind", "-p", "query.local.run", "--hypothesis-seed=7", "-n", "1"
    assert _drawn(tmp_path / "other", other, CI="1", PYTHONHASHSEED="5") == plain


def _drawn(file: Path, arguments: tuple[str, ...], **variables: str) -> str:
    test = f"{Path(__file__).relative_to(ROOT)}::{test_drawn_values_are_written_where_they_are_asked_for.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, test]
    environment = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    subprocess.run(command, cwd=ROOT, env={**environment, **variables, DRAWN_FILE: str(file)}, check=True, capture_output=True)
    return file.read_text()


def test_no_test_draws_without_a_seed() -> None:
    """Chance outside of Hypothesis comes from seeds in the test or from ``support.chance``."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(CAMPAIGNS):
            wrong += [f"{name}:{line}" for line in _unseeded_calls(ast.parse(path.read_text("utf-8")))]
    assert wrong == []


def _unseeded_calls(module: ast.Module) -> list[int]:
    """Return the lines of calls such as ``random.choice(...)`` of the module ``random``, and of generators made without a seed."""
    imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    lines = []
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, called = node.func.value, node.func.attr
        of_random = isinstance(owner, ast.Name) and owner.id == "random" and "random" in imported
        is_unseeded = called in WITHOUT_SEED and not node.args
        if is_unseeded or called == "SystemRandom" or (of_random and called.islower() and called != "seed"):
            lines.append(node.lineno)
    return lines
