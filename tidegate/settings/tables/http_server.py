"""Where a server answers over HTTP and how it is met: what the stores that are reached so have in common."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr

from ordering.ticks import SECOND_US
from tidegate.secret_masking import scrub
from tidegate.settings.kinds import Duration, HiddenSecret, Kind, NotAllowed
from tidegate.settings.tables.base import Conflict, Table, tls_conflicts


def _parse_url(value: object) -> SecretStr:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or not re.match(r"https?://[^\s/?#]+\S*$", text):
        raise NotAllowed("https://host/path")
    return HiddenSecret(text)


HttpUrl = Annotated[
    SecretStr,
    BeforeValidator(_parse_url),
    PlainSerializer(lambda url: scrub(url.get_secret_value())),
    Kind("URL, file:PATH or env:NAME"),
]


class HttpServer(Table):
    """The settings of a line to a server."""

    url: HttpUrl = Field(description="Where the server answers; a password in it is never shown.")
    request_timeout_us: Duration = Field(
        default=30 * SECOND_US, description="How long the server may be silent before the request is repeated."
    )
    ca_file: Annotated[str | None, Kind("path of a PEM file; default: the system's")] = Field(
        default=None, description="Whose certificates are trusted; of https:// only."
    )
    certificate_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Certificate shown to the server."
    )
    key_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Private key of certificate_file."
    )

    def _server_conflicts(self) -> list[Conflict]:
        return tls_conflicts(self, "https://", encrypted=self.url.get_secret_value().startswith("https://"))
