"""
Seeded disorder: raw records with late, early, out-of-order and broken ones among them, spans of any shape, CTIs that their
source enqueued; and what must become of them.

What must come out is told by :mod:`support.oracle`, one record at a time; nothing of ingest takes part in it.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from support.oracle import compute_story
from support.stack.topics import Channel, Event
from support.story import Story

from ordering.policies import Policies, Shape
from ordering.protocol.wire import HEADER_NAME, Flag, encode_source_cti
from ordering.testing import Record
from ordering.ticks import DAY_US, NEVER, SECOND_US

START_MS = 1_709_251_200_000  # 2024-03-01
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLAGS = {
    "early": Flag.EARLY,
    "late": Flag.LATE,
    "out_of_order": Flag.OUT_OF_ORDER,
    "cti_violation": Flag.CTI_VIOLATION,
    "lifted_end": Flag.LIFTED_END,
}


@dataclass(frozen=True)
class Raw:
    """One record as produced, with what ingest must read in it: times, substream key, or why it cannot be read."""

    partition: int
    key: bytes | None
    value: bytes | None
    stamp_ms: int
    event_time_us: int | None = None
    substream: bytes = b""
    reason: str = ""
    end_us: int | None = None
    start_us: int | None = None
    source_cti_us: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    said: Any = None
    arrival_us: int | None = None
    """Its arrival where that is not the record's timestamp."""


def draw(
    seed: int,
    count: int,
    partitions: int,
    *,
    bad: float = 0.0,
    keys: Sequence[Any] = ("a", "bb", "ccc"),
    shape: Shape = Shape.POINT,
    source_ctis: float = 0.0,
    start_ms: int = START_MS,
    gaps_ms: Sequence[int] = (0, 1, 3, 20, 90),
) -> list[Raw]:
    """
    Return *count* records with seeded disorder; a share *bad* of them cannot be read, a share *source_ctis* are CTIs.

    They are stamped from *start_ms* on, one of *gaps_ms* apart, now and then by a clock that stands behind.
    """
    dice = random.Random(seed)
    stamp_ms, drawn = start_ms, []
    begun: defaultdict[int, list[Raw]] = defaultdict(list)
    for number in range(count):
        stamp_ms += dice.choice(gaps_ms)
        # A producer's clock that stands behind the others': arrival must not go back.
        own_ms = stamp_ms - dice.choice((0,) * 30 + (2_000,))
        partition = dice.randrange(partitions)
        if dice.random() < bad:
            drawn.append(_unreadable(dice, partition, own_ms, shape, bool(source_ctis)))
        elif source_ctis and dice.random() < source_ctis:
            drawn.append(_source_cti(dice, partition, own_ms))
        else:
            drawn.append(_readable(dice, number, partition, own_ms, dice.choice(keys), shape, begun[partition]))
    return drawn


def _readable(dice: random.Random, number: int, partition: int, stamp_ms: int, key: Any, shape: Shape, begun: list[Raw]) -> Raw:
    lateness_us = dice.choice((dice.randrange(4 * SECOND_US),) * 8 + (dice.randrange(90 * SECOND_US), -dice.randrange(40 * SECOND_US)))
    event_time_us = stamp_ms * 1000 - lateness_us
    payload = {"at": _written(dice, event_time_us), "k": key, "v": dice.randrange(-50, 1000), "n": number}
    if key is None and number % 2:
        del payload["k"]
    raw = Raw(partition, b"%d" % number, b"", stamp_ms, event_time_us, key_bytes(key))
    if shape is Shape.INTERVAL:
        raw = replace(raw, end_us=event_time_us + dice.choice((-1, 0, 1, dice.randrange(5 * SECOND_US), dice.randrange(90 * SECOND_US))))
        payload["end"] = _written(dice, raw.end_us)
    elif shape is Shape.EDGE:
        raw = _edge(dice, raw, payload, begun)
    value = json.dumps(payload, ensure_ascii=bool(number % 3), separators=dice.choice(((",", ":"), (" , ", ": ")))).encode()
    return replace(raw, value=value)


