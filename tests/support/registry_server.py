"""
A schema registry for tests: the part of its HTTP API that readers use, with its own answers and error codes.

It speaks ``GET /schemas/ids/{id}`` and ``GET /subjects/{subject}/versions/{version}``, answers an id it does not know with
404 and error code 40403, an unknown path with 404 and error code 404, a wrong or missing login with 401, and can be told to
be out of order. It counts what it is asked.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass
class Registered:
    """One schema: its text, its kind (empty: Avro), and the subjects and versions it refers to."""

    schema: str
    kind: str = ""
    references: list[dict[str, Any]] = field(default_factory=list)


class RegistryServer:
    """
    A registry on loopback.

    Args:
        login: ``user:password`` or ``Bearer token`` that it asks for; empty: nothing.

    Attributes:
        ids: What it knows by id.
        versions: What it knows by subject and version.
        asked: How often each path was asked for.
        broken: The status it answers everything with while it is set.
    """

    def __init__(self, login: str = "") -> None:
        self.ids: dict[int, Registered] = {}
        self.versions: dict[tuple[str, int], Registered] = {}
        self.asked: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.broken = 0
        self._login = login
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = server._answer(urlparse(self.path).path, dict(self.headers))
                octets = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(octets)))
                self.end_headers()
                self.wfile.write(octets)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._handler = Handler
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._http.server_address[1])
        self._serve()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        """Stop answering: connections are refused."""
        self._http.shutdown()
        self._http.server_close()

    def start(self) -> None:
        """Answer again at the same address."""
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self._serve()

    def _answer(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked[path] += 1
        self.headers.append(headers)
        if self.broken:
            return self.broken, {"error_code": self.broken * 100 + 1, "message": "out of order"}
        if self._login and headers.get("Authorization") != self._wanted():
            return 401, {"error_code": 401, "message": "Unauthorized"}
        steps = [unquote(step) for step in path.strip("/").split("/")]
        if steps[:2] == ["schemas", "ids"] and len(steps) == 3:
            schema = self.ids.get(int(steps[2]))
            return (200, _body(schema)) if schema else (404, {"error_code": 40403, "message": f"Schema {steps[2]} not found"})
        if steps[0] == "subjects" and len(steps) == 4 and steps[2] == "versions":
            schema = self.versions.get((steps[1], int(steps[3])))
            named = {"subject": steps[1], "version": int(steps[3]), "id": 0}
            return (200, named | _body(schema)) if schema else (404, {"error_code": 40402, "message": "Version not found."})
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _wanted(self) -> str:
        return self._login if self._login.startswith("Bearer ") else "Basic " + base64.b64encode(self._login.encode()).decode()


def _body(found: Registered) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": found.schema}
    if found.kind:
        body["schemaType"] = found.kind
    return body | ({"references": found.references} if found.references else {})
