"""
Private folders for files of a job outside of its checkpoint: sockets, spilled data, settings of the JVM.

Law: only the job's user can look into such a folder. The job removes it at its end. If the job was killed, the next job of this user
removes it. No job removes the folder of a running job, or anything else.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from ordering.errors import TidegateError

PREFIX = "tidegate-job-"
# The umask of the user: results are written with it, so that others can read them.
RESULTS_UMASK = "_TIDEGATE_RESULTS_UMASK"


def keep_files_private() -> None:
    """Have this process and its children make files that only their user can read."""
    os.environ.setdefault(RESULTS_UMASK, f"{os.umask(0o077):o}")


def share_results() -> None:
    """Have this process, a worker, make files as the user's own umask says."""
    if RESULTS_UMASK in os.environ:
        os.umask(int(os.environ[RESULTS_UMASK], 8))


def make_private_folder(parent: Path) -> Path:
    """
    Make a folder in *parent* that lasts as long as this process, and remove the folders of killed jobs there.

    Raises TidegateError: no folder can be made there.
    """
    _remove_unlocked_folders(parent)
    while True:
        try:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        except OSError as error:
            what = f"no folder for the sockets and the spilled data of Spark can be made: {error}"
            raise TidegateError(what, code="TG-SPARK-START", where=str(parent), fix=f"let this user write to {parent}") from error
        # The lock shows other jobs that this one runs. The process holds it until it ends, in whatever way.
        if _lock(folder, wait=True) is not None or folder.exists():
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return folder
        # Before the folder was locked, another job took it for that of a killed job and removed it.


def _remove_unlocked_folders(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        lock = _lock(folder, wait=False)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """
    Return an open descriptor that locks a folder of this user.

    None: there is no such folder, or its file system has no locks, or (without *wait*) another process has locked it.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with suppress(OSError):
            status = os.fstat(descriptor)
            if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                # Another job may have removed the folder while this process waited.
                if os.path.samestat(status, folder.lstat()):
                    return descriptor
        os.close(descriptor)
    return None
