"""The reason of a failed TLS handshake: librdkafka reports all reasons alike, so Python's TLS repeats the handshake; no data is sent."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

_TIMEOUT_S = 2.0
_KAFKA_PORT = 9092


def certificate_problem(properties: Mapping[str, str]) -> str:
    """Return the problem with the certificate of the first broker in the list; empty if Python finds none."""
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
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as bare, context.wrap_socket(bare, server_hostname=host):
        pass
