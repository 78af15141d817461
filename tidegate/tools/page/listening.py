"""
Where the page listens: its address, and its certificate.

Law: what cannot be had is refused before the server says that it serves: a taken port, an address that is none of this machine, and a
certificate that does not fit its key.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ordering.errors import SettingError

TOKEN = "TIDEGATE_UI_TOKEN"
_LOCAL = ("127.0.0.1", "localhost", "::1")
_TOKEN_LENGTH_MIN = 16


def check_binding(host: str, token: str) -> None:
    """Raise SettingError: others reach *host*, and there is no token."""
    if host not in _LOCAL and len(token) < _TOKEN_LENGTH_MIN:
        what = f"{host} is reached by others, and there is no token of at least {_TOKEN_LENGTH_MIN} characters"
        fix = f"set the variable {TOKEN}, or listen on 127.0.0.1"
        raise SettingError(what, code="TG-SETTING-FLAG", where="--host", fix=fix, example=f"export {TOKEN}=$(openssl rand -hex 16)")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, with port 0 at a free one. Raises SettingError: it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except OSError:
            listening.close()
            raise
    except OSError as error:
        what = f"the page cannot listen on port {port} of {host}: {error.strerror}"
        fix = "name a free port, or an address of this machine"
        raise SettingError(what, code="TG-SETTING-PORT", where="--port", fix=fix, example="tidegate ui --port 8601") from None
    return listening


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise SettingError: the certificate cannot be read or does not fit its key, or there is a key alone."""
    example = "tidegate ui --certificate page.pem --key page.key"
    if certificate is None:
        if key is not None:
            what, fix = "there is a key and no certificate", "name the certificate too"
            raise SettingError(what, code="TG-SETTING-FLAG", where="--certificate", fix=fix, example=example)
        return
    for file in filter(None, (certificate, key)):
        if not os.access(file, os.R_OK):
            what, fix = f"{file} cannot be read", "name a file of PEM that this user may read"
            raise SettingError(what, code="TG-SETTING-FILE", where=str(file), fix=fix, example=example)
    import ssl

    try:
        # Without a password a server that nobody watches would wait for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, lambda: "")
    except (ssl.SSLError, ValueError) as error:
        reason = (error.reason or str(error)).lower().replace("_", " ") if isinstance(error, ssl.SSLError) else str(error)
        what = f"{certificate} and its key are no certificate for TLS: {reason}"
        fix = "both are PEM, the key is that of the first certificate and has no password"
        raise SettingError(what, code="TG-SETTING-FILE", where=str(certificate), fix=fix, example=example) from None
