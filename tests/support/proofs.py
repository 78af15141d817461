"""
Which tests prove which module: ``tests/proofs.md``, checked by ``tests/house/test_proofs.py``.

``python tests/support/proofs.py`` brings the table up to date: rows of modules that are gone go, a module without a row gets
one with a proposal. Whoever adds a module reads the proposal and corrects it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "proofs.md"
PACKAGES = ("ordering", "ingest", "query", "sinks", "tidegate")
_NAMED_MAX = 3
_ROW = re.compile(r"\| `([\w/.]+)` \| (.*) \|")
_HEAD = """\
# Which tests prove which module

You have changed `query/lint.py`: `grep 'query/lint.py' tests/proofs.md` names the tests to run.

`tests/house/test_proofs.py` checks that every module has one row, that its tests exist, and that they reach it by their imports,
unless they run it as a process (`tests/integration/`, `tests/examples/`). If a module comes or moves, run
`python tests/support/proofs.py` and correct what it proposes.

"""


def modules() -> list[str]:
    """Return the modules that need proof: all but packages that only say what lives in them."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths if path.name != "__init__.py" or _has_code(path))


def _has_code(path: Path) -> bool:
    kinds = ast.Expr, ast.Import, ast.ImportFrom, ast.Assign
    return any(not isinstance(node, kinds) for node in ast.parse(path.read_text("utf-8")).body)


def files_of_tests() -> list[str]:
    """Return all files of tests."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


def read_table() -> list[tuple[str, list[str]]]:
    """Return module and tests of each row."""
    rows = _ROW.findall(TABLE.read_text("utf-8")) if TABLE.exists() else []
    return [(module, re.findall(r"`([^`]+)`", tests)) for module, tests in rows]


@cache
def _imports(file: str) -> frozenset[str]:
    """Return the files that a file imports, also by a name in a string, as for what is loaded late."""
    text = (ROOT / file).read_text("utf-8")
    names = set(re.findall(r"[\"'`]((?:\w+\.)+\w+)[\"'`:]", text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(path for name in names for path in _paths(name))


@cache
def _paths(name: str) -> tuple[str, ...]:
    stem = name.replace(".", "/")
    places = (f"{stem}.py", f"{stem}/__init__.py", f"{stem}/__main__.py", f"tests/{stem}.py")
    return tuple(place for place in places if (ROOT / place).is_file())


@cache
def reached(file: str) -> frozenset[str]:
    """Return all that a file imports, itself or by what it imports."""
    found, left = {file}, [file]
    while left:
        new = _imports(left.pop()) - found
        found |= new
        left += new
    return frozenset(found)


def propose(module: str) -> list[str]:
    """Return tests that are likely to prove a module: those of its planted bugs, named like it, importing it, of its room ..."""
    from planted.bugs import BUGS

    folder, name = module.rpartition("/")[0], Path(module).stem
    tests = [test for test in files_of_tests() if not test.startswith(("tests/integration/", "tests/planted/", "tests/benchmarks/"))]
    planted = [bug.test.partition("::")[0] for bug in BUGS if bug.path == module]
    like = [test for test in tests if test == f"tests/{folder}/test_{name}.py"]
    importing = [test for test in tests if module in _imports(test)]
    near = [test for test in importing if test.startswith(f"tests/{folder}/")]
    sure = [*like, *planted]
    room = [test for test in tests if test.rpartition("/")[0] == f"tests/{folder}" and module in reached(test)]
    users = {user for user in modules() if module in _imports(user)}
    second = [test for test in tests if users & _imports(test)]
    reaching = [test for test in tests if module in reached(test) and test.startswith(f"tests/{folder.partition('/')[0]}/")]
    for choice in (sure if like else [], [*sure, *near, *importing], room, second, reaching):
        if choice:
            return list(dict.fromkeys(choice))[:_NAMED_MAX]
    return []


def write_table(rows: Iterable[tuple[str, list[str]]]) -> None:
    """Write the table, one section for each folder."""
    lines, folder = [_HEAD], ""
    for module, tests in sorted(rows, key=lambda row: (row[0].rpartition("/")[0], row[0])):
        here = module.rpartition("/")[0]
        if here != folder:
            lines.append(f"{'' if not folder else chr(10)}## {here}/\n| module | tests |\n|---|---|\n")
            folder = here
        lines.append(f"| `{module}` | {' '.join(f'`{test}`' for test in tests)} |\n")
    TABLE.write_text("".join(lines), "utf-8")


def main() -> None:
    """Bring the table up to date."""
    known, existing = dict(read_table()), set(files_of_tests())
    rows = []
    for module in modules():
        tests = [test for test in known.get(module, []) if test in existing]
        if not tests:
            tests = propose(module)
            print(f"{module}: {' '.join(tests) or 'no test found: name one'}")
        rows.append((module, tests))
    write_table(rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    main()
