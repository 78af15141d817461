"""The table [redis]: where the journal is kept, and the progress that tools read; and how any Redis is reached."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from ordering.ticks import SECOND_US
from tidegate.basics.secret_masking import Secrets, has_password, mask_address
from tidegate.platform.settings.kinds import Duration, RedisUrl, Secret, peek_secret
from tidegate.platform.settings.tables.base import PASSWORD_TWICE, Conflict, PemFile, SystemPemFile, Table, tls_conflicts


class RedisConnection(Table):
    """The settings of a connection to Redis, which several tables have."""

    # The table, as errors name it.
    table: ClassVar[str] = "redis"
    url: RedisUrl = Field(
        default=SecretStr("redis://localhost:6379/0"), description="Where Redis or Valkey answers; a password in it is never shown."
    )
    username: str | None = Field(default=None, description="User of Redis's ACL, if the URL names none.")
    password: Secret = Field(default=None, description="Password, if the URL has none.")
    ca_file: SystemPemFile = Field(default=None, description="Whose certificates are trusted; of rediss:// only.")
    certificate_file: PemFile = Field(
        default=None, description="Certificate shown to the server, with those that signed it; of rediss:// only."
    )
    key_file: PemFile = Field(default=None, description="Private key of certificate_file.")
    key_password: Secret = Field(default=None, description="Password of key_file.")
    connect_timeout_us: Duration = Field(default=8 * SECOND_US, description="How long to wait for Redis before giving up with an error.")

    def _conflicts(self) -> list[Conflict]:
        url = peek_secret(self.url)
        twice = self.password is not None and has_password(url or "")
        encrypted = (url or "rediss://").startswith("rediss://")
        return [*([PASSWORD_TWICE] if twice else []), *tls_conflicts(self, "rediss://", encrypted=encrypted)]

    def connection_url(self) -> str:
        """Return the URL with its password, for the client. Never log it."""
        return self.url.get_secret_value()

    def client_options(self) -> Secrets:
        """Return the client's options beside the URL, secrets included."""
        options = {
            "username": self.username,
            "password": _reveal_secret(self.password),
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.key_file,
            "ssl_password": _reveal_secret(self.key_password),
        }
        return Secrets({name: text for name, text in options.items() if text})

    @property
    def address(self) -> str:
        """The URL as it may be shown, without its password."""
        return mask_address(self.connection_url())


class RedisSettings(RedisConnection):
    """[redis]: the journal and the progress that tools read."""

    journal_durability: Literal["disk", "memory"] = Field(
        default="disk",
        description="disk: an estimate is used only once on the disk of Redis; memory: a crash of Redis may lose some (warned about).",
    )


def _reveal_secret(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
