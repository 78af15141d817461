"""
The sample of ``tidegate produce --sample``: positions of five taxis, as README's configuration and query read them.

A topic whose broker stamps the records takes events as they happen: one every two seconds, for as long as wanted. A topic whose producers
stamp them takes history: an hour up to now. Law: both have the same shape. Most events arrive up to four seconds after they happened; one
in a hundred arrives two minutes after, and breaks README's ``late``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ordering.ticks import HOUR_US, MILLISECOND_US, SECOND_US

_CARS = "abcde"
_EVERY_US = 2 * SECOND_US
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Line:
    """A record to produce: its bytes, its key (None: none), and its timestamp in milliseconds (None: the time at which it is produced)."""

    value: bytes
    key: bytes | None = None
    timestamp_ms: int | None = None


def sample_history(now_us: int) -> Iterator[Line]:
    """Yield an hour of positions up to *now_us*, in the order of their arrival, which is their timestamp."""
    first_us = (now_us - HOUR_US) // SECOND_US * SECOND_US
    arrivals = []
    for number in range(HOUR_US // _EVERY_US):
        at_us = first_us + number * _EVERY_US
        arrivals.append((at_us // MILLISECOND_US + _delay_ms(number), number, _position(number, at_us)))
    for arrival_ms, number, value in sorted(arrivals):
        if arrival_ms * MILLISECOND_US <= now_us:
            yield Line(value, _car(number), arrival_ms)


def sample_live(duration_us: int | None, is_over: Callable[[], bool]) -> Iterator[Line]:
    """Yield a position every two seconds, for *duration_us* (None: without end), until *is_over*: each as late as its delay says."""
    started_s, number = time.monotonic(), 0
    while duration_us is None or number * _EVERY_US < duration_us:
        while (left_s := started_s + number * _EVERY_US / SECOND_US - time.monotonic()) > 0:
            if is_over():
                return
            time.sleep(min(left_s, _PAUSE_S))
        if is_over():
            return
        at_us = time.time_ns() // 1000 - _delay_ms(number) * MILLISECOND_US
        yield Line(_position(number, at_us // MILLISECOND_US * MILLISECOND_US), _car(number))
        number += 1


def _car(number: int) -> bytes:
    return _CARS[number % len(_CARS)].encode()


def _delay_ms(number: int) -> int:
    """Return how long the event is on its way."""
    return 120_000 if number % 100 == 7 else number * 7_919 % 4_000


def _position(number: int, at_us: int) -> bytes:
    speed = 30 + number * 37 % 41
    return f'{{"at": {at_us // MILLISECOND_US / 1000}, "car": "{_car(number).decode()}", "speed": {speed}}}'.encode()
