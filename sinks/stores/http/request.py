"""
One request by Standard Webhooks.

Law: the id of a request follows from its rows: it is the same in every retry, and requests with the same id have the same rows.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

import pyarrow as pa

from sinks.stores.http_connection import HttpConnection, read_answer
from tidegate.platform.settings.tables.stores.http import HttpSettings


class BodyRefused(Exception):
    """The receiver does not take the rows of a request; the text is its message."""


def request_id(stream_id: str, partition: int, start: int, end: int) -> str:
    """Return the webhook-id of the rows of a partition with ``start <= position < end``."""
    return f"{stream_id}_{partition}_{start}_{end}"


def body_of(values: pa.BinaryArray) -> bytes:
    """Return results as one JSON array."""
    return b"[" + b",".join(values.to_pylist()) + b"]"


def sign(secret: str, message_id: str, at_s: int, body: bytes) -> Mapping[str, str]:
    """Return the three headers of a request that is sent at *at_s*, seconds since 1970. *secret* is ``whsec_`` and the key in base64."""
    signed = f"{message_id}.{at_s}.".encode() + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256)
    return {"webhook-id": message_id, "webhook-timestamp": str(at_s), "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


class Receiver:
    """One receiver; ``name`` is its address without the parts that may be secret."""

    def __init__(self, settings: HttpSettings) -> None:
        self._secret = settings.secret.get_secret_value()
        self._connection = HttpConnection(settings, "http", "the receiver")
        self.name, self.connect, self.close = self._connection.name, self._connection.connect, self._connection.close

    def send(self, message_id: str, at_s: int, body: bytes) -> None:
        """
        Send one request; return once the receiver has taken it. Raises BodyRefused: it does not take these rows; StoreError: it takes no
        request with these settings; UnreachableError: it did not answer; TryLater: it asks to try again.
        """
        headers = {"content-type": "application/json", **sign(self._secret, message_id, at_s, body)}
        with self._connection.post(body, headers) as response:
            answer = read_answer(response)
        self._connection.judge(answer, at_s)
        if answer.status >= 300:
            raise BodyRefused(answer.message)
