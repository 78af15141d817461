"""
Makes the vectors of the conformance kit: ``python tests/support/make_vectors.py`` writes ``ordering/conformance/vectors/*.json`` anew.

Law: the same bytes on every run and machine, and nothing in them comes from the code that they check. Hashes and keys are
written down by hand or come from Kafka's own tests; bytes are put together here, with ``struct`` and an Avro writer of a few
lines; reader stories are told by the naive reader, writer stories by the oracle.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from support.naive_reader import Event, Line, NaiveReader, read_naively
from support.oracle import compute_story, murmur2
from support.story import OrderedEvent, Story

import ordering
from ordering.policies import Action, Policies
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.testing import Record
from ordering.ticks import INFINITY, MINUTE_US, NEVER, SECOND_US, TICK_MAX, TICK_MIN

VECTORS = Path(ordering.__file__).parent / "conformance" / "vectors"
Json = dict[str, Any]


# --- Bytes, from PROTOCOL.md ---------------------------------------------------------------------------------------

FLAGS = {"late": 1, "out_of_order": 2, "cti_violation": 4, "interval": 8, "edge_start": 16, "edge_end": 32, "lifted_end": 64, "early": 128}


def event_header(number: int, flags: int, seq: int, system_us: int, event_time_us: int, arrival_us: int, offset: int) -> str:
    """Return the 48 bytes of an event's header, in hex."""
    version = 1 if flags < 4 else 2 if flags < 128 else 3
    return struct.pack("<BBHIqqqqq", version, 1, flags, number, seq, system_us, event_time_us, arrival_us, offset).hex()


def avro_long(value: int) -> bytes:
    """Return an Avro long: zigzag, then seven bits a byte, the lowest first."""
    zigzag, octets = 2 * value if value >= 0 else -2 * value - 1, []
    while zigzag > 127:
        octets.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes([*octets, zigzag])


def cti_bytes(cti: Cti) -> Json:
    """Return header and value of a CTI, in hex."""
    version = 2 if cti.listed or cti.parts > 1 else 1
    roster = cti.roster
    longs = cti.c, cti.n, cti.ahead, cti.next_offset, cti.arrival_us, cti.largest_us, roster.version, roster.inputs
    body = b"".join(map(avro_long, longs))
    body += avro_long(list(Spread).index(roster.spread)) + bytes([roster.substreams]) + avro_long(list(Cause).index(cti.cause))
    if version == 2:
        body += avro_long(cti.part) + avro_long(cti.parts)
        body += avro_long(len(cti.listed)) if cti.listed else b""
        body += b"".join(avro_long(len(key)) + key + avro_long(w) for key, w in cti.listed) + avro_long(0)
    return {"header": struct.pack("<BBHI", version, 2, 0, cti.number).hex(), "value": body.hex()}


def cti_fields(cti: Cti) -> Json:
    """Return a CTI as the kit shows it."""
    names = "number", "c", "n", "ahead", "next_offset", "arrival_us", "largest_us", "part", "parts"
    roster = cti.roster
    shown: Json = {name: getattr(cti, name) for name in names}
    shown |= {"roster_version": roster.version, "inputs": roster.inputs, "spread": roster.spread.value, "substreams": roster.substreams}
    return shown | {"cause": cti.cause.value, "listed": [[key.hex(), w] for key, w in cti.listed]}


# --- Hashes and keys -----------------------------------------------------------------------------------------------

KNOWN_HASHES: dict[bytes, int] = {
    # From the tests of Kafka's Java client.
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    # From the tests of librdkafka.
    b"kafka": 0xD067CF64 - 2**32,
    b"giberish123456789": 0x8F552B0C - 2**32,
    b"1234": 0x9FC97B14 - 2**32,
    b"234": 0xE7C009CA - 2**32,
    b"34": 0x873930DA - 2**32,
    b"4": 0x5A4B5CA1,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
    b"reAmbleWillBeRemoved,ThePrePartThatIs": 0x4A62B377,
    b"eAmbleWillBeRemoved,ThePrePartThatIs": 0xE0E4E09E - 2**32,
    b"AmbleWillBeRemoved,ThePrePartThatIs": 0x62B8B43F,
    b"": 0x106E08D9,
    # Computed elsewhere with the Java client.
    b"1": -1993445489,
    b"12": 126087238,
    b"123": -267702483,
    b"12345": -1188365604,
    bytes([12, 42, 56, 24, 109, 111]): 274204207,
}
PARTITIONS = [1, 2, 3, 6, 8, 12, 50, 100]


def partitioner() -> Iterator[Json]:
    """Yield hashes known from Kafka's own tests, and the partitions that follow from them."""
    for key, hashed in KNOWN_HASHES.items():
        assert murmur2(key) == hashed % 2**32, key
        partition = [(hashed & 0x7FFFFFFF) % count for count in PARTITIONS]
        given, expected = {"key": key.hex(), "partitions": PARTITIONS}, {"murmur2": hashed, "partition": partition}
        yield {
            "name": key.decode("latin-1") if key.isalnum() or b"-" in key else key.hex() or "no bytes",
            "given": given,
            "expected": expected,
        }


