"""
What the stage has closed in the journal between two open batches, while its planner plans the next one and has not seen these facts.
They are noted in the checkpoint's folder before they have an effect.

Law: a planner that goes on without the journal, or gives a journal back what it has lost, first waits until nothing goes on, and knows what
was noted. Facts stay true: what is noted of an earlier batch does no harm.
"""

from __future__ import annotations

import json
from pathlib import Path

from ingest.offsets import Partition, PlannedPosition, Positions
from ordering.errors import TidegateError
from tidegate.platform.checkpoint.between_batches import all_have_ended

_PREFIX = "closed_between_"


class ClosedBetween:
    """The file of one task; *number* is the least roster number of its partitions. It is written anew each time."""

    def __init__(self, folder: Path, number: int) -> None:
        self._path = folder / f"{_PREFIX}{number}.jsonl"
        self._mode = "w"

    def add(self, ends: Positions) -> None:
        """Note the *ends*, with their facts, of ranges that were closed."""
        with self._path.open(self._mode) as file:
            file.writelines(json.dumps([*partition, end.to_json()]) + "\n" for partition, end in ends.items())
        self._mode = "a"


def read_closed_between(folder: Path) -> list[tuple[Partition, PlannedPosition]]:
    """
    Return what was closed after the last batch, once nothing goes on. A line that is torn had no effect.

    Raises TidegateError (TG-JOURNAL-BUSY): something still goes on.
    """
    if not all_have_ended(folder):
        raise TidegateError(
            "a task of the last batch still goes on, and may rely on facts of the journal that are not known here",
            code="TG-JOURNAL-BUSY",
            where=str(folder),
            fix="nothing, this is tried again; if it lasts, end the job's Python workers: what they do is repeated",
        )
    found = []
    for path in folder.glob(f"{_PREFIX}*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                topic, number, end = json.loads(line)
            except ValueError:
                continue
            found.append(((topic, number), PlannedPosition.from_json(end)))
    return found
