"""
The bytes of the ordered topic against PROTOCOL.md: its tables, its schema and its examples are read from the page itself.

Nothing here trusts the dtype or the schema of ``ordering.protocol.wire``: headers are unpacked with ``struct``, bodies by the
schema on the page.
"""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.make_vectors import cti_bytes

import ordering
from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import (
    CTI_HEADER_BYTES,
    EVENT_HEADER_BYTES,
    ROSTER_INPUTS_MAX,
    Flag,
    decode_cti,
    decode_event_headers,
    decode_source_cti,
    encode_cti,
    encode_ctis,
    encode_event_header_column,
    encode_event_headers,
    encode_source_cti,
)
from ordering.ticks import INFINITY, TICK_MAX, TICK_MIN

Ints = NDArray[np.int64]

_PAGE = (Path(ordering.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")
_EVENT = "<BBHIqqqqq"
_CTI = "<BBHI"

_LONG = st.integers(-(2**63), 2**63 - 1)
_TIME = st.integers(TICK_MIN, TICK_MAX)
_NUMBER = st.integers(0, 2**32 - 1)
_ROSTERS = st.builds(Roster, st.integers(0, 2**31 - 1), st.integers(1, ROSTER_INPUTS_MAX), st.sampled_from(Spread), st.booleans())
_COUNT = st.integers(0, 2**63 - 1)
_LISTS = st.lists(st.tuples(st.binary(max_size=9) | st.sampled_from([b"", b"a" * 63, b"a" * 64]), _LONG), max_size=9).map(tuple)
_CTIS = st.builds(
    Cti,
    number=_NUMBER,
    output_partition=st.integers(0, 1000),
    c=_TIME | st.just(INFINITY) | _LONG,
    n=_COUNT,
    ahead=st.just(0),
    next_offset=_COUNT,
    arrival_us=_LONG,
    largest_us=_LONG,
    roster=_ROSTERS,
    cause=st.sampled_from(Cause),
    listed=st.just(()) | _LISTS,
).flatmap(lambda cti: st.integers(0, cti.n).map(lambda ahead: replace(cti, ahead=ahead)))
_EVENTS = st.lists(st.tuples(st.integers(0, 3) | st.integers(0, 255), _LONG, _LONG, _LONG, _LONG, _LONG), max_size=20)


def columns_of(
    events: list[tuple[int, int, int, int, int, int]], number: int
) -> tuple[Ints, Ints, Ints, Ints, Ints, NDArray[np.uint16], int]:
    """Return events given as (flags, seq, s, t, a, offset) as what the encoders take."""
    columns = [np.array(column, dtype=np.int64) for column in zip(*events, strict=True)] if events else [np.empty(0, dtype=np.int64)] * 6
    flags, seq, system_us, event_time_us, arrival_us, offset = columns
    return seq, system_us, event_time_us, arrival_us, offset, flags.astype(np.uint16), number


def encode(events: list[tuple[int, int, int, int, int, int]], number: int) -> list[bytes]:
    """Encode events given as (flags, seq, s, t, a, offset)."""
    return encode_event_headers(*columns_of(events, number))


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


def page_schema(version: int) -> Any:
    """Return the schema of the CTI body of a version that stands on the page."""
    found = re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL)
    schema = json.loads(found[0])
    if version == 2:
        schema["fields"] += json.loads(found[1])
    return fastavro.parse_schema(schema)


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
        assert struct.unpack(_EVENT, header) == (1 if flags < 4 else 2 if flags < 128 else 3, 1, flags, number, *rest)


@given(_EVENTS, _NUMBER, st.integers(0, 20))
def test_headers_as_an_arrow_column_are_the_same_bytes(events: list[tuple[int, int, int, int, int, int]], number: int, start: int) -> None:
    """The column holds what the list holds, also in a slice, and is decoded where it lies."""
    column, listed = encode_event_header_column(*columns_of(events, number)), encode(events, number)
    assert column.to_pylist() == listed
    assert decode_event_headers(column.slice(start)).tolist() == decode_event_headers(listed[start:]).tolist()


@given(_CTIS)
def test_a_cti_comes_back_as_it_was_and_by_the_schema_of_the_page(cti: Cti) -> None:
    """Decoding undoes encoding; a foreign reader finds the same with ``struct`` and the page's schema."""
    header, body = encode_cti(cti)
    assert decode_cti(header, body, cti.output_partition) == cti
    version = 2 if cti.listed else 1
    assert struct.unpack(_CTI, header) == (version, 2, 0, cti.number)
    foreign: Any = fastavro.schemaless_reader(io.BytesIO(body), page_schema(version), None)
    assert [(each["key"], each["w"]) for each in foreign.get("listed", [])] == list(cti.listed)
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
    assert encode_ctis(cti) == [encode_cti(cti)] == [(block("cti header"), block("cti body"))]
    assert decode_cti(block("cti header"), block("cti body"), 0) == cti


def test_the_list_on_the_page_is_what_we_write_and_read() -> None:
    """Level 1: the example of version 2 is the CTI of version 1 and a list; its bytes, its table and our code agree."""
    stated = re.findall(r"^\| `([0-9a-f ]+)` \| (\w+) \| ?([\w ]*?) ?\|$", _PAGE[_PAGE.index("The same CTI with a list") :], re.MULTILINE)
    assert b"".join(bytes.fromhex(octets) for octets, _, _ in stated) == block("listing body").removeprefix(block("cti body"))
    value = [text for _, _, text in stated]
    listed = (value[3].encode(), int(value[4])), (value[5].encode(), int(value[6]))
    cti = replace(decode_cti(block("cti header"), block("cti body"), 0), listed=listed, part=int(value[0]), parts=int(value[1]))
    assert encode_ctis(cti) == [(block("listing header"), block("listing body"))]
    assert decode_cti(block("listing header"), block("listing body"), 0) == cti


def test_the_flags_of_the_page_are_ours() -> None:
    """Bits, values, names and the version that brought each."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| (\d) \|", _PAGE, re.MULTILINE)
    assert [(1 << int(bit), int(value), name) for bit, value, name, _ in rows] == [(flag, flag, (flag.name or "").lower()) for flag in Flag]
    for bit, _, _, since in rows:
        assert encode([(1 << int(bit), 0, 0, 0, 0, 0)], 0)[0][0] == int(since)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="none"),
        pytest.param(block("event")[:-1], id="too short"),
        pytest.param(b"\x00" + block("event")[1:], id="no version"),
        pytest.param(b"\x04" + block("event")[1:], id="a newer version"),
        pytest.param(b"\x03" + block("event")[1:], id="the highest version without its flag"),
        pytest.param(b"\x02" + block("event")[1:], id="a higher version than it needs"),
        pytest.param(block("event")[:2] + b"\x04" + block("event")[3:], id="a flag its version does not have"),
        pytest.param(b"\x02" + block("event")[1:2] + b"\x80" + block("event")[3:], id="a flag of version 3 in version 2"),
        pytest.param(b"\x03" + block("event")[1:2] + b"\x00\x01" + block("event")[4:], id="a flag no version has"),
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


_HEADER_OF_2 = b"\x02" + block("cti header")[1:]
_LIST_OF_ONE = block("cti body") + bytes.fromhex("00 02  02 02 61 0e 00")


@pytest.mark.parametrize(
    ("header", "body"),
    [
        pytest.param(b"\x04" + block("cti header")[1:], block("cti body"), id="a newer version"),
        pytest.param(b"\x03" + block("cti header")[1:], block("cti body"), id="a version of events only"),
        pytest.param(_HEADER_OF_2, block("cti body"), id="version 2 with the body of version 1"),
        pytest.param(block("cti header"), b"", id="no body"),
        pytest.param(block("cti header"), _LIST_OF_ONE, id="version 1 with the body of version 2"),
        pytest.param(block("cti header")[:2] + b"\x01" + block("cti header")[3:], block("cti body"), id="a flag"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("00 02  00"), id="version 2 without a list"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("01 02  02 02 61 0e 00"), id="part -1 of 1"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("02 02  02 02 61 0e 00"), id="part 1 of 1"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("00 00  02 02 61 0e 00"), id="part 0 of 0"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("00 02  ff ff ff ff ff ff ff ff 7f 02 61 0e 00"), id="a huge list"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("00 02  02 01 0e 00"), id="a key of -1 bytes"),
        pytest.param(_HEADER_OF_2, block("cti body") + bytes.fromhex("00 02  02 fe ff ff ff ff ff ff 7f 61 0e 00"), id="a huge key"),
        pytest.param(_HEADER_OF_2, _LIST_OF_ONE + b"\0", id="a byte too many"),
    ],
)
def test_a_cti_that_cannot_be_read_is_named(header: bytes, body: bytes) -> None:
    """The error says which record it is."""
    with pytest.raises(ProtocolError) as caught:
        decode_cti(header, body, 3, "flights-3@17")
    assert caught.value.where == "flights-3@17"


def page_rules() -> dict[str, str]:
    """Return what the page says of values out of range: field -> refused, or not checked."""
    rows = re.findall(r"^\| (?:event|CTI) \| ([\w, ]+) \| [^|]+ \| ([\w ]*?) ?\|$", _PAGE.split("### Valid ranges")[1], re.MULTILINE)
    return {name: rule for names, rule in rows for name in names.split(", ")}


_SOUND = decode_cti(block("cti header"), block("cti body"), 0)
_OUT_OF_RANGE: dict[str, list[Cti]] = {
    "c": [replace(_SOUND, c=-(2**62))],
    "n": [replace(_SOUND, n=-1, ahead=-1)],
    "ahead": [replace(_SOUND, ahead=-1), replace(_SOUND, ahead=_SOUND.n + 1)],
    "next_offset": [replace(_SOUND, next_offset=-1)],
    "largest_us": [replace(_SOUND, largest_us=TICK_MIN - 1), replace(_SOUND, largest_us=TICK_MAX + 1)],
    "roster_version": [replace(_SOUND, roster=replace(_SOUND.roster, version=version)) for version in (-1, 2**31)],
    "inputs": [replace(_SOUND, roster=replace(_SOUND.roster, inputs=inputs)) for inputs in (-1, 0, ROSTER_INPUTS_MAX + 1)],
    "parts": [replace(_SOUND, listed=((b"k", 7),), part=1, parts=2**31)],
    "part": [replace(_SOUND, listed=((b"k", 7),), part=part, parts=3) for part in (-1, 3)],
}


@pytest.mark.parametrize("field", _OUT_OF_RANGE)
def test_a_cti_out_of_range_is_refused_or_not_as_the_page_says(field: str) -> None:
    """Level 1: its table of valid ranges is what the decoder does."""
    rule = page_rules()[field]
    for cti in _OUT_OF_RANGE[field]:
        header, body = unlimited(cti)
        if rule == "refused":
            with pytest.raises(ProtocolError):
                decode_cti(header, body, 0)
        else:
            assert rule == "not checked"
            assert decode_cti(header, body, 0) == cti


def unlimited(cti: Cti) -> tuple[bytes, bytes]:
    """Encode a CTI whose ints may be too large for an Avro int: a long has the same bytes."""
    made = cti_bytes(cti)
    return bytes.fromhex(made["header"]), bytes.fromhex(made["value"])


def test_event_headers_out_of_range_are_not_checked_as_the_page_says() -> None:
    """Level 1: a decoder lets through what no writer writes; the page does not claim more."""
    rules = page_rules()
    assert {rules[field] for field in ("seq", "system_us", "event_time_us", "offset")} == {"not checked"}
    strange = (0, -1, 999, TICK_MAX + 1, -1, -1)
    assert decode_event_headers(encode([strange], 0))[0]["seq"] == -1


@pytest.mark.parametrize("at", [0, 1, 7])
@pytest.mark.parametrize("octets", ["80" * 10 + "00", "ff" * 9 + "02", "ff" * 9 + "7f", "ff" * 20 + "01"])
def test_a_number_beyond_64_bits_is_refused_wherever_it_stands(at: int, octets: str) -> None:
    """Avro libraries make different numbers of it; longer than needed within 64 bits is let through."""
    numbers = re.findall(rb"[\x80-\xff]*[\x00-\x7f]", block("cti body"), re.DOTALL)
    body = b"".join([*numbers[:at], bytes.fromhex(octets), *numbers[at + 1 :]])
    with pytest.raises(ProtocolError):
        decode_cti(block("cti header"), body, 0)
    longer = bytes([*numbers[at][:-1], numbers[at][-1] | 128, 0])
    assert decode_cti(block("cti header"), b"".join([*numbers[:at], longer, *numbers[at + 1 :]]), 0) == _SOUND


@given(
    st.binary(max_size=12) | st.sampled_from([block("cti header"), _HEADER_OF_2]),
    st.binary(max_size=60) | st.binary(max_size=20).map(lambda tail: block("cti body") + tail),
)
def test_any_bytes_are_a_cti_or_an_error_of_the_protocol(header: bytes, body: bytes) -> None:
    """Whatever stands on the topic, reading it gives a CTI or a ProtocolError, never anything else."""
    try:
        cti = decode_cti(header, body, 0)
    except ProtocolError:
        return
    assert struct.unpack(_CTI, header)[:2] in ((1, 2), (2, 2))
    assert isinstance(cti.cause, Cause)


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_cti_body_cut_short_is_refused(cut: int) -> None:
    """A body that ends early is an error, not a shorter promise."""
    with pytest.raises(ProtocolError):
        decode_cti(block("cti header"), block("cti body")[:-cut], 0)


@given(_CTIS, st.integers(0, 300))
def test_a_list_too_long_for_one_record_is_split(cti: Cti, max_bytes: int) -> None:
    """The parts are in order, say the same but for the list, keep to the bound unless one entry exceeds it, and hold the whole list."""
    records = encode_ctis(cti, max_bytes)
    parts = [decode_cti(header, body, cti.output_partition) for header, body in records]
    assert [part.part for part in parts] == list(range(len(parts)))
    assert {replace(part, listed=(), part=0) for part in parts} == {replace(cti, listed=(), parts=len(parts))}
    assert tuple(entry for part in parts for entry in part.listed) == cti.listed
    assert all(len(body) <= max_bytes or len(part.listed) < 2 for part, (_, body) in zip(parts, records, strict=True))


def test_parts_are_as_few_as_the_bound_allows() -> None:
    """A bound just large enough leaves a list whole; a lower one costs one more record, not many."""
    cti = Cti(0, 0, 10, 0, 0, 0, 0, 0, Roster(1, 1, Spread.ALL, True), Cause.EVENT, tuple((b"key%d" % at, 10**15) for at in range(1000)))
    size = len(encode_cti(cti)[1])
    assert len(encode_ctis(cti, size + 20)) == 1
    assert len(encode_ctis(cti, size - 1)) == 2


@given(_TIME)
def test_a_cti_of_the_source_says_one_time(c_us: int) -> None:
    """What a source encodes is a CTI record of which ingest takes ``c``."""
    header, body = encode_source_cti(c_us)
    assert decode_source_cti(header, body) == c_us
    assert struct.unpack(_CTI, header) == (1, 2, 0, 0)


def test_a_source_may_write_any_cti_with_a_valid_time() -> None:
    """Only ``c`` counts: other fields, lists and versions are let through, another time or record is not."""
    listing = Cti(7, 0, 5_000, 3, 0, 0, 0, 0, Roster(1, 9, Spread.ALL, True), Cause.EVENT, ((b"k", 1),))
    assert decode_source_cti(*encode_cti(listing)) == 5_000
    for c_us in (TICK_MIN - 1, TICK_MAX + 1, INFINITY, -1):
        with pytest.raises(ProtocolError):
            encode_source_cti(c_us)
        with pytest.raises(ProtocolError):
            decode_source_cti(*encode_cti(replace(listing, c=c_us)))
    for header, body in ((b"", b""), (block("event"), b"{}"), (block("cti header"), None)):
        with pytest.raises(ProtocolError):
            decode_source_cti(header, body)


def test_a_newer_version_is_refused_by_its_number() -> None:
    """The error says which version was met and which ones can be read."""
    for decode in (lambda: decode_event_headers([b"\x09" + block("event")[1:]]), lambda: decode_cti(b"\x09\x02" + bytes(6), b"", 0)):
        with pytest.raises(ProtocolError) as caught:
            decode()
        assert "version 9" in caught.value.what
