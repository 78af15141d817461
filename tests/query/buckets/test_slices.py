"""Results that leave in slices, with a limit on joins: slices, batches and restarts cannot be seen (law, levels 2 and 3)."""

from __future__ import annotations

import random
from collections import Counter
from unittest.mock import patch

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.bucket_runs import bucket_of, raws, run_bucket, works_of
from support.budgets import budget_of
from support.query_kinds import KINDS, REFERENCE, plans_of

from query.engine.program import Program
from tidegate.language.expressions.evaluation import evaluate as evaluation

SOME = settings(max_examples=max(settings().max_examples // 3, 1))
PAIRS_MAX = 1
SEEDS = st.integers(0, 2**32)


def program_of(kind: str, over: bool) -> Program:
    """A query whose joins make few pairs of a key at one instant."""
    return Program(plans_of(kind, over=over, typed=False), references={REFERENCE.schema.name: REFERENCE}, join_pairs_max=PAIRS_MAX)


@SOME
@given(st.sampled_from(sorted(KINDS)), st.booleans(), st.data(), SEEDS, st.integers(1, 3))
def test_slices_cannot_be_seen(kind: str, over: bool, data: st.DataObject, seed: int, partitions: int) -> None:
    """
    Level 2: the smallest slices in any batches give the sequence, and the dead letters, of one batch in one piece. Level 3: so does
    another topic of the same events, so a limited join leaves out the same pairs.
    """
    raw = data.draw(raws(over))
    topic = raw.topic(seed, 1, over=over)
    (work,) = works_of(topic, over=over)
    make = lambda: bucket_of(program_of(kind, over), topic, work, over=over)  # noqa: E731
    lines = dict(enumerate(topic.partitions))
    whole = run_bucket(make, lines)
    with (
        budget_of(bytes=1, released_bytes=1, repeated_bytes=1, pairs=2),
        patch.object(evaluation, "RETURNED_BYTES_MAX", 1),
    ):
        cut = run_bucket(make, lines, cuts=random.Random(seed))
    event(f"left out {any('join too large' in reason for *_, reason in whole.bad)}")
    assert cut.rows == whole.rows
    assert Counter(cut.bad) == Counter(whole.bad)
    if not over:
        other = raw.topic(seed + 1, partitions, over=False)
        again = run_bucket(
            lambda: bucket_of(program_of(kind, over), other, [*range(partitions)], over=over), dict(enumerate(other.partitions))
        )
        assert again.rows == whole.rows
        assert Counter(again.bad) == Counter(whole.bad)
