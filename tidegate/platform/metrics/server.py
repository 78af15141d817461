"""
The HTTP server of a job: ``/metrics`` for Prometheus, ``/live`` and ``/ready`` for programs that restart jobs or wait for them.

Law: whoever connects takes at most :data:`CONNECTIONS_MAX` threads and descriptors of the job, each for seconds. A further connection is
closed at once, one whose request is not there after :data:`REQUEST_S` too. What a client does is no event of the job: nothing is logged.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from tidegate.platform.metrics.health import Health
from tidegate.platform.observe.logs import get_logger

CONNECTIONS_MAX = 16
# How long a client may take to send its request, and again to take the answer, seconds.
REQUEST_S = 5.0
_STATUS = {True: "200 OK", False: "503 Service Unavailable"}


def serve(port: int, host: str, registry: CollectorRegistry, health: Health) -> None:
    """Serve *registry* and *health* in threads of their own until the process ends. Raises OSError: the port cannot be opened."""
    metrics: Any = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        ask = {"/live": health.live, "/ready": health.ready}.get(environ.get("PATH_INFO", ""))
        if ask is None:
            return _answer_metrics(metrics, environ, start_response)
        is_well, text = ask()
        start_response(_STATUS[is_well], [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    server_class = type("_Server", (_BoundedServer,), {"address_family": family})
    server: _BoundedServer = make_server(str(address[0]), port, answer, server_class, _SilentHandler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def _answer_metrics(metrics: Any, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    try:
        return metrics(environ, start_response)  # type: ignore[no-any-return]
    except Exception:
        get_logger().exception("the metrics cannot be computed")
        start_response("500 Internal Server Error", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"the metrics cannot be computed: see the job's log\n"]


class _BoundedServer(ThreadingWSGIServer):
    """Serves each connection in a thread of its own, a bounded number of them for a bounded time."""

    # Those that wait to be accepted hold no descriptor of the job.
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lock = threading.Lock()
        # By open connection, when it is closed unless its request is complete by then; None once it is.
        self._deadlines_s: dict[Any, float | None] = {}

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            # Without a free descriptor the connection stays where it is, and would be asked for again at once.
            time.sleep(0.1)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._deadlines_s) >= CONNECTIONS_MAX:
                return False
            self._deadlines_s[request] = time.monotonic() + REQUEST_S
        return True

    def note_request(self, request: Any) -> None:
        """Note that the head of a connection's request is complete."""
        with self._lock:
            self._deadlines_s[request] = None

    def service_actions(self) -> None:
        """Close what is overdue. The server calls this after each connection, and twice a second."""
        now_s = time.monotonic()
        with self._lock:
            overdue = [request for request, deadline_s in self._deadlines_s.items() if deadline_s is not None and deadline_s < now_s]
        for request in overdue:
            with suppress(OSError):
                # Its thread, which waits for the rest, reads the end of the stream.
                request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._deadlines_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep silent: the default prints a traceback for each client that leaves early."""


class _SilentHandler(WSGIRequestHandler):
    """Logs no requests, and no client that leaves early."""

    # Of each read and write.
    timeout = REQUEST_S

    def parse_request(self) -> bool:
        is_valid = super().parse_request()
        server: Any = self.server
        server.note_request(self.request)
        return is_valid

    def log_message(self, format: str, *args: object) -> None:
        pass

    def get_stderr(self) -> TextIO:
        return io.StringIO()
