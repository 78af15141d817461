"""The table [schema_registry]: where the schemas of ``format = "avro_registry"`` are, and how to be let in."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from ordering.ticks import SECOND_US
from tidegate.basics.secret_masking import mask_address
from tidegate.platform.settings.kinds import Duration, Kind, NotAllowed, Secret
from tidegate.platform.settings.tables.base import Conflict, PemFile, Table, tls_conflicts

_URL = re.compile(r"https?://[^\s/@,]+(/[^\s@,]*)?")


def _parse_urls(value: object) -> str:
    urls = [url.strip() for url in value.split(",")] if isinstance(value, str) else []
    if not urls or not all(_URL.fullmatch(url) for url in urls):
        raise NotAllowed("http:// or https:// and host:port, several separated by commas; user and password have settings of their own")
    return ",".join(urls)


RegistryUrl = Annotated[str, BeforeValidator(_parse_urls), Kind("URL, several separated by commas; default: none")]


class SchemaRegistrySettings(Table):
    """[schema_registry]: the registry that has the schemas of framed Avro payloads."""

    url: RegistryUrl | None = Field(default=None, description="Where the schema registry answers.")
    username: str | None = Field(default=None, description="User, or API key.")
    password: Secret = Field(default=None, description="Password, or the API key's secret.")
    token: Secret = Field(default=None, description="Bearer token, instead of user and password.")
    logical_cluster: str = Field(default="", description="Logical cluster a bearer token is meant for, where the registry asks for one.")
    identity_pool: str = Field(default="", description="Identity pool a bearer token belongs to, where the registry asks for one.")
    ca_file: Annotated[str | None, Kind("path of a PEM file; default: the public ones")] = Field(
        default=None, description="Whose certificates are trusted; of https:// only."
    )
    certificate_file: PemFile = Field(default=None, description="Certificate shown to the registry; of https:// only.")
    key_file: PemFile = Field(default=None, description="Private key of certificate_file.")
    key_password: Secret = Field(default=None, description="Password of key_file.")
    request_timeout_us: Duration = Field(
        default=5 * SECOND_US, description="How long to wait for one answer; then it is asked again, for as long as it takes."
    )

    def _conflicts(self) -> list[Conflict]:
        conflicts = []
        if self.token is not None and self.username is not None:
            conflicts.append(("token", "there is a username too", "give a token, or username and password"))
        if self.password is not None and self.username is None:
            conflicts.append(("password", "password is of no use without username", "give username as well"))
        return [*conflicts, *tls_conflicts(self, "https://", encrypted="https://" in (self.url or ""))]

    @property
    def address(self) -> str:
        """The URL as it may be shown."""
        return mask_address(self.url or "")
