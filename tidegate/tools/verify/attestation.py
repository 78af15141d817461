"""
Attestations: signed statements of the result of a verification, small enough to be kept for years.

Law: the signature is Ed25519 over the bytes ``tidegate-attestation/1\\n`` and the statement as canonical JSON: UTF-8, members sorted by
name, no white space, numbers whole. So anyone with the file, the public key and the published results can check both without Tidegate.
Format: docs/operate/verify.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key, load_pem_public_key

from ordering.errors import RefusedError, SettingError
from tidegate.basics.bounded_files import SECRET_BYTES_MAX, read_file_bytes

FORMAT = "tidegate-attestation/1"
_MAKE_KEY = "openssl genpkey -algorithm ed25519 -out key.pem"


@dataclass(frozen=True, slots=True)
class Attestation:
    """A statement whose signature holds, and the public key that it holds for: 32 bytes."""

    statement: Mapping[str, Any]
    public_key: bytes

    @property
    def fingerprint(self) -> str:
        """The key's name in words: SHA-256 of its 32 bytes."""
        return hashlib.sha256(self.public_key).hexdigest()


def canonical_bytes(statement: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed."""
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"{FORMAT}\n{text}".encode()


def sign(statement: Mapping[str, Any], key_file: Path) -> str:
    """Return an attestation as text; SettingError (TG-VERIFY-KEY) if the file holds no private Ed25519 key in PEM."""
    key = read_private_key(key_file)
    public_key = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = {
        "algorithm": "ed25519",
        "public_key": base64.b64encode(public_key).decode(),
        "value": base64.b64encode(key.sign(canonical_bytes(statement))).decode(),
    }
    fields = {"format": FORMAT, "statement": statement, "signature": signature}
    return json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def check_signature(text: str, where: str, public_key_file: Path | None = None) -> Attestation:
    """
    Return an attestation after checking its signature and, if *public_key_file* (PEM) is given, that this key has signed it. Raises
    RefusedError (TG-VERIFY-SIGNATURE).
    """
    try:
        fields = json.loads(text)
        statement, signature = fields["statement"], fields["signature"]
        data, value = (base64.b64decode(signature[name], validate=True) for name in ("public_key", "value"))
        known = fields["format"] == FORMAT and signature["algorithm"] == "ed25519"
        key = Ed25519PublicKey.from_public_bytes(data)
    except (ValueError, KeyError, TypeError) as error:
        raise _refusal(f"this is no attestation: {error}", where) from None
    if not known:
        raise _refusal("the attestation has a format or signature that this program does not know", where)
    try:
        key.verify(value, canonical_bytes(statement))
    except InvalidSignature:
        raise _refusal("the signature does not hold: the statement was changed after it was signed", where) from None
    attestation = Attestation(statement, data)
    if public_key_file is not None and read_public_key(public_key_file) != data:
        raise _refusal(f"the attestation was signed with another key, {attestation.fingerprint}", where)
    return attestation


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file."""
    try:
        key = load_pem_private_key(read_file_bytes(path, SECRET_BYTES_MAX), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _key_error(path, "private", error) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _key_error(path, "private", "it is of another kind")
    return key


def read_public_key(path: Path) -> bytes:
    """Return the 32 bytes of the public key in a PEM file."""
    try:
        key = load_pem_public_key(read_file_bytes(path, SECRET_BYTES_MAX))
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise _key_error(path, "public", error) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _key_error(path, "public", "it is of another kind")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _key_error(path: Path, kind: str, reason: object) -> SettingError:
    what = f"no {kind} Ed25519 key can be read: {reason}"
    return SettingError(what, code="TG-VERIFY-KEY", where=str(path), fix="make one, not encrypted, as PEM", example=_MAKE_KEY)


def _refusal(what: str, where: str) -> RefusedError:
    fix = "ask whoever signed it for the file and for the public key"
    return RefusedError(what, code="TG-VERIFY-SIGNATURE", where=where, fix=fix)
