"""
Security of the embedded stack: SCRAM, client certificates and an authorizer at Kafka, users of an ACL in Valkey.

It is for trials and tests of a secured cluster.

Law: every connection needs a password or a certificate, also the broker's own; passwords reach neither a configuration file nor a command
line.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.basics.secret_masking import Secrets

# May do everything in Kafka; needs a password in :attr:`StackSecurity.users`.
SUPER_USER = "admin"
_ITERATIONS = 4096

_KAFKA_PROPERTIES = """\
listeners=SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{tls_port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}
listener.security.protocol.map=SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL
inter.broker.listener.name=SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.ssl.ssl.client.auth=required
listener.name.controller.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={0.keys_file}
ssl.truststore.type=PEM
ssl.truststore.location={0.ca_file}
ssl.principal.mapping.rules=RULE:^.*CN=([^,]+).*$/$1/,DEFAULT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{super_user};User:{0.broker}
"""


@dataclass(frozen=True, slots=True)
class StackSecurity:
    """The users and certificates of an embedded stack."""

    # PEM file of the authority whose certificates are trusted.
    ca_file: Path
    # PEM file with the broker's private key (PKCS 8, not encrypted) and its certificate for ``127.0.0.1``.
    keys_file: Path
    # Common name in that certificate: the broker's own connections may do everything.
    broker: str
    # Passwords of Kafka's SCRAM-SHA-512 users by name, :data:`SUPER_USER` among them. A client certificate is the user whose name is its
    # common name.
    users: Mapping[str, str]
    # Rules of Valkey's users by name, as in ``ACL SETUSER``, passwords as ``#SHA-256``. Other users have no access.
    redis_users: Mapping[str, str]

    def kafka_properties(self, port: int, tls_port: int, controller_port: int) -> str:
        """Return the part of Kafka's configuration with listeners and access rules."""
        return _KAFKA_PROPERTIES.format(self, port=port, tls_port=tls_port, controller_port=controller_port, super_user=SUPER_USER)

    def scram_arguments(self) -> list[str]:
        """Return the arguments that give Kafka's storage tool the users: salted hashes of passwords."""
        arguments = []
        for name, password in self.users.items():
            salt = secrets.token_bytes(16)
            salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
            words = f'name="{name}",iterations={_ITERATIONS},salt="{_base64(salt)}",saltedpassword="{_base64(salted)}"'
            arguments += ["--add-scram", f"SCRAM-SHA-512=[{words}]"]
        return arguments

    def redis_config(self) -> str:
        """Return the part of Valkey's configuration with users and their rules."""
        lines = ["user default off", *(f"user {name} {rules}" for name, rules in self.redis_users.items())]
        return "".join(f"{line}\n" for line in lines)

    def client_properties(self, user: str) -> Secrets:
        """Return librdkafka properties of a SCRAM user, without the address."""
        return Secrets(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": self.users[user],
                "ssl.ca.location": str(self.ca_file),
            }
        )


def redis_password(password: str) -> str:
    """Return the ACL rule by which a Valkey user has *password*: its hash."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _base64(encoded: bytes) -> str:
    return b64encode(encoded).decode()
