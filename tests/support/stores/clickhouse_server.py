"""
The HTTP interface of ClickHouse, as far as it is used here, before ClickHouse's own engine in a process of its own.

The engine is that of the server, as the package chdb brings it: it parses statements, knows tables, types, tokens and constraints, writes
the files, and words the errors. Only the door is ours, written from the description of the interface: parameters of the URL are the
statement and settings, the body is what ``input()`` reads, user and password come in headers. A session is a connection here.
Run as ``python clickhouse_server.py PORT FOLDER USER PASSWORD``.
"""

from __future__ import annotations

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb

# Parameters that are no settings of the engine.
_OF_THE_DOOR = {"query", "session_id", "wait_end_of_query"}
_INPUT = re.compile(r"\binput\((?P<structure>'(?:[^'\\]|\\.)*')\)(?P<rest>.*) FORMAT (?P<format>\w+)$", re.DOTALL)
_CODE = re.compile(r"Code: (\d+)\.")
# By the number of an error: the status with which the server answers; 500 with any other.
_STATUSES = {
    **dict.fromkeys((192, 193, 516), 403),
    **dict.fromkeys((6, 27, 38, 41, 53, 62, 72, 117), 400),
    **dict.fromkeys((16, 46, 47, 50, 60, 81, 115), 404),
    48: 501,
    159: 408,
}
_WRONG_PASSWORD = (
    "Code: 516. DB::Exception: {user}: Authentication failed: password is incorrect, or there is no user with such name. "
    "(AUTHENTICATION_FAILED)"
)


class Line:
    """A connection to the engine, of one client; statements of several run at the same time."""

    def __init__(self, folder: Path) -> None:
        self._connection, self._body = chdb.connect(str(folder / "data")), folder / f"body{threading.get_ident()}"

    def run(self, statement: str, settings: dict[str, str], body: bytes) -> bytes:
        """Return what a statement gives. Raises RuntimeError with the engine's words."""
        if found := _INPUT.search(statement):
            # The engine alone has no connection whose body it could read.
            self._body.write_bytes(body)
            file = f"file('{self._body}', '{found['format']}', {found['structure']})"
            statement = f"{statement[: found.start()]}{file}{found['rest']}"
        try:
            if settings:
                self._connection.query("SET " + ", ".join(f"{name} = '{value}'" for name, value in settings.items()))
            return bytes(self._connection.query(statement, "TabSeparated").bytes())
        finally:
            if settings:
                self._connection.query("SET " + ", ".join(f"{name} = DEFAULT" for name in settings))

    def close(self) -> None:
        self._connection.close()
        self._body.unlink(missing_ok=True)


def make_handler(folder: Path, user: str, password: str) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body of an answer are sent one after the other: the body would wait 40 ms for the word that the head has come.
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self._line = Line(folder)

        def finish(self) -> None:
            self._line.close()
            super().finish()

        def do_POST(self) -> None:
            length = int(self.headers["content-length"] or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                return None  # the line was cut: nothing is run
            if (self.headers["x-clickhouse-user"], self.headers["x-clickhouse-key"] or "") != (user, password):
                return self._fail(_WRONG_PASSWORD.format(user=self.headers["x-clickhouse-user"]))
            given = dict(parse_qsl(urlsplit(self.path).query))
            settings = {name: value for name, value in given.items() if name not in _OF_THE_DOOR}
            try:
                self._answer(200, self._line.run(given["query"], settings, body))
            except RuntimeError as error:
                self._fail(str(error))

        def _fail(self, words: str) -> None:
            code = int(found[1]) if (found := _CODE.search(words)) else 0
            self._answer(_STATUSES.get(code, 500), f"{words} (version 26.5.1.1)\n".encode(), {"X-ClickHouse-Exception-Code": str(code)})

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Be silent."""

    return Handler


if __name__ == "__main__":
    port, place, *who = sys.argv[1:]
    # The engine first, and for as long as the process lives: who reaches the port is answered.
    first = Line(Path(place))
    ThreadingHTTPServer(("127.0.0.1", int(port)), make_handler(Path(place), *who)).serve_forever()
