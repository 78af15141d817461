"""Which of librdkafka's words say something that waiting cannot mend."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tidegate.platform.kafka.failures import LastError, error_text

REFUSED = "error:0A000086:SSL routines::certificate verify failed: broker certificate could not be verified"
ALERT = "SSL handshake failed: error:0A000412:SSL routines::sslv3 alert bad certificate: SSL alert number 42"


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [
        (KafkaError._SSL, "SSL handshake failed: Disconnected", "TG-KAFKA-TLS"),
        (KafkaError._TRANSPORT, REFUSED, "TG-KAFKA-TLS"),
        (KafkaError._TRANSPORT, ALERT, "TG-KAFKA-TLS"),
        (KafkaError._AUTHENTICATION, "SASL authentication error", "TG-KAFKA-AUTH"),
        (KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:9 failed: Connection refused", None),
        (KafkaError._TRANSPORT, "SSL routines::unexpected eof while reading", None),
        (KafkaError._ALL_BROKERS_DOWN, REFUSED, None),
    ],
)
def test_only_what_a_person_must_mend_ends_the_waiting(number: int, words: str, code: str | None) -> None:
    """A certificate that one side refuses does, under whatever number it is told; a broken connection does not."""
    last = LastError({"bootstrap.servers": "127.0.0.1:9"})
    last.record(KafkaError(number, f"ssl://127.0.0.1:9/bootstrap: {words}"))
    fault = last.hopeless_failure()
    assert (None if fault is None else fault.code) == code


def test_a_text_keeps_what_happened_and_not_what_librdkafka_counts() -> None:
    """Neither the thread nor how long the attempt took."""
    refused = "127.0.0.1:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed: Connection refused"
    for counted in ("", " (after 0ms in state CONNECT)", " (after 12ms in state CONNECT, 1 identical error(s) suppressed)"):
        assert error_text(KafkaError(KafkaError._TRANSPORT, refused + counted)) == "Connect to ipv4#127.0.0.1:9 failed: Connection refused"
