"""Facts wait for a CTI to carry them: each is carried, none twice to a channel, and a promise is repeated where no CTI is due."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.planned_range import IngestRange
from ingest.stage.fact_outbox import FACTS_AT_ONCE, FactOutbox, range_facts
from ordering.model.step import Model
from ordering.policies import Generation, Policies
from ordering.protocol.facts import ORIGIN, Fact, FactKind, text_digest
from ordering.testing import Record, batch_of

MODEL = Model(Policies(late_us=10, reorder_us=0), False, 1)


def fact(position: int) -> Fact:
    """Some fact."""
    return Fact(FactKind.ESTIMATE, position, 50)


def test_facts_go_with_the_first_cti_of_each_channel() -> None:
    """Later CTIs of the channel in the same go carry none; none waits any more."""
    model = Model(Policies(late_us=10, reorder_us=0), True, 2)
    state = model.new_state()
    ctis = model.step(state, batch_of([Record(0, 2_000, 2_000, b"a")], over=True)).ctis
    telling = FactOutbox(model, state, [fact(1), fact(2)])
    later = [replace(cti, c=cti.c + 1) for cti in ctis]
    laden = telling.attach([*ctis, *later], is_last=True)
    assert [cti.facts for cti in laden] == [(fact(1), fact(2))] * 2 + [()] * 2
    assert state.pending_facts == ()
    assert [cti.facts for cti in telling.attach(ctis, is_last=True)] == [(), ()]


def test_where_no_cti_is_due_the_last_promise_is_repeated_and_before_the_first_facts_wait() -> None:
    """They are saved with the state, so that a restart does not lose them."""
    state = MODEL.new_state()
    assert FactOutbox(MODEL, state, [fact(1)]).attach([], is_last=True) == []
    state = MODEL.restore(*saved(state))
    assert state.pending_facts == (fact(1),)
    ctis = MODEL.step(state, batch_of([Record(0, 2_000, 2_000)])).ctis
    assert [cti.facts for cti in FactOutbox(MODEL, state, []).attach(ctis, is_last=False)] == [(fact(1),)]
    state = MODEL.restore(*saved(state))
    telling = FactOutbox(MODEL, state, [fact(3), fact(3)])
    assert telling.attach([], is_last=False) == []
    (again,) = telling.attach([], is_last=True)
    assert (again.facts, again.c, again.n, again.ahead) == ((fact(3),), ctis[-1].c, ctis[-1].n, ctis[-1].ahead)


def saved(state: object) -> tuple[bytes, dict[int, bytes]]:
    """What a state leaves behind."""
    delta = state.save()  # type: ignore[attr-defined]
    return delta.head, delta.put


def test_too_many_facts_go_with_several_promises() -> None:
    """A record stays small enough for every topic."""
    state = MODEL.new_state()
    ctis = MODEL.step(state, batch_of([Record(0, 2_000, 2_000)])).ctis
    laden = FactOutbox(MODEL, state, map(fact, range(2 * FACTS_AT_ONCE + 1))).attach(ctis, is_last=True)
    assert [len(cti.facts or ()) for cti in laden] == [FACTS_AT_ONCE, FACTS_AT_ONCE, 1]


@given(st.lists(st.tuples(st.integers(1_000, 1_040), st.integers(1_000, 1_040)), max_size=12), st.integers(1, 4), st.integers(0, 12))
def test_a_repeated_promise_holds(times: list[tuple[int, int]], every: int, cut: int) -> None:
    """Law, level 1: what it says of c, n and ahead is so for the whole channel, wherever it is repeated."""
    model = Model(Policies(late_us=10, reorder_us=3), False, 1, generation=Generation(every_events=every))
    log = [Record(offset, arrival, time) for offset, (time, arrival) in enumerate(times)]
    state = model.new_state()
    released = [int(us) for us in model.step(state, batch_of(log[:cut], end_offset=min(cut, len(log)))).released.system_us]
    again = model.repeat_last_cti(state)
    released += [int(us) for us in model.step(state, batch_of(log[cut:], end_offset=len(log), finish=True)).released.system_us]
    if again is None:
        return
    assert again.next_offset == min(cut, len(log))
    assert all(us >= again.c for us in released[again.n :])
    assert again.ahead == sum(us >= again.c for us in released[: again.n])
    assert again.largest_us == max([1_000, *released[: again.n]])


@pytest.mark.parametrize("first", [True, False])
def test_the_facts_of_a_range_are_those_it_rests_on(first: bool) -> None:
    """The moment in force at its start was told by whoever told of the range before, if anybody did."""
    marks, imports, moments = ((10, 5), (20, 6)), ((12, 7),), ((4, 1), (10, 2), (15, 3))
    planned = IngestRange(0, 2, "raw", 3, 10, 20, marks=marks, imports=imports, base_us=40, spans=moments)
    spans = [Fact(FactKind.STAMP, 4, 1)] * first + [Fact(FactKind.STAMP, 10, 2), Fact(FactKind.STAMP, 15, 3)]
    told = [Fact(FactKind.BASE, 0, 40), Fact(FactKind.ESTIMATE, 10, 5), Fact(FactKind.ESTIMATE, 20, 6), Fact(FactKind.IMPORT, 12, 7)]
    origin = [Fact(ORIGIN, 3, text_digest("raw"))] * first
    assert list(range_facts(planned, FactKind.STAMP, first)) == origin + told + spans
    skipping = IngestRange(0, 2, "raw", 3, 10, 20, skips=((5, 10), (10, 11), (12, 12), (15, 40)))
    skips = [Fact(FactKind.SKIP, 10, 11), Fact(FactKind.SKIP, 15, 40)]
    assert list(range_facts(skipping, FactKind.STAMP, first)) == [*origin, *skips], "none that is undone"
    joining = IngestRange(0, 2, "raw", 3, 10, 10, joined_us=99)
    assert list(range_facts(joining, FactKind.STAMP, first)) == [*origin, Fact(FactKind.JOIN, 2, 99)]
