"""
A receiver of Standard Webhooks, as its user would write one: it checks signatures, remembers webhook-ids, and keeps results in a file.

Written from the text of Standard Webhooks, with nothing of ours in it. Each path is a target of its own, with one file: a line for each
request that was taken, on disk before the answer. Run as ``python webhook_receiver.py PORT FOLDER SECRET``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_TOLERANCE_S = 300
_BLOCK = 64


def hmac_sha256(key: bytes, text: bytes) -> bytes:
    """Return the HMAC by its definition in RFC 2104."""
    padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(octet ^ 0x36 for octet in padded) + text).digest()
    return hashlib.sha256(bytes(octet ^ 0x5C for octet in padded) + inner).digest()


def is_signed(secret: str, headers: Mapping[str, Any], body: bytes) -> bool:
    """Return whether the request comes from who knows the secret, and is not old."""
    at = str(headers["webhook-timestamp"])
    digest = hmac_sha256(base64.b64decode(secret[len("whsec_") :]), f"{headers['webhook-id']}.{at}.".encode() + body)
    signatures = str(headers["webhook-signature"]).split(" ")
    return f"v1,{base64.b64encode(digest).decode()}" in signatures and abs(time.time() - int(at)) <= _TOLERANCE_S


def why_refused(results: list[dict[str, Any]]) -> str:
    """Return what is wrong with results; this receiver wants whole numbers and names that are texts."""
    for result in results:
        if not isinstance(result.get("number"), int):
            return f"number is no whole number: {result.get('number')!r}"
        if not isinstance(result.get("name"), str | None):
            return f"name is no text: {result['name']!r}"
    return ""


class Files:
    """What was taken, by target; a line that a power cut has torn is dropped when the receiver starts again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._digests = {path.name: self._load(path) for path in folder.iterdir()}

    def take(self, target: str, message_id: str, body: bytes) -> None:
        """Keep a request, unless it is there. Raises ValueError: another one came with this id."""
        digest = hashlib.sha256(body).hexdigest()
        with self._lock:
            known = self._digests.setdefault(target, {})
            if message_id in known:
                if known[message_id] != digest:
                    raise ValueError(f"{message_id} came with other results before")
                return
            line = json.dumps({"id": message_id, "digest": digest, "results": json.loads(body)}) + "\n"
            with (self._folder / target).open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
            known[message_id] = digest

    def _load(self, path: Path) -> dict[str, str]:
        lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        path.write_bytes(b"".join(whole))
        return {taken["id"]: taken["digest"] for taken in map(json.loads, whole)}


def make_handler(files: Files, secret: str) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if not is_signed(secret, self.headers, body):
                return self._answer(401, "the signature is wrong")
            results = json.loads(body)
            if words := why_refused(results):
                return self._answer(422, words)
            try:
                files.take(self.path.strip("/"), str(self.headers["webhook-id"]), body)
            except ValueError as error:
                return self._answer(410, str(error))
            return self._answer(200, json.dumps({"taken": [[result["partition"], result["number"]] for result in results]}))

        def _answer(self, status: int, words: str) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(words.encode())))
            self.end_headers()
            self.wfile.write(words.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            """Be silent."""

    return Handler


if __name__ == "__main__":
    port, folder, shared = sys.argv[1:]
    ThreadingHTTPServer(("127.0.0.1", int(port)), make_handler(Files(Path(folder)), shared)).serve_forever()
