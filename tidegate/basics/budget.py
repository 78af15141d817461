"""
The budget of a step: how much of a query's work is in memory at once, and the ways to cut work into steps that fit.

How much is due at once cannot be chosen. Settings bound what a batch reads (``query.max_bytes_per_batch``, ``query.max_events_per_batch``),
not what becomes final: gigabytes may wait for one silent partition, a long window may close for millions of groups, the rows of one instant
may make millions of pairs. So whatever can grow is cut, by one of three ways. Which one fits depends on when its size is known:

====================================  ==============================  =================================================================
the size is known                     the way                         what is cut by it
====================================  ==============================  =================================================================
of each part, before it is made       :func:`cut`                     events by bytes; rows of windows; pairs of a join; steps of a
                                                                      pattern; texts that an expression makes longer
of the whole, before or by making it  :func:`halve_until_it_fits`     tables by bytes; with OVER a slice of time that many rows leave
                                                                      or whose results outgrow them
never, only that it was too much      :func:`compute_in_halves`       expressions over rows; results that repeat texts; windows that
                                                                      are merged
====================================  ==============================  =================================================================

Work without OVER is also cut by instants before rows are looked at, from where rows are kept in the order of time
(:func:`query.engine.gathering.find_step_end`, :func:`query.engine.pending_events.find_pending_step_end`).

Law: results, dead letters and their order do not depend on the budget. Limits that decide what a result is, such as the longest text that
an expression makes or the most pairs of a key, are none of its business: they stand where their dead letter is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Work = TypeVar("Work")
Result = TypeVar("Result")
Sizes = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Budget:
    """
    What one step of a task may have in memory, in three numbers; the shares of them say for what.

    The numbers are the defaults of settings, so that an ordinary batch is one step. They do not follow the settings: who lets a batch read
    more does not let a step take more.

    >>> budget = Budget(bytes=1_600, rows=100, pairs=20)
    >>> budget.repeated_bytes, budget.evaluated_bytes, budget.gathered_rows
    (400, 200, 200)
    >>> budget.portions(rows=450, bytes=2_000)
    3
    """

    # Bytes of payloads and texts: as many as a batch reads by ``query.max_bytes_per_batch``.
    bytes: int = 2**28
    # Rows with their columns: nearly as many as a batch reads by ``query.max_events_per_batch``.
    rows: int = 2_000_000
    # Pairs of a join: as many as a key gives at one instant by ``query.join_pairs_max``.
    pairs: int = 1_000_000

    @property
    def repeated_bytes(self) -> int:
        """Texts that results repeat: each is copied several times before it is written."""
        return self.bytes // 4

    @property
    def evaluated_bytes(self) -> int:
        """Rows whose expressions are computed: the columns on the way take several times their memory."""
        return self.bytes // 8

    @property
    def released_bytes(self) -> int:
        """Results that leave a bucket at once: they are encoded, and handed to the producer beside what comes next."""
        return self.bytes // 16

    @property
    def merged_rows(self) -> int:
        """Retained rows that a save merges into one chunk, beside the batch in memory."""
        return self.rows

    @property
    def merged_bytes(self) -> int:
        """The bytes of them, and the most of any chunk."""
        return self.bytes // 2

    @property
    def gathered_bytes(self) -> int:
        """Retained rows that are read together: they are in memory already, and few of their columns are copied."""
        return 4 * self.bytes

    @property
    def gathered_rows(self) -> int:
        """Retained rows that are read together."""
        return 2 * self.rows

    @property
    def numbered_rows(self) -> int:
        """Rows of which a step makes nothing but a few numbers: those of windows that overlap, and the steps of a pattern."""
        return 2 * self.rows

    @property
    def asked_pairs(self) -> int:
        """Pairs of which an index rules out most before they are made: it is asked for so many at once."""
        return 10 * self.pairs

    def portions(self, rows: int, bytes: int) -> int:
        """Return how many portions retained rows are read in."""
        return max(-(-rows // self.gathered_rows), -(-bytes // self.gathered_bytes), 1)


BUDGET = Budget()


class TooMuchAtOnce(Exception):
    """Values or results might need more memory than there is: compute fewer of them at once. Never raised for a single one."""


def too_much() -> tuple[type[Exception], ...]:
    """Return the errors after which less at once may succeed; asked for when an error has come."""
    import duckdb

    return TooMuchAtOnce, duckdb.OutOfMemoryException


def cut(sizes: Sizes, most: float) -> Iterator[slice]:
    """
    Yield ranges of things that follow one another, of at most *most* together or of one thing that is larger; none if there is nothing.

    >>> list(cut(np.array([3, 3, 9, 1]), 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last


def halve_until_it_fits(work: Work, is_too_much: Callable[[Work], bool], halve: Callable[[Work], Sequence[Work]]) -> Iterator[Work]:
    """
    Yield work in its order, whole or in halves of halves; what *halve* cuts into nothing is not yielded.

    >>> list(halve_until_it_fits("abcdefg", lambda text: len(text) > 2, lambda text: [text[: len(text) // 2], text[len(text) // 2 :]]))
    ['a', 'bc', 'de', 'fg']
    """
    if not is_too_much(work):
        yield work
        return
    for half in halve(work):
        yield from halve_until_it_fits(half, is_too_much, halve)


def compute_in_halves(
    work: Work, compute: Callable[[Work], Result], halve: Callable[[Work, Exception], Sequence[Work]]
) -> Iterator[Result]:
    """
    Yield what *compute* makes of work in its order: of all of it, or of its halves if it says that this is too much (:func:`too_much`).

    *halve* gets the error too, and returns nothing if the work cannot be cut; then the error is raised.
    """
    try:
        result = compute(work)
    except too_much() as error:
        halves = halve(work, error)
        if not halves:
            raise
        for half in halves:
            yield from compute_in_halves(half, compute, halve)
        return
    yield result


def halve_rows(rows: npt.NDArray[np.int64], error: Exception) -> Sequence[npt.NDArray[np.int64]]:
    """Return the numbers of rows in halves, nothing for a single row; for :func:`compute_in_halves`."""
    middle = len(rows) // 2
    return (rows[:middle], rows[middle:]) if middle else ()
