"""
What every test shares: how hard Hypothesis tries, and how hard it did.

``pytest --hypothesis-profile=deep`` is for a night or a release, ``ci`` draws the same examples on every machine, the
default draws others each time and prints what reproduces a failure. The summary tells how many examples were run, and how many
of them were runs of whole queries held against each other byte by byte.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_SLOW_MACHINES = [HealthCheck.too_slow]  # a busy machine is no fault of a test

settings.register_profile("default", max_examples=150, deadline=None, print_blob=True, suppress_health_check=_SLOW_MACHINES)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("deep", settings.get_profile("default"), max_examples=900)
settings.load_profile("ci" if os.environ.get("CI") else "default")

_RUN = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing")
_EXAMPLES = pytest.StashKey[list[tuple[str, int]]]()
_OF_QUERIES = "test_law_of_kinds.py"


@pytest.fixture(autouse=True)
def _logging_ends_with_its_test() -> Iterator[None]:
    """Take down what a test's commands have set up for logging: it writes to the standard error of that test, which is closed by then."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count the examples."""
    config.stash[_EXAMPLES] = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Count the examples that a Hypothesis test ran, as Hypothesis tells them."""
    yield
    if call.when == "teardown":
        told = _RUN.findall(getattr(item, "hypothesis_statistics", ""))
        if told:
            count = sum(int(passed) + int(failed) for passed, failed in told)
            item.config.stash[_EXAMPLES].append((item.path.name, count))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that began this one how many examples were run."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["examples"] = session.config.stash[_EXAMPLES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear it from a process that ran tests."""
    node.config.stash[_EXAMPLES].extend(getattr(node, "workeroutput", {}).get("examples", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell how many examples were run."""
    counts = config.stash[_EXAMPLES]
    if counts:
        total, queries = sum(count for _, count in counts), sum(count for file, count in counts if file == _OF_QUERIES)
        profile = settings.get_current_profile_name()
        terminalreporter.write_line(
            f"Hypothesis: {total:,} examples in {len(counts)} tests (profile {profile}), {queries:,} of them runs of whole queries"
        )
