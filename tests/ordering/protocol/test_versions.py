"""
Records of a version that this program does not know: refused by name, never guessed at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import EARLY, EXTENDED, PLAIN, VERSION, Flag, decode_cti, decode_event_headers, encode_cti, encode_event_headers

CTI = Cti(0, 0, 5_000, 0, 0, 0, 0, 1_000, Roster(1, 1, Spread.ALL, True), Cause.EVENT)


def header(flags: int) -> bytes:
    """Return the header of an event with these flags."""
    column = np.array([5_000], dtype=np.int64)
    return encode_event_headers(column, column, column, column, column, np.array([flags], dtype=np.uint16), 0)[0]


def test_a_newer_writers_records_are_refused_by_name_and_it_is_said_who_is_upgraded_first() -> None:
    """Events and CTIs of the next version: an error of its own, with the order of upgrades."""
    cti_header, body = encode_cti(CTI)
    with pytest.raises(ProtocolError) as of_event:
        decode_event_headers([header(0), bytes([VERSION + 1]) + header(0)[1:]])
    with pytest.raises(ProtocolError) as of_cti:
        decode_cti(bytes([VERSION + 1]) + cti_header[1:], body, 0)
    for error in (of_event.value, of_cti.value):
        assert error.code == "TG-PROTOCOL-VERSION"
        assert f"version {VERSION + 1}" in error.what
        assert "before" in error.fix
        assert "reads" in error.fix


@pytest.mark.parametrize("flag", Flag)
def test_an_event_bears_the_lowest_version_that_describes_it(flag: Flag) -> None:
    """So a reader of plain records alone reads every topic without spans, violations and lists, and refuses all others."""
    assert header(flag)[0] == (PLAIN if flag <= Flag.OUT_OF_ORDER else EXTENDED if flag < Flag.EARLY else EARLY)
    assert header(flag | Flag.LATE)[0] == header(flag)[0]


def test_a_cti_bears_the_lowest_version_that_describes_it() -> None:
    """A list or a part of one makes it an extended one."""
    listed = ((b"key", 6_000),)
    assert [encode_cti(cti)[0][0] for cti in (CTI, replace(CTI, listed=listed), replace(CTI, parts=2))] == [PLAIN, EXTENDED, EXTENDED]
