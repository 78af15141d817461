"""
What a record looks like: as a line for people, and as one JSON object for programs.

Law: a payload that is JSON, or that its format makes JSON, is shown as JSON; all other bytes as text if they are UTF-8, else in base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa

from ordering.protocol.wire import Flag
from ordering.ticks import MILLISECOND_US, format_tick
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.formats import PayloadFormat, reader_of
from tidegate.tools.peek.decoding import ORIGIN, REASON, EventHeader, Sight, SightKind

_RECORD = Field(())


# So many bytes of a key or value are shown one by one.
_DUMPED_MAX, _DUMPED_A_LINE = 2_048, 16


def show_bytes(data: str | bytes | None) -> dict[str, Any] | None:
    """Return how many bytes there are, and the first of them in lines: offset, hexadecimal, and as text; None: there are none at all."""
    if data is None:
        return None
    data = data.encode() if isinstance(data, str) else data
    lines = []
    for start in range(0, min(len(data), _DUMPED_MAX), _DUMPED_A_LINE):
        piece = data[start : start + _DUMPED_A_LINE]
        text = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in piece)
        lines.append(f"{start:06x}  {piece.hex(' '):<{_DUMPED_A_LINE * 3 - 1}}  {text}")
    return {"bytes": len(data), "lines": lines, "is_cut": len(data) > _DUMPED_MAX}


class Display:
    """Shows the records of one topic, whose payloads have the format *payloads*."""

    def __init__(self, payloads: PayloadFormat) -> None:
        self._payloads = payloads

    def line(self, sight: Sight) -> str:
        """Return a record as one line."""
        return "  ".join(piece for piece in (sight.place, "repetition" * sight.is_repetition, *self._pieces(sight)) if piece)

    def _pieces(self, sight: Sight) -> list[str]:
        if sight.cti is not None:
            cti = sight.cti
            if cti.cause == "source" and not cti.n:
                return [f"CTI of the source: no later event before {format_tick(cti.c)}"]
            lists = f"; lists {len(cti.listed):,} substreams" if cti.listed else ""
            return [f"CTI of channel {cti.number}: before {format_tick(cti.c)} all is numbered below {cti.n:,} ({cti.cause}{lists})"]
        key = "" if sight.key is None else f"key {_text(sight.key)}"
        payload = self._payload_text(sight.value)
        if sight.event is not None:
            return [f"seq {sight.event.seq:,}", format_tick(sight.event.system_us), key, payload, _story(sight.event)]
        if sight.kind is SightKind.DEAD_LETTER:
            others = [header for header in sight.headers if header[0] not in (REASON, ORIGIN)]
            return [f"{sight.header(REASON)}, from {sight.header(ORIGIN)}", key, payload, _headers_text(others)]
        problem = f"none of the protocol: {sight.problem}" if sight.problem else ""
        return [_stamp(sight.timestamp_ms), key, payload, _headers_text(sight.headers), problem]

    def as_dict(self, sight: Sight) -> dict[str, Any]:
        """Return a record as a JSON object."""
        fields: dict[str, Any] = {
            "kind": sight.kind.value,
            "topic": sight.topic,
            "partition": sight.partition,
            "offset": sight.offset,
            "timestamp": _stamp(sight.timestamp_ms) or None,
        }
        if sight.cti is not None:
            cti = sight.cti
            fields |= {"channel": cti.number, "c": format_tick(cti.c), "n": cti.n, "ahead": cti.ahead, "next_offset": cti.next_offset}
            listed = {"listed": [{"key": _text(key), "w": format_tick(w)} for key, w in cti.listed]} if cti.listed else {}
            return fields | {"arrival": format_tick(cti.arrival_us), "cause": cti.cause.value, **listed}
        if sight.event is not None:
            event = sight.event
            times = {"event_time": format_tick(event.event_time_us), "arrival": format_tick(event.arrival_us)}
            fields |= {"channel": event.number, "seq": event.seq, "system_timestamp": format_tick(event.system_us), **times}
            fields |= {"origin_offset": event.offset, "flags": _flag_names(event.flags)}
        fields |= {"key": None if sight.key is None else _text(sight.key), "value": self._payload_value(sight.value)}
        if sight.headers:
            fields["headers"] = {name: None if data is None else _text(data) for name, data in sight.headers}
        if sight.is_repetition:
            fields["is_repetition"] = True
        return fields | ({"problem": sight.problem} if sight.problem else {})

    def _payload_text(self, payload: bytes | None) -> str:
        if payload is None:
            return "(no payload)"
        return self._as_json(payload) or _text(payload)

    def _payload_value(self, payload: bytes | None) -> Any:
        if payload is None:
            return None
        try:
            return json.loads(self._as_json(payload) or payload)
        except (ValueError, RecursionError):
            return _text(payload)

    def _as_json(self, payload: bytes) -> str:
        """Return what a payload of a format that is no text says, as JSON; empty for other formats, and if it cannot be read."""
        if self._payloads.name not in ("avro", "avro_registry"):
            return ""
        found = reader_of(self._payloads).extract(pa.array([payload], pa.binary()), [_RECORD]).columns[_RECORD].parts.get(Kind.RECORD)
        return "" if found is None else found[0].as_py() or ""


def _story(event: EventHeader) -> str:
    """Return what policies did with an event, and its times where they differ from its system timestamp."""
    names = ", ".join(_flag_names(event.flags))
    if event.event_time_us == event.arrival_us == event.system_us:
        return f"({names})" if names else ""
    moved = f"event time {format_tick(event.event_time_us)}, " if event.event_time_us != event.system_us else ""
    origin = f"offset {event.offset:,} of input partition {event.number}"
    return f"({names + ': ' if names else ''}{moved}arrived {format_tick(event.arrival_us)}, {origin})"


def _flag_names(flags: Flag) -> list[str]:
    return [str(flag.name).lower() for flag in Flag if flag in flags]


def _headers_text(headers: list[tuple[str, bytes | None]]) -> str:
    texts = [f"{name}={_text(data or b'')}" for name, data in headers]
    return f"[{', '.join(texts)}]" if texts else ""


def _stamp(timestamp_ms: int) -> str:
    return "" if timestamp_ms < 0 else format_tick(timestamp_ms * MILLISECOND_US)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
