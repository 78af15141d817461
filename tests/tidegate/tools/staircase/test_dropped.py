"""Dropped events of the picture: each letter once, only those of the input and of the section, thinned to a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ordering.ticks import SECOND_US, format_tick
from tidegate.tools.staircase.dropped import DROPPED_MIN, DroppedPiece, choose_dropped
from tidegate.tools.staircase.read import WHOLE, Section, Staircase

PARTITIONS = "cars-0", "cars-1"
START_S = 1_767_600_000


def stairs(first_s: int, part: int) -> Staircase:
    """Return a staircase whose first event arrived at a second, and which shows one of *part* events."""
    return Staircase("t", *[np.array([START_S + first_s]) * SECOND_US] * 4, part)


def at_us(second: int) -> int:
    """Return a second as ticks."""
    return (START_S + second) * SECOND_US


def letter(origin: str | None, second: int, reason: str = "early") -> tuple[str | None, ...]:
    """Return the headers of an event that arrived at a second, ten seconds before it happened."""
    return origin, reason, format_tick(at_us(second + 10)), format_tick(at_us(second))


def choose(
    letters: list[tuple[str | None, ...]], shown: Section = WHOLE, *, first_s: int = 0, over: bool = False, part: int = 1
) -> list[list[Any]]:
    """Return the chosen ones; every second letter has the key a, the others b."""
    keys = pa.array([b"a" if place % 2 else b"b" for place in range(len(letters))], pa.binary())
    return choose_dropped([DroppedPiece.of(letters, keys)], stairs(first_s, part), PARTITIONS, shown, over)


def test_a_letter_is_an_event_with_the_policy_that_dropped_it() -> None:
    """By rising arrivals; one that a batch has written again is one; a dead letter, and one of another input, is none."""
    told = [letter("cars-1@7", 3, "late"), letter("cars-0@5", 2), letter("cars-0@5", 2), letter("vans-0@5", 2), letter(None, 2)]
    told += [letter("cars-0@6", 2, "malformed"), ("cars-0@7", "early", None, None), ("cars-0@8", "early", "soon", "<b>")]
    assert choose(told) == [
        [at_us(2), at_us(12), at_us(12), "dropped as early", 0, "5"],
        [at_us(3), at_us(13), at_us(13), "dropped as late", 1, "7"],
    ]


def test_a_section_has_its_own_dropped_events() -> None:
    """Its arrivals, its partition, its key; of substreams a letter says nothing; none arrived before the first event that is looked at."""
    told = [letter(f"cars-{number % 2}@{number}", number) for number in range(10)]

    def places(shown: Section = WHOLE, *, first_s: int = 0, over: bool = False) -> list[int]:
        return [int(event[5]) for event in choose(told, shown, first_s=first_s, over=over)]

    assert places() == list(range(10))
    assert places(Section(from_us=at_us(3), until_us=at_us(5))) == [3, 4]
    assert places(Section(number=1)) == [1, 3, 5, 7, 9]
    assert places(Section(key=b"b")) == [0, 2, 4, 6, 8]
    assert places(Section(key=b"b"), over=True) == []
    assert places(first_s=8) == [8, 9]


def test_very_many_are_thinned_evenly() -> None:
    """As the other events are, to a least number; the first and the last stay."""
    told = [letter(f"cars-0@{number}", number) for number in range(2_000)]
    assert [len(choose(told, part=part)) for part in (1, 4, 1_000)] == [2_000, 500, DROPPED_MIN]
    found = choose(told, part=4)
    assert [found[0][5], found[-1][5]] == ["0", "1999"]
