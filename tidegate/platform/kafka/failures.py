"""
Turns Kafka's refusals into errors that a user can act on: a missing right, a rejected password or certificate.

Law: :func:`is_hopeless` separates errors that only a person can fix from those that may pass, so no job waits for ever. The error of a
missing right names the topic, the operation and the command that allows it. No error text contains a secret.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping

from confluent_kafka import KafkaError

from ordering.errors import RefusedError, TidegateError, UnreachableError
from tidegate.basics.access_rights import Right, kafka_acl, kafka_principal
from tidegate.basics.secret_masking import scrub

_DENIALS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LOGIN_ERRORS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
# One side rejects the other's certificate. librdkafka reports the brokers' rejection as a broken connection, and sometimes its own too.
_TLS_REFUSAL = re.compile(r"SSL routines:.*(\balert\b|certificate verify failed)")
# The end of librdkafka's texts: "(after 0ms in state CONNECT, 1 identical error(s) suppressed)".
_LOG_SUFFIX = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)$")
_HANDSHAKE_S = 2.0
_KAFKA_PORT = 9092
HOPELESS_CODES = frozenset({"TG-KAFKA-DENIED", "TG-KAFKA-AUTH", "TG-KAFKA-TLS"})


def is_hopeless(error: Exception) -> bool:
    """Return whether only a person can fix *error*: a right, a password, a certificate."""
    return isinstance(error, TidegateError) and error.code in HOPELESS_CODES


def is_denial(error: KafkaError | None) -> bool:
    """Return whether the brokers deny this client a right."""
    return error is not None and error.code() in _DENIALS


def kafka_failure(error: KafkaError, where: str, operation: str = "", topic: str = "", *, properties: Mapping[str, str]) -> TidegateError:
    """
    Return the exception for a librdkafka error that waiting will not fix.

    Args:
        where: The topic, or a position in it.
        operation: The attempted operation by Kafka's name: Read, Write, Create, Describe, DescribeConfigs.
        topic: The topic of the operation; default: *where*.
    """
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and operation:
        return kafka_denial(Right(operation, topic or where), properties)
    if error.code() in _DENIALS:
        what = f"the brokers deny {kafka_principal(properties)} something: {error_text(error)}"
        fix = "give it the rights that docs/operate/security.md lists for its stage"
        return RefusedError(what, code="TG-KAFKA-DENIED", where=where, fix=fix)
    if error.code() in _LOGIN_ERRORS:
        return _login_failure(error, properties)
    if error.code() == KafkaError._SSL or _TLS_REFUSAL.search(error.str()):
        return _tls_failure(error, properties)
    return TidegateError(f"Kafka refused: {error_text(error)}", code="TG-KAFKA", where=where, fix="see the broker's log")


def error_text(error: KafkaError) -> str:
    """Return librdkafka's text without secrets, thread name and counters."""
    text = _LOG_SUFFIX.sub("", scrub(error.str()))
    return text.partition("/bootstrap: ")[2] or text


def kafka_denial(right: Right, properties: Mapping[str, str]) -> RefusedError:
    """Return the exception for a missing *right*."""
    who = kafka_principal(properties)
    bootstrap = properties.get("bootstrap.servers", "BROKER")
    what = f"the brokers deny {who} the operation {right.operation} on topic {right.topic}"
    fix = "allow it, and the others that docs/operate/security.md lists for this stage"
    return RefusedError(what, code="TG-KAFKA-DENIED", where=right.topic, fix=fix, example=kafka_acl(right, bootstrap, who))


def _login_failure(error: KafkaError, properties: Mapping[str, str]) -> UnreachableError:
    what = f"the brokers do not let {kafka_principal(properties)} in: {error_text(error)}"
    fix = "check sasl.mechanism, sasl.username and sasl.password in [kafka.client]; a changed password is read at the next start"
    example = '"sasl.password" = "file:/run/secrets/kafka"'
    return UnreachableError(what, code="TG-KAFKA-AUTH", where=properties.get("bootstrap.servers", "kafka.client"), fix=fix, example=example)


def _tls_failure(error: KafkaError, properties: Mapping[str, str]) -> UnreachableError:
    what = f"the brokers and this client do not agree on TLS: {certificate_problem(properties) or error_text(error)}"
    where = properties.get("bootstrap.servers", "kafka.client")
    fix = (
        "check the brokers' certificate (who signed it, the host name in it, how long it is valid) against ssl.ca.location in "
        "[kafka.client], and ssl.certificate.location with ssl.key.location if they ask for one"
    )
    return UnreachableError(what, code="TG-KAFKA-TLS", where=where, fix=fix, example='"ssl.ca.location" = "/etc/tidegate/ca.pem"')


class LastError:
    """The last connection error of a client, from ``error_cb``: only there does librdkafka say why no broker answers."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.error: KafkaError | None = None

    def record(self, error: KafkaError) -> None:
        """Keep *error*, unless it only says that all brokers are down."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.error = error

    def clear(self) -> None:
        self.error = None

    def is_refusal(self) -> bool:
        """Return whether the port is closed or the host name unknown; a slow broker causes neither."""
        return self.error is not None and (self.error.code() == KafkaError._RESOLVE or "Connection refused" in self.error.str())

    def hopeless_failure(self) -> TidegateError | None:
        if self.error is None:
            return None
        error = kafka_failure(self.error, self._properties.get("bootstrap.servers", ""), properties=self._properties)
        return error if is_hopeless(error) else None


def certificate_problem(properties: Mapping[str, str]) -> str:
    """
    Return the problem with the certificate of the first broker in the list; empty if Python finds none. librdkafka has one text for all
    failed handshakes, so Python repeats the handshake; no data is sent.
    """
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem"))
        context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != "none"
        _shake_hands(properties, context)
    except ssl.SSLCertVerificationError as error:
        return str(error.verify_message)
    except (OSError, ValueError):
        pass
    return ""


def speaks_tls(properties: Mapping[str, str]) -> bool:
    """Return whether the first broker in the list speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _shake_hands(properties, context)
    except (OSError, ValueError):
        return False
    return True


def _shake_hands(properties: Mapping[str, str], context: ssl.SSLContext) -> None:
    host, colon, port = properties["bootstrap.servers"].split(",")[0].strip().rpartition(":")
    if not colon:
        host, port = port, str(_KAFKA_PORT)
    host = host.strip("[]")
    with socket.create_connection((host, int(port)), _HANDSHAKE_S) as bare, context.wrap_socket(bare, server_hostname=host):
        pass
