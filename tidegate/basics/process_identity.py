"""
The identity of a process of this machine: where it can be asked, the death of a job shows at once, not after a silence.

Law: only a process that would be seen here, by the boot of the machine and the namespace of its process ids, is said to have ended.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

# Where the start of a process stands in /proc/PID/stat, counted after its name, which may hold blanks; and its state.
_STARTED, _STATE = 19, 0
_ENDED = ("Z", "X")
_PROCESS_ID = re.compile(r"\d{1,10}", re.ASCII)


def own_identity() -> str:
    """Return the identity of this process; empty where there is no /proc."""
    with suppress(OSError, IndexError):
        return f"{_view()}/{os.getpid()}/{_fields(os.getpid())[_STARTED]}"
    return ""


def has_ended(identity: object) -> bool:
    """Return whether the process of an *identity*, which somebody else may have written, is known to have ended."""
    if not isinstance(identity, str):
        return False
    view, _, place = identity.rpartition("/")[0].rpartition("/")
    started = identity.rpartition("/")[2]
    if not _PROCESS_ID.fullmatch(place) or not started.isdigit():
        return False
    with suppress(OSError, IndexError):
        if view != _view():
            return False
        try:
            fields = _fields(int(place))
        except (FileNotFoundError, ProcessLookupError):
            return True
        return fields[_STARTED] != started or fields[_STATE] in _ENDED
    return False


def _view() -> str:
    """Return what the process ids that are seen here belong to."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
