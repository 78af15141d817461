"""
Every case of tests/cases: scripts, events, and results worked out by hand.

Levels 2 and 3 of the law: a case gives the same bytes in the same order however its files, and with them time, are cut;
with OVER (level 2) each substream's rows, without (level 3) all of them, depend on the events alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repository import ROOT

from query.local.case_files import find_case_folders, read_case
from query.local.case_run import CaseVerdict, run_case
from query.testing.case_law import check_case
from query.testing.disturbance import Disturbance
from query.testing.walk import Interruption

CASES = ROOT / "tests" / "cases"
FOLDERS = find_case_folders(CASES)
ONE_RECORD = 1
"""A block so small holds one record."""


def verdict_text(verdict: CaseVerdict) -> str:
    """Return what a case gave in place of what it should."""
    return "\n".join(f"{name} line {one.line}: {one}" for name, each in verdict.comparisons.items() for one in each.differences)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(CASES).as_posix())
def test_a_case_gives_what_was_worked_out_by_hand(folder: Path) -> None:
    """Whole files at once, and record by record."""
    case = read_case(folder, CASES)
    for block_bytes in (2**20, ONE_RECORD):
        verdict = run_case(case, block_bytes)
        assert verdict.is_good, verdict_text(verdict)


INTERRUPTION = st.builds(Interruption, st.integers(1, 12), st.sampled_from(["cut", "restart", "kill"]), st.integers(0, 3))
DISTURBANCE = st.one_of(
    st.lists(INTERRUPTION, min_size=1, max_size=4, unique=True).map(lambda drawn: Disturbance("interrupted", tuple(sorted(drawn)))),
    st.builds(Disturbance, st.sampled_from(["repeated", "torn", "started"]), place=st.integers(0, 12)),
    st.sampled_from([Disturbance("again"), Disturbance("shared")]),
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([folder for folder in FOLDERS if not (folder / "expected.error").exists()]), st.integers(1, 2_000), DISTURBANCE)
def test_any_cut_gives_the_same_bytes(folder: Path, block_bytes: int, disturbance: Disturbance) -> None:
    """
    Levels 2 and 3: where a file is cut, time is cut, and it shows in no result; nor does a worker that restarts or is killed, a log that is
    written again, a start in the middle, or work that is shared.
    """
    verdict = check_case(replace(read_case(folder, CASES), disturbance=str(disturbance)), block_bytes)
    assert verdict.is_good, verdict.broken_law + verdict_text(verdict)
