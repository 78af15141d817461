"""
A second opinion on windows: which events each holds, found by looking at every instant and every event.

It shares no code with the engine and knows one list of columns, over events ``{"k": text or None, "v": integer}``. A window is
given as a function from the events of one group and sessions' worth of events to pairs (end, events held).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from hypothesis import strategies as st
from support.query_oracle import Event, iso, key_bytes

COLUMNS = "k, System.Timestamp() AS at, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi"
WindowEvents = Iterator[tuple[int, list[Event]]]
WindowKind = Callable[[list[Event]], WindowEvents]
"""From all events of a partition to the ends of windows and what they hold."""

PAYLOADS = st.fixed_dictionaries({"k": st.sampled_from(["x", "y", "zz", None]), "v": st.integers(-3, 3)})
EVENTS = st.lists(st.builds(lambda at, payload: Event(0, at, payload), st.integers(1, 80), PAYLOADS), max_size=24).map(
    lambda events: sorted(events, key=lambda event: event.system_us)
)
CUTS = st.lists(st.integers(1, 120), max_size=6)


def hopping(size: int, hop: int) -> WindowKind:
    """Windows of one size at multiples of the hop."""

    def windows(events: list[Event]) -> WindowEvents:
        for end in range(0, 300, hop):
            yield end, [event for event in events if end - size < event.system_us <= end]

    return windows


def sliding(size: int) -> WindowKind:
    """Windows of one size wherever an event enters or leaves."""

    def windows(events: list[Event]) -> WindowEvents:
        for end in sorted({at for event in events for at in (event.system_us, event.system_us + size)}):
            yield end, [event for event in events if end - size < event.system_us <= end]

    return windows


def session(timeout: int, maximum: int) -> WindowKind:
    """Sessions, lived through instant by instant."""

    def windows(events: list[Event]) -> WindowEvents:
        began: int | None = None
        last, inside = 0, list[Event]()
        for now in range(300):
            come = [event for event in events if event.system_us == now]
            if come:
                began = now if began is None else began
                last, inside = now, inside + come
            if began is None:
                continue
            if now == last + timeout:
                yield now, inside
                began, inside = None, []
            elif now % maximum == 0 and now - began >= maximum:
                yield now, inside
                began, inside = now, []

    return windows


def groups(events: Iterable[Event]) -> dict[object, list[Event]]:
    """Events by their key."""
    found: dict[object, list[Event]] = {}
    for event in events:
        found.setdefault(event.payload["k"], []).append(event)
    return found


def results(
    events: Sequence[Event], *kinds: WindowKind, is_grouped: bool = True, ids: Sequence[str | None] = ()
) -> list[tuple[int, bytes, bytes]]:
    """
    System timestamp, key and value of all results, in order.

    Args:
        events: The events of one substream.
        kinds: The windows, side by side.
        is_grouped: Whether each key has windows of its own; else windows serve all keys.
        ids: The windows' ids, as a last column ``id``.
    """
    found = []
    for number, kind in enumerate(kinds):
        for part in groups(events).values() if is_grouped else [list(events)]:
            for end, contents in kind(part):
                for key, own in groups(contents).items():
                    found.append((end, key_bytes(key), number, value(key, end, own, *ids[number : number + 1])))
    return [(end, key, text) for end, key, _, text in sorted(found, key=lambda row: row[:3])]


def value(key: object, end: int, events: Sequence[Event], *window_id: str | None) -> bytes:
    """The result of one group in one window."""
    numbers = [event.payload["v"] for event in events]
    row = {"k": key, "at": iso(end), "n": len(numbers), "s": sum(numbers), "lo": min(numbers), "hi": max(numbers)}
    for text in window_id:
        row["id"] = text
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
