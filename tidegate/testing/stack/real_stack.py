"""
A real Kafka and a real Redis for a test session, and the stages that a test runs on them as processes, and kills.

Law: what a killed stage leaves behind is what a power cut leaves; a stage that is started again gives the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

import psutil

from tidegate.platform.stack.embedded import EmbeddedStack
from tidegate.testing.stack.stack_choice import KAFKA_IMAGE, REDIS_IMAGE, find_obstacle

_POLL_S = 0.1
_HEAP = "512m"


@dataclass(frozen=True)
class RealStack:
    """Where the servers of the session answer, and what they are, in words. All processes of the session use them: nobody may stop them."""

    bootstrap: str
    redis_url: str
    kind: str

    def environment(self) -> dict[str, str]:
        """Return the environment in which ``tidegate`` uses these servers, whatever its configuration says."""
        return {**os.environ, "TIDEGATE_KAFKA__BOOTSTRAP": self.bootstrap, "TIDEGATE_REDIS__URL": self.redis_url}

    def run(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of ``tidegate`` to its end."""
        command = [sys.executable, "-P", "-m", "tidegate", *arguments]
        return subprocess.run(command, cwd=folder, env=self.environment(), capture_output=True, text=True, check=False)

    def assert_same_bytes(self, first: str, second: str, *, folder: Path) -> None:
        """Fail unless two ordered topics or result topics have the same events, byte for byte, to their ends."""
        done = self.run("compare", first, second, "--complete", folder=folder)
        assert done.returncode == 0, done.stdout or done.stderr

    def kill_and_restart(
        self,
        stage: Sequence[str],
        *,
        folder: Path,
        when: Callable[[], bool] | None = None,
        after_s: float | None = None,
        timeout_s: float = 600.0,
    ) -> bool:
        """
        Start a stage, kill it with everything it has started, start it again and wait for its end.

        By default it is killed as soon as it has written something that lasts: a record of an ordered topic or a result topic that its
        configuration names, a result file, or a committed batch. So it is in the middle of its work, however slow the machine is.

        Args:
            stage: The arguments of ``tidegate``: ``["ingest", "rides", "--until-end"]``.
            folder: Where it runs: the folder of its ``tidegate.toml``.
            when: It is killed once this returns true instead.
            after_s: It is killed so many seconds after its start instead.
            timeout_s: How long each of the two may take.

        Returns:
            Whether it was killed; False: it had ended by itself before.

        Raises:
            AssertionError: It ended by an error, took too long, or ended before it was seen to write anything.
        """
        named, is_due = f"tidegate {' '.join(stage)}", self._moment(stage, folder, when, after_s)
        with self._start(stage, folder) as first:
            until_s = time.monotonic() + timeout_s
            while not (has_ended := first.poll() is not None) and not is_due():
                assert time.monotonic() < until_s, f"{named} did not come so far in {timeout_s:g} s"
                time.sleep(_POLL_S)
        if has_ended and when is None and after_s is None:
            assert is_due(), f"{named} ended before it was seen to write: say when it is to be killed, by when= or after_s="
        with self._start(stage, folder) as second:
            second.wait(timeout_s)
        return not has_ended

    def _moment(self, stage: Sequence[str], folder: Path, when: Callable[[], bool] | None, after_s: float | None) -> Callable[[], bool]:
        """Return what says that a stage, which is started now, is to be killed."""
        if when is not None:
            return when
        if after_s is not None:
            kill_s = time.monotonic() + after_s
            return lambda: time.monotonic() >= kill_s
        from tidegate.testing.stack.stage_progress import WatchedFolder

        progress = WatchedFolder(stage, folder, self.environment())
        before = progress.read()
        return lambda: progress.read() != before

    @contextlib.contextmanager
    def _start(self, stage: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run a stage in a session of its own, which is killed at the end; fail if it ended by an error before."""
        command = [sys.executable, "-P", "-m", "tidegate", *stage]
        with TemporaryFile() as errors:
            process = subprocess.Popen(
                command, cwd=folder, env=self.environment(), stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
            try:
                yield process
                code = process.poll()
                errors.seek(0)
                assert code in (None, 0), f"tidegate {' '.join(stage)} ended with {code}:\n{errors.read()[-4000:].decode(errors='replace')}"
            finally:
                kill_session(process)


@contextlib.contextmanager
def real_stack(folder: Path) -> Iterator[RealStack]:
    """Start the servers, those of the embedded stack in *folder*; stop them and delete what they hold at the end."""
    if obstacle := find_obstacle(KAFKA_IMAGE, REDIS_IMAGE):
        with EmbeddedStack(folder, heap=_HEAP) as running:
            yield RealStack(running.bootstrap, running.redis_url, f"the embedded stack ({obstacle})")
            running.stop(wipe=True)
        return
    from tidegate.testing.stack.containers import ContainerStack

    containers = ContainerStack()
    try:
        containers.start()
        yield RealStack(containers.bootstrap, containers.redis_url, f"containers ({KAFKA_IMAGE} and {REDIS_IMAGE})")
    finally:
        containers.stop()


def session_of(pid: int) -> int:
    """Return the session of a process, which is the process id of its job; -1 of one that has ended."""
    try:
        return -1 if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getsid(pid)
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return -1


class SessionLeader(Protocol):
    """A process that was started in a session of its own."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


def kill_session(process: SessionLeader) -> None:
    """End a process that leads a session, and everything in it, at once (SIGKILL)."""
    while members := [member for member in psutil.process_iter() if session_of(member.pid) == process.pid]:
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        # Its own child is waited for below: whoever waits first hears the exit code.
        process.poll()
        psutil.wait_procs([member for member in members if member.pid != process.pid], timeout=_POLL_S)
    process.wait()
