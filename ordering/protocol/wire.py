"""
The bytes of an ordered topic: events and CTIs. PROTOCOL.md describes them for other implementations.

Every record has one Kafka header ``tg``, whose first byte is the record's version: 1 for a plain record, 2 for an extended one (an event
with a flag above bit 1, a CTI with a list), 3 for an event with the flag early. An event's header has 48 bytes and its value is the
unchanged payload; a CTI's header has 8 bytes and its value is an Avro body.

Law: encoding is a pure function of its input, and ``decode(encode(x)) == x``. A record has the lowest version that can express it, and a
reader refuses versions higher than it knows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum, IntFlag
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints
from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import TICK_MAX, TICK_MIN, format_tick

PLAIN, EXTENDED, EARLY = 1, 2, 3
# The highest version that this program writes and reads; CTIs have the first two only.
VERSION = EARLY
# No version will ever be above this one: below the codes of letters and digits, so a text in a header is no record of a newer version.
VERSION_MAX = 31
HEADER_NAME = "tg"
EVENT_HEADER_BYTES = 48
CTI_HEADER_BYTES = 8
# Default bound of one CTI's body: with key, headers and batch it stays below the 1 MB that Kafka accepts by default.
CTI_BYTES_MAX = 900_000
# In a result's offset the roster number of its substream's input partition stands above these bits, its seq below them. Which of two
# partitions' results under one key was written first is chance: a reader must be able to put them in order, and to tell their times apart.
PARTITION_SHIFT = 40


class Kind(IntEnum):
    """The kind of a record: second byte of the header."""

    EVENT = 1
    CTI = 2


class Flag(IntFlag):
    """The policies' actions on a kept event, and its shape: bits of the header's ``flags``. A plain record has only the first two."""

    LATE = 1
    OUT_OF_ORDER = 2
    # Its time lay before a source CTI or an imported CTI, and was moved up to it.
    CTI_VIOLATION = 4
    INTERVAL = 8
    EDGE_START = 16
    EDGE_END = 32
    # The end of an interval, or the time of an end edge, became its start plus one tick.
    LIFTED_END = 64
    # Its time lay too far ahead of its arrival, and was moved back to the latest time allowed.
    EARLY = 128


_PLAIN_FLAGS = Flag.LATE | Flag.OUT_OF_ORDER
_FLAGS = ~Flag(0)

_FIRST_FIELDS = [("version", "u1"), ("kind", "u1"), ("flags", "<u2"), ("number", "<u4")]
_CTI_HEADER = np.dtype(_FIRST_FIELDS)
EVENT_HEADER = np.dtype(_FIRST_FIELDS + [(name, "<i8") for name in ("seq", "system_us", "event_time_us", "arrival_us", "offset")])
_BLOCK_ROWS = 8192

# Fields of a CTI's body that are attributes of ``Cti``.
_CTI_NUMBERS = ("c", "n", "ahead", "next_offset", "arrival_us", "largest_us")
_PLAIN_FIELDS: list[dict[str, Any]] = [
    *({"name": name, "type": "long"} for name in _CTI_NUMBERS),
    {"name": "roster_version", "type": "int"},
    {"name": "inputs", "type": "int"},
    {"name": "spread", "type": {"type": "enum", "name": "Spread", "symbols": [spread.value for spread in Spread]}},
    {"name": "substreams", "type": "boolean"},
    {"name": "cause", "type": {"type": "enum", "name": "Cause", "symbols": [cause.value for cause in Cause]}},
]
_LISTED = {"type": "record", "name": "Listed", "fields": [{"name": "key", "type": "bytes"}, {"name": "w", "type": "long"}]}
_EXTENDED_FIELDS: list[dict[str, Any]] = [
    *_PLAIN_FIELDS,
    {"name": "part", "type": "int"},
    {"name": "parts", "type": "int"},
    {"name": "listed", "type": {"type": "array", "items": _LISTED}},
]
_SCHEMAS: dict[int, Any] = {
    version: fastavro.parse_schema({"type": "record", "name": "Cti", "namespace": "tidegate", "fields": fields})
    for version, fields in ((PLAIN, _PLAIN_FIELDS), (EXTENDED, _EXTENDED_FIELDS))
}
# Largest Avro int.
_INT_MAX = 2**31 - 1
# Most input partitions of one ordered topic. A reader waits for each of them, so one record of 40 bytes that names two billion would fill
# the memory of every reader.
ROSTER_INPUTS_MAX = 2**17
_NUMBER = rb"(?:[\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01])"
_PLAIN_BODY = _NUMBER + rb"{8}[\x00\x02][\x00\x01][\x00\x02\x04\x06\x08]"
# How a body begins: eight numbers of 64 bits, spread, substreams, cause, two numbers. Avro libraries read all else differently.
_SOUND_BODY = {PLAIN: re.compile(_PLAIN_BODY, re.DOTALL), EXTENDED: re.compile(_PLAIN_BODY + _NUMBER + rb"{2}", re.DOTALL)}


def encode_event_header_column(
    seq: Ints, system_us: Ints, event_time_us: Ints, arrival_us: Ints, offset: Ints, flags: NDArray[np.uint16], number: int
) -> pa.FixedSizeBinaryArray:
    """Return the 48 header bytes of each event of input partition *number* as one Arrow column; *flags* are bits of :class:`Flag`."""
    # The first eight bytes are one little-endian word: six words a row are written faster than nine fields.
    first = flags.astype(np.int64) << 16
    # By way of uint64, because roster numbers from 2**31 on would overflow int64.
    first |= np.uint64(number << 32 | Kind.EVENT << 8 | PLAIN).astype(np.int64)
    if len(flags) and flags.max() > _PLAIN_FLAGS:
        first[flags > _PLAIN_FLAGS] += EXTENDED - PLAIN
        first[flags >= Flag.EARLY] += EARLY - EXTENDED
    columns = seq, system_us, event_time_us, arrival_us, offset
    table = np.empty((len(seq), EVENT_HEADER_BYTES // 8), dtype="<i8")
    # In blocks of rows: a block written by one column is still in the processor's cache for the next.
    for low in range(0, len(seq), _BLOCK_ROWS):
        rows = slice(low, low + _BLOCK_ROWS)
        table[rows, 0] = first[rows]
        for place, column in enumerate(columns, 1):
            table[rows, place] = column[rows]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(EVENT_HEADER_BYTES), len(table), [None, pa.py_buffer(table)])


def encode_event_headers(
    seq: Ints, system_us: Ints, event_time_us: Ints, arrival_us: Ints, offset: Ints, flags: NDArray[np.uint16], number: int
) -> list[bytes]:
    """Like :func:`encode_event_header_column`, but return a list of bytes objects, as Kafka clients need them."""
    column = encode_event_header_column(seq, system_us, event_time_us, arrival_us, offset, flags, number)
    data: list[bytes] = _rows_of(column).view(f"V{EVENT_HEADER_BYTES}").tolist()
    return data


def decode_event_headers(headers: Sequence[bytes] | pa.FixedSizeBinaryArray) -> NDArray[Any]:
    """
    Return event headers as a structured array (fields of ``EVENT_HEADER``); an Arrow column is not copied. ProtocolError: a header has a
    wrong length, version or kind, flags that its version does not have, or a higher version than it needs.
    """
    if isinstance(headers, pa.Array):
        table = _rows_of(headers)
    else:
        # Each length is checked: headers of 47 and 49 bytes would together look like two of 48.
        if not {EVENT_HEADER_BYTES}.issuperset(map(len, headers)):
            raise _wrong_length()
        table = np.frombuffer(b"".join(headers), dtype=EVENT_HEADER)
    # Almost every record is plain: one comparison of version, kind and flags together recognizes it.
    start = np.ndarray(len(table), dtype="<u4", buffer=table, strides=(EVENT_HEADER_BYTES,)) if len(table) else np.empty(0, dtype="<u4")
    is_plain = (start & np.uint32(~(_PLAIN_FLAGS << 16) & 0xFFFFFFFF)) == (Kind.EVENT << 8 | PLAIN)
    if not is_plain.all():
        _check_events(table[~is_plain])
    return table


def _rows_of(column: pa.FixedSizeBinaryArray) -> NDArray[Any]:
    if column.type != pa.binary(EVENT_HEADER_BYTES) or column.null_count:
        raise _wrong_length()
    data = column.buffers()[1]
    if not len(column) or data is None:
        return np.empty(0, dtype=EVENT_HEADER)
    return np.frombuffer(data, dtype=EVENT_HEADER, count=len(column), offset=column.offset * EVENT_HEADER_BYTES)


def _wrong_length() -> ProtocolError:
    return ProtocolError("an event header is not 48 bytes long", fix="is this topic written by tidegate?")


def _check_events(table: NDArray[Any]) -> None:
    """Raise unless every row is a valid event of a version above plain; the caller has already removed the valid plain events."""
    version, flags = table["version"], table["flags"]
    if (version > VERSION).any():
        raise newer_version(int(version.max()), "an event")
    if not ((version >= PLAIN) & (table["kind"] == Kind.EVENT)).all():
        raise _foreign_record("an event header has an unknown version or kind")
    needed = np.where(flags >= Flag.EARLY, EARLY, EXTENDED)
    if not ((version == needed) & (flags > _PLAIN_FLAGS) & (flags <= _FLAGS)).all():
        raise _foreign_record("an event header has flags that its version does not have")


def _foreign_record(what: str, where: str = "") -> ProtocolError:
    return ProtocolError(what, where=where, fix="is another program writing to this topic?")


def newer_version(version: int, record: str, where: str = "") -> ProtocolError:
    """Return the error for *record*, which a newer program has written."""
    what = f"{record} has version {version}, this program reads versions 1 to {VERSION}"
    fix = "upgrade this stage: whatever reads a topic is upgraded before what writes it"
    return ProtocolError(what, code="TG-PROTOCOL-VERSION", where=where, fix=fix)


def encode_ctis(cti: Cti, max_bytes: int = CTI_BYTES_MAX) -> list[tuple[bytes, bytes]]:
    """
    Return headers and values of the consecutive records that carry *cti*, a whole CTI (``parts`` is 1). It is one record unless its list is
    too long; then the list is split, and the CTI counts with the last record. A record's value has at most *max_bytes*, unless a single
    listed substream with a long key exceeds them.
    """
    assert cti.parts == 1, "a part is not split again"
    lists = list(_split(cti.listed, max_bytes - len(encode_cti(replace(cti, listed=()))[1]) - _PART_BYTES_MAX))
    if len(lists) < 2:
        return [encode_cti(cti)]
    return [encode_cti(replace(cti, listed=listed, part=part, parts=len(lists))) for part, listed in enumerate(lists)]


# ``part``, ``parts``, the count of the list's one block, and the zero that ends it.
_PART_BYTES_MAX = 5 + 5 + 10 + 1


def _split(listed: tuple[tuple[bytes, int], ...], room: int) -> Iterator[tuple[tuple[bytes, int], ...]]:
    first, size = 0, 0
    for index, (key, w) in enumerate(listed):
        added = _long_bytes(len(key)) + len(key) + _long_bytes(w)
        if size + added > room and index > first:
            yield listed[first:index]
            first, size = index, 0
        size += added
    yield listed[first:]


def _long_bytes(value: int) -> int:
    """Return the size of an Avro long: one byte for every seven bits of its zigzag form."""
    zigzag = 2 * value if value >= 0 else -2 * value - 1
    return max(-(-zigzag.bit_length() // 7), 1)


def encode_cti(cti: Cti) -> tuple[bytes, bytes]:
    """Return header and value of the record that carries *cti* or a part of a CTI, without a size limit."""
    version = EXTENDED if cti.listed or cti.parts > 1 else PLAIN
    fields: dict[str, Any] = {
        **{name: getattr(cti, name) for name in _CTI_NUMBERS},
        "roster_version": cti.roster.version,
        "inputs": cti.roster.inputs,
        "spread": cti.roster.spread.value,
        "substreams": cti.roster.substreams,
        "cause": cti.cause.value,
    }
    if version == EXTENDED:
        fields |= {"part": cti.part, "parts": cti.parts, "listed": [{"key": key, "w": w} for key, w in cti.listed]}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, _SCHEMAS[version], fields)
    return np.array([(version, Kind.CTI, 0, cti.number)], dtype=_CTI_HEADER).tobytes(), body.getvalue()


def decode_cti(header: bytes, value: bytes, output_partition: int, where: str = "") -> Cti:
    """
    Decode a CTI, or a part of one; *where* names the record in errors (``topic-partition@offset``). ProtocolError: header or body are not
    those of a CTI, or contradict themselves.
    """
    number, body = _cti_fields(header, value, where)
    roster = Roster(body["roster_version"], body["inputs"], Spread(body["spread"]), body["substreams"])
    cti = Cti(
        number=number,
        output_partition=output_partition,
        **{name: body[name] for name in _CTI_NUMBERS},
        roster=roster,
        cause=Cause(body["cause"]),
        listed=tuple((entry["key"], entry["w"]) for entry in body.get("listed", ())),
        part=body.get("part", 0),
        parts=body.get("parts", 1),
    )
    if wrong := _contradiction(cti, header[0]):
        raise _foreign_record(f"a CTI says {wrong}", where)
    return cti


def _cti_fields(header: bytes, value: bytes | None, where: str) -> tuple[int, Any]:
    fields = np.frombuffer(header, dtype=_CTI_HEADER)[0] if len(header) == CTI_HEADER_BYTES else None
    if fields is not None and fields["kind"] == Kind.CTI and fields["version"] > VERSION:
        raise newer_version(int(fields["version"]), "a CTI", where)
    if fields is None or fields["version"] not in _SCHEMAS or fields["kind"] != Kind.CTI or fields["flags"]:
        raise _foreign_record("a CTI header has an unknown length, version, kind or flag", where)
    data = io.BytesIO(value or b"")
    try:
        body: Any = fastavro.schemaless_reader(data, _SCHEMAS[int(fields["version"])], None)
    except (EOFError, ValueError, IndexError, TypeError, OverflowError) as cause:
        raise _foreign_record("the body of a CTI cannot be read", where) from cause
    if not _SOUND_BODY[int(fields["version"])].match(data.getbuffer()):
        raise _foreign_record("the body of a CTI is no sound Avro", where)
    if data.read(1):
        raise _foreign_record("a CTI has more bytes than its body", where)
    return int(fields["number"]), body


def _contradiction(cti: Cti, version: int) -> str:
    """Return the first impossible statement of a CTI, or an empty text: PROTOCOL.md, "Valid ranges"."""
    roster = cti.roster
    contradictions = {
        f"n = {cti.n}": cti.n < 0,
        f"ahead = {cti.ahead} of n = {cti.n}": not 0 <= cti.ahead <= cti.n,
        f"next_offset = {cti.next_offset}": cti.next_offset < 0,
        f"a roster of version {roster.version}": not 0 <= roster.version <= _INT_MAX,
        f"a roster of {roster.inputs} inputs": not 1 <= roster.inputs <= ROSTER_INPUTS_MAX,
        f"part = {cti.part} of parts = {cti.parts}": not 0 <= cti.part < cti.parts <= _INT_MAX,
        "version 2 without a list": version == EXTENDED and cti.parts == 1 and not cti.listed,
    }
    return next((text for text, is_wrong in contradictions.items() if is_wrong), "")


def encode_source_cti(c_us: int) -> tuple[bytes, bytes]:
    """
    Return header and value of a raw record by which a source promises that no later event of its partition is below *c_us*, microseconds.
    ProtocolError: *c_us* lies outside [TICK_MIN, TICK_MAX].
    """
    _check_source_time(c_us)
    return encode_cti(Cti(0, 0, c_us, 0, 0, 0, TICK_MIN, TICK_MIN, Roster(0, 1, Spread.ONE, False), Cause.SOURCE))


def decode_source_cti(header: bytes, value: bytes | None) -> int:
    """Return the ``c`` (microseconds) of a source CTI, ProtocolError if it is no CTI or its ``c`` is outside [TICK_MIN, TICK_MAX]."""
    c_us: int = _cti_fields(header, value, "")[1]["c"]
    _check_source_time(c_us)
    return c_us


def _check_source_time(c_us: int) -> None:
    if not TICK_MIN <= c_us <= TICK_MAX:
        what = f"a CTI of the source says {format_tick(c_us)}, which is no valid time"
        raise ProtocolError(what, fix=f"write a time from {format_tick(TICK_MIN)} to {format_tick(TICK_MAX)}, as microseconds")
