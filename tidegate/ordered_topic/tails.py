"""
The end of a partition, read as ever longer tails, until one of them holds what is looked for.

Law: each tail ends where the partition ended when it was asked for, and begins earlier than the one before; the last is all of it. So
whoever stops at the first tail that suffices has read only a few times more than that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Records

# Records at the end of a partition that are read for its last CTIs, if some CTIs may be missing.
TAIL_RECORDS = 1_000
_SHORTEST = 5_000
_GROWTH = 8


class Tail(NamedTuple):
    """One tail of a partition: its first offset, and its records."""

    first: int
    records: Iterator[Records]


def tail_lengths(shortest: int, longest: int) -> Iterator[int]:
    """
    Yield ever larger numbers of records, from *shortest* to *longest*.

    >>> list(tail_lengths(64, 10_000))
    [64, 512, 4096, 10000]
    """
    length = shortest
    while length < longest:
        yield length
        length *= _GROWTH
    yield longest


def tail_starts(start: int, end: int) -> Iterator[int]:
    """
    Yield the first offsets of ever longer tails of the partition [*start*, *end*); the last tail is all of it.

    >>> list(tail_starts(200, 60_000))
    [55000, 20000, 200]
    """
    return (end - length for length in tail_lengths(_SHORTEST, end - start))


def read_tails(properties: Mapping[str, str], topic: str, partition: int, start: int, end: int) -> Generator[Tail, None, None]:
    """Yield ever longer tails of the partition [*start*, *end*), read with headers; each must be read before the next one."""
    with RangeReader(properties, topic, partition, headers=True) as reader:
        for first in tail_starts(start, end):
            yield Tail(first, reader.read(first, end))
