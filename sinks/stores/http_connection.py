"""
A connection to one HTTP server, and the answers that are not about rows.

Law: after an answer that is known to be neither about the rows nor about the settings, the request is repeated.
"""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2

from ordering.errors import UnreachableError
from ordering.ticks import SECOND_US
from sinks.stores.base import StoreError, TryLater
from tidegate.basics.secret_masking import scrub
from tidegate.platform.settings.tables.http_server import HttpServer

# Statuses about the credentials, the URL or the method, whatever the rows are.
_USER_STATUSES = {401, 403, 404, 405, 407, 410}
# Statuses with which a server asks to try again, beside all from 500 on.
_LATER_STATUSES = {408, 425, 429}
# Bytes of an answer's body that are read, and characters of its text that are shown.
_ANSWER_BYTES, _WORDS_LENGTH = 4_096, 300
_PAUSE_MAX_S = 3_600.0


class Answer(NamedTuple):
    """The answer to a request: status, headers, and a message made of status, reason and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    message: str


class HttpConnection:
    """The connection to a server; ``name`` is *kind*, host and port, *party* is the server in messages."""

    def __init__(self, settings: HttpServer, kind: str, party: str) -> None:
        self._settings, self._party = settings, party
        self.url = settings.url.get_secret_value()
        url = urlsplit(self.url)
        self.name = f"{kind} {url.hostname}{f':{url.port}' if url.port else ''}"
        self._client: httpx2.Client | None = None
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would log each request, with its URL

    @contextlib.contextmanager
    def post(self, body: bytes, headers: Mapping[str, str], parameters: Mapping[str, str] | None = None) -> Iterator[httpx2.Response]:
        """
        Send a request; yield the response, whose body is not read yet. Raises StoreError: the server's certificate is not trusted;
        UnreachableError: it did not answer.
        """
        client, url = self.connect(), httpx2.URL(self.url).copy_merge_params(parameters or {})
        try:
            with client.stream("POST", url, content=body, headers=headers) as response:
                yield response
        except httpx2.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self.error(str(error), "give ca_file the authority that signed the server's certificate") from None
            what = f"{self._party} does not answer: {type(error).__name__}: {scrub(str(error))}"
            raise UnreachableError(what, code="TG-STORE-UNREACHABLE", where=self.name) from None

    def judge(self, answer: Answer, at_s: float) -> None:
        """
        Return if an answer that came at *at_s*, seconds since 1970, is a success or about the rows. Raises StoreError: it is about the
        settings; TryLater: in all other cases.
        """
        if 300 <= answer.status < 400:
            raise self.error(f"it redirects, which is not followed: {answer.message}", "set url to where it leads")
        if answer.status in _USER_STATUSES:
            raise self.error(answer.message, "correct url or the secret that is sent, or what the server expects")
        if answer.status in _LATER_STATUSES or answer.status >= 500:
            wait_s = pause_s(answer.headers.get("retry-after", ""), at_s)
            raise TryLater(f"{self._party} asks to try again: {answer.message}", self.name, wait_s)

    def connect(self) -> httpx2.Client:
        """Return the client; nothing is sent yet. Raises StoreError: a certificate file cannot be used."""
        if self._client is None:
            settings = self._settings
            try:
                trusted = ssl.create_default_context(cafile=settings.ca_file)
                if settings.certificate_file:
                    trusted.load_cert_chain(settings.certificate_file, settings.key_file)
            except OSError as error:
                raise self.error(f"its certificate files cannot be used: {error}", "name PEM files that can be read") from None
            timeout_s = settings.request_timeout_us / SECOND_US
            self._client = httpx2.Client(verify=trusted, timeout=timeout_s, headers={"user-agent": "tidegate"})
        return self._client

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def error(self, message: str, fix: str) -> StoreError:
        return StoreError(f"{self._party} cannot be used: {scrub(message)}", code="TG-STORE-REFUSED", where=self.name, fix=fix)


def read_answer(response: httpx2.Response) -> Answer:
    """Read the beginning of a response's body; return the answer."""
    body = b""
    for piece in response.iter_bytes():
        body += piece
        if len(body) >= _ANSWER_BYTES:
            break
    text = f"{response.status_code} {response.reason_phrase} {body[:_ANSWER_BYTES].decode('utf-8', 'replace')}"
    return Answer(response.status_code, response.headers, scrub(" ".join(text.split())[:_WORDS_LENGTH]))


def pause_s(retry_after: str, at_s: float) -> float:
    """Return how long a ``Retry-After``, in seconds or as a date, asks to wait from *at_s* on, seconds; 0 if it is neither."""
    wait_s = 0.0
    if re.fullmatch(r"\d{1,9}", retry_after.strip()):
        wait_s = float(retry_after)
    elif retry_after:
        with contextlib.suppress(ValueError):
            wait_s = parsedate_to_datetime(retry_after).timestamp() - at_s
    return min(max(wait_s, 0.0), _PAUSE_MAX_S)
