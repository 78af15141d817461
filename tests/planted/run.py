"""
Plants each bug in a copy of the repository and runs the test that must catch it: ``python tests/planted/run.py``.

Law: a bug counts as caught only if its test fails in the copy with the bug and passes in the copy without; a run that breaks
down for another reason is no catch. Hypothesis draws the same examples in every run, so the answer is always the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    # Not this folder, which Python puts there: its modules stand in the package `planted`.
    sys.path[:1] = [str(Path(__file__).resolve().parents[1])]

from planted.bug import ROOT, Bug
from planted.bugs import BUGS, table

_COPIED = ("ordering", "ingest", "query", "sinks", "tidegate", "tests", "docs", "pyproject.toml", "README.md", "hatch_build.py")
_CONFTEST = """
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

import ordering

assert Path(ordering.__file__).is_relative_to(Path(__file__).parent), "the tests of the copy import another ordering"

settings.register_profile(
    "planted",
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
"""
"""
Stands at the root of the copy. If it does not hold, pytest returns neither 0 nor 1. The examples are the same in every run, and
a failure is not made smaller: that would take most of the time.
"""

PASSED, FAILED = 0, 1
"""What pytest returns when all tests passed, and when some failed; anything else is neither."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What pytest returned in a copy, how long it took in seconds, and what it said."""

    returned: int
    seconds: float
    said: str


def run_tests(tests: Iterable[str], bug: Bug | None = None) -> Outcome:
    """Run *tests*, given by node id, in a copy of the repository with *bug* planted, or with none."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder).resolve()
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                # Bytecode holds for copies, which keep the times of their sources; but what pytest compiled names the source itself.
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("*-pytest-*", ".*"))
            else:
                shutil.copy2(source, copy / name)
        (copy / "conftest.py").write_text(_CONFTEST, "utf-8")
        if bug is not None:
            bug.plant(copy)
        options = ["-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-profile=planted"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return Outcome(done.returncode, time.monotonic() - started, done.stdout)


def verdict(bug: Bug) -> tuple[str, Outcome]:
    """Plant one bug; return ``caught``, ``MISSED`` or ``BROKEN`` (the test could not be run), and what happened."""
    try:
        outcome = run_tests([bug.test], bug)
    except LookupError as error:
        return "BROKEN", Outcome(-1, 0, str(error))
    return {FAILED: "caught", PASSED: "MISSED"}.get(outcome.returned, "BROKEN"), outcome


def run(bugs: list[Bug], workers: int, tell: Callable[[str], None] = print) -> bool:
    """Plant *bugs*, *workers* at a time; tell of each as it ends; return whether all were caught by tests that pass without them."""
    started, wrong = time.monotonic(), 0
    with ThreadPoolExecutor(workers) as pool:
        # First, because it takes longest: what fails by itself catches nothing.
        sound = pool.submit(run_tests, sorted({bug.test for bug in bugs}))
        for bug, (what, outcome) in _judged(pool, bugs):
            wrong += what != "caught"
            tell(f"{what}  {outcome.seconds:5.1f} s  {bug.file:<15} {bug.name:<42} {bug.test.split('::')[1]}")
            if what == "BROKEN":
                tell(outcome.said)
        without = sound.result()
    if without.returned != PASSED:
        tell(f"without any bug the tests do not pass, so they prove nothing:\n{without.said}")
    tell(f"{len(bugs) - wrong} of {len(bugs)} planted bugs caught, {time.monotonic() - started:.0f} s")
    return not wrong and without.returned == PASSED


def _judged(pool: ThreadPoolExecutor, bugs: list[Bug]) -> Iterator[tuple[Bug, tuple[str, Outcome]]]:
    return zip(bugs, pool.map(verdict, bugs), strict=True)


def main() -> int:
    """Run the command line; return 0 if every bug was caught."""
    parser = argparse.ArgumentParser(prog="python tests/planted/run.py", description="Plants bugs and tells which tests catch them.")
    parser.add_argument("--table", action="store_true", help="print the table of docs/reference/planted-bugs.md; plant nothing")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="so many at a time (2)")
    parser.add_argument("names", nargs="*", metavar="BUG", help="only these")
    options = parser.parse_args()
    if options.table:
        print(table(), end="")
        return 0
    if unknown := set(options.names) - {bug.name for bug in BUGS}:
        parser.error(f"no such bug: {', '.join(sorted(unknown))}")
    return 0 if run([bug for bug in BUGS if not options.names or bug.name in options.names], options.workers) else 1


if __name__ == "__main__":
    sys.exit(main())
