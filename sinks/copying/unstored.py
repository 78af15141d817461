"""
The age of the oldest result that a store lacks: for how long this process has seen it in the topic.

Law: the age is that of the oldest end seen of a partition beyond the store's position there. It rises while the store takes nothing, and is
0 once the store has all that was seen. A result's own times do not count: history is old when it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tidegate.platform.observe.recovery_report import Positions

# Of so many ends each second one is forgotten: an age may then be too small by the time between two of them.
_ENDS_MAX = 1_000


class UnstoredAge:
    """Remembers when ends of partitions were seen; *clock_s* is a clock that never goes back, in seconds."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        # By partition, in order: when an end was first seen, and the end.
        self._seen: dict[tuple[str, int], list[tuple[float, int]]] = {}

    def record(self, ends: Positions, stored: Mapping[str, Positions]) -> None:
        """Note the newest *ends*; forget those that all stores have, by *stored*, the next log offsets of each store."""
        now_s = self._clock_s()
        for place, end in ends.items():
            seen = self._seen.setdefault(place, [])
            least = min((positions.get(place, 0) for positions in stored.values()), default=end)
            seen[:] = [(since_s, known) for since_s, known in seen if known > least]
            if end > least and (not seen or end > seen[-1][1]):
                seen.append((now_s, end))
            if len(seen) > _ENDS_MAX:
                # The oldest stays, since its age is told.
                del seen[1:-1:2]

    def age_s(self, stored: Positions) -> float:
        """Return the age in seconds for a store that has all results below the log offsets *stored*."""
        firsts = [next((since_s for since_s, end in seen if end > stored.get(place, 0)), None) for place, seen in self._seen.items()]
        return self._clock_s() - min(known) if (known := [since_s for since_s in firsts if since_s is not None]) else 0.0
