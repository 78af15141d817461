"""
Signals before a job's modules are imported, which takes a second on a busy machine: nothing has begun, so the process ends at once.

Law: a job that was asked to stop has not failed (:mod:`tidegate.platform.observe.stopping`, whose handlers replace this one).
"""

import os
import signal
import sys
from types import FrameType

# The commands that run until they are stopped.
JOBS = ("ingest", "query", "sink", "run")
STOPPED = "stopped by a signal while it was starting: the next start continues\n"


def end_on_signal() -> None:
    """End this process with exit code 0 upon SIGTERM or SIGINT, if its first argument names a job."""
    if sys.argv[1:2] and sys.argv[1] in JOBS:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    # Modules may be half imported, so nothing else is run.
    os.write(2, STOPPED.encode())
    os._exit(0)
