"""
The claim of a running job on its checkpoint folder: a second job beside it is refused at once, not when both write the same batch.

Law: a claim ends with its process, whatever ends that. Only a process that is seen to run on this machine keeps others out. One in another
container, on another machine, or held still does not; of two such jobs Spark ends one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ordering.errors import RefusedError

# The file that marks the folder of a job whose reset is under way (:mod:`tidegate.tools.reset.deletion`).
UNFINISHED_RESET = "reset"
# States of a process that does nothing: stopped, traced, ended.
_STILL = set("TtZX")
# By folder: its descriptor, which has the lock.
_claimed: dict[Path, int] = {}


def claim(folder: Path) -> None:
    """
    Claim a folder, unless it is missing, until its release or this process's end. RefusedError (TG-CHECKPOINT-TAKEN): another has. A job
    then checks that no reset of it is under way (:func:`check_not_resetting`).
    """
    if folder in _claimed or not folder.exists():
        return
    # The lock of an opened folder leaves no file behind, and no program that is started inherits the descriptor.
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _claimed[folder] = opened
    except OSError:  # it is locked, or on a file system without such locks
        owner = _owner(os.fstat(opened).st_ino)
        os.close(opened)
        if owner is not None:
            what = f"process {owner} uses this checkpoint"
            fix = f"nothing, if it is meant to; else end it first (kill {owner}): the next start resumes where it stopped"
            raise RefusedError(what, code="TG-CHECKPOINT-TAKEN", where=str(folder), fix=fix) from None


def check_not_resetting(folder: Path) -> None:
    """Raise RefusedError (TG-RESET-UNFINISHED) if a reset of this job was cut off: a part of what it has made is gone."""
    if (folder / UNFINISHED_RESET).exists():
        what, fix = "a reset of this job was cut off: a part of what it has made is gone", "give tidegate reset with its name again"
        raise RefusedError(what, code="TG-RESET-UNFINISHED", where=str(folder), fix=fix)


def release(folder: Path) -> None:
    """Let another process claim a folder."""
    if folder in _claimed:
        os.close(_claimed.pop(folder))


def _owner(inode: int) -> int | None:
    """Return the process that has locked a file, if it is seen to run on this machine."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK ADVISORY WRITE 4711 08:01:1310733 0 EOF
            _, kind, _, _, pid, place, *_ = line.replace(" -> ", " ").split()
            if kind == "FLOCK" and place.rpartition(":")[2] == str(inode) and _runs(int(pid)):
                return int(pid)
    return None


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in _STILL
    return False
