"""Certificates for tests of TLS: an authority, and servers and clients it vouches for; wrong ones too."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Keys:
    """PEM files of one certificate: itself, its private key (PKCS 8), and both in one."""

    certificate_file: Path
    key_file: Path
    both_file: Path


class Authority:
    """
    Signs certificates.

    Args:
        folder: Where the files go.
        name: Its common name, and that of its file.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        unsigned = _unsigned(self._name, self._name, self._key, _DAY).add_extension(x509.BasicConstraints(True, 0), critical=True)
        unsigned = unsigned.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.ca_file = folder / f"{name}.pem"
        self.ca_file.write_bytes(unsigned.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, host: str = "127.0.0.1", valid: datetime.timedelta = _DAY, password: str = "") -> Keys:
        """
        Make a certificate that a server at *host* and a client called *name* may show.

        Args:
            name: Common name, and that of the files.
            host: Name or address of the server.
            valid: From now on; below zero: it has expired.
            password: Encrypts the private key, but not the copy beside the certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        unsigned = _unsigned(_named(name), self._name, key, valid).add_extension(uses, critical=False)
        unsigned = unsigned.add_extension(x509.SubjectAlternativeName([_host(host)]), critical=False)
        octets = unsigned.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        keys = Keys(*(self._folder / f"{name}.{kind}.pem" for kind in ("certificate", "key", "both")))
        keys.certificate_file.write_bytes(octets)
        keys.key_file.write_bytes(_pem(key, password))
        keys.both_file.write_bytes(_pem(key, "") + octets)
        return keys


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: datetime.timedelta) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    since = min(now, now + valid) - _DAY
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(since).not_valid_after(now + valid)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey, password: str) -> bytes:
    locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