def _edge(dice: random.Random, raw: Raw, payload: dict[str, Any], begun: list[Raw]) -> Raw:
    """Make it a start edge, or the end edge of a span that has begun; write it into *payload*."""
    at_us = raw.event_time_us
    if not begun or dice.random() < 0.5:
        if dice.random() < 0.2:
            payload["end"] = None
        begun.append(replace(raw, start_us=NEVER, said=payload.get("k")))
        return begun[-1]
    start = begun.pop(dice.randrange(max(len(begun) - 20, 0), len(begun)))
    assert start.event_time_us is not None
    # Some spans end where they start, or before: what is late or out of order moves their ends together.
    end_us = dice.choice((at_us, at_us, start.event_time_us, start.event_time_us + 1))
    payload |= {"at": _written(dice, start.event_time_us), "end": _written(dice, end_us), "k": start.said}
    return replace(raw, key=start.key, event_time_us=end_us, start_us=start.event_time_us, substream=start.substream)


def _source_cti(dice: random.Random, partition: int, stamp_ms: int) -> Raw:
    c_us = stamp_ms * 1000 - dice.choice((dice.randrange(8 * SECOND_US),) * 6 + (-dice.randrange(5 * SECOND_US), -DAY_US))
    header, value = encode_source_cti(c_us)
    return Raw(partition, None, value, stamp_ms, source_cti_us=c_us, headers=(("trace", b"1"), (HEADER_NAME, header)))


def _written(dice: random.Random, us: int) -> Any:
    """Write a time in one of the forms that ``timestamp_format = "auto"`` tells apart."""
    text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    return dice.choice((text, text.replace("+00:00", "Z"), us, str(us)))


def key_bytes(key: Any) -> bytes:
    """Return the substream key bytes of a JSON value."""
    if key is None:
        return b""
    return key.encode() if isinstance(key, str) else json.dumps(key, sort_keys=True, separators=(",", ":")).encode()


_BROKEN: tuple[tuple[str, bytes | None], ...] = (
    ("malformed", b'{"at": "2024-03-01T00:00:00Z", "k": '),
    ("malformed", b'{"at": 1709251200, "k": "\xff\xfe"}'),
    ("malformed", b"\xff\x00\xfe"),
    ("malformed", b""),
    ("malformed", b"not json at all"),
    ("timestamp", b'{"k": "a", "v": 1}'),
    ("timestamp", b'{"at": null, "k": "a"}'),
    ("timestamp", b'{"at": "12000-01-01T00:00:00Z", "k": "a"}'),
    ("timestamp", b'{"at": "yesterday", "k": "a"}'),
    ("timestamp", b'{"at": -1, "k": "a"}'),
    ("timestamp", b'{"at": 1e300, "k": "a"}'),
    ("timestamp", b'{"at": 0, "k": "a"}'),
    ("timestamp", b'{"at": ["2024-03-01"], "k": "a"}'),
    ("timestamp", b'{"at": true, "k": "a"}'),
    ("timestamp", b"[1, 2, 3]"),
    ("timestamp", b"17"),
    ("no_payload", None),
)


_BROKEN_ENDS: tuple[tuple[str, bytes], ...] = (
    ("end", b'{"at": "2024-03-01T00:00:00Z", "k": "a", "end": "soon"}'),
    ("end", b'{"at": "2024-03-01T00:00:00Z", "k": "a", "end": -1}'),
    ("end", b'{"at": "2024-03-01T00:00:00Z", "k": "a", "end": {}}'),
    ("timestamp", b'{"k": "a", "end": "2024-03-01T00:00:00Z"}'),
)


