"""The law of idle estimates: none exceeds the arrival of any record that is yet to come, as long as clocks run alike."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st

from ingest.planner.silences import Silences, boot_id, boottime_us
from ordering.ticks import MILLISECOND_US, MINUTE_US, SECOND_US

P = ("flights", 0)
CADENCE_US, MARGIN_US, PATIENCE_US = SECOND_US, 500 * MILLISECOND_US, 3 * SECOND_US


@dataclass(frozen=True)
class Broker:
    """
    Partitions that stamp what is appended with their own clock, in whole milliseconds.

    ``appended_us`` holds for each partition the true times of its records; the broker's clock shows ``ahead_us`` more, and
    from each of the ``steps`` (true time, by) on so much more again.
    """

    appended_us: Sequence[Sequence[int]]
    ahead_us: int
    steps: Sequence[tuple[int, int]] = ()

    def end(self, partition: int, true_us: int) -> int:
        """The partition's end at a true time."""
        return bisect_right(self.appended_us[partition], true_us)

    def arrival_us(self, partition: int, offset: int) -> int:
        """The stamp of a record."""
        true_us = self.appended_us[partition][offset]
        ahead_us = self.ahead_us + sum(by_us for at_us, by_us in self.steps if at_us <= true_us)
        return (true_us + ahead_us) // MILLISECOND_US * MILLISECOND_US

    def frontier_us(self, partition: int, end: int) -> int:
        """The largest stamp below *end*: what the stage calls A."""
        return max(self.arrival_us(partition, offset) for offset in range(end))


class Observer:
    """A planner with a slow network: between reading its clock, asking and hearing the answer, records may come."""

    def __init__(self, broker: Broker, margin_us: int, fast_ppm: int, chance: random.Random) -> None:
        self._broker, self._fast_ppm, self._chance, self._margin_us = broker, fast_ppm, chance, margin_us
        self.silences = Silences(CADENCE_US, margin_us, PATIENCE_US)
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
        self.silences.observe_ends(ends, self._clock())
        if ends != self._planned:
            self._planned = ends
            return
        due = self.silences.select_due(self._planned, asked_us)
        again = self._ends(due)
        for partition in due:
            if again[partition] == self._planned[partition]:
                self._estimate(partition, asked_us)
        elsewhere_us = self.silences.time_elsewhere(asked_us)
        for partition in due if elsewhere_us is not None else ():
            if again[partition] == self._planned[partition]:
                self.estimates.append((partition[1], self._planned[partition], elsewhere_us))
        self.silences.schedule_next(asked_us, is_quiet=self._chance.random() < 0.5)

    def restart(self) -> None:
        """Begin anew, as another planner of the same boot that knows since when the partitions are silent."""
        known = self.silences
        self.silences = Silences(CADENCE_US, self._margin_us, PATIENCE_US)
        self.silences.observe_ends(self._ends(list(self._planned)), self._clock())
        for partition in self._planned:
            position, since_us = known.silent_since(partition)
            if self.silences.silent_since(partition)[0] == position and not known.needs_last_arrival(partition):
                self.silences.count_from(partition, known.known_arrival(partition), since_us)

    def _estimate(self, partition: tuple[str, int], asked_us: int) -> None:
        number, position = partition[1], self._planned[partition]
        self._wait()
        if self.silences.needs_last_arrival(partition) and position > 0:
            arrival_us = self._broker.frontier_us(number, position)
            self.silences.set_last_arrival(partition, arrival_us)
            self.silences.observe_arrival(partition, position, arrival_us)
        estimate_us = self.silences.estimate(partition, asked_us)
        if estimate_us is not None:
            self.estimates.append((number, position, estimate_us))


APPENDS = st.lists(st.sampled_from([0, 1, 1_000, 400_000, 3 * SECOND_US, 50 * SECOND_US, 30 * MINUTE_US]), max_size=12)


@given(st.lists(APPENDS, min_size=1, max_size=2), st.integers(-(10**9), 10**9), st.integers(-50_000, 1_000), st.integers(0, 2**32))
def test_no_estimate_exceeds_the_arrival_of_a_record_to_come(gaps: list[list[int]], ahead_us: int, fast_ppm: int, seed: int) -> None:
    """
    Level 1: whatever comes between reading the clock, asking and hearing, an estimate is at most the next record's arrival.

    Planners come and go meanwhile. Stamps in whole milliseconds and a clock up to a thousandth too fast are covered by the
    margin. No wall clock is asked, so none can step.
    """
    chance = random.Random(seed)
    appended = [[sum(steps[: at + 1]) for at in range(len(steps))] for steps in gaps]
    broker = Broker(appended, 10**15 + ahead_us)
    observer = Observer(broker, MILLISECOND_US, fast_ppm, chance)
    _watch(observer)
    for number, position, estimate_us in observer.estimates:
        event("estimated before a record" if position < len(appended[number]) else "estimated at the end")
        if position < len(appended[number]):
            assert estimate_us <= broker.arrival_us(number, position)
        assert estimate_us <= observer.true_us + broker.ahead_us
    spoke = {number for number, steps in enumerate(gaps) if steps}
    assert spoke <= {number for number, _, _ in observer.estimates}, "a silence of hours is told"


