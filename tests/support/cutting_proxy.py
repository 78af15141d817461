"""A line to a server that can be cut: after so many bytes in one direction, or by the answer to what was asked last."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class CuttingProxy:
    """
    Passes bytes between clients and a loopback port until it is closed. ``cut_after`` bytes towards the server, or towards the client,
    both ends of the line are closed, once; a new line works. Each piece of an answer waits *delay_s* before it passes.
    """

    def __init__(self, port_behind: int, delay_s: float = 0.0) -> None:
        self._port_behind, self._delay_s = port_behind, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._left: dict[str, int | None] = {"server": None, "client": None}
        self.cuts = 0
        # Bytes that have come by since the beginning, by direction.
        self.passed = {"server": 0, "client": 0}
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, octets: int, towards: str = "server") -> None:
        """Cut the line once so many more bytes have gone towards the ``server`` or the ``client``; the last of them do not arrive."""
        with self._lock:
            self._left[towards] = octets

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port_behind))
                except OSError:
                    client.close()
                    continue
                for source, target, towards in ((client, server, "server"), (server, client, "client")):
                    threading.Thread(target=self._pass_on, args=(source, target, towards), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, towards: str) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(65_536):
                if self._is_cut(len(octets), towards):
                    break
                if towards == "client":
                    time.sleep(self._delay_s)
                target.sendall(octets)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _is_cut(self, octets: int, towards: str) -> bool:
        with self._lock:
            self.passed[towards] += octets
            left = self._left[towards]
            if left is None:
                return False
            self._left[towards] = left - octets if left > octets else None
            self.cuts += left <= octets
            return left <= octets
