"""The law of idle estimates: none exceeds the arrival of any record that is yet to come, as long as clocks run alike."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st

from ingest.idle import Silences
from ordering.ticks import MILLISECOND_US, MINUTE_US, SECOND_US

P = ("flights", 0)
CADENCE_US, MARGIN_US = SECOND_US, 500 * MILLISECOND_US


@dataclass(frozen=True)
class Broker:
    """
    Partitions that stamp what is appended with their own clock, in whole milliseconds.

    ``appended_us`` holds for each partition the true times of its records; the broker's clock shows ``ahead_us`` more.
    """

    appended_us: Sequence[Sequence[int]]
    ahead_us: int

    def end(self, partition: int, true_us: int) -> int:
        """The partition's end at a true time."""
        return bisect_right(self.appended_us[partition], true_us)

    def arrival_us(self, partition: int, offset: int) -> int:
        """The stamp of a record."""
        return (self.appended_us[partition][offset] + self.ahead_us) // MILLISECOND_US * MILLISECOND_US


class Observer:
    """A planner with a slow network: between reading its clock, asking and hearing the answer, records may come."""

    def __init__(self, broker: Broker, margin_us: int, fast_ppm: int, chance: random.Random) -> None:
        self._broker, self._fast_ppm, self._chance = broker, fast_ppm, chance
        self.silences = Silences(CADENCE_US, margin_us)
        self._planned = {("flights", number): 0 for number in range(len(broker.appended_us))}
        self.true_us = 0
        self.estimates: list[tuple[int, int, int]] = []
        """(partition, position, estimate)."""

    def _clock(self) -> int:
        return 10**12 + self.true_us + self.true_us * self._fast_ppm // 1_000_000

    def _wait(self) -> None:
        self.true_us += self._chance.choice([0, 10, 5_000, 80_000, 700_000])

    def _ends(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        self._wait()
        ends = {partition: self._broker.end(partition[1], self.true_us) for partition in partitions}
        self._wait()
        return ends

    def poll(self) -> None:
        """Do what the planner does for one batch."""
        self.true_us += self._chance.choice([1_000, 200_000, SECOND_US, 40 * SECOND_US, 20 * MINUTE_US])
        asked_us = self._clock()
        ends = self._ends(list(self._planned))
        self.silences.observe(ends, self._clock())
        if ends != self._planned:
            self._planned = ends
            return
        due = self.silences.due(self._planned, asked_us)
        again = self._ends(due)
        for partition in due:
            if again[partition] == self._planned[partition]:
                self._estimate(partition, asked_us)

    def _estimate(self, partition: tuple[str, int], asked_us: int) -> None:
        number, position = partition[1], self._planned[partition]
        self._wait()
        last = self._broker.end(number, self.true_us) - 1
        if self.silences.needs_last_arrival(partition) and 0 <= last < position:
            self.silences.last_arrival(partition, self._broker.arrival_us(number, last))
        estimate_us = self.silences.estimate(partition, asked_us)
        if estimate_us is not None:
            self.estimates.append((number, position, estimate_us))


APPENDS = st.lists(st.sampled_from([0, 1, 1_000, 400_000, 3 * SECOND_US, 50 * SECOND_US, 30 * MINUTE_US]), max_size=12)


@given(st.lists(APPENDS, min_size=1, max_size=2), st.integers(-(10**9), 10**9), st.integers(-50_000, 1_000), st.integers(0, 2**32))
def test_no_estimate_exceeds_the_arrival_of_a_record_to_come(gaps: list[list[int]], ahead_us: int, fast_ppm: int, seed: int) -> None:
    """
    Level 1: whatever comes between reading the clock, asking and hearing, an estimate is at most the next record's arrival.

    Stamps in whole milliseconds and a clock up to a thousandth too fast are covered by the margin.
    """
    chance = random.Random(seed)
    appended = [[sum(steps[: at + 1]) for at in range(len(steps))] for steps in gaps]
    broker = Broker(appended, 10**15 + ahead_us)
    observer = Observer(broker, MILLISECOND_US, fast_ppm, chance)
    while observer.true_us < 2 * 60 * MINUTE_US:
        observer.poll()
    for number, position, estimate_us in observer.estimates:
        event("estimated before a record" if position < len(appended[number]) else "estimated at the end")
        if position < len(appended[number]):
            assert estimate_us <= broker.arrival_us(number, position)
        assert estimate_us <= observer.true_us + broker.ahead_us
    filled = sum(1 for steps in gaps if steps)
    assert len({number for number, _, _ in observer.estimates}) == filled, "a silence of hours is told, unless no record ever came"


def watching(seen_us: int = 0, last_us: int | None = 100 * SECOND_US) -> Silences:
    """A partition seen at offset 7 whose last record arrived at *last_us*."""
    silences = Silences(CADENCE_US, MARGIN_US)
    silences.observe({P: 7}, seen_us)
    if last_us is not None:
        silences.last_arrival(P, last_us)
    return silences


def test_an_estimate_is_the_last_arrival_and_the_silence_less_the_margin() -> None:
    """After ten seconds of silence: ten seconds later, less 500 ms and a thousandth of the silence."""
    silences = watching()
    assert silences.estimate(P, 10 * SECOND_US) == 110 * SECOND_US - MARGIN_US - 10 * MILLISECOND_US


def test_a_silence_shorter_than_the_margin_tells_nothing() -> None:
    """An estimate below the last arrival would say less than is known."""
    assert watching().estimate(P, MARGIN_US) is None


def test_without_the_last_arrival_nothing_is_told() -> None:
    """A partition whose last arrival is not known has no estimate, however long it is silent."""
    silences = watching(last_us=None)
    assert silences.needs_last_arrival(P)
    assert silences.estimate(P, 3_600 * SECOND_US) is None


def test_the_silence_counts_from_when_its_end_was_first_seen() -> None:
    """Seeing the same end again does not begin the silence anew; another end does, and its last arrival must be learned."""
    silences = watching()
    silences.observe({P: 7}, 5 * SECOND_US)
    assert silences.estimate(P, 10 * SECOND_US) == watching().estimate(P, 10 * SECOND_US)
    silences.observe({P: 8}, 11 * SECOND_US)
    assert silences.needs_last_arrival(P)
    silences.last_arrival(P, 111 * SECOND_US)
    assert silences.estimate(P, 12 * SECOND_US) == 112 * SECOND_US - MARGIN_US - MILLISECOND_US


def test_an_estimate_is_due_once_a_cadence_and_only_at_the_end() -> None:
    """Not before the silence has lasted a cadence, then once in each; never where records are still to be planned."""
    silences = watching()
    assert silences.due({P: 7}, CADENCE_US - 1) == []
    assert silences.due({P: 7}, CADENCE_US) == [P]
    assert silences.due({P: 6}, CADENCE_US) == []
    assert silences.due({("other", 0): 7}, CADENCE_US) == []
    silences.estimate(P, CADENCE_US)
    assert silences.due({P: 7}, 2 * CADENCE_US - 1) == []
    assert silences.due({P: 7}, 2 * CADENCE_US) == [P]
