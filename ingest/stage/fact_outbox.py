"""
Facts of the journal that wait for a CTI to carry them into the ordered topic (PROTOCOL.md, "The header tf").
Law: a fact that took effect is carried by the first CTI that each channel writes afterwards in the same walk. If no CTI is due, the last
promise is repeated to carry it. Before the first promise facts wait in the state: until then no reader uses any result of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ingest.planned_range import IngestRange
from ordering.model.state import State
from ordering.model.step import Model
from ordering.protocol.facts import ORIGIN, Fact, FactKind, text_digest
from ordering.protocol.punctuation import Cti

# The most facts in one CTI: 192 kB, a size that every topic accepts.
FACTS_AT_ONCE = 8_000


class FactOutbox:
    """The facts of one range; the state keeps those that wait."""

    def __init__(self, model: Model, state: State, facts: Iterable[Fact]) -> None:
        self._model, self._state = model, state
        state.pending_facts = tuple(dict.fromkeys((*state.pending_facts, *facts)))

    def attach(self, ctis: list[Cti], is_last: bool) -> list[Cti]:
        """Return *ctis* with the waiting facts; the last call of a range (*is_last*) repeats a promise if facts are left."""
        if ctis:
            ctis = self._attach_to_first(ctis, self._pop_next())
        while is_last and self._state.pending_facts and (repeated := self._model.repeat_last_cti(self._state)) is not None:
            ctis.append(replace(repeated, facts=self._pop_next()))
        return ctis

    def _attach_to_first(self, ctis: list[Cti], facts: tuple[Fact, ...]) -> list[Cti]:
        first = {cti.output_partition: index for index, cti in reversed(list(enumerate(ctis)))}
        return [replace(cti, facts=facts if first[cti.output_partition] == index else ()) for index, cti in enumerate(ctis)]

    def _pop_next(self) -> tuple[Fact, ...]:
        facts, self._state.pending_facts = self._state.pending_facts[:FACTS_AT_ONCE], self._state.pending_facts[FACTS_AT_ONCE:]
        return facts


def range_facts(planned: IngestRange, planning_kind: FactKind, is_first: bool) -> Iterator[Fact]:
    """Yield the facts that take effect in a range; *is_first*: also those in force at its start, which no CTI has carried yet."""
    if is_first:
        yield Fact(ORIGIN, planned.partition, text_digest(planned.topic))
    if planned.joins:
        yield Fact(FactKind.JOIN, planned.number, planned.joined_us)
    if planned.base_us:
        yield Fact(FactKind.BASE, 0, planned.base_us)
    yield from (Fact(FactKind.ESTIMATE, *mark) for mark in planned.marks)
    yield from (Fact(FactKind.IMPORT, *mark) for mark in planned.imports)
    # The span of an undone skip is empty; it is no fact.
    yield from (Fact(FactKind.SKIP, *skip) for skip in planned.skips if planned.start <= skip[0] < skip[1])
    yield from (Fact(planning_kind, *span) for span in planned.spans if is_first or span[0] >= planned.start)
