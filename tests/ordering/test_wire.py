"""
The bytes of the ordered topic against PROTOCOL.md: its tables, its schema and its examples are read from the page itself.

Nothing here trusts the dtype or the schema of ``ordering.wire``: headers are unpacked with ``struct``, bodies by the
schema on the page.
"""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ordering
from ordering.errors import ProtocolError
from ordering.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY, TICK_MAX, TICK_MIN
from ordering.wire import (
    CTI_HEADER_BYTES,
    EVENT_HEADER_BYTES,
    Flag,
    decode_cti,
    decode_event_headers,
    encode_cti,
    encode_event_headers,
)

_PAGE = (Path(ordering.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")
_EVENT = "<BBHIqqqqq"
_CTI = "<BBHI"

_LONG = st.integers(-(2**63), 2**63 - 1)
_TIME = st.integers(TICK_MIN, TICK_MAX)
_NUMBER = st.integers(0, 2**32 - 1)
_ROSTERS = st.builds(Roster, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.sampled_from(Spread), st.booleans())
_CTIS = st.builds(
    Cti,
    number=_NUMBER,
    output_partition=st.integers(0, 1000),
    c=_TIME | st.just(INFINITY) | _LONG,
    n=_LONG,
    ahead=_LONG,
    next_offset=_LONG,
    arrival_us=_LONG,
    largest_us=_LONG,
    roster=_ROSTERS,
    cause=st.sampled_from(Cause),
)
_EVENTS = st.lists(st.tuples(st.integers(0, 3), _LONG, _LONG, _LONG, _LONG, _LONG), max_size=20)


def encode(events: list[tuple[int, int, int, int, int, int]], number: int) -> list[bytes]:
    """Encode events given as (flags, seq, s, t, a, offset)."""
    columns = [np.array(column, dtype=np.int64) for column in zip(*events, strict=True)] if events else [np.empty(0, dtype=np.int64)] * 6
    flags, seq, system_us, event_time_us, arrival_us, offset = columns
    return encode_event_headers(seq, system_us, event_time_us, arrival_us, offset, flags.astype(np.uint16), number)


def block(title: str) -> bytes:
    """Return the bytes of a hex block of the page."""
    found = re.search(rf"```hex {title}\n(.*?)```", _PAGE, re.DOTALL)
    assert found, f"PROTOCOL.md has no block {title!r}"
    return bytes.fromhex(found[1])


def table(after: str) -> dict[str, tuple[bytes, str]]:
    """Return the example table that follows a text: field -> (bytes, value)."""
    rows = re.findall(
        r"^\| `([0-9a-f ]+)` \| (\w+) \| (\w+) \|$", _PAGE[_PAGE.index(after) :].split("Its Kafka timestamp")[0], re.MULTILINE
    )
    return {name: (bytes.fromhex(octets), value) for octets, name, value in rows}


def page_schema() -> Any:
    """Return the schema of the CTI body that stands on the page."""
    found = re.search(r"```json\n(.*?)```", _PAGE, re.DOTALL)
    assert found
    return fastavro.parse_schema(json.loads(found[1]))


@given(_EVENTS, _NUMBER)
def test_event_headers_come_back_as_they_were(events: list[tuple[int, int, int, int, int, int]], number: int) -> None:
    """Decoding undoes encoding, for whole columns, over the full range of every field."""
    decoded = decode_event_headers(encode(events, number))
    assert [
        (row["flags"], row["seq"], row["system_us"], row["event_time_us"], row["arrival_us"], row["offset"]) for row in decoded
    ] == events
    assert decoded["number"].tolist() == [number] * len(events)


@given(_EVENTS, _NUMBER)
def test_event_headers_have_each_field_where_the_page_puts_it(events: list[tuple[int, int, int, int, int, int]], number: int) -> None:
    """Each header is a bytes object of 48 bytes that ``struct`` unpacks at the documented offsets."""
    for (flags, *rest), header in zip(events, encode(events, number), strict=True):
        assert type(header) is bytes
        assert struct.unpack(_EVENT, header) == (1, 1, flags, number, *rest)


@given(_CTIS)
def test_a_cti_comes_back_as_it_was_and_by_the_schema_of_the_page(cti: Cti) -> None:
    """Decoding undoes encoding; a foreign reader finds the same with ``struct`` and the page's schema."""
    header, body = encode_cti(cti)
    assert decode_cti(header, body, cti.output_partition) == cti
    assert struct.unpack(_CTI, header) == (1, 2, 0, cti.number)
    foreign: Any = fastavro.schemaless_reader(io.BytesIO(body), page_schema(), None)
    assert (foreign["c"], foreign["n"], foreign["ahead"], foreign["next_offset"]) == (cti.c, cti.n, cti.ahead, cti.next_offset)
    assert (foreign["arrival_us"], foreign["largest_us"], foreign["cause"]) == (cti.arrival_us, cti.largest_us, cti.cause.value)
    roster = (foreign["roster_version"], foreign["inputs"], foreign["spread"], foreign["substreams"])
    assert roster == (cti.roster.version, cti.roster.inputs, cti.roster.spread.value, cti.roster.substreams)


def test_the_tables_of_the_page_add_up() -> None:
    """Offsets and sizes of both header tables follow each other without a hole, and fill 48 and 8 bytes."""
    for title, size, layout in (("Header of an event", EVENT_HEADER_BYTES, _EVENT), ("Header of a CTI", CTI_HEADER_BYTES, _CTI)):
        section = _PAGE[_PAGE.index(f"### {title}") :].split("\n### ")[0]
        rows = re.findall(r"^\| (\d+) \| (\d+) \| ([ui]\d+) \| (\w+) \|", section, re.MULTILINE)
        at = 0
        for offset, width, kind, _ in rows:
            assert (int(offset), int(width) * 8) == (at, int(kind[1:]))
            at += int(width)
        codes = {"u8": "B", "u16": "H", "u32": "I", "i64": "q"}
        assert (at, "<" + "".join(codes[kind] for _, _, kind, _ in rows)) == (size, layout)


def test_the_event_on_the_page_is_what_we_write_and_read() -> None:
    """The example's bytes, its table and our code agree."""
    stated = table("An event: roster number 2")
    value = {name: int(text) for name, (_, text) in stated.items()}
    assert b"".join(octets for octets, _ in stated.values()) == block("event")
    assert struct.unpack(_EVENT, block("event")) == tuple(value.values())
    fields = value["flags"], value["seq"], value["system_us"], value["event_time_us"], value["arrival_us"], value["offset"]
    assert encode([fields], value["number"]) == [block("event")]
    decoded = decode_event_headers([block("event")])[0]
    assert {name: int(decoded[name]) for name in value} == value
    assert Flag(value["flags"]) == Flag.OUT_OF_ORDER


def test_the_cti_on_the_page_is_what_we_write_and_read() -> None:
    """The example's bytes, its table and our code agree."""
    stated = table("The CTI after it")
    value = {name: text for name, (_, text) in stated.items()}
    assert b"".join(octets for octets, _ in stated.values()) == block("cti body")
    cti = Cti(
        number=2,
        output_partition=0,
        c=int(value["c"]),
        n=int(value["n"]),
        ahead=int(value["ahead"]),
        next_offset=int(value["next_offset"]),
        arrival_us=int(value["arrival_us"]),
        largest_us=int(value["largest_us"]),
        roster=Roster(int(value["roster_version"]), int(value["inputs"]), Spread(value["spread"]), value["substreams"] == "true"),
        cause=Cause(value["cause"]),
    )
    assert encode_cti(cti) == (block("cti header"), block("cti body"))
    assert decode_cti(block("cti header"), block("cti body"), 0) == cti


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="none"),
        pytest.param(block("event")[:-1], id="too short"),
        pytest.param(b"\x02" + block("event")[1:], id="another version"),
        pytest.param(b"\x01\x02" + block("event")[2:], id="another kind"),
    ],
)
def test_an_event_header_that_is_none_is_refused(header: bytes) -> None:
    """A reader never guesses at a header it does not know, even between good ones."""
    with pytest.raises(ProtocolError):
        decode_event_headers([block("event"), header])


