"""
The ticks of a running job: once a second its driver logs what its workers have logged, publishes its progress and shows it.

Law: a tick that meets an error of the operating system, such as too many open files, does not end the job. The error is logged, and the
next tick tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.platform.observe.logs import get_logger

_SAY_EVERY_S = 60.0


class Ticks:
    """Call it for each tick: it runs *tick*, and logs an OSError of it when it begins, changes or has lasted for another minute."""

    def __init__(self, tick: Callable[[], object], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._tick, self._clock_s = tick, clock_s
        self._error, self._said_s = "", -_SAY_EVERY_S

    def __call__(self) -> None:
        try:
            self._tick()
        except OSError as error:
            self._say(f"{type(error).__name__}: {error}")
        else:
            self._error = ""

    def _say(self, error: str) -> None:
        now_s = self._clock_s()
        if error != self._error or now_s - self._said_s >= _SAY_EVERY_S:
            get_logger().warning("the driver's log and progress could not be written: trying again; the job continues", error=error)
            self._error, self._said_s = error, now_s
