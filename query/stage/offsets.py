"""The source's offset: how far each log (each partition of the ordered topics) is planned. JSON of integers with sorted keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class QueryOffset:
    """The next offset of each log."""

    positions: Mapping[int, int]
    # Whether a run to the present end has reached it.
    is_final: bool = False
    # How many versions of reference data the run has taken up since it was begun.
    references: int = 0
    # How many batches were planned to stay open: such a batch begins also if nothing new is there yet.
    opened: int = 0

    def to_json(self) -> dict[str, Any]:
        positions = {str(log): self.positions[log] for log in sorted(self.positions)}
        opened = {"opened": self.opened} if self.opened else {}
        return {"final": int(self.is_final), "positions": positions, "references": self.references, **opened}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> QueryOffset:
        positions = {int(log): position for log, position in stored["positions"].items()}
        return cls(positions, bool(stored["final"]), stored["references"], stored.get("opened", 0))
