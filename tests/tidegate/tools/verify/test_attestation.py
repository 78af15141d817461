"""Attestations: what is signed, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from ordering.errors import RefusedError, SettingError
from tidegate.tools.verify.attestation import canonical_bytes, check_signature, sign

# RFC 8032, section 7.1, test 1: a secret key and its public key.
SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
STATEMENT = {"target": "Zürich \U0001f600", "published": [{"rows": 3, "name": "a"}], "since": None}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """Return the file of a known key."""
    file = tmp_path / "key.pem"
    file.write_bytes(Ed25519PrivateKey.from_private_bytes(SECRET).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


def test_the_signed_bytes_are_those_of_the_manual() -> None:
    """Sorted members, no white space, no needless escapes."""
    expected = 'tidegate-attestation/1\n{"published":[{"name":"a","rows":3}],"since":null,"target":"Zürich \U0001f600"}'
    assert canonical_bytes(STATEMENT) == expected.encode()


def test_a_signature_holds_for_its_key(key_file: Path) -> None:
    """The public key of a test of the standard; signing again gives the same signature."""
    text = sign(STATEMENT, key_file)
    attestation = check_signature(text, "file")
    assert attestation.statement == STATEMENT
    assert attestation.public_key == PUBLIC
    assert text == sign(STATEMENT, key_file)


@pytest.mark.parametrize("place", ["statement", "value", "public_key", "format"])
def test_whatever_is_changed_is_refused(key_file: Path, place: str) -> None:
    """The statement, the signature, the key, the format."""
    fields = json.loads(sign(STATEMENT, key_file))
    if place == "statement":
        fields["statement"]["published"][0]["rows"] = 4
    elif place == "format":
        fields["format"] = "tidegate-attestation/2"
    else:
        octets = bytearray(base64.b64decode(fields["signature"][place]))
        octets[5] ^= 1
        fields["signature"][place] = base64.b64encode(octets).decode()
    with pytest.raises(RefusedError) as refused:
        check_signature(json.dumps(fields), "file")
    assert refused.value.code == "TG-VERIFY-SIGNATURE"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"statement": 1, "signature": 2, "format": 3}', '{"statement": {}, "signature": {}}']
)
def test_what_is_no_attestation_is_refused(text: str) -> None:
    """Any text."""
    with pytest.raises(RefusedError) as refused:
        check_signature(text, "file")
    assert refused.value.code == "TG-VERIFY-SIGNATURE"


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    """No file, no key, an encrypted one, one of another kind."""
    files = {name: tmp_path / name for name in ("absent", "text", "encrypted", "other")}
    files["text"].write_text("no key")
    encrypted = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    files["encrypted"].write_bytes(encrypted)
    files["other"].write_bytes(generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for file in files.values():
        with pytest.raises(SettingError) as refused:
            sign(STATEMENT, file)
        assert refused.value.code == "TG-VERIFY-KEY"
