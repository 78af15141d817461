"""
The program that Spark starts in place of Python: the host (:mod:`.python_host`) forks what was asked for, and this stands for it.

Law: whoever starts this program cannot tell it from Python itself. It ends when the process does, with its exit code, and passes SIGTERM
on; if it is killed, the host kills the process. Without a host it becomes Python.

It runs by itself (``python -IS ask_host.py -m MODULE ...``), in ten milliseconds: only small modules of Python's own are imported.
"""

import os
import select
import signal
import socket
import sys
from contextlib import suppress

HOST_VARIABLE = "TIDEGATE_PYTHON_HOST"
_MESSAGE_BYTES_MAX = 64


def ask(path: str, arguments: list[str]) -> int:
    """Have the host that listens at *path* run Python with *arguments*; return the exit code. Raises OSError: there is no host."""
    host = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    host.connect(path)
    variables = map("=".join, os.environ.items())
    fields = os.getcwd(), str(len(arguments)), *arguments, *variables  # noqa: PTH109  (pathlib would have to be imported)
    message = b"".join(os.fsencode(field) + b"\0" for field in fields)
    host.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(message) + 4096)
    socket.send_fds(host, [message], [0, 1, 2])
    said = host.recv(_MESSAGE_BYTES_MAX)
    if not said:
        raise ConnectionResetError("the host has ended before it has forked")
    pid = int(said)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(pid, number))
    if not (code := host.recv(_MESSAGE_BYTES_MAX)):
        # The host was killed; what it has forked goes on.
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(pid)], [], [])
        return 1
    return int(code) % 256


if __name__ == "__main__":
    try:
        ended = ask(os.environ[HOST_VARIABLE], sys.argv[1:])
    except (OSError, KeyError):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    os._exit(ended)
