"""How much a batch may read."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ingest.planner.limits import _RANGE_EVENTS, Limits, choose_turn, deal_shares
from tidegate.platform.checkpoint.batch_cost import BatchCostWriter
from tidegate.platform.observe.reports import IngestReport

COUNTS = st.dictionaries(st.tuples(st.just("raw"), st.integers(0, 20)), st.integers(1, 10_000), min_size=1)


@given(COUNTS, st.integers(1, 50_000))
def test_all_that_is_allowed_is_dealt_out_and_no_partition_gets_more_than_it_has(behind: dict, allowed: int) -> None:
    """Shares add up to the smaller of what is allowed and what is there."""
    shares = deal_shares(behind, allowed)
    assert sum(shares.values()) == min(allowed, sum(behind.values()))
    assert all(0 < count <= behind[partition] for partition, count in shares.items())


@given(COUNTS, st.integers(1, 50_000))
def test_shares_differ_only_where_a_partition_has_no_more(behind: dict, allowed: int) -> None:
    """Who gets less than another by more than one has been given all it has."""
    shares = deal_shares(behind, allowed)
    most = max(shares.values())
    assert all(shares.get(partition, 0) >= most - 1 or shares.get(partition, 0) == count for partition, count in behind.items())


def test_one_event_a_batch_goes_to_the_partition_farthest_behind() -> None:
    """A limit below the number of partitions starves none for good."""
    assert deal_shares({("raw", 0): 5, ("raw", 1): 9, ("raw", 2): 1}, 1) == {("raw", 1): 1}


BACKLOGS = st.dictionaries(st.tuples(st.just("raw"), st.integers(0, 20)), st.integers(1, 5 * _RANGE_EVENTS), min_size=1)


@given(BACKLOGS, st.integers(1, 10 * _RANGE_EVENTS), st.integers(-1, 21), st.integers(1, 4))
def test_whose_turn_it_is_can_use_all_that_is_allowed_and_no_task_rests(behind: dict, allowed: int, last: int, tasks: int) -> None:
    """Also that none is left out where all fits, and that no smaller number of ranges would do that are worth their cost."""
    chosen = choose_turn(behind, allowed, ("raw", last), tasks)
    shares = deal_shares({partition: behind[partition] for partition in chosen}, allowed)
    assert sum(shares.values()) == min(allowed, sum(behind.values()))
    assert shares.keys() == set(chosen), "who is chosen gets something"
    assert len(chosen) >= min(tasks, allowed, len(behind))
    assert len(chosen) <= tasks or sum(min(behind[partition], _RANGE_EVENTS) for partition in chosen[:-1]) < allowed


@given(BACKLOGS, st.integers(1, 3 * _RANGE_EVENTS), st.integers(1, 4))
def test_every_partition_has_its_turn_before_another_has_a_second(behind: dict, allowed: int, tasks: int) -> None:
    """However far behind the others are."""
    served, last = list[tuple[str, int]](), ("", -1)
    while len(served) < len(behind):
        chosen = choose_turn(behind, allowed, last, tasks)
        served, last = served + chosen, chosen[-1]
    assert set(served[: len(behind)]) == behind.keys()


def test_of_many_partitions_far_behind_some_are_read_at_a_time(tmp_path: Path) -> None:
    """A range of a few events would cost more than they do."""
    limits = Limits(1_000_000, 2**30, 1_000_000, 2, tmp_path)
    behind = {("raw", number): 10_000_000 for number in range(64)}
    turns = [limits.plan_shares(behind) for _ in range(2)]
    assert [sorted(number for _, number in taken) for taken in turns] == [[*range(13)], [*range(13, 26)]]
    assert {share for taken in turns for share in taken.values()} == {500_000 // 13, 500_000 // 13 + 1}, "about _RANGE_EVENTS each"


def _after_a_batch(limits: Limits, notes: BatchCostWriter, behind: int, took_s: float, record_bytes: int = 60) -> int:
    allowed = sum(limits.plan_shares({("raw", 0): behind}).values())
    notes.accept_reports(
        [IngestReport("raw", 0, read=allowed, bytes=allowed * record_bytes, seconds={"read": took_s / 2, "write": took_s / 2})]
    )
    return allowed


def test_batches_grow_while_they_take_less_than_the_target(tmp_path: Path) -> None:
    """Each is at most twice as large as the one before."""
    limits, notes = Limits(1_000_000, 2**30, 500_000, 2, tmp_path), BatchCostWriter(tmp_path, 2)
    sizes = [_after_a_batch(limits, notes, 200_000, 0.01) for _ in range(4)]
    assert sizes == [50_000, 50_000, 100_000, 200_000]


def test_batches_shrink_while_they_take_longer_than_the_target(tmp_path: Path) -> None:
    """Down to half of the one before, and never to nothing; the first one paid for cold workers."""
    limits, notes = Limits(1_000_000, 2**30, 10_000, 2, tmp_path), BatchCostWriter(tmp_path, 2)
    sizes = [_after_a_batch(limits, notes, 50_000, 0.05) for _ in range(4)]
    assert sizes == [50_000, 50_000, 25_000, 12_500]


def test_far_behind_a_batch_may_take_longer(tmp_path: Path) -> None:
    """More than four batches behind, ten times as much is read at once."""
    limits = Limits(1_000_000, 2**30, 1_000_000, 2, tmp_path)
    assert [sum(limits.plan_shares({("raw", 0): behind}).values()) for behind in (200_000, 600_000)] == [50_000, 500_000]


def test_a_batch_stays_below_its_bytes(tmp_path: Path) -> None:
    """The size of records is learned from the batch before."""
    limits, notes = Limits(1_000_000, 1_000_000, 1_000_000, 2, tmp_path), BatchCostWriter(tmp_path, 2)
    _after_a_batch(limits, notes, 20_000, 0.0, record_bytes=10_000)
    assert sum(limits.plan_shares({("raw", 0): 20_000}).values()) == 100


def test_a_small_batch_that_took_long_changes_nothing(tmp_path: Path) -> None:
    """It tells of a cold start or a broker that was away, not of how fast events are."""
    limits, notes = Limits(1_000_000, 2**30, 10_000, 2, tmp_path), BatchCostWriter(tmp_path, 2)
    assert [_after_a_batch(limits, notes, 10, 0.05) for _ in range(3)] == [10, 10, 10]
    assert sum(limits.plan_shares({("raw", 0): 200_000}).values()) == 50_000