def _broken_ctis() -> tuple[tuple[bytes, bytes | None], ...]:
    """Return header and value of records that claim to be CTIs."""
    header, value = encode_source_cti(START_MS)
    return (header, b'{"at": "2024-03-01T00:00:00Z", "k": "a"}'), (header, value[:1]), (header, None), (b"\x09" + header[1:], value)


def _unreadable(dice: random.Random, partition: int, stamp_ms: int, shape: Shape, source_ctis: bool) -> Raw:
    if source_ctis and dice.random() < 0.3:
        header, value = dice.choice(_broken_ctis())
        return Raw(partition, b"cti", value, stamp_ms, reason="cti", headers=((HEADER_NAME, header),))
    if shape is not Shape.POINT and dice.random() < 0.3:
        reason, value = dice.choice(_BROKEN_ENDS)
        return Raw(partition, b"bad", value, stamp_ms, reason=reason)
    place = dice.randrange(len(_BROKEN) + 1)
    if place == len(_BROKEN):
        ahead_ms = time.time_ns() // 1_000_000 + 3 * DAY_US // 1000
        return Raw(partition, b"ahead", b'{"at": "2024-03-01T00:00:00Z", "k": "a"}', ahead_ms, reason="arrival_ahead")
    reason, value = _BROKEN[place]
    return Raw(partition, b"bad", value, stamp_ms, reason=reason)


def logs_of(raws: Sequence[Raw], partitions: int) -> list[list[Raw]]:
    """Return the log of each partition."""
    logs: list[list[Raw]] = [[] for _ in range(partitions)]
    for raw in raws:
        logs[raw.partition].append(raw)
    return logs


def story_of(
    log: Sequence[Raw], policies: Policies, number: int, output_partitions: int, *, over: bool, finish: bool, **told: Any
) -> Story:
    """Tell what must become of one partition's log; a record stamped far ahead, or not at all, is as if it were not there."""
    heard = [
        Record(
            offset,
            raw.stamp_ms * 1000 if raw.arrival_us is None else raw.arrival_us,
            raw.event_time_us,
            raw.substream if over else raw.key or b"",
            raw.source_cti_us,
            raw.end_us,
            raw.start_us,
        )
        for offset, raw in enumerate(log)
        if raw.reason not in ("arrival_ahead", "arrival_missing")
    ]
    return compute_story(heard, policies, over=over, output_partitions=output_partitions, roster=number, finish=finish, **told)


def expected(
    logs: Sequence[Sequence[Raw]],
    policies: Policies,
    output_partitions: int,
    *,
    over: bool,
    estimates: Mapping[int, Mapping[int, int]] | None = None,
    imports: Mapping[int, Mapping[int, int]] | None = None,
    joined_us: Mapping[int, int] | None = None,
    finish: bool = True,
) -> dict[Channel, list[Event]]:
    """Return the sequence of every channel that has events, as the oracle tells it; estimates, imports and J by partition."""
    channels: defaultdict[Channel, list[Event]] = defaultdict(list)
    for number, log in enumerate(logs):
        marks = {"estimates": (estimates or {}).get(number, {}), "imports": (imports or {}).get(number, {})}
        moment = {"joined_us": (joined_us or {}).get(number, NEVER)}
        for told in story_of(log, policies, number, output_partitions, over=over, finish=finish, **marks, **moment).ordered:
            raw = log[told.offset]
            flags = sum(_FLAGS[policy] for policy in told.policies) + _shape_flag(raw)
            times = (told.seq, told.system_us, told.event_time_us, told.arrival_us, told.offset)
            event = Event(*times, flags, raw.substream if over else raw.key, raw.value, told.system_us // 1000)
            channels[number, told.output_partition].append(event)
    return dict(channels)


def _shape_flag(raw: Raw) -> Flag:
    if raw.end_us is not None:
        return Flag.INTERVAL
    if raw.start_us is not None:
        return Flag.EDGE_START if raw.start_us == NEVER else Flag.EDGE_END
    return Flag(0)
