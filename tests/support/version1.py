"""
A writer and a reader of the ordered topic as they were when there was only version 1: frozen, and nothing of ours in them.

They are what an older Tidegate is to a newer one, written from PROTOCOL.md's version 1 alone: they know two flags, and no lists.
They must never be brought up to date.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

EVENT = struct.Struct("<BBHIqqqqq")
CTI = struct.Struct("<BBHI")
SPREADS, CAUSES = ("all", "one"), ("event", "idle", "source", "import", "shutdown")
_NUMBERS = ("c", "n", "ahead", "next_offset", "arrival_us", "largest_us", "roster_version", "inputs")


class Refused(Exception):
    """A record that version 1 does not describe."""


@dataclass(frozen=True)
class Event1:
    """An event of version 1."""

    number: int
    seq: int
    system_us: int
    event_time_us: int
    arrival_us: int
    offset: int
    flags: int = 0


def event_header(event: Event1) -> bytes:
    """Return the header of an event."""
    times = event.system_us, event.event_time_us, event.arrival_us
    return EVENT.pack(1, 1, event.flags, event.number, event.seq, *times, event.offset)


def cti_record(number: int, **fields: int) -> tuple[bytes, bytes]:
    """Return header and body of a CTI of a topic without substreams, each input into one partition."""
    numbers = {"next_offset": 0, "arrival_us": 0, "largest_us": 1000, "ahead": 0, "roster_version": 1, "inputs": 1, **fields}
    body = b"".join(_zigzag(numbers[name]) for name in _NUMBERS)
    return CTI.pack(1, 2, 0, number), body + bytes([2 * SPREADS.index("one"), 0, 2 * CAUSES.index("event")])


def _zigzag(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


@dataclass
class Reader1:
    """
    Reads one partition by the rule of version 1.

    Attributes:
        accepted: The events it has accepted, with their payloads.
        c: How far the time of each channel has come.
    """

    accepted: list[tuple[Event1, bytes | None]] = field(default_factory=list)
    c: dict[int, int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self, header: bytes, value: bytes | None) -> None:
        """
        Take the next record of the log.

        Raises:
            Refused: Version 1 does not describe it.
        """
        if not header or header[0] != 1:
            raise Refused(f"version {header[0] if header else 'none'}: this program reads version 1")
        if len(header) == EVENT.size:
            self._event(header, value)
        elif len(header) == CTI.size:
            self._cti(header, value or b"")
        else:
            raise Refused("a header of another length")
        for promise in [each for each in self._waiting if self._last.get(each[0], -1) >= each[1] - 1]:
            self._waiting.remove(promise)
            self.c[promise[0]] = max(self.c.get(promise[0], promise[2]), promise[2])

    def _event(self, header: bytes, value: bytes | None) -> None:
        _, kind, flags, number, seq, system_us, event_time_us, arrival_us, offset = EVENT.unpack(header)
        if kind != 1 or flags > 3:
            raise Refused("a kind or a flag that version 1 does not have")
        if seq == self._last.get(number, -1) + 1:
            self._last[number] = seq
            self.accepted.append((Event1(number, seq, system_us, event_time_us, arrival_us, offset, flags), value))

    def _cti(self, header: bytes, body: bytes) -> None:
        _, kind, flags, number = CTI.unpack(header)
        if kind != 2 or flags:
            raise Refused("a kind or a flag that version 1 does not have")
        fields, place = {}, 0
        for name in _NUMBERS:
            fields[name], place = _number(body, place)
        if len(body) != place + 3:
            raise Refused("a CTI has more bytes than its body")
        self._waiting.append((number, fields["n"], fields["c"]))


def _number(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = body[place]
        value, place, shift = value | (octet & 0x7F) << shift, place + 1, shift + 7
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), place
