"""
When the JVM collects its garbage in silence, so that it gives the memory of a burst back.

Law: it collects once after the last batch of all queries, not again and again: a collection costs it a tenth of a CPU second.
"""

from __future__ import annotations

import math
import threading


class SilentCollection:
    """The collection of one JVM that is still to come, *after_s* after the last batch. Clocks are parameters, seconds."""

    def __init__(self, after_s: float) -> None:
        self._after_s, self._due_s, self._lock = after_s, math.inf, threading.Lock()

    def note_batch(self, now_s: float) -> None:
        """Note that a batch has ended: it has left garbage."""
        with self._lock:
            self._due_s = now_s + self._after_s

    def take_due(self, now_s: float) -> bool:
        """Return whether the caller is to collect now; nobody else is told so then."""
        with self._lock:
            is_due, self._due_s = now_s >= self._due_s, math.inf if now_s >= self._due_s else self._due_s
        return is_due
