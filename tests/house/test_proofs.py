"""``tests/proofs.md`` says which tests prove which module, and it is true."""

from __future__ import annotations

from collections import Counter

from support.proofs import files_of_tests, modules, reached, read_table

MEND = "run: .venv/bin/python tests/support/proofs.py, then correct what it proposes in tests/proofs.md"
AS_A_PROCESS = ("tests/integration/", "tests/examples/")
"""Tests that run commands as processes: what a module does there their imports do not tell."""


def test_every_module_is_named_once_with_its_tests() -> None:
    """Whoever adds, moves or deletes a module changes the table."""
    rows = read_table()
    named = Counter(module for module, _ in rows)
    assert (sorted(named), max(named.values())) == (modules(), 1), MEND
    assert not [module for module, tests in rows if not tests], MEND


def test_the_tests_exist_and_reach_what_they_prove() -> None:
    """By their imports, or by those of what they import."""
    existing = set(files_of_tests())
    wrong = [
        (module, test)
        for module, tests in read_table()
        for test in tests
        if test not in existing or (module not in reached(test) and not test.startswith(AS_A_PROCESS))
    ]
    assert not wrong, MEND