STEPS = st.lists(
    st.tuples(st.integers(0, 2 * 60 * MINUTE_US), st.sampled_from([-1, 1, -SECOND_US, SECOND_US, -(10**10), 10**10])), max_size=4
)


@given(APPENDS, STEPS, st.integers(0, 2**32))
def test_steps_of_the_brokers_clock_are_never_added_up(gaps: list[int], steps: list[tuple[int, int]], seed: int) -> None:
    """
    Level 1: an estimate is never further ahead than the broker's clock has ever been, and a step forward loses nothing.

    Where stamps were put back an estimate may exceed the next ones: they are then clamped, and time does not go back. It
    exceeds them by no more than the steps back make up.
    """
    appended = [[sum(gaps[: at + 1]) for at in range(len(gaps))]]
    broker = Broker(appended, 10**15, steps)
    observer = Observer(broker, MILLISECOND_US, 0, random.Random(seed))
    _watch(observer)
    back_us = -sum(by_us for _, by_us in steps if by_us < 0)
    forward_us = sum(by_us for _, by_us in steps if by_us > 0)
    for _, position, estimate_us in observer.estimates:
        assert estimate_us <= observer.true_us + broker.ahead_us + forward_us
        if position < len(gaps):
            assert estimate_us <= broker.arrival_us(0, position) + back_us


def _watch(observer: Observer) -> None:
    polls = 0
    while observer.true_us < 2 * 60 * MINUTE_US:
        observer.poll()
        polls += 1
        if polls % 7 == 0:
            observer.restart()


def watching(seen_us: int = 0, last_us: int | None = 100 * SECOND_US, patience_us: int = PATIENCE_US) -> Silences:
    """A partition seen at offset 7 whose last record arrived at *last_us*."""
    silences = Silences(CADENCE_US, MARGIN_US, patience_us)
    silences.observe_ends({P: 7}, seen_us)
    if last_us is not None:
        silences.set_last_arrival(P, last_us)
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
    silences.observe_ends({P: 7}, 5 * SECOND_US)
    assert silences.estimate(P, 10 * SECOND_US) == watching().estimate(P, 10 * SECOND_US)
    silences.observe_ends({P: 8}, 11 * SECOND_US)
    assert silences.needs_last_arrival(P)
    silences.set_last_arrival(P, 111 * SECOND_US)
    assert silences.estimate(P, 12 * SECOND_US) == 112 * SECOND_US - MARGIN_US - MILLISECOND_US


def test_what_an_earlier_planner_measured_goes_on() -> None:
    """A silence that was seen to begin before this planner did counts from there, on the same boot's clock."""
    silences = watching(seen_us=1_000 * SECOND_US, last_us=None)
    silences.count_from(P, 100 * SECOND_US, 0)
    assert silences.estimate(P, 1_010 * SECOND_US) == watching().estimate(P, 1_010 * SECOND_US)


def test_where_ingest_stamps_a_silence_begins_no_sooner_than_the_stamp() -> None:
    """Level 1: records seen a minute before they could be planned arrive when they are planned; that minute is not counted twice."""
    silences = watching(last_us=None)
    silences.observe_stamped({P: 5}, 30 * SECOND_US)
    silences.observe_stamped({P: 7}, 60 * SECOND_US)
    silences.set_last_arrival(P, 1_060 * SECOND_US)
    told_us = (1_060 + 10) * SECOND_US - MARGIN_US - 10 * MILLISECOND_US
    assert silences.estimate(P, 70 * SECOND_US) == told_us
    silences.observe_arrival(P, 7, 1_060 * SECOND_US)
    assert silences.time_elsewhere(70 * SECOND_US) == told_us


def test_all_that_are_silent_are_due_together_once_a_cadence() -> None:
    """Each time that any partition moves costs a batch; who has been silent for less than the margin waits for the next time."""
    silences = watching()
    other, last = ("other", 0), ("last", 0)
    silences.observe_ends({other: 3}, 300 * MILLISECOND_US)
    assert silences.select_due({P: 7, other: 3}, CADENCE_US - 1) == []
    assert silences.select_due({P: 7, other: 3}, CADENCE_US) == [P, other]
    assert silences.select_due({P: 6, other: 3, last: 1}, CADENCE_US) == [other], "not where records are still to be planned"
    silences.schedule_next(CADENCE_US, is_quiet=False)
    silences.observe_ends({last: 1}, CADENCE_US + MARGIN_US)
    assert silences.select_due({P: 7}, 2 * CADENCE_US - 1) == []
    assert silences.select_due({P: 7, last: 1}, 2 * CADENCE_US) == [P]
    assert silences.select_due({P: 7, last: 1}, 2 * CADENCE_US + 1) == [P, last]


