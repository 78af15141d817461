"""
Stops a command on a signal: the first signal asks it to end after the work under way, the second ends it at once.

Law: a job that was asked to stop has not failed, at whatever moment of its start the signal comes: it ends with exit code 0. A service
manager signals all processes of a job, so its JVM may end first, and what that breaks is no failure either. Nor is a signal forgotten whose
exception Python drops: one that is raised in a callback of the garbage collector or of an import ends there.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tidegate.basics.early_stop import handler_before_start


class Stop:
    """Set if the process is asked to end (SIGTERM, SIGINT), or by :meth:`ask`."""

    def __init__(self) -> None:
        self.is_asked = False
        # Whether a signal asked, and not the job itself.
        self.is_signalled = False

    def ask(self, *_: Any) -> None:
        """End the job after the current batch."""
        self.is_asked = True


class StoppedWhileStarting(BaseException):
    """A signal has asked a job to stop before its work began. It is no Exception, so nobody takes it for a failure on its way."""


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# How long the end of a JVM may be noticed before the signal that has ended it, seconds.
_SIGNAL_LATE_S = 0.5
# The handlers before the start of a job, and whether a signal has come since.
_outer_handlers: dict[int, Any] = {}
_seen_signals: list[int] = []
# Those of them that came before the job's own work began.
_start_signals: list[int] = []


@contextmanager
def stop_while_starting() -> Iterator[None]:
    """Raise StoppedWhileStarting upon a signal, until the job's own :func:`stop_on_signal` takes over."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        _seen_signals.append(number)
        _start_signals.append(number)
        raise StoppedWhileStarting

    def on_dropped(dropped: sys.UnraisableHookArgs) -> None:
        # The signal is remembered, and a traceback would look like a failure.
        if dropped.exc_type is not StoppedWhileStarting:
            outer_hook(dropped)

    _seen_signals.clear()
    _start_signals.clear()
    outer_hook, sys.unraisablehook = sys.unraisablehook, on_dropped
    _outer_handlers.update({number: signal.signal(number, on_signal) for number in _SIGNALS})
    try:
        yield
    finally:
        sys.unraisablehook = outer_hook
        for number, handler in _outer_handlers.items():
            signal.signal(number, handler)
        _outer_handlers.clear()
        _start_signals.clear()


def raise_if_stopped_before() -> None:
    """Raise StoppedWhileStarting if a signal has come before the job's own work began, whatever has become of its exception since."""
    if _start_signals:
        raise StoppedWhileStarting


def raise_if_signalled() -> None:
    """Raise StoppedWhileStarting if a signal has asked this process to stop, or does so in a moment. Called when a start has failed."""
    deadline_s = time.monotonic() + _SIGNAL_LATE_S
    while not _seen_signals and time.monotonic() < deadline_s:
        time.sleep(_SIGNAL_LATE_S / 10)
    if _seen_signals:
        raise StoppedWhileStarting


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """
    Provide a :class:`Stop` that SIGTERM and SIGINT set; a second signal ends the process as usual. Raises StoppedWhileStarting: one has
    come during the start before, and its exception was dropped.
    """
    raise_if_stopped_before()
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        _seen_signals.append(number)
        if stop.is_signalled:
            raise KeyboardInterrupt
        stop.is_signalled = stop.is_asked = True

    _seen_signals.clear()
    before: dict[int, Any] = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    # After the run, which is no start any more, a signal does what it did before the start.
    _outer_handlers.update({number: handler_before_start(number, handler) for number, handler in _outer_handlers.items()})
    before.update(_outer_handlers)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
