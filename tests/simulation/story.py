"""
The minimal story of a failing seed: faults, messages and settings are taken away as long as a law still breaks.

Law: what is printed is one run, told in order, whose scenario is part of the seed's; leaving out any one of its faults
(and, if the search was given time, any one message) would let every law hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from simulation.play import Outcome, play
from simulation.scenario import Scenario, Settings

from ordering.policies import Generation

RUNS_MAX = 500
"""Runs a search may take."""

_Part = TypeVar("_Part")


class Search:
    """Looks for the smallest scenario within one that breaks a law."""

    def __init__(self, scenario: Scenario, broken: frozenset[str] = frozenset()) -> None:
        self.scenario, self._broken, self._left = scenario, broken, RUNS_MAX

    def run(self) -> Scenario:
        """Return the smallest scenario found."""
        before = None
        while before != self.scenario and self._left > 0:
            before = self.scenario
            self._thin(lambda faults: replace(self.scenario, faults=tuple(faults)), lambda: self.scenario.faults)
            self._thin(lambda messages: replace(self.scenario, messages=tuple(messages)), lambda: self.scenario.messages)
            for settings in _simpler(self.scenario.settings):
                self._try(replace(self.scenario, settings=settings))
        return self.scenario

    def _try(self, smaller: Scenario) -> bool:
        if self._left <= 0 or smaller == self.scenario:
            return False
        self._left -= 1
        if play(smaller, self._broken).broken is None:
            return False
        self.scenario = smaller
        return True

    def _thin(self, made_of: Callable[[list[_Part]], Scenario], parts: Callable[[], Sequence[_Part]]) -> None:
        """Leave out ever smaller runs of parts."""
        size = len(parts())
        while size:
            at = 0
            while at < len(parts()):
                kept = [*parts()[:at], *parts()[at + size :]]
                if not self._try(made_of(kept)):
                    at += size
            size //= 2


def _simpler(settings: Settings) -> Iterator[Settings]:
    """Return the settings with one thing made simpler, for each such thing."""
    yield replace(settings, until_end=False)
    yield replace(settings, steady=False)
    yield replace(settings, drift_ppm=0)
    yield replace(settings, estimates=False)
    yield replace(settings, imported_lag_us=None)
    yield replace(settings, generation=Generation())
    yield replace(settings, batch_events=1000)
    yield replace(settings, piece_events=1000)
    yield replace(settings, output_partitions=1)
    yield replace(settings, over=False)


def minimal(scenario: Scenario, outcome: Outcome, broken: frozenset[str] = frozenset()) -> str:
    """Return the minimal story of a scenario that came out broken, as text."""
    smallest = Search(scenario, broken).run()
    told = play(smallest, broken, telling=True)
    size = f"{len(smallest.messages)} of {len(scenario.messages)} messages, {len(smallest.faults)} of {len(scenario.faults)} faults"
    lines = [
        f"seed {scenario.seed} breaks a law: {outcome.broken}",
        f"settings: {smallest.settings}",
        *(f"fault: {fault}" for fault in smallest.faults),
        f"minimal story: {size}",
        *(f"{number:4}. {line}" for number, line in enumerate(told.tale, 1)),
        f"      then: {told.broken}",
    ]
    return "\n".join(lines)
