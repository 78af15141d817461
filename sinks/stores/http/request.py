"""
One request by Standard Webhooks, and what its answer means.

Law: the id of a request follows from what it holds, so it is equal in every retry, and two requests with the same id hold the same rows.
An answer that is not known to be about the rows or about the settings is one to try again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import re
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx2
import pyarrow as pa

from ordering.errors import UnreachableError
from ordering.ticks import SECOND_US
from sinks.stores.base import StoreError, TryLater
from tidegate.secret_masking import scrub
from tidegate.settings.tables.stores.http import HttpSettings

# Statuses about the request as such, whatever its rows are: who asks, where, and how.
_USER_STATUSES = {401, 403, 404, 405, 407, 410}
# Statuses with which a receiver asks to try again, beside all from 500 on.
_LATER_STATUSES = {408, 425, 429}
# So much of an answer is read and told.
_ANSWER_BYTES, _WORDS_LENGTH = 4_096, 300
_PAUSE_MAX_S = 3_600.0


class BodyRefused(Exception):
    """The receiver does not take the rows of a request; the text has its words."""


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
    """The line to one receiver; ``name`` is its address without what may be secret."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._url = settings.url.get_secret_value()
        url = urlsplit(self._url)
        self.name = f"http {url.hostname}{f':{url.port}' if url.port else ''}"
        self._client: httpx2.Client | None = None
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would log each request, with its URL

    def send(self, message_id: str, at_s: int, body: bytes) -> None:
        """
        Send one request; return once the receiver has taken it. Raises BodyRefused: it does not take these rows; StoreError: it takes
        nothing from us; UnreachableError (TryLater): it did not answer, or not for good.
        """
        client = self.connect()
        headers = {"content-type": "application/json", **sign(self._settings.secret.get_secret_value(), message_id, at_s, body)}
        try:
            with client.stream("POST", self._url, content=body, headers=headers) as answer:
                status, later = answer.status_code, answer.headers.get("retry-after", "")
                words = f"{status} {answer.reason_phrase} {_beginning_of(answer)}"
        except httpx2.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self._error(str(error), "give ca_file the authority that signed the receiver's certificate") from None
            what = f"the receiver does not answer: {type(error).__name__}: {scrub(str(error))}"
            raise UnreachableError(what, code="TG-STORE-UNREACHABLE", where=self.name) from None
        self._judge(status, scrub(" ".join(words.split())[:_WORDS_LENGTH]), pause_s(later, at_s))

    def _judge(self, status: int, words: str, wait_s: float) -> None:
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise self._error(f"it redirects, which is not followed: {words}", "set url to where it leads")
        if status in _USER_STATUSES:
            raise self._error(words, "correct url or secret, or what the receiver expects")
        if status in _LATER_STATUSES or status >= 500:
            raise TryLater(f"the receiver asks to try again: {words}", self.name, wait_s)
        raise BodyRefused(words)

    def connect(self) -> httpx2.Client:
        """Return the client; nothing is sent yet. Raises StoreError: a certificate file cannot be used."""
        if self._client is None:
            settings = self._settings
            try:
                trusted = ssl.create_default_context(cafile=settings.ca_file)
                if settings.certificate_file:
                    trusted.load_cert_chain(settings.certificate_file, settings.key_file)
            except OSError as error:
                raise self._error(f"its certificate files cannot be used: {error}", "name PEM files that can be read") from None
            timeout_s = settings.request_timeout_us / SECOND_US
            self._client = httpx2.Client(verify=trusted, timeout=timeout_s, headers={"user-agent": "tidegate"})
        return self._client

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _error(self, words: str, fix: str) -> StoreError:
        return StoreError(f"the receiver cannot be used: {scrub(words)}", code="TG-STORE-REFUSED", where=self.name, fix=fix)


def pause_s(retry_after: str, at_s: float) -> float:
    """Return how long a ``Retry-After`` asks to wait from *at_s* on, seconds: it gives seconds or a date; what is neither is 0."""
    wait_s = 0.0
    if re.fullmatch(r"\d{1,9}", retry_after.strip()):
        wait_s = float(retry_after)
    elif retry_after:
        with contextlib.suppress(ValueError):
            wait_s = parsedate_to_datetime(retry_after).timestamp() - at_s
    return min(max(wait_s, 0.0), _PAUSE_MAX_S)


def _beginning_of(answer: httpx2.Response) -> str:
    found = b""
    for piece in answer.iter_raw():
        found += piece
        if len(found) >= _ANSWER_BYTES:
            break
    return found[:_ANSWER_BYTES].decode("utf-8", "replace")