KEYS: list[tuple[str, str, bytes]] = [
    ("text", '"device1"', b"device1"),
    ("empty text is not null", '""', b'""'),
    ("null", "null", b""),
    ("text beyond ASCII", '"Z\u00fcrich \U0001f682"', "Z\u00fcrich \U0001f682".encode()),
    ("text with escapes", '"a\\u00e9\\n\\"b\\""', 'a\u00e9\n"b"'.encode()),
    ("text that looks like a number", '"007"', b"007"),
    ("integer", "42", b"42"),
    ("zero", "0", b"0"),
    ("negative integer", "-7", b"-7"),
    ("largest integer of 64 bits", "9223372036854775807", b"9223372036854775807"),
    ("integer beyond 64 bits is the nearest float", "123456789012345678901234567890", b"1.2345678901234568e+29"),
    ("integer that no float holds", "9007199254740993", b"9007199254740993"),
    ("true", "true", b"true"),
    ("false", "false", b"false"),
    ("fraction", "1.5", b"1.5"),
    ("a point makes no other number", "1.0", b"1"),
    ("nor does an exponent", "1e2", b"100"),
    ("negative zero is zero", "-0.0", b"0"),
    ("least integer of 64 bits, with a point", "-9223372036854775808.0", b"-9223372036854775808"),
    ("shortest text that reads back", "0.1000000000000000055511151231257827", b"0.1"),
    ("small float", "0.00001", b"1e-05"),
    ("large whole number", "1e16", b"10000000000000000"),
    ("whole number beyond 64 bits", "1e19", b"1e+19"),
    ("number beyond a float", "1e400", b""),
    ("object, members sorted", '{"b":1,"a":[true,null,"x"]}', b'{"a":[true,null,"x"],"b":1}'),
    ("object in an object", '{"z":{"y":2,"x":1.0}}', b'{"z":{"x":1,"y":2}}'),
    ("array keeps its order", "[2,1]", b"[2,1]"),
    ("text in an array stays as it is", '["\\u00e9"]', '["\u00e9"]'.encode()),
    ("empty object", "{}", b"{}"),
]


def keys() -> Iterator[Json]:
    """Yield JSON values and their key bytes, written down by hand."""
    for name, text, key in KEYS:
        yield {"name": name, "given": {"json": text}, "expected": {"key": key.hex()}}


# --- Records -------------------------------------------------------------------------------------------------------

_NOON = 978_350_400_000_000
"""2001-01-01T12:00:00Z."""

EVENTS: list[tuple[str, tuple[int, int, int, int, int, int, int]]] = [
    ("as it came", (0, 0, 0, _NOON, _NOON, _NOON + SECOND_US, 0)),
    ("late", (1, 1, 7, _NOON, _NOON - SECOND_US, _NOON + 5 * SECOND_US, 8)),
    ("out of order, the example of PROTOCOL.md", (2, 2, 41, 978351420000000, 978351120000000, 978351420000000, 106)),
    ("late and out of order", (3, 3, 2**40, _NOON, _NOON - MINUTE_US, _NOON + SECOND_US, 2**50)),
    ("moved up to a CTI of the source", (0, 4 | 16, 5, _NOON, _NOON - 1, _NOON, 5)),
    ("an interval", (0, 8, 6, _NOON, _NOON, _NOON, 6)),
    ("an interval that is late and whose end was lifted", (0, 1 | 8 | 64, 7, _NOON, _NOON - 9, _NOON, 7)),
    ("a start edge", (0, 16, 8, _NOON, _NOON, _NOON, 8)),
    ("an end edge", (0, 32, 9, _NOON, _NOON, _NOON, 9)),
    ("an end edge that was lifted", (0, 32 | 64, 10, _NOON + 1, _NOON - 3, _NOON, 10)),
    ("early", (0, 128, 12, _NOON, _NOON + MINUTE_US, _NOON - SECOND_US, 12)),
    ("early, and moved on to a CTI", (0, 128 | 2, 13, _NOON, _NOON + MINUTE_US, _NOON - SECOND_US, 13)),
    ("an early end edge that was lifted", (0, 128 | 64 | 32, 14, _NOON + 1, _NOON + MINUTE_US, _NOON, 14)),
    ("the least time", (0, 0, 11, TICK_MIN, TICK_MIN, TICK_MIN, 11)),
    ("the least of everything", (0, 0, 0, TICK_MIN, TICK_MIN, TICK_MIN, 0)),
    ("the largest of everything", (2**32 - 1, 7 | 32 | 64 | 128, 2**63 - 1, TICK_MAX, TICK_MAX, TICK_MAX, 2**63 - 1)),
]
_FIELDS = "number", "flags", "seq", "system_us", "event_time_us", "arrival_us", "offset"


def events() -> Iterator[Json]:
    """Yield events and the bytes of their headers."""
    for name, fields in EVENTS:
        yield {"name": name, "fields": dict(zip(_FIELDS, fields, strict=True)), "bytes": {"header": event_header(*fields)}}


_ROSTER = Roster(1, 4, Spread.ALL, True)
_PAGE = Cti(2, 0, 978351120000000, 42, 3, 107, 978351420000000, 978351540000000, _ROSTER, Cause.EVENT)
_LISTED = ((b"device1", 978351420000000), (b"", 978351240000000))
CTIS: list[tuple[str, Cti]] = [
    ("the example of PROTOCOL.md", _PAGE),
    ("the example of PROTOCOL.md with a list", replace(_PAGE, listed=_LISTED)),
    ("before the first event", Cti(0, 0, 5_000, 0, 0, 0, 5_000, TICK_MIN, Roster(1, 1, Spread.ONE, False), Cause.IDLE)),
    ("a time before 1970", Cti(0, 0, -1, 0, 0, 1, TICK_MIN, TICK_MIN, Roster(1, 1, Spread.ONE, False), Cause.IDLE)),
    ("upon a CTI of the source", replace(_PAGE, cause=Cause.SOURCE)),
    ("upon an imported CTI, in a grown roster", replace(_PAGE, cause=Cause.IMPORT, roster=Roster(2, 5, Spread.ALL, True))),
    ("the end", replace(_PAGE, c=INFINITY, ahead=0, arrival_us=INFINITY, cause=Cause.SHUTDOWN)),
    ("the first of three parts", replace(_PAGE, listed=_LISTED, part=0, parts=3)),
    ("a part in between", replace(_PAGE, listed=((bytes(range(256)), 0),), part=1, parts=3)),
    ("the last of three parts", replace(_PAGE, listed=_LISTED[:1], part=2, parts=3)),
    (
        "the least numbers",
        Cti(0, 0, NEVER + 1, 0, 0, 0, -(2**63), TICK_MIN, Roster(0, 1, Spread.ALL, False), Cause.EVENT, ((b"", -(2**63)),)),
    ),
    ("the last of very many parts", replace(_PAGE, listed=_LISTED[:1], part=2**31 - 2, parts=2**31 - 1)),
    (
        "the largest numbers",
        replace(_PAGE, number=2**32 - 1, n=2**63 - 1, ahead=2**63 - 1, roster=Roster(2**31 - 1, 2**17, Spread.ONE, False)),
    ),
]


