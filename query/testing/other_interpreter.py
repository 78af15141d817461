"""
Another interpreter that runs the same query: its hash seed, its time zone and its clock differ, and it has run nothing else.

One process for each test session, asked over its standard streams. Law: a query gives there the bytes that it gives here.
"""

from __future__ import annotations

import atexit
import datetime
import os
import pickle
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from typing import IO, Any

AHEAD_S = 987_654_321.0
"""How far its clock is ahead, seconds: no day, hour, minute or second of it is the same."""


class OtherInterpreter:
    """The process; it lives until the session ends."""

    def __init__(self) -> None:
        seed = "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "2424"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Pacific/Chatham", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # What computes is imported before the clock is shifted: pandas cannot be imported with another class of datetimes.
        program = "import query.testing.law; from query.testing.other_interpreter import serve; serve()"
        command = [sys.executable, "-P", "-c", program]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        atexit.register(self.close)

        self._is_unread = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what *function*, a module's own, returns there; raise what it raises."""
        self.ask(function, *arguments)
        return self.answer()

    def ask(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it begin a call. The answer of an earlier one that nobody wanted is thrown away."""
        assert self._process.stdin is not None
        if self._is_unread:
            self._read_answer()
        _write(self._process.stdin, (function, arguments))
        self._is_unread = True

    def answer(self) -> Any:
        """Return what the last call returned; raise what it raised."""
        is_good, value = self._read_answer()
        if not is_good:
            raise value
        return value

    def _read_answer(self) -> tuple[bool, Any]:
        assert self._process.stdout is not None
        self._is_unread = False
        is_good, value = _read(self._process.stdout)
        return is_good, value

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


@cache
def other_interpreter() -> OtherInterpreter:
    """Return the one of this session."""
    return OtherInterpreter()


def serve() -> None:
    """Answer calls until standard input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What the user's code prints must not come between answers.
    os.dup2(2, 1)
    shift_clock()
    while (request := _read(requests)) is not None:
        function, arguments = request
        try:
            _write(answers, (True, function(*arguments)))
        except Exception as error:
            try:
                _write(answers, (False, error))
            except Exception:
                _write(answers, (False, RuntimeError(traceback.format_exc())))


def shift_clock() -> None:
    """Let the clocks of ``time`` and ``datetime`` be ahead in this process."""
    time.tzset()
    real_time, real_ns, real = time.time, time.time_ns, datetime.datetime

    class AheadDatetime(real):  # type: ignore[misc,valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return real.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return real.fromtimestamp(time.time())

    time.time = lambda: real_time() + AHEAD_S
    time.time_ns = lambda: real_ns() + int(AHEAD_S * 1e9)
    datetime.datetime = AheadDatetime  # type: ignore[misc]


def _write(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack(">Q", len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack(">Q", head)[0])) if len(head) == 8 else None
