"""The first difference between two channels: the event, the fields that differ, and possible causes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ordering.columns.framed_payloads import Headers, headers_of, payload_of
from ordering.protocol.wire import EVENT_HEADER, Flag
from ordering.ticks import format_tick
from tidegate.ordered_topic.events import OrderedEvents

SHOWN_BYTES = 80
_FIELDS = (
    "seq",
    "offset",
    "event_time_us",
    "arrival_us",
    "system_us",
    "flags",
    "version",
    "kind",
    "number",
    "stamp_ms",
    "key",
    "value",
    "headers",
)
_NAMES = {"system_us": "s", "event_time_us": "t", "arrival_us": "a", "offset": "origin", "stamp_ms": "Kafka timestamp"}
_TIMES = ("system_us", "event_time_us", "arrival_us")
_HINTS = {
    "missing": "one of the jobs dropped the event and the other did not, or lost it: compare their policies and their counts",
    "swapped": "a job wrote in another order than the law's: another version, another reorder setting, or a defect",
    "value": "the payloads differ: the raw topics are not the same, or somebody has changed an ordered topic",
    "headers": "the headers of the records differ: another `headers`, or the raw topics are not the same",
    "key": "the keys differ: another `over`, or the raw topics are not the same",
    "event_time_us": "another timestamp_by or timestamp_format",
    "arrival_us": 'the arrival times differ: `arrival = "ingest"` without a shared journal, idle estimates that one job did not know, '
    "or another raw topic",
    "system_us": "the policies judged otherwise: other late or reorder settings, or idle estimates that one job did not know",
    "flags": "another shape, or policies that judged otherwise",
    "stamp_ms": "the Kafka timestamp is not that of s: another program wrote it",
    "seq": "the numbering differs: one topic was begun at another time, or lacks events of the channel",
    "offset": "the events come from other records: the raw topics are not the same",
    "result": "results of a query with OVER come in the order in which the log of its ordered topic makes them final: over another ordered "
    "topic, or from another --start, only each key's results are the same; `tidegate verify` proves each of the two",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One accepted event: its log offset, and the fields that the law fixes."""

    log_offset: int
    fields: dict[str, Any]

    @property
    def origin(self) -> int:
        """Its offset in the input partition."""
        return int(self.fields["offset"])

    @property
    def is_result(self) -> bool:
        """Whether it looks like a query's result, whose origin is its own number and whose times are one."""
        times = {self.fields[name] for name in _TIMES}
        return self.origin == self.fields["seq"] and len(times) == 1


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a channel."""

    # The channel.
    number: int
    partition: int
    # How many events before it are equal.
    index: int
    # ``missing in A``, ``missing in B``, ``swapped``, ``ended`` or ``fields``.
    kind: str
    # The event at that index in each topic, None if there is none.
    a: Event | None
    b: Event | None
    # The fields that differ.
    names: tuple[str, ...]
    # Possible causes.
    hint: str

    @property
    def system_us(self) -> int:
        """The earlier of both events' system timestamps; differences of several channels are sorted by it."""
        return min(int(event.fields["system_us"]) for event in (self.a, self.b) if event is not None)

    def as_dict(self, raw: Callable[[int, int], str]) -> dict[str, Any]:
        """Return the difference as JSON; *raw* names a raw record by roster number and offset."""
        return {
            "channel": {"number": self.number, "partition": self.partition},
            "equal_before": self.index,
            "kind": self.kind,
            "fields": [_NAMES.get(name, name) for name in self.names],
            "a": _event_dict(self.a, self.number, raw),
            "b": _event_dict(self.b, self.number, raw),
            "hint": self.hint,
        }

    def text_lines(self, raw: Callable[[int, int], str], topics: tuple[str, str]) -> Iterator[str]:
        yield f"channel {self.number} -> partition {self.partition}, after {self.index:,} equal events: {self._description()}"
        for label, topic, event in (("A", topics[0], self.a), ("B", topics[1], self.b)):
            if event is None:
                yield f"  {label}  nothing"
                continue
            where = f"{topic}-{self.partition}@{event.log_offset}"
            yield f"  {label}  seq {event.fields['seq']} at {where}, from raw record {raw(self.number, event.origin)}"
            shown = self.names if self.kind == "fields" else ("system_us", "event_time_us", "value")
            for name in shown:
                yield f"     {_NAMES.get(name, name)} = {format_field(name, event.fields[name], self._counterpart_value(event, name))}"
        yield f"  hint: {self.hint}"

    def _description(self) -> str:
        if self.kind != "fields":
            return {"swapped": "two events change places", "ended": "one topic has ended, the other continues"}.get(self.kind, self.kind)
        return "other " + ", ".join(_NAMES.get(name, name) for name in self.names)

    def _counterpart_value(self, event: Event, name: str) -> Any:
        other = self.b if event is self.a else self.a
        return None if other is None else other.fields[name]


