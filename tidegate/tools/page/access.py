"""
Who may ask the page: the check of each request, before anything else sees it.

Law: a request is answered only if its Host is a name of this server, so no other site can reach it under a name of its own; and, if there
is a token, only with that token as the password of HTTP Basic or as a bearer. A token is never read from an address. Every answer forbids
the browser scripts and styles but those of this server, frames, forms, and requests to anywhere else.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Who is answered."""

    # The names under which the server may be asked, without a port.
    names: frozenset[str]
    # What a client must know; empty: nothing.
    token: str = ""

    def is_known_host(self, host: str) -> bool:
        """Whether a Host header names this server."""
        head, colon, port = host.rpartition(":")
        name = head if colon and port.isascii() and port.isdigit() else host
        return name.lower() in self.names

    def is_allowed(self, authorization: str) -> bool:
        """Whether an Authorization header has the token."""
        if not self.token:
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.encode(), self.token.encode())


class Guard:
    """Refuses the requests that *access* does not allow, and puts the headers of safety on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        if not self._access.is_known_host(headers.get("host", "")):
            answer = PlainTextResponse("this is not the name of this server; see --name\n", 421)
            await answer(scope, receive, send_safely)
        elif not self._access.is_allowed(headers.get("authorization", "")):
            ask = {"www-authenticate": 'Basic realm="tidegate", charset="UTF-8"'}
            await PlainTextResponse("the token is needed: as the password, or as a bearer\n", 401, ask)(scope, receive, send_safely)
        else:
            await self._app(scope, receive, send_safely)
