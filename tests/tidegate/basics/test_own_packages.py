"""Programs of users: what they import has a name of ours alone, and a module of theirs that hides one of ours is named, with the fix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ordering
import query.api
import query.extending
import sinks.base
import sinks.extending
import sinks.registry
import tidegate.ordering
import tidegate.query.api
import tidegate.query.extending
import tidegate.sinks.base
import tidegate.sinks.extending
import tidegate.sinks.registry
from tidegate.basics import own_packages
from tidegate.basics.own_packages import PACKAGES, find_intruder

DOORS = [
    (tidegate.query.api, query.api),
    (tidegate.query.extending, query.extending),
    (tidegate.sinks.extending, sinks.extending),
    (tidegate.sinks.base, sinks.base),
    (tidegate.sinks.registry, sinks.registry),
]
NEEDS = {
    "from tidegate.ordering import Policies": "ordering",
    "from tidegate.query.api import column": "query",
    "from tidegate.query.extending import ScalarFunction": "query",
    "from tidegate.sinks.extending import Store": "sinks",
    "from tidegate.sinks.registry import SinkContext": "sinks",
}
"""A line of a program, and the package of ours that it needs most."""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in *folder*, whose path begins with it."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("door", "module"), DOORS, ids=lambda module: module.__name__)
def test_a_name_under_tidegate_is_the_same_object(door: ModuleType, module: ModuleType) -> None:
    """Whatever is imported by either name is one class: isinstance and registration do not tell them apart."""
    assert door.__all__
    assert all(getattr(door, member) is getattr(module, member) for member in door.__all__)
    public = getattr(module, "__all__", None)
    assert public is None or sorted(public) == sorted(door.__all__)


def test_the_model_under_tidegate_is_the_model() -> None:
    """All public names; a misspelt one is an ordinary error."""
    door = tidegate.ordering
    assert door.__all__ == ordering.__all__
    assert all(getattr(door, member) is getattr(ordering, member) for member in ordering.__all__)
    assert set(ordering.__all__) <= set(dir(door))
    assert not hasattr(door, "Polices")


def test_tidegate_alone_imports_none_of_them(tmp_path: Path) -> None:
    """The doors cost only those who go through them."""
    shown = run(tmp_path, "-c", f"import sys, tidegate; print({{*{PACKAGES!r}}} & set(sys.modules))")
    assert shown.stdout == "set()\n"


@pytest.mark.parametrize("line", NEEDS)
def test_a_module_of_the_user_that_hides_ours_is_named_and_either_fix_helps(line: str, tmp_path: Path) -> None:
    """Beside a program, and in the working folder of ``python -c`` and of notebooks. Nothing of the module is run."""
    hiding = tmp_path / f"{NEEDS[line]}.py"
    hiding.write_text("print('the code of the user runs')\n")
    (tmp_path / "main.py").write_text(f"{line}\nprint('imported')\n")
    for arguments in (["main.py"], ["-c", line]):
        failed = run(tmp_path, *arguments)
        assert failed.returncode == 1
        assert f"TG-SHADOWED: '{NEEDS[line]}' is {hiding}, not Tidegate's own package" in failed.stderr
        assert (
            f"fix: rename {hiding.name}, or take its folder off Python's path: PYTHONPATH, and for the working folder PYTHONSAFEPATH=1"
            in failed.stderr
        )
        assert failed.stdout == ""
    assert run(tmp_path, "main.py", PYTHONSAFEPATH="1").stdout == "imported\n"
    hiding.rename(tmp_path / "renamed.py")
    assert run(tmp_path, "main.py").stdout == "imported\n"


def test_without_the_prefix_python_itself_fails_and_the_prefix_names_the_fix(tmp_path: Path) -> None:
    """As the manual says: no code of ours runs in ``import query.api`` beside a ``query.py``, so none could give a hint."""
    (tmp_path / "query.py").touch()
    failed = run(tmp_path, "-c", "import query.api")
    assert "No module named 'query.api'; 'query' is not a package" in failed.stderr
    assert "TG-SHADOWED" in run(tmp_path, "-c", "import tidegate.query.api").stderr


def test_a_program_that_bears_our_name_is_told_before_it_runs_twice(tmp_path: Path) -> None:
    """``python query.py`` imports ``query``, which would be itself."""
    (tmp_path / "query.py").write_text("print('once')\nfrom tidegate.query.api import column\n")
    failed = run(tmp_path, "query.py")
    assert failed.stdout == "once\n"
    assert "TG-SHADOWED" in failed.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_a_command_whose_path_has_such_a_module_says_so_without_a_traceback(name: str, tmp_path: Path) -> None:
    """Even ``ordering.py``, without which no error could be built."""
    (tmp_path / f"{name}.py").touch()
    failed = run(tmp_path, "-m", "tidegate", "lint", "x.sql", PYTHONPATH=str(tmp_path))
    assert failed.returncode == 2
    assert f"TG-SHADOWED: '{name}' is {tmp_path / name}.py" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "TG-QUERY-FILE" in run(tmp_path, "-m", "tidegate", "lint", "x.sql").stdout, "the working folder alone does no harm"


def test_a_module_made_by_hand_is_an_intruder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no spec to find it by."""
    monkeypatch.setitem(sys.modules, "query", type(sys)("query"))
    intruder = find_intruder()
    assert intruder is not None
    assert intruder.name == "query"
    with pytest.raises(ImportError, match="TG-SHADOWED"):
        own_packages.require_own("query")
