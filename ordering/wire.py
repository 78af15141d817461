"""
The bytes of an ordered topic: events and CTIs, version 1. PROTOCOL.md describes them for other implementations.

Law: encoding is a pure function of what is written; ``decode(encode(x)) == x``; whole columns at a time.
Every record carries one Kafka header named ``tg``. An event's is 48 bytes of fixed width and its value is the
payload, untouched; a CTI's is 8 bytes and its value is an Avro body.
"""

from __future__ import annotations

import io
from enum import IntEnum, IntFlag
from typing import Any

import fastavro
import numpy as np
from numpy.typing import NDArray

from ordering.errors import ProtocolError
from ordering.punctuation import Cause, Cti, Roster, Spread

VERSION = 1
HEADER_NAME = "tg"
EVENT_HEADER_BYTES = 48
CTI_HEADER_BYTES = 8


class Kind(IntEnum):
    """Second byte of the header: what the record is."""

    EVENT = 1
    CTI = 2


class Flag(IntFlag):
    """What the policies did to a kept event; bits of the header's ``flags``."""

    LATE = 1
    OUT_OF_ORDER = 2
    CTI_VIOLATION = 4
    """Its time lay before a CTI of the source or an imported one, and was moved up to it."""
    INTERVAL = 8
    EDGE_START = 16
    EDGE_END = 32
    LIFTED_END = 64
    """An interval whose end, or an end edge whose time, became its start plus one tick."""


EVENT_HEADER = np.dtype(
    [
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "<u2"),
        ("number", "<u4"),
        ("seq", "<i8"),
        ("system_us", "<i8"),
        ("event_time_us", "<i8"),
        ("arrival_us", "<i8"),
        ("offset", "<i8"),
    ]
)
_CTI_HEADER = np.dtype([("version", "u1"), ("kind", "u1"), ("flags", "<u2"), ("number", "<u4")])

_CTI_SCHEMA: Any = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Cti",
        "namespace": "tidegate",
        "fields": [
            {"name": "c", "type": "long"},
            {"name": "n", "type": "long"},
            {"name": "ahead", "type": "long"},
            {"name": "next_offset", "type": "long"},
            {"name": "arrival_us", "type": "long"},
            {"name": "largest_us", "type": "long"},
            {"name": "roster_version", "type": "int"},
            {"name": "inputs", "type": "int"},
            {"name": "spread", "type": {"type": "enum", "name": "Spread", "symbols": [spread.value for spread in Spread]}},
            {"name": "substreams", "type": "boolean"},
            {"name": "cause", "type": {"type": "enum", "name": "Cause", "symbols": [cause.value for cause in Cause]}},
        ],
    }
)


def encode_event_headers(
    seq: NDArray[np.int64],
    system_us: NDArray[np.int64],
    event_time_us: NDArray[np.int64],
    arrival_us: NDArray[np.int64],
    offset: NDArray[np.int64],
    flags: NDArray[np.uint16],
    number: int,
) -> list[bytes]:
    """Return the header bytes of each event; all columns have one entry an event, *number* is the roster number."""
    table = np.empty(len(seq), dtype=EVENT_HEADER)
    table["version"], table["kind"], table["number"] = VERSION, Kind.EVENT, number
    table["flags"], table["seq"], table["system_us"] = flags, seq, system_us
    table["event_time_us"], table["arrival_us"], table["offset"] = event_time_us, arrival_us, offset
    octets: list[bytes] = table.view(f"V{EVENT_HEADER_BYTES}").tolist()
    return octets


def decode_event_headers(headers: list[bytes]) -> NDArray[Any]:
    """
    Return a structured array (fields of ``EVENT_HEADER``) of event headers, in their order.

    Raises:
        ProtocolError: A header has another length, version or kind than version 1's events.
    """
    # Each one: 47 and 49 bytes make two headers' length too.
    if not {EVENT_HEADER_BYTES}.issuperset(map(len, headers)):
        raise ProtocolError("an event header is not 48 bytes long", fix="is this topic written by tidegate?")
    table = np.frombuffer(b"".join(headers), dtype=EVENT_HEADER)
    if not ((table["version"] == VERSION) & (table["kind"] == Kind.EVENT)).all():
        raise ProtocolError("an event header has an unknown version or kind", fix="upgrade this stage to the version that wrote the topic")
    return table


def encode_cti(cti: Cti) -> tuple[bytes, bytes]:
    """Return header and value of the record that carries *cti*."""
    header = np.array([(VERSION, Kind.CTI, 0, cti.number)], dtype=_CTI_HEADER).tobytes()
    body = io.BytesIO()
    fastavro.schemaless_writer(
        body,
        _CTI_SCHEMA,
        {
            "c": cti.c,
            "n": cti.n,
            "ahead": cti.ahead,
            "next_offset": cti.next_offset,
            "arrival_us": cti.arrival_us,
            "largest_us": cti.largest_us,
            "roster_version": cti.roster.version,
            "inputs": cti.roster.inputs,
            "spread": cti.roster.spread.value,
            "substreams": cti.roster.substreams,
            "cause": cti.cause.value,
        },
    )
    return header, body.getvalue()


def decode_cti(header: bytes, value: bytes, output_partition: int, where: str = "") -> Cti:
    """
    Read a CTI from its record in *output_partition*.

    Args:
        header: The record's header.
        value: The record's value.
        output_partition: The partition it stands in.
        where: How an error names the record: ``topic-partition@offset``.

    Raises:
        ProtocolError: Header or body do not follow version 1.
    """
    fields = np.frombuffer(header, dtype=_CTI_HEADER)[0] if len(header) == CTI_HEADER_BYTES else None
    if fields is None or fields["version"] != VERSION or fields["kind"] != Kind.CTI:
        raise ProtocolError(
            "a CTI header has an unknown version or kind", where=where, fix="upgrade this stage to the version that wrote the topic"
        )
    try:
        body: Any = fastavro.schemaless_reader(io.BytesIO(value), _CTI_SCHEMA, None)
    except (EOFError, ValueError, IndexError, TypeError) as cause:
        raise ProtocolError("the body of a CTI cannot be read", where=where, fix="is another program writing to this topic?") from cause
    roster = Roster(body["roster_version"], body["inputs"], Spread(body["spread"]), body["substreams"])
    return Cti(
        number=int(fields["number"]),
        output_partition=output_partition,
        c=body["c"],
        n=body["n"],
        ahead=body["ahead"],
        next_offset=body["next_offset"],
        arrival_us=body["arrival_us"],
        largest_us=body["largest_us"],
        roster=roster,
        cause=Cause(body["cause"]),
    )
