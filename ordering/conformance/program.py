"""
A program under test: another process that answers the questions of the conformance kit, in whatever language.

Law: no program keeps the kit waiting for ever. One that ends, or takes longer than it may, raises
:class:`EndedError`; afterwards neither it nor any process it started is left running.
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
    """The program under test answers no more: it has ended, or was ended because it took too long."""


class Program:
    """
    An implementation in another process, which answers lines ``{"operation": ..., "given": ...}`` with its answers, a line each.

    Use it as a context manager.

    Args:
        command: The program and its arguments.
        timeout_s: How long one answer may take, seconds.

    Raises:
        OSError: There is no such program, or it cannot be started.
    """

    def __init__(self, command: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._took_too_long = Event()
        # A session of its own: what a script has started is ended together with it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
        )

    def __call__(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """
        Ask the program.

        Raises:
            EndedError: It has ended, or did not answer in time and was ended.
            ValueError: Its answer is no JSON object.
        """
        line = self._answer_to(json.dumps({"operation": operation, "given": given}) + "\n")
        if not line:
            raise EndedError(self._how_it_ended())
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError(f"not a JSON object: {line.strip()[:80]}")
        return answer

    def _answer_to(self, question: str) -> str:
        """Return the line that answers a line, nothing if there is none to come."""
        # Ending the program ends whatever waits for it: a full pipe as well as an empty one.
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

    def __enter__(self) -> Program:
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
