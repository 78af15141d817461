"""The HTTP server of a job: ``/metrics`` for Prometheus, ``/live`` and ``/ready`` for programs that restart jobs or wait for them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from tidegate.observe.health import Health

_STATUS = {True: "200 OK", False: "503 Service Unavailable"}


def serve(port: int, host: str, registry: CollectorRegistry, health: Health) -> None:
    """Serve *registry* and *health* in threads of their own until the process ends. Raises OSError: the port cannot be opened."""
    metrics: Any = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        ask = {"/live": health.live, "/ready": health.ready}.get(environ.get("PATH_INFO", ""))
        if ask is None:
            return metrics(environ, start_response)  # type: ignore[no-any-return]
        is_well, text = ask()
        start_response(_STATUS[is_well], [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    server_class = type("_Server", (ThreadingWSGIServer,), {"address_family": family})
    server: WSGIServer = make_server(str(address[0]), port, answer, server_class, _SilentHandler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


class _SilentHandler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: object) -> None:
        pass