def ctis() -> Iterator[Json]:
    """Yield CTIs and their bytes."""
    for name, cti in CTIS:
        yield {"name": name, "fields": cti_fields(cti), "bytes": cti_bytes(cti)}


def source_ctis() -> Iterator[Json]:
    """Yield CTIs that a source enqueues, and their bytes as Tidegate's own encoder for sources fills the fields that do not count."""
    for name, c in (("noon", _NOON), ("the least time", TICK_MIN), ("the largest time", TICK_MAX)):
        cti = Cti(0, 0, c, 0, 0, 0, TICK_MIN, TICK_MIN, Roster(0, 1, Spread.ONE, False), Cause.SOURCE)
        yield {"name": name, "fields": {"c": c}, "bytes": cti_bytes(cti)}


def of_roster(version: int, inputs: int) -> str:
    """Return the body of the page's CTI with another roster, in hex."""
    body: str = cti_bytes(replace(_PAGE, roster=replace(_ROSTER, version=version, inputs=inputs)))["value"]
    return body


def refused() -> Iterator[Json]:
    """Yield bytes that a reader must refuse."""
    good = event_header(*EVENTS[0][1])
    for name, header in (
        ("no bytes", ""),
        ("47 bytes", good[:-2]),
        ("49 bytes", good + "00"),
        ("version 0", "00" + good[2:]),
        ("version 4", "04" + good[2:]),
        ("version 2 without need", "02" + good[2:]),
        ("version 3 without need", "03" + good[2:]),
        ("version 3 with flags of version 2", "03" + good[2:4] + "4400" + good[8:]),
        ("kind 2 with the length of an event", good[:2] + "02" + good[4:]),
        ("a flag of version 2 in version 1", good[:4] + "0400" + good[8:]),
        ("a flag of version 3 in version 2", "02" + good[2:4] + "8000" + good[8:]),
        ("a flag of no version", "03" + good[2:4] + "0001" + good[8:]),
        ("a high flag of no version", "02" + good[2:4] + "0480" + good[8:]),
    ):
        yield {"name": name, "operation": "decode_event", "given": {"header": header}}
    one, two = cti_bytes(_PAGE), cti_bytes(replace(_PAGE, listed=((b"a", 7),)))
    body = one["value"]
    newer = "02" + one["header"][2:]
    for name, header, value in (
        ("no header", "", body),
        ("7 bytes", one["header"][:-2], body),
        ("version 0", "00" + one["header"][2:], body),
        ("version 3, which no CTI has", "03" + one["header"][2:], two["value"]),
        ("version 4", "04" + one["header"][2:], two["value"]),
        ("kind 1 with the length of a CTI", "01" + "01" + one["header"][4:], body),
        ("a flag", one["header"][:4] + "0100" + one["header"][8:], body),
        ("no body", one["header"], ""),
        ("half a body", one["header"], body[:40]),
        ("a byte after the body", one["header"], body + "00"),
        ("version 1 with a list", one["header"], two["value"]),
        ("version 2 without its fields", newer, body),
        ("version 2 with an empty list", newer, body + "000200"),
        ("part 1 of 1", newer, body + "0202" + "0202610e00"),
        ("part -1 of 1", newer, body + "0102" + "0202610e00"),
        ("no parts", newer, body + "0000" + "0202610e00"),
        ("a list that does not end", newer, body + "0002" + "0202610e"),
        ("a list longer than its record", newer, body + "0002" + "2002610e00"),
        ("a key longer than its record", newer, body + "0002" + "0220610e00"),
        ("a key of negative length", newer, body + "0002" + "0201610e00"),
        ("a spread that is none", one["header"], body[:-6] + "040100"),
        ("a cause that is none", one["header"], body[:-2] + "0a"),
        ("a spread below the first", one["header"], body[:-6] + "010100"),
        ("a cause below the first", one["header"], body[:-2] + "01"),
        ("a boolean that is neither", one["header"], body[:-4] + "0200"),
        ("a number of 11 bytes", one["header"], "80" * 10 + "00" + body[16:]),
        ("a number beyond 64 bits", one["header"], "ff" * 9 + "02" + body[16:]),
        ("a roster version below zero", one["header"], of_roster(-1, 4)),
        ("a roster version that is no int", one["header"], of_roster(2**31, 4)),
        ("no inputs", one["header"], of_roster(1, 0)),
        ("inputs below zero", one["header"], of_roster(1, -1)),
        ("inputs that are no int", one["header"], of_roster(1, 2**31)),
        ("more inputs than a topic may have", one["header"], of_roster(1, 2**17 + 1)),
        ("a part of 11 bytes", newer, body + "80" * 10 + "00" + "02" + "0202610e00"),
        ("parts that are no int", newer, body + "00" + avro_long(2**31).hex() + "0202610e00"),
        ("n below zero", one["header"], cti_bytes(replace(_PAGE, n=-1, ahead=0))["value"]),
        ("more ahead than there are", one["header"], cti_bytes(replace(_PAGE, ahead=43))["value"]),
        ("ahead below zero", one["header"], cti_bytes(replace(_PAGE, ahead=-1))["value"]),
        ("an offset below zero", one["header"], cti_bytes(replace(_PAGE, next_offset=-1))["value"]),
    ):
        yield {"name": name, "operation": "decode_cti", "given": {"header": header, "value": value}}
    source = cti_bytes(Cti(0, 0, _NOON, 0, 0, 0, TICK_MIN, TICK_MIN, Roster(0, 1, Spread.ONE, False), Cause.SOURCE))
    for name, header, value in (
        ("no CTI", good, source["value"]),
        ("no body", source["header"], ""),
        ("a time below the least", source["header"], cti_bytes(replace(_PAGE, c=TICK_MIN - 1))["value"]),
        ("a time above the largest", source["header"], cti_bytes(replace(_PAGE, c=TICK_MAX + 1))["value"]),
        ("the end", source["header"], cti_bytes(replace(_PAGE, c=INFINITY))["value"]),
    ):
        yield {"name": f"a source that says {name}", "operation": "decode_source_cti", "given": {"header": header, "value": value}}


