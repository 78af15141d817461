"""
Facts of the journal that wait for a CTI to carry them into the ordered topic (PROTOCOL.md, "The header tf").

Law: a fact that took effect is carried by the first CTI of every channel that is written afterwards in the same walk, and
by one CTI at least: where none is due the last promise is repeated. Where no promise was given yet facts wait, saved with
the state: nothing that rests on them can have been called final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ordering.model.state import State
from ordering.model.step import Model
from ordering.protocol.facts import ORIGIN, Fact, FactKind, topic_mark
from ordering.protocol.punctuation import Cti
from ordering.ticks import NEVER

FACTS_AT_ONCE = 8_000
"""So many go with one CTI, 192 kB: every topic takes a record of that size."""


class Telling:
    """
    The facts of one range.

    Args:
        model: Repeats promises.
        state: Remembers what waits.
        facts: What takes effect in this range.
    """

    def __init__(self, model: Model, state: State, facts: Iterable[Fact]) -> None:
        self._model, self._state = model, state
        state.untold = tuple(dict.fromkeys((*state.untold, *facts)))

    def onto(self, ctis: list[Cti], last: bool) -> list[Cti]:
        """
        Return *ctis*, in their order, with the facts that wait.

        Args:
            ctis: What is written now.
            last: Whether nothing more is written in this range: then a promise is repeated for what still waits.
        """
        if ctis:
            ctis = self._laden(ctis, self._next())
        while last and self._state.untold and (again := self._model.repeat(self._state)) is not None:
            ctis.append(replace(again, facts=self._next()))
        return ctis

    def _laden(self, ctis: list[Cti], facts: tuple[Fact, ...]) -> list[Cti]:
        seen: set[int] = set()
        return [replace(cti, facts=facts if _first(cti.output_partition, seen) else ()) for cti in ctis]

    def _next(self) -> tuple[Fact, ...]:
        facts, self._state.untold = self._state.untold[:FACTS_AT_ONCE], self._state.untold[FACTS_AT_ONCE:]
        return facts


def _first(partition: int, seen: set[int]) -> bool:
    known = partition in seen
    seen.add(partition)
    return not known


def facts_of(planned: Any, span_kind: FactKind, first: bool) -> Iterator[Fact]:
    """
    Yield the facts that take effect in a range.

    Args:
        planned: The range, as the source hands it out.
        span_kind: Whether its moments are stamps or verdicts.
        first: Whether nobody has told yet what was in force where it starts.
    """
    if first:
        yield Fact(ORIGIN, int(planned.partition), topic_mark(planned.topic))
    if planned.joined > NEVER and planned.start == planned.end:
        yield Fact(FactKind.JOIN, int(planned.number), int(planned.joined))
    if planned.base:
        yield Fact(FactKind.BASE, 0, int(planned.base))
    yield from (Fact(FactKind.ESTIMATE, *mark) for mark in pairs(planned.marks))
    yield from (Fact(FactKind.IMPORT, *mark) for mark in pairs(planned.imports))
    yield from (Fact(span_kind, *span) for span in pairs(planned.spans) if first or span[0] >= planned.start)


def pairs(flat: Any) -> tuple[tuple[int, int], ...]:
    """Return a flat column of a range as (position, value) pairs."""
    return tuple((int(flat[place]), int(flat[place + 1])) for place in range(0, len(flat), 2))
