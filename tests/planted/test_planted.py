"""The planted bugs stay what they are: each can be planted, each names a test, the page lists them, and three are caught here."""

from __future__ import annotations

import ast

import pytest
from planted.bug import ROOT, Bug
from planted.bugs import BUGS, table
from planted.run import run_tests, verdict

QUICK = ("adjusted-to-the-maximum", "partition-by-absolute-value", "merge-by-maximum")
"""Bugs whose tests need no drawn examples, or few: all of them are caught by ``make planted``."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_what_a_bug_replaces_stands_there_exactly_once(bug: Bug) -> None:
    """A changed source file must not leave a bug behind that is planted nowhere, or no bug."""
    assert (ROOT / bug.path).read_text("utf-8").count(bug.old) == 1
    assert bug.new != bug.old


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_test_that_catches_a_bug_exists(bug: Bug) -> None:
    """A node id that names nothing would make pytest fail, but for the wrong reason."""
    file, name = bug.test.split("::")
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_two_bugs_are_the_same() -> None:
    """Each has a name and a change of its own."""
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert len({(bug.file, bug.old, bug.new) for bug in BUGS}) == len(BUGS)


@pytest.mark.heavy
@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught(name: str) -> None:
    """The runner tells so, for some of them; the test passes in a copy without the bug."""
    bug = next(bug for bug in BUGS if bug.name == name)
    what, outcome = verdict(bug)
    assert what == "caught", outcome.said


@pytest.mark.heavy
def test_without_a_bug_the_tests_pass() -> None:
    """So it is the bug that they catch, not the copying."""
    outcome = run_tests(sorted({bug.test for bug in BUGS if bug.name in QUICK}))
    assert outcome.returned == 0, outcome.said


def test_the_page_lists_every_bug() -> None:
    """docs/reference/planted-bugs.md bears the table as ``python tests/planted/run.py --table`` prints it."""
    assert table() in (ROOT / "docs" / "reference" / "planted-bugs.md").read_text("utf-8")
