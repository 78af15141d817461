"""A checkpoint folder belongs to one running process; one that was killed or is held still keeps nobody out."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordering.errors import RefusedError
from tidegate.platform.checkpoint.claim import claim, release

HOLD = """
import sys, time
from pathlib import Path
from tidegate.platform.checkpoint.claim import claim
claim(Path(sys.argv[1]))
print(flush=True)
time.sleep(99)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed the folder."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_second_process_is_refused_and_told_the_first(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    """As often as it tries."""
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"process {other.pid} uses this checkpoint") as refusal:
            claim(tmp_path)
        assert (refusal.value.code, refusal.value.where) == ("TG-CHECKPOINT-TAKEN", str(tmp_path))


def test_a_process_that_was_killed_has_no_claim(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    """Even if nobody has waited for it yet: from outside it is there still."""
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    claim(tmp_path)
    claim(tmp_path)


def test_a_process_that_is_held_still_keeps_nobody_out(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    """It may never go on; if it does, Spark ends one of the two."""
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    claim(tmp_path)


def test_what_is_released_is_free_for_another(tmp_path: Path) -> None:
    """A process of several inputs releases that of one that has failed."""
    claim(tmp_path)
    release(tmp_path)
    release(tmp_path)
    opened = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(opened)


def test_what_is_not_there_is_claimed_by_nobody(tmp_path: Path) -> None:
    """A start that is refused makes no folder."""
    claim(tmp_path / "none")
    assert not (tmp_path / "none").exists()