# --- Chance --------------------------------------------------------------------------------------------------------


class Chance:
    """Numbers that look drawn and are the same everywhere: a linear congruential generator."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, bound: int) -> int:
        """Return the next number from 0 to *bound* - 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % bound

    def of(self, choices: Sequence[Any]) -> Any:
        """Return one of *choices*."""
        return choices[self.below(len(choices))]


# --- Reader stories ------------------------------------------------------------------------------------------------


def cti(number: int, c: int, n: int, *, ahead: int = 0, roster: tuple[int, int] = (1, 1), listed: Iterable[tuple[bytes, int]] = ()) -> Cti:
    """Return a CTI of a story; *roster* is (version, inputs)."""
    version, inputs = roster
    largest_us = max(c - 1, TICK_MIN) if c < INFINITY else TICK_MIN
    return Cti(number, 0, c, n, ahead, 100 + n, c, largest_us, Roster(version, inputs, Spread.ALL, True), Cause.EVENT, tuple(listed))


def in_parts(whole: Cti, *shares: tuple[tuple[bytes, int], ...]) -> list[Cti]:
    """Return a CTI in as many parts as its list has *shares*."""
    return [replace(whole, listed=share, part=part, parts=len(shares)) for part, share in enumerate(shares)]


@dataclass(frozen=True)
class Tale:
    """A reader story before it is told."""

    name: str
    log: list[Event | Cti]
    start_us: int | None = None
    partition: int = 0
    output_partitions: int = 1
    first_offset: int = 0
    holes: bool = False

    def lines(self) -> list[Line]:
        """Return the log with offsets; with *holes* every third is missing."""
        offsets = [self.first_offset + at + (at // 2 if self.holes else 0) for at in range(len(self.log))]
        return list(zip(offsets, self.log, strict=True))


def _tales() -> Iterator[Tale]:
    two, grown = (1, 2), (2, 3)
    yield Tale("events in order, a CTI after them", [Event(0, 0, 1000), Event(0, 1, 2000), cti(0, 2001, 2)])
    yield Tale("an empty log", [])
    yield Tale(
        "holes between offsets", [Event(0, 0, 1000), Event(0, 1, 2000), cti(0, 2001, 2), Event(0, 2, 3000)], holes=True, first_offset=7
    )
    yield Tale(
        "a writer that died and wrote again", [*(Event(0, seq, 1000 + seq) for seq in (0, 1, 2, 0, 1, 2, 3)), cti(0, 1003, 4, ahead=1)]
    )
    yield Tale("a gap that the rewrite closes", [*(Event(0, seq, 1000 + seq) for seq in (0, 2, 3, 1, 2, 3)), cti(0, 1004, 4)])
    yield Tale("a gap that stays", [Event(0, 0, 1000), cti(0, 1001, 1), Event(0, 2, 1002), cti(0, 1003, 3), cti(0, 1009, 5)])
    yield Tale(
        "a CTI that counts upon the event it waited for",
        [cti(0, 1500, 2), Event(0, 0, 1000), cti(0, 1200, 3), Event(0, 1, 1400), Event(0, 2, 1600)],
    )
    yield Tale(
        "a stale CTI of a writer that should be gone",
        [Event(0, 0, 1000), Event(0, 1, 2000), cti(0, 2001, 2), Event(0, 0, 1000), cti(0, 1001, 1)],
    )
    yield Tale(
        "two writers at once",
        [
            *(Event(0, seq, 1000 + seq) for seq in (0, 1, 0, 2, 1, 3, 2, 4)),
            cti(0, 1003, 3),
            Event(0, 3, 1003),
            cti(0, 1005, 5),
            cti(0, 1004, 4),
        ],
    )
    yield Tale(
        "two channels, time is the least",
        [cti(0, 5000, 0, roster=two), Event(1, 0, 900), cti(1, 1000, 1, roster=two), cti(1, 9000, 1, roster=two)],
    )
    yield Tale("a channel that says nothing holds everything", [Event(0, 0, 1000), cti(0, 5000, 1, roster=two)])
    yield Tale(
        "an input partition joins",
        [
            *(cti(0, 5000, 0), cti(0, 6000, 0, roster=grown), cti(1, 5500, 0, roster=grown), Event(2, 0, 5400)),
            *(cti(0, 7000, 0), cti(2, 4000, 0, roster=grown), cti(2, 5600, 1, roster=grown), cti(1, 5800, 0, roster=grown)),
        ],
    )
    one = Roster(1, 5, Spread.ONE, False)
    yield Tale(
        "without substreams only some channels share a partition",
        [replace(cti(number, 1000 * number, 0), roster=one, output_partition=1) for number in (1, 3, 4)],
        partition=1,
        output_partitions=2,
    )
    yield Tale("every channel ends", [Event(0, 0, 1000), cti(0, INFINITY, 1, roster=two), cti(1, INFINITY, 0, roster=two)])
    yield from _tales_of_lists()
    yield from _tales_of_the_middle()


def _tales_of_lists() -> Iterator[Tale]:
    whole = cti(0, 2000, 1, ahead=1)
    first, second, last = in_parts(whole, ((b"a", 3000),), ((b"b", 3100), (b"c", 3200)), ((b"", 3300),))
    start = Event(0, 0, 2500)
    yield Tale("a list", [start, cti(0, 2000, 1, ahead=1, listed=((b"a", 3000), (b"", 2600)))])
    yield Tale(
        "a list that waits with its CTI",
        [cti(0, 2000, 2, listed=((b"a", 3000),)), start, cti(0, 2100, 1, listed=((b"a", 2900),)), Event(0, 1, 2600)],
    )
    yield Tale("a list in three parts", [start, first, cti(1, 9000, 0), second, last])
    yield Tale("parts that a dying writer left, then the whole", [start, first, second, first, second, last])
    yield Tale("a part is missing: c counts, the list does not", [start, first, last, cti(0, 2200, 1)])
    yield Tale("a part twice: the list is lost", [start, first, second, second, last])
    yield Tale("another CTI of the channel between the parts", [start, first, second, cti(0, 1900, 0), last])
    yield Tale("parts of different CTIs are not mixed", [start, first, replace(second, c=2001), replace(last, c=2001)])
    yield Tale("the last part alone", [start, last])
    yield Tale(
        "the roster of a CTI in parts counts with the last",
        [cti(1, 100, 0), *in_parts(cti(0, 2000, 0, roster=(2, 2)), ((b"a", 3),), ((b"b", 4),))],
    )


def _tales_of_the_middle() -> Iterator[Tale]:
    settling: list[Event | Cti] = [Event(0, 7, 10500), Event(0, 6, 10300), Event(0, 7, 10500), cti(0, 10300, 6), Event(0, 8, 10400)]
    settling += [cti(0, 10400, 8), Event(0, 9, 10600), Event(0, 9, 10600)]
    yield Tale("from the middle: collected until a CTI vouches, then as ever", settling, start_us=10400, first_offset=50)
    stale: list[Event | Cti] = [Event(1, 0, 10000), Event(0, 5, 5000), Event(0, 6, 6000), cti(0, 6100, 7, roster=(1, 2))]
    stale += [Event(0, 10, 11000), cti(0, 11100, 11, roster=(1, 2)), Event(0, 11, 12000)]
    yield Tale("from the middle: a stale writer first", stale, start_us=10000, first_offset=20)
    early: list[Event | Cti] = [cti(0, 9000, 4), Event(0, 5, 10100), Event(0, 4, 9500), cti(0, 10050, 5), Event(0, 6, 10200)]
    yield Tale("from the middle: a CTI before any event", early, start_us=10000)
    gap: list[Event | Cti] = [Event(0, 3, 10000), cti(0, 10001, 4), Event(0, 5, 10200), cti(0, 10300, 6), Event(0, 4, 10100)]
    yield Tale("from the middle: after it has settled a gap is a gap", [*gap, Event(0, 5, 10200)], start_us=10000)
    listing = cti(0, 9000, 10, ahead=1, listed=((b"k", 10050),))
    yield Tale("from the middle: a list counts at once", [Event(0, 9, 10100), listing], start_us=10000)


def _drawn_tale(seed: int) -> Tale:
    """Return a log without sense: any seq, any CTI, parts in any order."""
    chance = Chance(seed)
    log: list[Event | Cti] = []
    for _ in range(30):
        number, kind = chance.below(2), chance.below(5)
        if kind < 3:
            first, start_us = chance.below(6), 1000 * (1 + chance.below(12))
            log += [Event(number, first + ahead, start_us + ahead * 100) for ahead in range(1 + chance.below(4))]
            continue
        listed = tuple((chance.of([b"", b"a", b"\xff"]), 1000 * chance.below(15)) for _ in range(chance.below(3)))
        roster = (1 + chance.below(2), 1 + chance.below(2))
        drawn = cti(number, 1000 * (1 + chance.below(12)), chance.below(8), roster=roster, listed=listed)
        if kind == 3:
            log.append(drawn)
        else:
            parts = in_parts(drawn, *([((b"p%d" % part, 5000 + part),) for part in range(2 + chance.below(2))]))
            log += [chance.of(parts) for _ in range(2)] if chance.below(3) == 0 else parts
    return Tale(f"no sense at all, {seed}", log, start_us=chance.of([None, None, 3000, 6000]), holes=chance.below(2) == 1)


def reader() -> Iterator[Json]:
    """Yield logs and what a reader makes of them, told by the naive reader."""
    for tale in [*_tales(), *map(_drawn_tale, range(1, 25))]:
        lines = tale.lines()
        naive = read_naively(lines, tale.partition, tale.output_partitions, tale.start_us)
        given = {"partition": tale.partition, "output_partitions": tale.output_partitions, "start_us": tale.start_us}
        yield {"name": tale.name, "given": given | {"log": [_line(*line) for line in lines]}, "expected": told_by(naive)}
    yield from _stories_of_strangers()


def _strange_lines() -> list[tuple[str, str | None, str | None]]:
    """Return records that are none of the protocol: what is wrong, header and value."""
    event, promise = event_header(0, 0, 1, 2000, 2000, 2000, 1), cti_bytes(cti(0, 9000, 1))
    return [
        ("no header", None, None),
        ("an empty header", "", None),
        ("a text", b"telegram".hex(), None),
        ("version 0", "00" + event[2:], None),
        ("version 32", "20" + event[2:], None),
        ("a short header of a newer version", "040102", None),
        ("an event of another length", event + "00", None),
        ("an event of another kind", event[:2] + "07" + event[4:], None),
        ("an event with a flag of version 2", event[:4] + "0400" + event[8:], None),
        ("half a CTI", promise["header"], promise["value"][:12]),
        ("a CTI and more", promise["header"], promise["value"] + "00"),
    ]


def _stories_of_strangers() -> Iterator[Json]:
    """Yield a log between whose records a stranger's stand: a reader passes over them; and logs that it must not read on."""
    log: list[Event | Cti] = [Event(0, 0, 1000), Event(0, 1, 2000), cti(0, 2001, 2), Event(0, 2, 3000), cti(0, 3001, 3)]
    strange = [
        {"offset": 10 + at, "says": says, "header": header, "value": value} for at, (says, header, value) in enumerate(_strange_lines())
    ]
    own = [(0, log[0]), (1, log[1]), (30, log[2]), (31, log[3]), (50, log[4])]
    naive = read_naively(own, 0, 1, None)
    lines = [_line(*line) for line in own]
    given = {"partition": 0, "output_partitions": 1, "start_us": None}
    between = [*lines[:2], *strange, *lines[2:4], *({**line, "offset": line["offset"] + 22} for line in strange), lines[4]]
    yield {"name": "strangers' records are passed over", "given": given | {"log": between}, "expected": told_by(naive)}
    for version in ("04", "1f"):
        newer = {"offset": 30, "says": "a newer version", "header": version + event_header(0, 0, 2, 3000, 3000, 3000, 2)[2:]}
        name = f"a record of version {int(version, 16)} stops the reader"
        yield {"name": name, "given": given | {"log": [*lines[:2], newer]}, "expected": {"refused": True}}


def told_by(naive: NaiveReader) -> Json:
    """Return what a reader tells after the whole log."""
    heard, channels = naive.heard, sorted(naive.channels.items())
    writing = naive.roster.channels_of(naive.partition, naive.output_partitions) if naive.roster else range(0)
    told: Json = {
        "accepted": [[at, event.number, event.seq] for at, event in heard.accepted],
        "progress": [list(rise) for rise in heard.progress],
        "frontier": [list(rise) for rise in heard.frontier],
        "listed": [[at, number, key.hex(), w] for at, number, key, w in heard.listed],
        "rosters": [[at, roster.version] for at, roster in heard.rosters],
        "waiting": [[number, min(cti.n for cti, _ in each.waiting), each.last] for number, each in channels if each.waiting],
        "missing": [number for number in writing if naive.channels[number].c == NEVER],
    }
    if naive.start_us is None:
        valid = [(number, each.valid) for number, each in channels if each.valid]
        told["valid"] = [[number, cti.c, cti.n, cti.ahead] for number, cti in valid]
    return told


def _line(offset: int, record: Event | Cti) -> Json:
    if isinstance(record, Cti):
        shown = f"CTI of {record.number}: c {record.c}, n {record.n}" + (
            f", part {record.part} of {record.parts}" if record.parts > 1 else ""
        )
        return {"offset": offset, "says": shown, **cti_bytes(record)}
    header = event_header(record.number, 0, record.seq, record.system_us, record.system_us, record.system_us, offset)
    return {"offset": offset, "says": f"event {record.seq} of {record.number}, s {record.system_us}", "header": header}


# --- Stories of substreams -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keyed:
    """An event of a story about substreams: its key, and the input partition from which its substream comes."""

    key: bytes
    origin: int
    seq: int
    system_us: int
    number: int = 0

    def line(self, offset: int) -> Json:
        """Return the record at a log offset."""
        origin = self.seq + (self.origin << 40)
        header = event_header(self.number, 0, self.seq, self.system_us, self.system_us, self.system_us, origin)
        says = f"event {self.seq} of {self.number}, from input partition {self.origin}, s {self.system_us}"
        return {"offset": offset, "says": says, "header": header, "key": self.key.hex()}


# Log offset, number, input partition, key and s of each move; log offset and c of each rise of the frontier.
_Moved = list[tuple[int, int, int, bytes, int]]
SUBSTREAM_STORIES: list[tuple[str, list[Keyed | Cti], _Moved, list[tuple[int, int]]]] = [
    (
        "two keys, each in the order of time",
        [Keyed(b"a", 0, 0, 5000), Keyed(b"b", 0, 1, 3000), Keyed(b"a", 0, 2, 5000), Keyed(b"a", 0, 3, 5001), cti(0, 4000, 4)],
        [(0, 0, 0, b"a", 5000), (1, 0, 0, b"b", 3000), (3, 0, 0, b"a", 5001)],
        [(4, 4000)],
    ),
    (
        "results of a key from two input partitions: s falls along the key",
        [Keyed(b"a", 0, 0, 9000), Keyed(b"a", 1, 1, 2000), Keyed(b"a", 0, 2, 9500), cti(0, 2500, 3), Keyed(b"a", 1, 3, 2600)],
        [(0, 0, 0, b"a", 9000), (1, 0, 1, b"a", 2000), (2, 0, 0, b"a", 9500), (4, 0, 1, b"a", 2600)],
        [(3, 2500)],
    ),
    (
        "results written again move nothing, a gap neither",
        [Keyed(b"", 1, 0, 2000), Keyed(b"", 1, 2, 4000), Keyed(b"", 1, 0, 2000), Keyed(b"", 1, 1, 3000), Keyed(b"", 1, 2, 4000)],
        [(0, 0, 1, b"", 2000), (3, 0, 1, b"", 3000), (4, 0, 1, b"", 4000)],
        [],
    ),
    (
        "one key in the channels of two input partitions",
        [Keyed(b"a", 0, 0, 7000), Keyed(b"a", 0, 0, 1000, number=1), cti(0, 6000, 1, roster=(1, 2)), cti(1, 900, 1, roster=(1, 2))],
        [(0, 0, 0, b"a", 7000), (1, 1, 0, b"a", 1000)],
        [(3, 900)],
    ),
]


def substreams() -> Iterator[Json]:
    """Yield logs with substreams and what moves them, written down by hand."""
    for name, log, moved, frontier in SUBSTREAM_STORIES:
        lines = [record.line(offset) if isinstance(record, Keyed) else _line(offset, record) for offset, record in enumerate(log)]
        told = [[offset, number, origin, key.hex(), us] for offset, number, origin, key, us in moved]
        expected = {"moved": told, "frontier": [list(rise) for rise in frontier]}
        yield {"name": name, "given": {"partition": 0, "output_partitions": 1, "log": lines}, "expected": expected}


# --- Writer stories ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """A writer story before it is told."""

    name: str
    log: Sequence[Record]
    policies: Policies
    over: bool = False
    output_partitions: int = 1
    number: int = 0
    estimates: tuple[tuple[int, int], ...] = ()
    imports: tuple[tuple[int, int], ...] = ()
    joined_us: int = NEVER
    cti_delay_us: int = 0
    finish: bool = False

    @property
    def shape(self) -> str:
        """Return what the events are in time."""
        return next((record.shape.value for record in self.log if record.event_time_us is not None), "point")

    def tell(self) -> Story:
        """Return what the oracle tells of it."""
        return compute_story(
            self.log,
            self.policies,
            over=self.over,
            output_partitions=self.output_partitions,
            roster=self.number,
            estimates=dict(self.estimates),
            imports=dict(self.imports),
            joined_us=self.joined_us,
            delay_us=self.cti_delay_us,
            finish=self.finish,
        )


def _clock(text: str) -> int:
    """Return ``hh:mm`` or ``hh:mm:ss`` on 2001-01-01 in ticks."""
    hours, minutes, seconds = [*map(int, text.split(":")), 0][:3]
    return _NOON - 12 * 60 * MINUTE_US + (hours * 60 + minutes) * MINUTE_US + seconds * SECOND_US


def _log(text: str, first: int = 1) -> list[Record]:
    """Return the log of lines ``event time, arrival, key, extra``; ``-`` for no event time; ``extra`` names what else there is."""
    records = []
    for offset, line in enumerate(text.split("\n"), first):
        time, arrival, key, *extra = [part.strip() for part in line.split(",")]
        fields = {name: NEVER if value == "start" else _clock(value) for name, value in (each.split("=") for each in extra)}
        octets = key.encode()
        records.append(Record(offset, _clock(arrival), None if time == "-" else _clock(time), octets, raw_key=octets, **fields))
    return records


_TOLL_LOG = """12:07, 12:07, device1
12:08, 12:08, device2
12:17, 12:11, device1
12:08, 12:13, device3
12:19, 12:16, device1
12:12, 12:17, device3
12:17, 12:18, device2
12:20, 12:19, device2
12:16, 12:21, device3
12:23, 12:22, device2
12:22, 12:24, device2
12:21, 12:27, device3"""
_TOLL = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)
_SECONDS_LOG = """00:10:00, 00:10:40,
00:10:30, 00:10:41,
00:10:42, 00:10:42,
00:10:38, 00:10:43,
00:10:35, 00:10:45,"""
_SECONDS = Policies(late_us=15 * SECOND_US, reorder_us=5 * SECOND_US)
_SOURCE_LOG = """12:00, 12:00, a
12:03, 12:01, a
-, 12:02, , source_cti_us=12:02
12:01, 12:02, b
12:02, 12:03, a
-, 12:04, , source_cti_us=12:01
-, 12:04, , source_cti_us=12:30
12:04, 12:05, b"""
_INTERVAL_LOG = """12:00, 12:00, a, end_us=12:10
12:05, 12:05, a, end_us=12:06
-, 12:06, , source_cti_us=12:04
12:01, 12:06, b, end_us=12:05
12:01, 12:06, b, end_us=12:04
12:02, 12:09, a, end_us=12:30
12:09, 12:10, a, end_us=12:08"""
_EDGE_LOG = """12:00, 12:00, a, start_us=start
12:01, 12:01, b, start_us=start
12:05, 12:05, a, start_us=12:00
12:01, 12:05, b, start_us=12:01
12:04, 12:06, c, start_us=start
12:02, 12:06, c, start_us=12:04
12:08, 12:08, a, start_us=start
12:06, 12:08, a, start_us=12:08"""


def _inputs() -> Iterator[Input]:
    toll, seconds = _log(_TOLL_LOG), _log(_SECONDS_LOG)
    yield Input("toll: the worked example", toll, _TOLL)
    yield Input("toll, early off", toll, replace(_TOLL, early_us=None))
    yield Input("toll, early events moved back", toll, replace(_TOLL, early_action=Action.ADJUST), finish=True)
    yield Input("toll, over device, to the end", toll, _TOLL, over=True, finish=True)
    yield Input("toll, over device, eight partitions", toll, _TOLL, over=True, output_partitions=8)
    yield Input("toll, late events dropped", toll, replace(_TOLL, late_action=Action.DROP), finish=True)
    yield Input("toll, disorder dropped", toll, replace(_TOLL, out_of_order_action=Action.DROP), finish=True)
    yield Input("toll, late off", toll, replace(_TOLL, late_us=None))
    yield Input("toll, no reorder, number 5 of 3 partitions", toll, replace(_TOLL, reorder_us=0), number=5, output_partitions=3)
    yield Input("toll, a negative delay of one tick", toll, replace(_TOLL, reorder_us=-1), finish=True)
    yield Input("toll, CTIs stay behind by three minutes", toll, _TOLL, cti_delay_us=3 * MINUTE_US)
    yield Input("seconds: late and out of order in one", seconds, _SECONDS, finish=True)
    yield Input("an idle estimate at the end", toll, _TOLL, estimates=((13, _clock("12:28")),))
    yield Input("an idle estimate that clamps arrivals", toll, _TOLL, over=True, estimates=((4, _clock("12:15")), (9, _clock("12:20"))))
    yield Input(
        "unreadable records and arrivals that go back",
        _log("12:00, 12:05, a\n-, 12:09, a\n12:04, 12:06, a\n-, 12:01, a\n12:08, 12:08, a"),
        _TOLL,
    )
    yield Input("an input partition that joins", toll, _TOLL, joined_us=_clock("12:10"), number=1)
    yield Input("an input partition that joins with substreams", toll, _TOLL, over=True, joined_us=_clock("12:10"), output_partitions=2)
    drop = replace(_TOLL, cti_violation_action=Action.DROP)
    yield Input("CTIs of the source", _log(_SOURCE_LOG), _TOLL, finish=True)
    yield Input("CTIs of the source, violations dropped, substreams", _log(_SOURCE_LOG), drop, over=True)
    yield Input("imported CTIs", toll, _TOLL, imports=((3, _clock("12:05")), (8, _clock("12:18")), (13, _clock("12:30"))))
    yield Input("intervals", _log(_INTERVAL_LOG), _TOLL, finish=True)
    yield Input("intervals, violations dropped", _log(_INTERVAL_LOG), drop, finish=True)
    yield Input("edges", _log(_EDGE_LOG), _TOLL, finish=True)
    yield Input("edges, over key, no reorder", _log(_EDGE_LOG), replace(_TOLL, reorder_us=0), over=True, output_partitions=2, finish=True)
    back = replace(_TOLL, early_us=MINUTE_US, early_action=Action.ADJUST)
    yield Input("early events moved back, then on to an imported CTI", toll, back, imports=((3, _clock("12:15")),), finish=True)
    yield Input("edges, early ones moved back", _log(_EDGE_LOG), replace(back, early_us=0, reorder_us=0), finish=True)
    yield Input("without TIMESTAMP BY", _log("12:00, 12:00, a\n12:01, 12:01, b\n12:01, 12:01, a"), Policies.arrival_order())
    yield Input("no record, only silence", [], _TOLL, estimates=((0, _clock("12:00")),))
    yield Input("the end of an empty input", [], _TOLL, over=True, output_partitions=2, finish=True)


def _drawn_input(seed: int) -> Input:
    """Return a disordered log with chance policies, estimates, CTIs and cuts."""
    chance = Chance(seed)
    unit, arrival_us, offset = chance.of([1, 1_000, MINUTE_US]), _NOON, chance.below(4)
    shape, records = chance.of(["point", "point", "interval", "edge"]), list[Record]()
    for _ in range(40):
        arrival_us += (chance.below(8) - 2) * unit
        time, key = arrival_us - (chance.below(24) - 10) * unit, chance.of([b"", b"a", b"b", b"\xc3\xa9"])
        kind = chance.below(12)
        record = Record(
            offset, arrival_us, time if kind > 1 else None, key, source_cti_us=time - 8 * unit if kind == 1 else None, raw_key=key
        )
        if kind > 1 and shape == "interval":
            record = replace(record, end_us=time + (chance.below(12) - 3) * unit)
        if kind > 1 and shape == "edge":
            starts = [each for each in records if each.start_us == NEVER]
            start = chance.of(starts[-3:]) if starts and chance.below(2) else None
            record = replace(
                record,
                start_us=start.event_time_us if start else NEVER,
                key=start.key if start else key,
                raw_key=start.key if start else key,
            )
        records.append(record)
        offset += 1 + chance.below(8) // 7
    over = chance.below(2) == 1
    policies = Policies(
        early_us=chance.of([None, 3, 10]),
        early_action=chance.of(list(Action)),
        late_us=chance.of([2, 6, 12]),
        late_action=chance.of(list(Action)),
        reorder_us=chance.of([0, 1, 4]),
        out_of_order_action=chance.of(list(Action)),
        cti_violation_action=chance.of(list(Action)),
    )
    scaled: Any = {name: None if us is None else us * unit for name, us in asdict(policies).items() if name.endswith("_us")}
    at = [records[10].offset, records[25].offset]
    return Input(
        f"drawn, {seed}",
        records,
        replace(policies, **scaled),
        over=over,
        output_partitions=1 + chance.below(3),
        number=chance.below(4),
        estimates=tuple((position, arrival_us - chance.below(30) * unit) for position in at if chance.below(2)),
        imports=tuple((position, arrival_us - (20 + chance.below(30)) * unit) for position in at if chance.below(3) == 0),
        cti_delay_us=chance.below(3) * unit,
        finish=chance.below(2) == 1,
    )


def writer() -> Iterator[Json]:
    """Yield raw logs with settings and journaled facts, and the channels that follow from them, told by the oracle."""
    for told in [*_inputs(), *map(_drawn_input, range(1, 25))]:
        story = told.tell()
        given = {
            "over": told.over,
            "output_partitions": told.output_partitions,
            "number": told.number,
            "shape": told.shape,
            "policies": asdict(told.policies),
            "joined_us": None if told.joined_us == NEVER else told.joined_us,
            "cti_delay_us": told.cti_delay_us,
            "estimates": [list(fact) for fact in told.estimates],
            "imports": [list(fact) for fact in told.imports],
            "finish": told.finish,
            "log": [_raw_line(record) for record in told.log],
        }
        channels = {
            str(partition): [_header(event, told) for event in story.channel(partition)] for partition in range(told.output_partitions)
        }
        writing = range(told.output_partitions) if told.over else [told.number % told.output_partitions]
        last = story.snapshots[-1]
        expected = {
            "channels": channels,
            "dropped": [[drop.offset, drop.reason] for drop in story.dropped],
            "last": {str(partition): [last.c, *story.promise(last, partition)] for partition in writing if last.c > NEVER},
        }
        yield {"name": told.name, "given": given, "expected": expected, "shown": [_shown(event) for event in story.ordered]}


def _raw_line(record: Record) -> Json:
    line: Json = {"offset": record.offset, "arrival_us": record.arrival_us, "event_time_us": record.event_time_us, "key": record.key.hex()}
    if record.source_cti_us is not None:
        line["source_cti_us"] = record.source_cti_us
    if record.end_us is not None:
        line["end_us"] = record.end_us
    if record.start_us is not None:
        line |= {"edge": "start"} if record.start_us == NEVER else {"edge": "end", "start_us": record.start_us}
    return line


def _header(event: OrderedEvent, told: Input) -> str:
    flags = sum(FLAGS[policy] for policy in event.policies)
    if event.end_us is not None:
        flags |= FLAGS["interval"]
    if event.start_us is not None:
        flags |= FLAGS["edge_start" if event.start_us == NEVER else "edge_end"]
    return event_header(told.number, flags, event.seq, event.system_us, event.event_time_us, event.arrival_us, event.offset)


def _shown(event: OrderedEvent) -> str:
    adjusted = f" ({', '.join(sorted(event.policies))})" if event.policies else ""
    return f"partition {event.output_partition}, seq {event.seq}: offset {event.offset} at {event.system_us}{adjusted}"


# --- Files ---------------------------------------------------------------------------------------------------------

FAMILIES = {
    "partitioner": partitioner,
    "keys": keys,
    "events": events,
    "ctis": ctis,
    "source_ctis": source_ctis,
    "refused": refused,
    "reader": reader,
    "substreams": substreams,
    "writer": writer,
}


def text_of(cases: Iterable[Json]) -> str:
    """Return the text of one file: a case a line, so that a change shows as the cases it changes."""
    return '{"format": 1, "cases": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]}\n"


def main() -> None:
    """Write all files."""
    for name, cases in FAMILIES.items():
        (VECTORS / f"{name}.json").write_text(text_of(cases()), encoding="utf-8")


if __name__ == "__main__":
    main()
