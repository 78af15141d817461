"""The journal in memory, which is the model of the others: facts only rise, closed stays closed, the first base wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.journal import JournalKey, MemoryJournal

KEY = JournalKey("flights.ordered", "id", 0)
calls = st.lists(st.tuples(st.sampled_from(["estimate", "import", "close"]), st.integers(0, 5), st.integers(0, 9)), max_size=30)


def call(journal: MemoryJournal, name: str, position: int, value_us: int) -> int | None:
    """Do one drawn call; return its answer."""
    if name == "close":
        return journal.close(KEY, position)
    return journal.estimate(KEY, position, value_us) if name == "estimate" else journal.import_cti(KEY, position, value_us)


def facts(journal: MemoryJournal) -> dict[str, dict[int, int]]:
    """Return all that is in force, by the call that brings it."""
    return {"estimate": dict(journal.estimates(KEY, 0, 9)), "import": dict(journal.imports(KEY, 0, 9))}


@given(calls)
def test_facts_only_rise_and_never_change_once_closed(steps: list[tuple[str, int, int]]) -> None:
    """The law of the journal, whatever is called in whatever order; estimates and imports keep apart."""
    journal = MemoryJournal()
    for name, position, value_us in steps:
        before, closed = facts(journal), journal.closed(KEY)
        answer = call(journal, name, position, value_us)
        after = facts(journal)
        assert journal.closed(KEY) >= closed
        for kind, known in before.items():
            assert all(after[kind][at] == value if at < closed else after[kind][at] >= value for at, value in known.items())
            assert kind == name or after[kind] == known
        if name != "close":
            assert answer == (None if position < closed else max(value_us, before[name].get(position, 0)))
            assert (position in after[name]) == (position >= closed or position in before[name])


@given(calls, st.integers(0, 5), st.integers(0, 5))
def test_what_is_read_is_what_is_in_force_in_the_range(steps: list[tuple[str, int, int]], start: int, end: int) -> None:
    """Both ends belong to the range, positions rise."""
    journal = MemoryJournal()
    in_force: dict[str, dict[int, int]] = {"estimate": {}, "import": {}}
    for name, position, value_us in steps:
        if (value := call(journal, name, position, value_us)) is not None:
            in_force[name][position] = value
    within = {kind: sorted((at, value) for at, value in known.items() if start <= at <= end) for kind, known in in_force.items()}
    assert journal.estimates(KEY, start, end) == within["estimate"]
    assert journal.imports(KEY, start, end) == within["import"]


@pytest.mark.parametrize("kind", ["estimate", "import"])
def test_many_calls_at_once_are_as_many_calls(kind: str) -> None:
    """Each gets its own answer, a refused one among them; other partitions are untouched."""
    journal, other = MemoryJournal(), KEY._replace(partition=1)
    journal.close_many([(KEY, 2), (other, 4)])
    asked = [(KEY, 1, 5), (KEY, 2, 5), (other, 4, 6), (KEY, 2, 3)]
    answers = journal.estimate_many(asked) if kind == "estimate" else journal.import_many(asked)
    assert answers == [None, 5, 6, 5]
    ranges = [(KEY, 0, 9), (other, 0, 3), (other, 0, 4)]
    found = journal.estimates_many(ranges) if kind == "estimate" else journal.imports_many(ranges)
    assert found == [[(2, 5)], [], [(4, 6)]]


def test_the_first_base_wins() -> None:
    """Whoever comes later takes it; other partitions have their own."""
    journal = MemoryJournal()
    assert [journal.base(KEY, 5), journal.base(KEY, 3), journal.base(KEY._replace(partition=1), 3)] == [5, 5, 3]
