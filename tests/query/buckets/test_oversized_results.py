"""Results that their topic does not take: dead letters, and nothing else changes."""

from __future__ import annotations

import random

import pytest
from support.bucket_runs import Query, Row, dense, run_bucket

from tidegate.basics.dead_letter_reasons import QueryReason

LIMIT = 40


def size(row: Row) -> int:
    """Return the bytes of a result's key and value."""
    return len(row[1] or b"") + len(row[2])


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("kind", ["passed_on", "collected", "joined"])
def test_an_oversized_result_is_left_out_of_the_channel_and_told(kind: str, over: bool) -> None:
    """Level 2: the others keep their order and get numbers without gaps, however batches are cut; the dead letters are those left out."""
    query, topic = Query(kind, over), dense(7).topic(7, 2, over=True)
    oversized = 0
    for work in query.works(topic):
        lines = {at: topic.partitions[at] for at in work}
        whole = run_bucket(lambda work=work: query.bucket(topic, work), lines)
        for cuts in (None, random.Random(3), random.Random(4)):
            found = run_bucket(lambda work=work: query.bucket(topic, work, result_bytes_max=[LIMIT]), lines, cuts=cuts)
            found.check()
            assert found.rows == [[row for row in rows if size(row) <= LIMIT] for rows in whole.rows]
            told = sorted(value for _, value, reason in found.bad if is_oversized(reason))
            assert told == sorted(row[2] for rows in whole.rows for row in rows if size(row) > LIMIT)
            oversized += len(told)
    assert oversized


def is_oversized(reason: str) -> bool:
    """Tell whether a reason is that a result is too large."""
    return reason.startswith(QueryReason.RESULT_TOO_LARGE.partition("{")[0])
