"""A share of the query campaign (``make faults ONLY=queries``) in which every kind of query has its turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.queries import play_round
from faults.query_campaign import dealt, size_of
from support.chance import dice_of
from support.query_kinds import KINDS

if TYPE_CHECKING:
    from tidegate.platform.stack.embedded import EmbeddedStack

pytestmark = [pytest.mark.integration, pytest.mark.deep]


def test_queries_that_are_killed_write_what_one_uncut_run_and_plain_python_write(stack: EmbeddedStack, tmp_path: Path) -> None:
    """
    Law, level 2 with OVER and level 3 without: over an ordered topic with gaps and rewrites, killed, with other cores in
    each life; then begun at a random time, which gives the suffix (level 3).
    """
    dice, rounds, midway, covered = dice_of("query campaign"), 1, 0, set[str]()
    for kinds in dealt(dice):
        folder = tmp_path / f"round-{rounds}"
        outcome = play_round(stack, folder, dice.randrange(2**32), kinds, kills=3, size=size_of(rounds), both=True)
        assert not outcome.broken, f"round {rounds}: {outcome.broken}"
        assert outcome.kills.total() >= 3, "it was killed"
        midway += outcome.midway
        assert outcome.compared > 100, "there were results to compare"
        assert outcome.rewritten > 0, "the ordered topic was written again in part"
        assert outcome.suffixes > 0
        rounds, covered = rounds + 1, covered | set(kinds)
        if covered == set(KINDS):
            break
    assert midway > 0, "some were killed midway"
