"""
What every test shares: how hard Hypothesis tries, which tests run side by side, and in which order.

Profiles of Hypothesis: the default draws few examples, also of tests that name a number, the same ones on every machine and in every run;
``deep`` draws many, others each time, for a night or a release. A failure prints what reproduces it. The summary says how many examples
were run, how many of them were runs of whole queries compared byte by byte, and how often tests killed what they test (their property
``kills``).
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.providers import Constants, HypothesisProvider
from support.durations import DURATIONS, read_durations, write_durations
from support.repository import ROOT
from support.stack.warm_jobs import HOST

if TYPE_CHECKING:
    from support.postgres_server import PostgresServer

# As the command line sets it, for this process and what it starts: numpy has not been imported yet.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Python's collector takes a fifth of the time of imports and collection if it comes every 700 objects.
gc.set_threshold(50_000, 20, 50)

_BASE = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of a test
)
_FEW = 15
# The same examples in every run, and none remembered from an earlier one.
settings.register_profile("default", _BASE, max_examples=_FEW, derandomize=True, database=None)
settings.register_profile("deep", _BASE, max_examples=900, derandomize=False)
settings.load_profile("default")

_RUN = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing")
_EXAMPLES = pytest.StashKey[list[tuple[str, int]]]()
_OWN_SETTINGS = "_hypothesis_internal_use_settings"
_OF_QUERIES = "test_law_of_kinds.py"
_took_s: Counter[str] = Counter()
_kills: list[int] = []
_SHARING_NOTHING = {
    "tests/integration/ingest/test_start.py",
    "tests/integration/operations/test_recovery.py",
    "tests/integration/query/test_plan_start.py",
    "tests/ordering/model/test_law.py",
    "tests/ordering/model/test_law_ctis.py",
    "tests/ordering/model/test_law_start.py",
    "tests/simulation/test_simulation.py",
}


@pytest.fixture(autouse=True)
def _logging_ends_with_its_test() -> Iterator[None]:
    """Remove what a test's commands have set up for logging: it writes to the standard error of that test, which is closed by then."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for the tests of one file."""
    from support.postgres_server import PostgresServer

    made = PostgresServer()
    yield made
    made.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for the order of files."""
    parser.addoption("--write-durations", action="store_true", help=f"write how long each file took into {DURATIONS.relative_to(ROOT)}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count examples, fix which ones are drawn, and begin the run that all its processes share a warm host in."""
    config.stash[_EXAMPLES] = []
    if settings.get_current_profile_name() == "default":
        # Hypothesis also draws the constants of our modules that happen to be imported. Which are depends on the tests that ran before, so
        # on how processes share them out.
        HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]
        # Nor is it worth a second of each process to look for them.
        providers._get_local_constants = Constants
    if not hasattr(config, "workerinput"):
        HOST.begin_run()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes longest first, so that no process is left alone with it in the end; leave deep tests to ``make test-deep``."""
    if not os.environ.get("TIDEGATE_TEST_ALL_CASES"):
        deep = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    if settings.get_current_profile_name() == "default":
        for item in items:
            own = getattr(getattr(item, "obj", None), _OWN_SETTINGS, None)
            if own is not None and own.max_examples > _FEW:
                setattr(item.obj, _OWN_SETTINGS, settings(own, max_examples=_FEW))  # type: ignore[attr-defined]
    took_s = read_durations()
    items.sort(key=lambda item: -took_s.get(item.path.relative_to(ROOT).as_posix(), 0.0))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have Python's collector pass over what stands to the end: tests and modules."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, because they share what is dear to make; those of long files that share nothing anywhere."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return nodeid if file in _SHARING_NOTHING else file

    # xdist's own groups are lost with pytest 9: it changes names of tests that are no longer read.
    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long the tests of each file take, and how often they kill."""
    _took_s[report.nodeid.partition("::")[0]] += report.duration
    if report.when == "call" and report.passed:
        _kills.extend(int(str(value)) for name, value in report.user_properties if name == "kills")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Count the examples that a Hypothesis test ran, from its statistics."""
    yield
    if call.when == "teardown":
        runs = _RUN.findall(getattr(item, "hypothesis_statistics", ""))
        if runs:
            count = sum(int(passed) + int(failed) for passed, failed in runs)
            item.config.stash[_EXAMPLES].append((item.path.name, count))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the number of examples to the process that began this one; that one writes the durations if it was asked to."""
    gc.unfreeze()  # else libraries take for leaks what is never collected
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["examples"] = session.config.stash[_EXAMPLES]
    elif session.config.getoption("write_durations"):
        write_durations(_took_s)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take them from a process that ran tests."""
    node.config.stash[_EXAMPLES].extend(getattr(node, "workeroutput", {}).get("examples", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many examples were run, and how often something was killed."""
    if _kills:
        terminalreporter.write_line(f"kill -9: {sum(_kills):,} times in {len(_kills)} tests, after which all was as it should be")
    counts = config.stash[_EXAMPLES]
    if counts:
        total, queries = sum(count for _, count in counts), sum(count for file, count in counts if file == _OF_QUERIES)
        profile = settings.get_current_profile_name()
        terminalreporter.write_line(
            f"Hypothesis: {total:,} examples in {len(counts)} tests (profile {profile}), {queries:,} of them runs of whole queries"
        )
