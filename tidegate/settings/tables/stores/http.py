"""The table [outputs.NAME.http]: results as signed requests to an HTTP receiver."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr, model_validator

from ordering.ticks import SECOND_US
from tidegate.secret_masking import MASK, scrub
from tidegate.settings.kinds import Duration, HiddenSecret, Kind, NotAllowed
from tidegate.settings.tables.base import Contradiction, Count, tls_conflicts
from tidegate.settings.tables.stores.base import StoreSettings

_KEY_BYTES_MIN, _KEY_BYTES_MAX = 24, 64


def _parse_url(value: object) -> SecretStr:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or not re.match(r"https?://[^\s/?#]+\S*$", text):
        raise NotAllowed("https://host/path")
    return HiddenSecret(text)


def _parse_secret(value: object) -> SecretStr:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    try:
        if isinstance(text, str) and text.startswith("whsec_"):
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
            if _KEY_BYTES_MIN <= len(key) <= _KEY_BYTES_MAX:
                return HiddenSecret(text)
    except binascii.Error:
        pass
    raise NotAllowed(f"whsec_ and {_KEY_BYTES_MIN} to {_KEY_BYTES_MAX} bytes in base64")


HttpUrl = Annotated[
    SecretStr,
    BeforeValidator(_parse_url),
    PlainSerializer(lambda url: scrub(url.get_secret_value())),
    Kind("URL, file:PATH or env:NAME"),
]
SigningSecret = Annotated[SecretStr, BeforeValidator(_parse_secret), PlainSerializer(lambda _: MASK), Kind("file:PATH or env:NAME")]


class HttpSettings(StoreSettings):
    """[outputs.NAME.http]: results as signed requests to an HTTP receiver (Standard Webhooks)."""

    batch_rows: Count = Field(default=100, description="Most results of a partition in one request.")
    url: HttpUrl = Field(description="Where the receiver answers; a password in it is never shown.")
    secret: SigningSecret = Field(description="Signs each request: whsec_ and the key in base64, as the receiver has it.")
    request_timeout_us: Duration = Field(
        default=30 * SECOND_US, description="How long the receiver may be silent before the request is repeated."
    )
    ca_file: Annotated[str | None, Kind("path of a PEM file; default: the system's")] = Field(
        default=None, description="Whose certificates are trusted; of https:// only."
    )
    certificate_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Certificate shown to the receiver."
    )
    key_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Private key of certificate_file."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if conflicts := tls_conflicts(self, "https://", encrypted=self.url.get_secret_value().startswith("https://")):
            raise Contradiction(conflicts)
        return self
