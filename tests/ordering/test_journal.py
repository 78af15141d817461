"""The journal in memory, which is the model of the others: estimates only rise, closed stays closed, the first base wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordering.journal import JournalKey, MemoryJournal

KEY = JournalKey("flights.ordered", "id", 0)
calls = st.lists(st.tuples(st.sampled_from(["estimate", "close"]), st.integers(0, 5), st.integers(0, 9)), max_size=30)


@given(calls)
def test_estimates_only_rise_and_never_change_once_closed(steps: list[tuple[str, int, int]]) -> None:
    """The law of the journal, whatever is called in whatever order."""
    journal = MemoryJournal()
    for name, position, frontier_us in steps:
        before, closed = dict(journal.estimates(KEY, 0, 9)), journal.closed(KEY)
        answer = journal.estimate(KEY, position, frontier_us) if name == "estimate" else journal.close(KEY, position)
        after = dict(journal.estimates(KEY, 0, 9))
        assert journal.closed(KEY) >= closed
        assert all(after[at] == value if at < closed else after[at] >= value for at, value in before.items())
        if name == "estimate":
            assert answer == (None if position < closed else max(frontier_us, before.get(position, 0)))
            assert (position in after) == (position >= closed or position in before)


@given(calls, st.integers(0, 5), st.integers(0, 5))
def test_what_is_read_is_what_is_in_force_in_the_range(steps: list[tuple[str, int, int]], start: int, end: int) -> None:
    """Both ends belong to the range, positions rise."""
    journal, in_force = MemoryJournal(), dict[int, int]()
    for name, position, frontier_us in steps:
        if name == "close":
            journal.close(KEY, position)
        elif (value := journal.estimate(KEY, position, frontier_us)) is not None:
            in_force[position] = value
    assert journal.estimates(KEY, start, end) == sorted((at, value) for at, value in in_force.items() if start <= at <= end)


def test_the_first_base_wins() -> None:
    """Whoever comes later takes it; other partitions have their own."""
    journal = MemoryJournal()
    assert [journal.base(KEY, 5), journal.base(KEY, 3), journal.base(KEY._replace(partition=1), 3)] == [5, 5, 3]
