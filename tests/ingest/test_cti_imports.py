"""The time of another input: the least of its channels, from whatever of its CTIs is seen."""

from __future__ import annotations

from ingest.cti_imports import CtiFrontier
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY, TICK_MIN


def cti(number: int, partition: int, c: int, version: int = 1, inputs: int = 2) -> Cti:
    """A CTI that promises events nobody has read here."""
    return Cti(number, partition, c, 1_000, 0, 0, 0, 0, Roster(version, inputs, Spread.ALL, True), Cause.EVENT)


def take(frontier: CtiFrontier, partition: int, *ctis: Cti) -> int | None:
    """Take CTIs of a partition; return how far time has come."""
    frontier.accept_ctis(partition, list(enumerate(ctis)))
    return frontier.c_us


def test_time_is_the_least_of_all_channels() -> None:
    """Nothing is known before each has a CTI; then each rise of the slowest is a rise."""
    frontier = CtiFrontier(2)
    assert take(frontier, 0, cti(0, 0, 5_000), cti(1, 0, 7_000)) is None
    assert take(frontier, 1, cti(0, 1, 6_000)) is None
    assert take(frontier, 1, cti(1, 1, 9_000)) == 5_000
    assert take(frontier, 0, cti(0, 0, 8_000)) == 6_000


def test_a_stale_cti_takes_nothing_back() -> None:
    """A writer that should be gone says less than is known."""
    frontier = CtiFrontier(1)
    assert take(frontier, 0, cti(0, 0, 5_000, inputs=1)) == 5_000
    assert take(frontier, 0, cti(0, 0, 4_000, inputs=1)) == 5_000


def test_the_end_of_the_other_input_is_not_imported() -> None:
    """Its time stands still where it was, also if nothing else was ever seen of it."""
    frontier = CtiFrontier(1)
    assert take(frontier, 0, cti(0, 0, INFINITY, inputs=1)) is None
    assert take(frontier, 0, cti(0, 0, 5_000, inputs=1), cti(0, 0, INFINITY, inputs=1)) == 5_000


def test_no_time_is_imported_that_no_event_could_have() -> None:
    """Before the first valid time nothing is said."""
    assert take(CtiFrontier(1), 0, cti(0, 0, TICK_MIN - 1, inputs=1)) is None


def test_a_partition_that_joined_the_other_input_holds_its_time_until_it_speaks() -> None:
    """The newest roster counts."""
    frontier = CtiFrontier(1)
    assert take(frontier, 0, cti(0, 0, 5_000, inputs=1)) == 5_000
    assert take(frontier, 0, cti(0, 0, 9_000, version=2, inputs=2)) == 5_000
    assert take(frontier, 0, cti(1, 0, 8_000, version=2, inputs=2)) == 8_000
