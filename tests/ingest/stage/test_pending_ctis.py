"""CTIs that wait for acknowledgements: what is left out says nothing that the rest does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.stage.pending_ctis import PENDING_MAX, PendingCtis
from ordering.policies import Generation
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread

PER_BATCH, PER_EVENT = Generation(), Generation(every_events=1)


def cti(output: int, c: int, n: int, *listed: tuple[bytes, int]) -> Cti:
    """A CTI of one input partition."""
    return Cti(0, output, c, n, 0, 0, 0, 0, Roster(1, 1, Spread.ALL, True), Cause.EVENT, listed)


CTIS = st.lists(st.builds(cti, st.integers(0, 1), st.integers(0, 9), st.integers(0, 9)), max_size=12)


def waiting(generation: Generation, *ctis: Cti) -> PendingCtis:
    """Return what waits after these, taken one by one."""
    pending = PendingCtis(generation)
    for each in ctis:
        pending.add([each])
    return pending


@given(CTIS)
def test_ctis_of_events_are_all_written_in_their_order(ctis: list[Cti]) -> None:
    """Where CTIs follow events, each is a function of the log: none is left out."""
    assert waiting(PER_EVENT, *ctis).pop_all() == ctis


@given(CTIS)
def test_of_ctis_of_batches_the_newest_of_each_channel_is_written(ctis: list[Cti]) -> None:
    """Where they follow batches, the pieces in which a range was read leave no trace."""
    assert {each.output_partition: each for each in waiting(PER_BATCH, *ctis).pop_all()} == {each.output_partition: each for each in ctis}
    assert len(waiting(PER_BATCH, *ctis).pop_all()) == len({each.output_partition for each in ctis})


def test_the_newest_lists_what_those_before_it_listed() -> None:
    """Lists hold only what changed, so they are brought together; what c has passed is no news any more."""
    pending = waiting(PER_BATCH, cti(0, 1, 1, (b"a", 5), (b"b", 9)), cti(0, 4, 2, (b"c", 8)), cti(0, 5, 3, (b"b", 12)))
    assert pending.pop_all() == [cti(0, 5, 3, (b"b", 12), (b"c", 8))]


def test_what_was_taken_waits_no_more() -> None:
    """Taking twice gives the second time only what came between."""
    pending = waiting(PER_BATCH, cti(0, 1, 1))
    assert pending.pop_all() == [cti(0, 1, 1)]
    assert pending.pop_all() == []
    pending.add([cti(0, 2, 2)])
    assert pending.pop_all() == [cti(0, 2, 2)]


def test_many_do_not_wait_for_the_end_of_a_range() -> None:
    """Memory stays bounded however many CTIs a batch calls for."""
    assert not waiting(PER_EVENT, *[cti(0, 1, 1)] * (PENDING_MAX - 1)).is_full
    assert waiting(PER_EVENT, *[cti(0, 1, 1)] * PENDING_MAX).is_full
