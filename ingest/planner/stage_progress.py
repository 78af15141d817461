"""
What the stages have reached, left by the driver in the checkpoint's folder for the planner beside it.

Law: what stands there was so at the end of a batch, and each partition says at which position; it may be older than the
last batch, or missing, and then says nothing. So it may be believed where the position is the one that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ingest.offsets import Partition, name_of, partition_of
from ordering.ticks import TICK_MIN
from tidegate.checkpoint.binding import replace_text

_FILE = "reached.json"


@dataclass(frozen=True, slots=True)
class Reached:
    """
    Where the walk of one input partition stood after a batch.

    Args:
        next_offset: Everything below was judged.
        arrival_us: A, the arrival frontier; below every tick before the first record that has an arrival.
        c_us: What its channels have promised.
        held: How many events wait.
    """

    next_offset: int
    arrival_us: int
    c_us: int
    held: int

    @property
    def has_arrived(self) -> bool:
        """Whether there was a record with an arrival."""
        return self.arrival_us >= TICK_MIN


class Leaving:
    """The driver's side: leaves the last report of each input partition in a checkpoint's *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._reached = folder, find(folder)

    def take(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Take the reports of one batch."""
        for report in reports:
            numbers = (int(report[name]) for name in ("next_offset", "arrival_us", "c", "held"))
            self._reached[report["topic"], int(report["partition"])] = Reached(*numbers)
        said = {name_of(partition): astuple(reached) for partition, reached in self._reached.items()}
        replace_text(self._folder / _FILE, json.dumps(said))


def find(folder: Path) -> dict[Partition, Reached]:
    """Return what was left in a checkpoint's folder; nothing if it cannot be read."""
    try:
        said = json.loads((folder / _FILE).read_text())
        return {partition_of(name): Reached(*numbers) for name, numbers in said.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
