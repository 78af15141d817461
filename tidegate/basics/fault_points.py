"""
Points between two steps that a crash must not tear apart, where the fault campaign can stop a process.

A crash in the middle of a write cannot be timed from outside, because the write is over too soon. So a job calls :func:`pause_at` between
such steps. Law: unless ``TIDEGATE_FAULT_POINT`` is set when the process starts, the call does nothing. If it is set, the process stops
itself there once (SIGSTOP), and records are sent as soon as the writer gets them.

``TIDEGATE_FAULT_POINT=POINT:PASS:FILE``: stop when POINT is reached for the PASSth time in a process, unless FILE exists;
FILE is made with the process's id in it, so that one process of a job stops and no other does after it.
"""

from __future__ import annotations

import os
import signal
import time

VARIABLE = "TIDEGATE_FAULT_POINT"
# The points of a walk over a range, in their order. Some records were read; the events that they released were given to the writer; the
# broker has acknowledged all events, and CTIs follow; the CTIs were given to the writer, not acknowledged; all is acknowledged, and the
# state is not saved yet.
POINTS = ("piece read", "piece written", "events acknowledged", "ctis sent", "walked")
# Of an open batch of ingest, which meets all others too except "piece read" in each of its rounds: the journal has closed what was read,
# and it is not noted yet; it is noted, and nothing of it is judged yet.
OPEN_POINTS = ("open piece closed", "open piece noted")
# The points of a batch for a store. It is cut; its rows were sent; its progress was sent; the store has committed both, and the copier does
# not know it yet.
STORE_POINTS = ("batch cut", "rows sent", "progress sent", "batch written")
# The points of a reset, each after the step that it names. "rows cleared" lies within a store's part: (some) rows are gone, its progress is
# still there; where both go in one commit, it is not committed yet.
RESET_POINTS = ("reset marked", "checkpoint deleted", "topics deleted", "rows cleared", "rows deleted", "files deleted")

# The pause between a point and the stop, in which the writer sends some of its records, so that a write is torn.
_TEAR_S = 0.03

_point, _pass, _file = [*os.environ.get(VARIABLE, "").split(":", 2), "", ""][:3]
_passes = 0
# Whether the campaign waits for a point in this process.
is_armed = bool(_point)


def pause_at(point: str) -> None:
    """Stop the process here if the campaign waits for *point*."""
    if point == _point:
        _stop_at_pass()


def _stop_at_pass() -> None:
    global _passes
    _passes += 1
    if _passes < int(_pass):
        return
    try:
        marker = os.open(_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(marker, b"%d\n" % os.getpid())
    os.close(marker)
    time.sleep(_TEAR_S)
    os.kill(os.getpid(), signal.SIGSTOP)
