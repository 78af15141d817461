"""The address of an HTTP server and the settings of connections to it, for all stores that are reached over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ordering.ticks import SECOND_US
from tidegate.platform.settings.kinds import Duration, SecretUrl, peek_secret, url_parser
from tidegate.platform.settings.tables.base import Conflict, PemFile, SystemPemFile, Table, tls_conflicts

HttpUrl = Annotated[SecretUrl, url_parser(r"https?://[^\s/?#]+\S*$", "https://host/path")]


class HttpServer(Table):
    """The settings of a line to a server."""

    url: HttpUrl = Field(description="Where the server answers; a password in it is never shown.")
    request_timeout_us: Duration = Field(
        default=30 * SECOND_US, description="How long the server may be silent before the request is repeated."
    )
    ca_file: SystemPemFile = Field(default=None, description="Whose certificates are trusted; of https:// only.")
    certificate_file: PemFile = Field(default=None, description="Certificate shown to the server.")
    key_file: PemFile = Field(default=None, description="Private key of certificate_file.")

    def _conflicts(self) -> list[Conflict]:
        return tls_conflicts(self, "https://", encrypted=(peek_secret(self.url) or "https://").startswith("https://"))
