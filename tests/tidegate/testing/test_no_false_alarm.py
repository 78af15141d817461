"""
``law_of`` accuses no correct query: a thousand are drawn, with other events for each. Levels 2 and 3.
"""

from __future__ import annotations

import random

import pytest
from support.chance import dice_of
from support.correct_queries import INPUT, ROWS, draw_query

from tidegate.testing import law, law_of

QUERIES, SHARES, FEW = 1_000, 20, 3


def check_drawn(dice: random.Random, count: int, monkeypatch: pytest.MonkeyPatch, examples: int = law.EXAMPLES) -> None:
    """Put queries under the law; one that fails is printed."""
    for _ in range(count):
        query = draw_query(dice)
        monkeypatch.setattr(law, "_SEED", dice.randrange(2**32))
        print(query.sql, query.policies)
        law_of(query.sql, {INPUT: ROWS}, policies=query.policies, functions=query.functions, examples=examples, shrink_s=0)


@pytest.mark.deep
@pytest.mark.parametrize("share", range(SHARES))
def test_a_thousand_correct_queries_are_not_accused(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL of every kind, functions, aggregates and an operator; with default settings."""
    check_drawn(dice_of(f"correct queries {share}"), QUERIES // SHARES, monkeypatch)


def test_a_few_correct_queries_are_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of those."""
    check_drawn(dice_of("a few correct queries"), FEW, monkeypatch, examples=1)