def events_of(columns: OrderedEvents) -> list[Event]:
    """Return the rows of *columns* one by one."""
    rows = zip(columns.log_offset.tolist(), columns.fields, columns.stamp_ms.tolist(), columns.key, columns.value, strict=True)
    events = []
    for offset, header, stamp_ms, key, value in rows:
        fields = {name: int(header[name]) for name in EVENT_HEADER.names or ()}
        data, headers = value.as_py(), Headers()
        if columns.is_framed and data is not None:
            data, headers = bytes(payload_of(data)), headers_of(data)
        events.append(Event(offset, {**fields, "stamp_ms": stamp_ms, "key": key.as_py(), "value": data, "headers": headers}))
    return events


def differing_fields(a: Event, b: Event) -> tuple[str, ...]:
    """Return the names of the fields in which two events differ."""
    return tuple(_NAMES.get(name, name) for name in _FIELDS if a.fields[name] != b.fields[name])


@dataclass(slots=True)
class ChannelExcerpt:
    """Events of one channel in both topics, from the same index on."""

    number: int
    partition: int
    first: int
    a: list[Event] = field(default_factory=list)
    b: list[Event] = field(default_factory=list)

    def difference(self) -> Difference | None:
        """Return the first difference among the events that both topics have, or None."""
        for index, (a, b) in enumerate(zip(self.a, self.b, strict=False)):
            if a.fields != b.fields:
                return self._explain(index, a, b)
        return None

    def length_difference(self) -> Difference:
        """Return the difference that one topic has more events than the other."""
        place = min(len(self.a), len(self.b))
        a, b = (events[place] if place < len(events) else None for events in (self.a, self.b))
        kind = "ended" if a is None or b is None else "fields"
        hint = "one topic lacks the end of the channel: it was ended earlier, or has lost records"
        return Difference(self.number, self.partition, self.first + place, kind, a, b, (), hint)

    def _explain(self, index: int, a: Event, b: Event) -> Difference:
        kind, names = "fields", tuple(name for name in _FIELDS if a.fields[name] != b.fields[name])
        if a.origin != b.origin:
            # Two different events differ in their fields anyway: the finding is which of them is missing, or that they are swapped.
            kind = self._displacement(index) or kind
        subject = "missing" if kind.startswith("missing") else kind if kind == "swapped" else _cause(names)
        if a.is_result and b.is_result and {"key", "seq"} & set(names):
            subject = "result"
        return Difference(self.number, self.partition, self.first + index, kind, a, b, names, _HINTS.get(subject, _HINTS["value"]))

    def _displacement(self, index: int) -> str:
        a, b = ([event.origin for event in events[index:]] for events in (self.a, self.b))
        if len(a) > 1 and len(b) > 1 and a[0] == b[1] and a[1] == b[0]:
            return "swapped"
        in_b, in_a = a[0] in b, b[0] in a
        if in_a and not in_b:
            return "missing in B"
        if in_b and not in_a:
            return "missing in A"
        # Both events come later in the other topic: the one that comes sooner there was delayed here.
        return ("missing in A" if b.index(a[0]) < a.index(b[0]) else "missing in B") if in_a and in_b else ""


def _cause(names: tuple[str, ...]) -> str:
    # From cause to consequence: the first field that differs explains those after it.
    order = ("offset", "value", "key", "headers", "event_time_us", "arrival_us", "system_us", "flags", "stamp_ms", "seq")
    return next((name for name in order if name in names), "value")


def _event_dict(event: Event | None, number: int, raw: Callable[[int, int], str]) -> dict[str, Any] | None:
    if event is None:
        return None
    shown = [name for name in _FIELDS if name not in ("version", "kind", "seq") and (name != "headers" or event.fields[name])]
    fields = {_NAMES.get(name, name): format_field(name, event.fields[name]) for name in shown}
    return {"log_offset": event.log_offset, "raw": raw(number, event.origin), "seq": event.fields["seq"], **fields}


def format_field(name: str, value: Any, other: Any = None) -> str:
    """Return the value of a field as text; of bytes only the part around the first difference from *other*."""
    if name in _TIMES:
        return format_tick(value)
    if name == "flags":
        return (Flag(value).name or str(value)).lower().replace("|", ", ") if value else "none"
    if name == "headers":
        return ", ".join(f"{header} {data!r}" for header, data in value) or "none"
    if isinstance(value, bytes):
        byte_index = _first_differing_byte(value, other) if isinstance(other, bytes) and value != other else 0
        cut = value[max(byte_index - SHOWN_BYTES // 2, 0) :][:SHOWN_BYTES]
        place = f" (byte {byte_index} of {len(value)})" if isinstance(other, bytes) and value != other else ""
        return f"{cut!r}{place}"
    return "null" if value is None else str(value)


def _first_differing_byte(value: bytes, other: bytes) -> int:
    pairs = enumerate(zip(value, other, strict=False))
    return next((index for index, (byte, other_byte) in pairs if byte != other_byte), min(len(value), len(other)))
