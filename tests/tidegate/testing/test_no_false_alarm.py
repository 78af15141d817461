"""
``law_of`` accuses no correct query: a thousand are drawn, with other events for each. Levels 2 and 3.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.chance import dice_of
from support.composed_scripts import compose_scripts
from support.correct_queries import INPUT, ROWS, TABLES, draw_query
from support.query_kinds import FUNCTION_TABLES, KINDS

from query.testing import law
from tidegate.testing import law_of

QUERIES, SHARES, FEW = 1_000, 20, 3


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The functions in JavaScript that kinds of queries call."""
    path = tmp_path_factory.mktemp("functions") / "tidegate.toml"
    path.write_text(FUNCTION_TABLES)
    return path


def check_drawn(dice: random.Random, count: int, config: Path, monkeypatch: pytest.MonkeyPatch, examples: int = law.EXAMPLES) -> None:
    """Put queries under the law; one that fails is printed."""
    for _ in range(count):
        query = draw_query(dice)
        monkeypatch.setattr(law, "_SEED", dice.randrange(2**32))
        print(query.sql, query.policies)
        law_of(
            query.sql,
            {INPUT: ROWS},
            policies=query.policies,
            functions=query.functions,
            references=TABLES,
            config=config,
            examples=examples,
            shrink_s=0,
        )


@pytest.mark.deep
@pytest.mark.parametrize("share", range(SHARES))
def test_a_thousand_correct_queries_are_not_accused(share: int, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL of every kind, functions, aggregates and an operator; with default settings."""
    check_drawn(dice_of(f"correct queries {share}"), QUERIES // SHARES, config, monkeypatch)


def test_a_few_correct_queries_are_not_accused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of those."""
    check_drawn(dice_of("a few correct queries"), FEW, config, monkeypatch, examples=1)


@pytest.mark.parametrize("kind", ["scripted", "scripted_windows", *(kind for kind, script in sorted(KINDS.items()) if "JOIN r " in script)])
def test_kinds_that_need_more_than_a_script_are_not_accused(kind: str, config: Path) -> None:
    """Functions in JavaScript, and reference data."""
    sql = compose_scripts([kind], over=False, unit="second")
    law_of(sql, {INPUT: ROWS}, references=TABLES if "JOIN r " in sql else None, config=config, examples=1)
