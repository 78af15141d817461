"""What Spark sends to a Python process when a task begins; and processes that run tasks, as Spark's daemon forks them."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from pyspark.serializers import SpecialLengths
from pyspark.util import PythonEvalType

STATEFUL = PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF
_HEAD_BYTES = 8
# For how long a home waits for tasks, seconds.
IDLE_VARIABLE = "TIDEGATE_TEST_IDLE_S"


def _number(value: int) -> bytes:
    return value.to_bytes(4, signed=True)


def _text(value: str) -> bytes:
    return _number(len(value.encode())) + value.encode()


def init_message(query: str | None, partition: int, kind: int = STATEFUL, rest: bytes = b"") -> bytes:
    """Return the message with which Spark begins a task; *rest* stands for what the task runs."""
    task = {
        "isBarrier": False,
        "connInfo": "",
        "secret": "",
        "stageId": 3,
        "partitionId": partition,
        "attemptNumber": 0,
        "taskAttemptId": 9,
    }
    task |= {"cpus": 1, "cpuAmount": "1", "resources": {}, "localProperties": {"sql.streaming.queryId": query} if query else {}}
    content = _number(partition) + _text("3.11") + _text(json.dumps(task)) + _text("/files") + _number(1) + _text("a.zip")
    # No broadcast; then the kind of function, and two tables of settings.
    content += b"\0" + _number(0) + _number(kind) + _number(0) + _number(0) + rest
    return _number(SpecialLengths.START_OF_INIT_MESSAGE) + _number(len(content)) + content


def run_task(connection: socket.socket, _: bool) -> int:
    """Sleep, answer with this process's number and how many tasks it has run, and return a code, as the rest of the message says."""
    with os.fdopen(os.dup(connection.fileno()), "rb") as source, os.fdopen(os.dup(connection.fileno()), "wb") as sink:
        head = source.read(_HEAD_BYTES)
        if not head:
            return -1
        content = source.read(int.from_bytes(head[4:], signed=True))
        asked = json.loads(content[content.rindex(b"{") :])
        run_task.count += 1  # type: ignore[attr-defined]
        if "began" in asked:
            Path(asked["began"]).touch()
        time.sleep(asked.get("sleep_s", 0))
        sink.write(json.dumps({"pid": os.getpid(), "count": run_task.count}).encode() + b"\n")  # type: ignore[attr-defined]
        return int(asked.get("code", 0))


run_task.count = 0  # type: ignore[attr-defined]


def main() -> None:
    """Fork a process for each connection whose descriptor is given; each runs tasks until one fails, or the connection ends."""
    from tidegate.platform.spark import task_homes

    task_homes._IDLE_S = float(os.environ[IDLE_VARIABLE])
    task_homes.adopt_homes()
    # As Spark's daemon does: the kernel waits for its children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number in map(int, sys.argv[1:]):
        if os.fork() == 0:
            for other in map(int, sys.argv[1:]):
                if other != number:
                    os.close(other)
            homes = task_homes.TaskHomes(run_task)
            with socket.socket(fileno=number) as connection:
                while homes.run(connection, True) == 0:
                    gc.collect()
            os._exit(0)
    for number in map(int, sys.argv[1:]):
        os.close(number)
    # It is the parent of all, as Spark's daemon is.
    sys.stdin.read()


if __name__ == "__main__":
    main()