def test_a_silence_older_than_the_planner_is_told_by_who_speaks_meanwhile() -> None:
    """Of those in which a record was seen to arrive lately, the slowest counts; who was only found there tells nothing."""
    silences = watching(last_us=100 * SECOND_US)
    assert silences.time_elsewhere(5 * SECOND_US) is None
    silences.observe_arrival(P, 7, 100 * SECOND_US)
    assert silences.time_elsewhere(5 * SECOND_US) is None, "nobody knows when the end came to where it was found"
    for name, ahead in (("one", 5_000), ("two", 5_003)):
        silences.observe_ends({(name, 0): 1}, 5 * SECOND_US)
        silences.observe_ends({(name, 0): 2}, 10 * SECOND_US)
        silences.observe_arrival((name, 0), 2, (10 + ahead) * SECOND_US)
    assert silences.time_elsewhere(20 * SECOND_US) == (20 + 5_000) * SECOND_US - MARGIN_US - 10 * MILLISECOND_US
    silences.observe_ends({("two", 0): 3}, 100 * SECOND_US)
    silences.observe_arrival(("two", 0), 3, (100 + 5_002) * SECOND_US)
    assert silences.time_elsewhere(100 * SECOND_US) == (100 + 5_002) * SECOND_US - MARGIN_US, "the other spoke too long ago"


def waits_s(patience_us: int, looks: int) -> list[int]:
    """How long each of some estimates in a quiet input waits for the next, in whole seconds."""
    silences = watching(patience_us=patience_us)
    now_us, waits = CADENCE_US, []
    for _ in range(looks):
        silences.schedule_next(now_us, is_quiet=True)
        waits.append(next(wait for wait in range(1, 30) if silences.select_due({P: 7}, now_us + wait * SECOND_US)))
        now_us += waits[-1] * SECOND_US
    return waits


def test_where_nothing_waits_estimates_come_less_often_up_to_the_patience() -> None:
    """Two cadences, four, then the patience or ten of them."""
    assert waits_s(3 * SECOND_US, 4) == [2, 3, 3, 3]
    assert waits_s(3_600 * SECOND_US, 6) == [2, 4, 8, 10, 10, 10]
    assert waits_s(0, 3) == [1, 1, 1]


def test_a_record_anywhere_or_an_event_that_is_held_brings_the_cadence_back() -> None:
    """Time is wanted again."""
    silences = watching()
    silences.schedule_next(CADENCE_US, is_quiet=True)
    silences.observe_ends({("other", 0): 1}, 2 * CADENCE_US)
    assert silences.select_due({P: 7}, 3 * CADENCE_US) == [P]
    silences.schedule_next(3 * CADENCE_US, is_quiet=True)
    silences.schedule_next(3 * CADENCE_US, is_quiet=False)
    assert silences.select_due({P: 7}, 4 * CADENCE_US) == [P]


def test_estimates_that_make_all_that_was_heard_final_do_not_wait_for_company() -> None:
    """However little is waited for in ingest: a reader of all channels waits for them. Law: the next estimate passes what is asked for."""
    for behind_us in (1, 500 * MILLISECOND_US, 2 * SECOND_US, 2_500 * MILLISECOND_US, 60 * SECOND_US):
        silences = watching(patience_us=3_600 * SECOND_US)
        for look in range(3):
            silences.schedule_next(look, is_quiet=True)
        before_us = silences.estimate(P, 10 * SECOND_US)
        assert before_us is not None
        silences.schedule_next(10 * SECOND_US, is_quiet=True, behind_us=behind_us)
        wait_us = next(
            wait for wait in range(CADENCE_US, 20 * SECOND_US, MILLISECOND_US) if silences.select_due({P: 7}, 10 * SECOND_US + wait)
        )
        after_us = silences.estimate(P, 10 * SECOND_US + wait_us)
        assert after_us is not None
        assert wait_us == 10 * SECOND_US if behind_us == 60 * SECOND_US else after_us >= before_us + behind_us
        assert wait_us <= max(CADENCE_US, min(behind_us * 101 // 100, 10 * SECOND_US)) + MILLISECOND_US


def test_the_clock_counts_from_the_boot_and_the_boot_has_a_name() -> None:
    """It does not go back, moves like the monotonic one, and the name is the same each time it is asked for."""
    first_us, before_ns = boottime_us(), time.monotonic_ns()
    assert boottime_us() >= first_us
    assert abs((boottime_us() - first_us) - (time.monotonic_ns() - before_ns) // 1000) < SECOND_US
    assert boot_id() == boot_id() != ""
