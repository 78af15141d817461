"""A short share of the fault campaign (``make faults``): torn writes, a zombie, poison, and a Redis that forgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.play import Episode, Struck, play
from faults.troubles import Trouble, flush_redis, poison, stale_cti, torn_twice
from faults.variants import Variant
from faults.workload import Manner

if TYPE_CHECKING:
    from support.stack.servers import Stack

    from tidegate.platform.stack.embedded import EmbeddedStack

pytestmark = [pytest.mark.integration, pytest.mark.deep]


@pytest.fixture(scope="module", name="stack")
def _stack(own_stack: Stack) -> Stack:
    """These tests empty Redis."""
    return own_stack


SEED = 20240301


def test_torn_writes_zombies_and_a_redis_that_forgets_change_no_byte(stack: EmbeddedStack, tmp_path: Path) -> None:
    """
    Law, level 1, after each fault: equal to the oracle, promises kept, nothing lost, doubled or stalled.

    A batch is killed twice with part of it written; then an old driver writes its CTIs after newer ones, poison meets a dead-letter
    topic that takes little, and Redis is emptied.
    """
    torn, zombie = (
        Trouble("write torn twice", torn_twice, ("piece written", 2)),
        Trouble("stale CTIs of a zombie", stale_cti, ("events acknowledged", 2)),
    )
    faults = (torn, zombie, Trouble("poison", poison), Trouble("Redis emptied", flush_redis))
    variant = Variant(Manner(2, per_s=150, silences=True, all_silent=True, ahead=False), output_partitions=2)
    told: list[Struck] = []
    outcome = play(stack, tmp_path / "episode", Episode(variant, SEED, faults), told.append, bound_s=600)
    assert not outcome.broken, outcome.broken
    assert [struck.name for struck in told if struck.hit == "missed"] == [], "every fault found what it was to strike"
    assert outcome.duplicates > 0, "what was torn was written again"
    assert outcome.readers > 0
