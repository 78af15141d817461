"""The table [outputs.NAME.http]: results as signed requests to an HTTP receiver."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr

from tidegate.platform.settings.kinds import HiddenSecret, Kind, MissingSecret, NotAllowed, show_secret
from tidegate.platform.settings.tables.base import Count
from tidegate.platform.settings.tables.http_server import HttpServer
from tidegate.platform.settings.tables.stores.base import StoreSettings

_KEY_BYTES_MIN, _KEY_BYTES_MAX = 24, 64


def _parse_secret(value: object) -> SecretStr:
    if isinstance(value, MissingSecret):
        return value
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    try:
        if isinstance(text, str) and text.startswith("whsec_"):
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
            if _KEY_BYTES_MIN <= len(key) <= _KEY_BYTES_MAX:
                return HiddenSecret(text)
    except binascii.Error:
        pass
    raise NotAllowed(f"whsec_ and {_KEY_BYTES_MIN} to {_KEY_BYTES_MAX} bytes in base64")


SigningSecret = Annotated[SecretStr, BeforeValidator(_parse_secret), PlainSerializer(show_secret), Kind("file:PATH or env:NAME")]


class HttpSettings(HttpServer, StoreSettings):
    """[outputs.NAME.http]: results as signed requests to an HTTP receiver (Standard Webhooks)."""

    batch_rows: Count = Field(default=100, description="Most results of a partition in one request.")
    secret: SigningSecret = Field(description="Signs each request: whsec_ and the key in base64, as the receiver has it.")
