"""
What the page may change: nothing, unless the server was started with ``--allow-actions``.

Law: an action is done only for a POST in JSON from a page of this server itself, with the key that this process alone gives to its pages.
A key is no token: it proves where a request comes from, not who asks. Each action, and each refusal, is logged.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from tidegate.platform.observe.logs import get_logger

# Takes the members of the request; returns what becomes JSON.
Action = Callable[[Mapping[str, Any]], Any]

KEY_HEADER = "x-tidegate-key"
_log = get_logger("ui")


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a server, by name; *key* is what its pages prove themselves with."""

    acts: Mapping[str, Action] = field(default_factory=dict)
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def are_allowed(self) -> bool:
        return bool(self.acts)

    def find_refusal(self, headers: Headers) -> tuple[int, str]:
        """Return the status and the words with which a request is refused; 0: it is not."""
        if not self.are_allowed:
            return 403, "this page is read-only: start it with --allow-actions"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin" or not _is_own_origin(headers):
            return 403, "another site asks for this"
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "an action is asked for in JSON"
        if not hmac.compare_digest(headers.get(KEY_HEADER, "").encode(), self.key.encode()):
            return 403, "the page is older than its server: reload it"
        return 0, ""

    def act(self, name: str, asked: Mapping[str, Any], client: str) -> Any:
        """Do an action and log it. Raises what it raises."""
        _log.info("an action is asked for", action=name, asked=dict(asked), client=client)
        try:
            done = self.acts[name](asked)
        except Exception as error:
            _log.warning("the action has failed", action=name, asked=dict(asked), client=client, error=str(error))
            raise
        _log.info("the action is done", action=name, asked=dict(asked), client=client, done=done)
        return done

    def refuse(self, name: str, why: str, client: str) -> None:
        _log.warning("an action is refused", action=name, reason=why, client=client)


def _is_own_origin(headers: Headers) -> bool:
    """Whether the site that asks, if the browser names it, is this server."""
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")
