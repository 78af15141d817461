"""A command on a terminal of its own, as a person runs it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

from support.stack.warm_jobs import HOST


def run_on_terminal(folder: Path, *arguments: str, interrupt_at: str | None = None, **environment: str) -> tuple[int, str]:
    """Run ``tidegate``, interrupted once it has printed *interrupt_at*; return its exit code and all that the terminal got."""
    terminal, program_side = pty.openpty()
    env = {**os.environ, "COLUMNS": "300", "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        [HOST.program(), *arguments], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=program_side, stderr=program_side
    )
    os.close(program_side)
    printed = b""
    os.set_blocking(terminal, False)
    while True:
        try:
            printed += os.read(terminal, 65_536) or b""
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # all that wrote to it have ended
            break
        if interrupt_at is not None and interrupt_at.encode() in printed:
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(terminal)
    return process.wait(), printed.decode("utf-8", "surrogateescape")
