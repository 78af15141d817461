"""
Signals before a job's modules are imported, which takes a second on a busy machine: nothing has begun, so the process ends at once.

Law: a job that was asked to stop has not failed (:mod:`tidegate.platform.observe.stopping`, whose handlers replace this one). That holds
from the first line of ours on: before it, while Python itself starts, nobody can answer. Once a job's work has begun this handler never
comes back, since what ends then has been more than a start.
"""

import os
import signal
from types import FrameType
from typing import Any

# The commands that run until they are stopped.
JOBS = ("ingest", "query", "sink", "run")
STOPPED = "stopped by a signal while it was starting: the next start continues\n"

# The handlers before this one.
_before: dict[int, Any] = {}


def end_on_signal() -> None:
    """End this process with exit code 0 upon SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        _before[number] = signal.signal(number, _end)


def handler_before_start(number: int, handler: Any) -> Any:
    """Return the handler that a signal had before the start of this process's job, which has *handler* now."""
    return _before[number] if handler is _end else handler


def _end(number: int, frame: FrameType | None) -> None:
    # Modules may be half imported, so nothing else is run.
    os.write(2, STOPPED.encode())
    os._exit(0)
