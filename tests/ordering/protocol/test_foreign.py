"""Which records of an ordered topic are none of the protocol: passed over, or, of a newer version, refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import ProtocolError
from ordering.protocol.foreign import foreign_reason, suspicious_rows
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import VERSION, VERSION_MAX, decode_event_headers, encode_cti, encode_event_headers


def event(flags: int = 0) -> bytes:
    """The header of an event."""
    one = np.ones(1, dtype=np.int64)
    return encode_event_headers(one, one, one, one, one, np.array([flags], dtype=np.uint16), 3)[0]


CTI_HEADER, CTI_BODY = encode_cti(Cti(0, 0, 5, 1, 0, 1, 5, 4, Roster(1, 1, Spread.ALL, True), Cause.EVENT))
OWN = {
    "an event": (event(), b"{}"),
    "an early event": (event(128 | 1), b"{}"),
    "an extended event": (event(64 | 8), None),
    "a CTI": (CTI_HEADER, CTI_BODY),
}
STRANGE: dict[str, tuple[bytes | None, bytes | None]] = {
    "no header": (None, b"{}"),
    "an empty header": (b"", b"{}"),
    "a text": (b"telegram", b"{}"),
    "a text as long as an event's header": (b"t" * 48, b"{}"),
    "three bytes of a newer version": (b"\x04\x01\x00", b"{}"),
    "version 0": (b"\x00" + event()[1:], b"{}"),
    "a version that there will never be": (bytes([VERSION_MAX + 1]) + event()[1:], b"{}"),
    "an event of 47 bytes": (event()[:47], b"{}"),
    "an event of 56 bytes": (event() + b"x" * 8, b"{}"),
    "another kind": (b"\x01\x09" + event()[2:], b"{}"),
    "flags of another version": (b"\x01\x01\x04\x00" + event()[4:], b"{}"),
    "a CTI with half a body": (CTI_HEADER, CTI_BODY[:7]),
    "a CTI without a body": (CTI_HEADER, None),
    "a CTI that says nonsense": (CTI_HEADER, b"\xff" * 30),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strangers_record_has_a_reason(kind: str) -> None:
    """Also what this protocol may have written and nobody can read: the numbers of its channel tell that it is missing."""
    assert foreign_reason(*STRANGE[kind])


@pytest.mark.parametrize("kind", OWN)
def test_a_record_of_the_protocol_has_none(kind: str) -> None:
    """Events of all versions, and CTIs."""
    assert foreign_reason(*OWN[kind]) == ""


@pytest.mark.parametrize("version", [VERSION + 1, VERSION_MAX])
@pytest.mark.parametrize("length", [8, 12, 48, 64])
def test_a_record_of_a_newer_version_is_refused_whatever_its_form(version: int, length: int) -> None:
    """Its events would be lost together with their numbers, so nothing would tell of it."""
    with pytest.raises(ProtocolError) as raised:
        foreign_reason(bytes([version]) + b"\x07" * (length - 1), b"", "t-0@7")
    assert (raised.value.code, raised.value.where) == ("TG-PROTOCOL-VERSION", "t-0@7")


_HEADERS = st.none() | st.binary(max_size=60) | st.sampled_from([header for header, _ in (*OWN.values(), *STRANGE.values())])


@given(st.lists(_HEADERS, max_size=9), st.integers(0, 3))
def test_all_but_plain_events_are_looked_at(headers: list[bytes | None], cut: int) -> None:
    """Whatever the column is a slice of: the rows that are not looked at are sound."""
    column = pa.array(headers, pa.binary()).slice(cut)
    looked_at = suspicious_rows(column).tolist()
    for row, header in enumerate(headers[cut:]):
        if row in looked_at:
            assert header is None or len(header) != 48 or header[:2] != b"\x01\x01" or header[2] > 3 or header[3]
        else:
            assert header is not None
            decode_event_headers([header])
