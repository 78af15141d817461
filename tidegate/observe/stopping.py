"""Stops a command on a signal: the first signal asks it to end after the work under way, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stop:
    """Set if the process is asked to end (SIGTERM, SIGINT), or by :meth:`ask`."""

    def __init__(self) -> None:
        self.is_asked = False
        # Whether a signal asked, and not the job itself.
        self.is_signalled = False

    def ask(self, *_: Any) -> None:
        """End the job after the current batch."""
        self.is_asked = True


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Provide a :class:`Stop` that SIGTERM and SIGINT set; a second signal ends the process as usual."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_signalled:
            raise KeyboardInterrupt
        stop.is_signalled = stop.is_asked = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
