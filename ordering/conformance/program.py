"""
A program under test: another process, in any language, that answers the questions of the conformance kit.

Law: no program blocks the kit for ever. If it ends or exceeds its timeout, :class:`EndedError` is raised, and all processes that it started
are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Timer
from types import TracebackType
from typing import IO, Any

# How long a program may take for one answer by default.
TIMEOUT_S = 60.0
_GRACE_S = 1.0


class EndedError(EOFError):
    """The program under test has ended, or was killed because it exceeded the timeout."""


class AnsweringProgram:
    """
    An implementation in another process: it answers each line ``{"operation": ..., "given": ...}`` with one line. A context manager.
    OSError: the program does not exist or cannot be started.
    """

    def __init__(self, command: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._took_too_long = Event()
        # A session of its own, so that killing the process group also kills processes that a script has started.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
        )

    def __call__(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Ask the program one question. EndedError: it has ended, or did not answer in time. ValueError: the answer is no JSON object."""
        line = self._answer_to(json.dumps({"operation": operation, "given": given}) + "\n")
        if not line:
            raise EndedError(self._how_it_ended())
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError(f"not a JSON object: {line.strip()[:80]}")
        return answer

    def _answer_to(self, question: str) -> str:
        # Killing the program unblocks both a write to a full pipe and a read from an empty one.
        watch = Timer(self._timeout_s, self._give_up)
        watch.daemon = True
        watch.start()
        try:
            asked = _pipe(self._process.stdin)
            asked.write(question)
            asked.flush()
            return _pipe(self._process.stdout).readline()
        except BrokenPipeError:
            return ""
        finally:
            watch.cancel()

    def _give_up(self) -> None:
        self._took_too_long.set()
        self._end()

    def _end(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _how_it_ended(self) -> str:
        if self._took_too_long.is_set():
            return f"no answer within {self._timeout_s:g} s: does it flush each line?"
        try:
            return f"the program ended without an answer, with exit status {self._process.wait(_GRACE_S)}"
        except subprocess.TimeoutExpired:
            return "the program closed its output without an answer"

    def __enter__(self) -> AnsweringProgram:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._end()
        try:
            # Whoever reads lines until there are none ends by itself when its input is closed.
            self._process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            self._end()
            self._process.communicate()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "the program was started with pipes"
    return stream