def test_lengths_that_only_together_are_right_are_refused() -> None:
    """47 and 49 bytes are as many as two headers have, and none of them is one."""
    both = block("event") * 2
    with pytest.raises(ProtocolError) as caught:
        decode_event_headers([both[:47], both[47:]])
    assert "48 bytes" in caught.value.what


@pytest.mark.parametrize(("header", "body"), [(b"\x02" + block("cti header")[1:], block("cti body")), (block("cti header"), b"")])
def test_a_cti_that_cannot_be_read_is_named(header: bytes, body: bytes) -> None:
    """The error says which record it is."""
    with pytest.raises(ProtocolError) as caught:
        decode_cti(header, body, 3, "flights-3@17")
    assert caught.value.where == "flights-3@17"


@given(st.binary(max_size=12) | st.just(block("cti header")), st.binary(max_size=60))
def test_any_bytes_are_a_cti_or_an_error_of_the_protocol(header: bytes, body: bytes) -> None:
    """Whatever stands on the topic, reading it gives a CTI or a ProtocolError, never anything else."""
    try:
        cti = decode_cti(header, body, 0)
    except ProtocolError:
        return
    assert struct.unpack(_CTI, header)[:2] == (1, 2)
    assert isinstance(cti.cause, Cause)


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_cti_body_cut_short_is_refused(cut: int) -> None:
    """A body that ends early is an error, not a shorter promise."""
    with pytest.raises(ProtocolError):
        decode_cti(block("cti header"), block("cti body")[:-cut], 0)
