"""
The matcher: for each row that may begin a match, the preferred match that begins there, and the instant from which it is certain.

An *attempt* begins at a row and reads the rows after it in its partition, at most *limit_us* younger. It has threads, in the order of
preference: each waits at a place of the automaton for a row that fits. A row that fits replaces a thread by threads at the places that
follow; the end of the pattern drops all threads of less preference. An attempt is decided when no thread is left, or when the limit has
passed. Threads at one place whose conditions read the same earlier rows have one future, so only the preferred one is kept.

All attempts take their next rows at once, as columns; of a pattern with many ways a limited number of attempts.

Law: what an attempt finds depends on its first row and the rows that it reads, and so does the instant at which it is decided. An attempt
that needs more than ``STEPS_MAX`` steps (a thread reading a row is one) fails at the row that would be too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ordering.arrays import Ints, Mask
from query.plan.row_patterns import ACCEPT, Automaton
from tidegate.basics.budget import BUDGET
from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText

STEPS_MAX = 100_000
TOO_MANY_STEPS = QueryReason.PATTERN_STEPS.text(STEPS_MAX)
# Not decided with the rows that are known.
OPEN = np.iinfo(np.int64).max
# The number of a row that there is not.
NO_ROW = -1


@dataclass(frozen=True)
class Memory:
    """An earlier row that conditions read: the first, last, least or greatest one of a variable (None: of all)."""

    function: str
    variable: str | None
    # The order of the values of all rows, 0 for NULL, for ``min`` and ``max``.
    ranks: Ints | None = None

    def remember(self, remembered: Ints, rows: Ints) -> Ints:
        """Return the row to remember once *rows* have been added."""
        if self.function == "last":
            return rows
        if self.function == "first":
            return np.where(remembered == NO_ROW, rows, remembered)
        assert self.ranks is not None
        new = self.ranks[rows]
        old = np.where(remembered == NO_ROW, 0, self.ranks[remembered])
        is_better = (new > 0) & ((old == 0) | ((new > old) if self.function == "max" else (new < old)))
        return np.where(is_better, rows, remembered)


# For the rows that threads read, and the rows that they remember: which of them fit, and why a condition fails on others.
Condition = Callable[[Ints, Ints], tuple[Mask, Mapping[int, ReasonText]]]


@dataclass(frozen=True)
class Rules:
    """What a pattern asks: its automaton, the rows to remember, and the condition of each variable that has one."""

    automaton: Automaton
    memories: tuple[Memory, ...]
    conditions: Mapping[str, Condition]
    limit_us: int


@dataclass(frozen=True)
class PartitionRows:
    """Rows in the order of partitions: the time of each, the end of its partition, and the instant below which all rows are known."""

    system_us: Ints
    end: Ints
    known_us: Ints


@dataclass
class Attempts:
    """What became of attempts, by their numbers."""

    start: Ints
    # The instant at which each is decided; ``OPEN``: it is not.
    decided_us: Ints
    # How many rows the match has; 0: there is none.
    length: Ints
    steps: Ints
    reasons: dict[int, ReasonText] = field(default_factory=dict)
    # With a trace: the place of each row of each match, one match after the other.
    places: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def find_matches(rules: Rules, rows: PartitionRows, start: Ints, *, trace: bool = False) -> Attempts:
    """Make an attempt at each row *start*; with *trace* also tell the place of each row of a match."""
    # A row may turn the threads of an attempt into one for each way of the pattern; a thread is two numbers.
    portion = max(1, 2 * BUDGET.numbered_rows // max(1, sum(map(len, rules.automaton.follow))))
    found = [_Matching(rules, rows, start[low : low + portion], trace).run() for low in range(0, max(len(start), 1), portion)]
    return found[0] if len(found) == 1 else _join(found)


def _join(found: Sequence[Attempts]) -> Attempts:
    """Return all attempts of portions, in their order."""
    first = np.cumsum([0, *(len(each.start) for each in found)]).tolist()
    reasons = {low + number: reason for low, each in zip(first, found, strict=False) for number, reason in each.reasons.items()}
    start, decided_us, length, steps, places = (
        np.concatenate([getattr(each, name) for each in found]) for name in ("start", "decided_us", "length", "steps", "places")
    )
    return Attempts(start, decided_us, length, steps, reasons, places)


class _Threads(NamedTuple):
    """Threads: the attempt of each, its place in the automaton, the rows that it remembers, and the thread of the row before."""

    owner: Ints
    place: Ints
    memory: Ints
    parent: Ints


class _Matching:
    def __init__(self, rules: Rules, rows: PartitionRows, start: Ints, trace: bool) -> None:
        self.rules, self.rows = rules, rows
        count = len(start)
        zeros = np.zeros(count, dtype=np.int64)
        self.found = Attempts(start, np.full(count, OPEN), zeros.copy(), zeros.copy())
        names = rules.automaton.names
        self.variables = list(dict.fromkeys(name.lower() for name in names))
        self.variable_of = np.array([self.variables.index(name.lower()) for name in names], dtype=np.int64)
        self.follow_counts = np.array([len(follow) for follow in rules.automaton.follow], dtype=np.int64)
        self.follow_starts = np.cumsum(self.follow_counts) - self.follow_counts
        self.follow = np.array([place for follow in rules.automaton.follow for place in follow], dtype=np.int64)
        # The place of each thread that a row fitted, and its parent among those of the row before, for each row of the attempts.
        self.trace: list[tuple[Ints, Ints]] | None = [] if trace else None
        self.accepted = np.full(count, NO_ROW)

    def run(self) -> Attempts:
        first = np.array(self.rules.automaton.first, dtype=np.int64)
        count = len(self.found.start)
        owner, place = np.repeat(np.arange(count), len(first)), np.tile(first, count)
        memory = np.full((len(owner), len(self.rules.memories)), NO_ROW, dtype=np.int64)
        parent = np.full(len(owner), NO_ROW)
        read = 0
        while len(owner):
            is_reading = self._end_attempts(owner, read)
            owner, place, memory, parent = owner[is_reading], place[is_reading], memory[is_reading], parent[is_reading]
            if not len(owner):
                break
            alive = np.unique(owner)
            fits, memory = self._read(owner, place, memory, read)
            owner, place, memory, parent = owner[fits], place[fits], memory[fits], parent[fits]
            if self.trace is not None:
                self.trace.append((place, parent))
            owner, place, memory, parent = self._follow(owner, place, memory, read)
            is_over = np.ones(len(self.found.start), dtype=np.bool_)
            is_over[owner] = False
            over = alive[is_over[alive]]
            over = over[self.found.decided_us[over] == OPEN]
            self.found.decided_us[over] = self.rows.system_us[self.found.start[over] + read]
            read += 1
        if self.trace is not None:
            self.found.places = self._trace_back(self.trace)
        return self.found

    def _end_attempts(self, owner: Ints, read: int) -> Mask:
        """Decide the attempts that have no further row; return which threads read on."""
        found, rows = self.found, self.rows
        alive = np.unique(owner)
        begin = found.start[alive]
        row = begin + read
        last_us = rows.system_us[begin] + self.rules.limit_us
        has_row = row < rows.end[begin]
        has_row[has_row] = rows.system_us[row[has_row]] <= last_us[has_row]
        is_known = ~has_row & (last_us < rows.known_us[begin])
        found.decided_us[alive[is_known]] = last_us[is_known]
        threads = np.bincount(owner, minlength=len(found.start))[alive]
        is_too_much = has_row & (found.steps[alive] + threads > STEPS_MAX)
        self._fail(alive[is_too_much], dict.fromkeys(alive[is_too_much].tolist(), TOO_MANY_STEPS), read)
        found.steps[alive] += threads
        reads_on = np.zeros(len(found.start), dtype=np.bool_)
        reads_on[alive[has_row & ~is_too_much]] = True
        return reads_on[owner]

    def _fail(self, attempts: Ints, reasons: Mapping[int, ReasonText], read: int) -> None:
        self.found.decided_us[attempts] = self.rows.system_us[self.found.start[attempts] + read]
        self.found.length[attempts] = 0
        self.found.reasons.update(reasons)

    def _read(self, owner: Ints, place: Ints, memory: Ints, read: int) -> tuple[Mask, Ints]:
        """Return which threads the next row fits, and what they remember with it."""
        row = self.found.start[owner] + read
        fits = np.ones(len(owner), dtype=np.bool_)
        variable = self.variable_of[place]
        failed: dict[int, ReasonText] = {}
        for number, name in enumerate(self.variables):
            threads = np.flatnonzero(variable == number)
            if not len(threads):
                continue
            for column, remembered in enumerate(self.rules.memories):
                if remembered.variable in (None, name):
                    memory[threads, column] = remembered.remember(memory[threads, column], row[threads])
            condition = self.rules.conditions.get(name)
            if condition is not None:
                fits[threads], reasons = condition(row[threads], memory[threads])
                for thread, reason in reasons.items():
                    failed.setdefault(int(owner[threads[thread]]), reason)
        if failed:
            attempts = np.array(sorted(failed), dtype=np.int64)
            self._fail(attempts, failed, read)
            fits &= ~np.isin(owner, attempts)
        return fits, memory

    def _follow(self, owner: Ints, place: Ints, memory: Ints, read: int) -> _Threads:
        """Return the threads after a row that fitted."""
        counts = self.follow_counts[place]
        parent = np.repeat(np.arange(len(owner)), counts)
        offset = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
        owner, next_place, memory = owner[parent], self.follow[self.follow_starts[place][parent] + offset], memory[parent]
        ends = np.flatnonzero(next_place == ACCEPT)
        if len(ends):
            attempts, first = np.unique(owner[ends], return_index=True)
            self.found.length[attempts] = read + 1
            self.accepted[attempts] = parent[ends[first]]
            cut = np.full(len(self.found.start), len(owner))
            cut[attempts] = ends[first]
            kept = np.arange(len(owner)) < cut[owner]
            owner, next_place, memory, parent = owner[kept], next_place[kept], memory[kept], parent[kept]
        first_ones = self._preferred(owner, next_place, memory)
        return _Threads(owner[first_ones], next_place[first_ones], memory[first_ones], parent[first_ones])

    def _preferred(self, owner: Ints, place: Ints, memory: Ints) -> Ints:
        """Return the threads without those that have the future of a preferred one."""
        places = len(self.rules.automaton.names)
        keys = owner * places + place
        if memory.shape[1]:
            keys = np.unique(np.column_stack([keys, memory]), axis=0, return_inverse=True)[1].reshape(-1)
        first: Ints = np.unique(keys, return_index=True)[1]
        first.sort()
        return first

    def _trace_back(self, trace: list[tuple[Ints, Ints]]) -> Ints:
        length = self.found.length
        offset = np.cumsum(length) - length
        places = np.zeros(int(length.sum()), dtype=np.int64)
        thread = self.accepted.copy()
        for read in range(len(trace) - 1, -1, -1):
            matches = np.flatnonzero(length > read)
            place, parent = trace[read]
            places[offset[matches] + read] = place[thread[matches]]
            thread[matches] = parent[thread[matches]]
        return places
