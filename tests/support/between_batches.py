"""What goes on between two batches, in process: each time for a few rounds, when the test says so."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

Work = Callable[[Callable[[], bool]], None]


class Between:
    """Stands for the threads of all tasks of a job; each task runs in a process of its own."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._works: list[Work] = []
        # How many times a round has followed.
        self.rounds = 0

    def go_on(self, folder: Path, work: Work, forget: Callable[[], None]) -> None:
        """A task has ended, and leaves its work."""
        self._works.append(work)

    def end(self) -> None:
        """A task begins; what was left has been run by then."""

    def run(self) -> None:
        """Run what was left."""
        works, self._works = self._works, []
        for work in works:
            looks = itertools.count()
            last = self._chance.choice([0, 1, 2, 5])
            work(lambda looks=looks, last=last: self._is_over(next(looks), last))

    def _is_over(self, look: int, last: int) -> bool:
        self.rounds += look < last
        return look >= last

    def forget(self) -> None:
        """The processes have died."""
        self._works = []
