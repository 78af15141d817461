"""One round of the campaign over chains (``make faults ONLY=chains``): stages live at once, killed alone and together, and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.chains import MISSED, Shape, play_chain
from support.postgres_server import PostgresServer

if TYPE_CHECKING:
    from support.stack.servers import Stack

    from tidegate.platform.stack.embedded import EmbeddedStack

# What one round adds is that all comes together what `make test` plays alone: a chain that is killed with its JVM (test_run.py), a table
# beside a query that dies (test_beside_query.py), files of a killed job (test_query.py), servers that die (test_stack_faults.py), and
# result logs of killed queries that a next one reads (tests/query/buckets/test_result_logs.py).
pytestmark = [pytest.mark.integration, pytest.mark.deep]
SEED = 20260301


@pytest.fixture(scope="module", name="stack")
def _stack(own_stack: Stack) -> Stack:
    """These tests kill servers."""
    return own_stack


def test_a_chain_of_killed_stages_writes_what_a_quiet_replay_writes(
    stack: EmbeddedStack, postgres: PostgresServer, tmp_path: Path, record_property: pytest.FixtureRequest
) -> None:
    """
    Law, levels 1 and 3: CSV, imported CTIs, a query with OVER, a join of its results with raw input, and a query over that.

    Kills of one stage, at a point in a batch, of all stages and servers, and a lost checkpoint: six strikes have each kind.
    """
    shape = Shape("csv", "created", 2, over=True, second_over=False, third_over=False, imports=True)
    outcome = play_chain(stack, postgres, tmp_path / "chain", SEED, shape=shape, alone=False)
    assert not outcome.broken, outcome.broken
    assert outcome.struck[MISSED] < outcome.struck.total()
    assert outcome.compared > 1_000, "there was something to compare"
    assert outcome.rows > 100, "the files, the plain topic and the table hold results"
    assert outcome.dead > 0, "some records cannot be read"
    record_property("kills", outcome.kills.total())  # type: ignore[operator]
