"""
What Kafka refuses, in words a user can act on: a right that is missing, a password or a certificate that is not accepted.

Law: what waiting cannot mend is told apart from what it can (:func:`beyond_waiting`), so that nothing waits for it for ever;
and a denial names the topic, the operation and the command that allows it. No text of librdkafka leaves with a secret in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from confluent_kafka import KafkaError

from ordering.errors import RefusedError, TidegateError, UnreachableError
from tidegate.kafka.tls_failures import why_untrusted
from tidegate.secret_masking import scrub
from tidegate.stack.rights import Right, kafka_acl, kafka_principal

_DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
_TLS_REFUSAL = re.compile(r"SSL routines:.*(\balert\b|certificate verify failed)")
"""
That one side does not accept the other's certificate. The brokers' alert librdkafka takes for a broken connection, and now and
then also its own refusal.
"""
BEYOND_WAITING = frozenset({"TG-KAFKA-DENIED", "TG-KAFKA-AUTH", "TG-KAFKA-TLS"})


def beyond_waiting(error: Exception) -> bool:
    """Tell whether *error* says what only a person can mend: a right, a password, a certificate."""
    return isinstance(error, TidegateError) and error.code in BEYOND_WAITING


def is_denial(error: KafkaError | None) -> bool:
    """Tell whether the brokers forbid something to this client."""
    return error is not None and error.code() in _DENIED


def kafka_failure(
    error: KafkaError, where: str, operation: str = "", topic: str = "", properties: Mapping[str, str] | None = None
) -> TidegateError:
    """
    Return what to raise for a librdkafka error that waiting will not mend.

    Args:
        error: What librdkafka says.
        where: The topic, or the place in it.
        operation: What was attempted, as Kafka's rights call it: Read, Write, Create, Describe, DescribeConfigs.
        topic: The topic it was attempted on; default: *where*.
        properties: The client's, to say who it is and where the brokers are.
    """
    given = properties or {}
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and operation:
        return kafka_denial(Right(operation, topic or where), given)
    if error.code() in _DENIED:
        return _denied(error, where, given)
    if error.code() in _NOT_LET_IN:
        return _not_let_in(error, given)
    if error.code() == KafkaError._SSL or _TLS_REFUSAL.search(error.str()):
        return _untrusted(error, given)
    return TidegateError(f"Kafka refused: {told(error)}", code="TG-KAFKA", where=where, fix="see the broker's log")


def told(error: KafkaError) -> str:
    """Return librdkafka's words, without secrets and without the name of its thread."""
    words = scrub(error.str())
    return words.partition("/bootstrap: ")[2] or words


def _denied(error: KafkaError, where: str, properties: Mapping[str, str]) -> RefusedError:
    return RefusedError(
        f"the brokers deny {kafka_principal(properties)} something: {told(error)}",
        code="TG-KAFKA-DENIED",
        where=where,
        fix="give it the rights that docs/security.md lists for its stage",
    )


def kafka_denial(right: Right, properties: Mapping[str, str]) -> RefusedError:
    """Return what to raise where *right* is missing."""
    who = kafka_principal(properties)
    bootstrap = properties.get("bootstrap.servers", "BROKER")
    return RefusedError(
        f"the brokers deny {who} the operation {right.operation} on topic {right.topic}",
        code="TG-KAFKA-DENIED",
        where=right.topic,
        fix="allow it, and the others that docs/security.md lists for this stage",
        example=kafka_acl(right, bootstrap, who),
    )


def _not_let_in(error: KafkaError, properties: Mapping[str, str]) -> UnreachableError:
    return UnreachableError(
        f"the brokers do not let {kafka_principal(properties)} in: {told(error)}",
        code="TG-KAFKA-AUTH",
        where=properties.get("bootstrap.servers", "kafka.client"),
        fix="check sasl.mechanism, sasl.username and sasl.password in [kafka.client]; a changed password is read at the next start",
        example='"sasl.password" = "file:/run/secrets/kafka"',
    )


def _untrusted(error: KafkaError, properties: Mapping[str, str]) -> UnreachableError:
    return UnreachableError(
        f"the brokers and this client do not agree on TLS: {why_untrusted(properties) or told(error)}",
        code="TG-KAFKA-TLS",
        where=properties.get("bootstrap.servers", "kafka.client"),
        fix="check the brokers' certificate (who signed it, the host name in it, how long it is valid) against ssl.ca.location in "
        "[kafka.client], and ssl.certificate.location with ssl.key.location if they ask for one",
        example='"ssl.ca.location" = "/etc/tidegate/ca.pem"',
    )


class LastWords:
    """
    What a client said last about its connections, through ``error_cb``: why nobody answers is told there and nowhere else.

    Args:
        properties: The client's.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.heard: KafkaError | None = None

    def hear(self, error: KafkaError) -> None:
        """Take one error; that all brokers are down says less than why."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.heard = error

    def forget(self) -> None:
        """A broker has answered: what was said before no longer counts."""
        self.heard = None

    def fault(self) -> TidegateError | None:
        """Return what to raise if the reason is one that only a person can mend."""
        if self.heard is None:
            return None
        error = kafka_failure(self.heard, self._properties.get("bootstrap.servers", ""), properties=self._properties)
        return error if beyond_waiting(error) else None
