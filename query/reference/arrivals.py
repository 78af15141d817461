"""
New reference data while a batch stays open: the planner takes versions up between two batches, so the driver ends the open one when it
finds a version that is not taken up yet. Law: it only asks for ends; which version counts is decided by the planner alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ordering.errors import TidegateError
from query.reference.objects import StoredObject
from query.reference.watch import LOOK_AT_STORE_S, LOOK_S, ReferenceTables, TakenVersions, present_versions
from tidegate.platform.checkpoint.open_batches import request_end

# The planner takes up a file that two looks find unchanged; one that it cannot use must not end batches for ever.
_ENDS_FOR_A_VERSION = 4


class VersionArrivals:
    """Looks for versions of the tables of a job with this *checkpoint*, about once a second; object stores are asked less often."""

    def __init__(self, checkpoint: Path, settings: ReferenceTables, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._checkpoint, self._settings, self._clock_s = checkpoint, settings, clock_s
        self._next_s = 0.0
        self._asked: Counter[tuple[str, int]] = Counter()

    def end_batch_if_new(self) -> bool:
        """Ask for the end of the open batch if there is a version that is not taken up; return whether that was done."""
        if self._clock_s() < self._next_s:
            return False
        new, asks_store = self._find_new()
        self._next_s = self._clock_s() + (LOOK_AT_STORE_S if asks_store else LOOK_S)
        self._asked.update(new)
        if not new:
            return False
        request_end(self._checkpoint)
        return True

    def _find_new(self) -> tuple[list[tuple[str, int]], bool]:
        taken, new, asks_store = TakenVersions.read(self._checkpoint), [], False
        try:
            for table, effective_us, path in present_versions(self._settings):
                asks_store |= isinstance(path, StoredObject)
                is_taken = taken is None or taken.version(table, effective_us) is not None
                if not is_taken and self._asked[table, effective_us] < _ENDS_FOR_A_VERSION:
                    new.append((table, effective_us))
        except (TidegateError, OSError):
            pass  # the planner reports it at the next batch
        return new, asks_store
