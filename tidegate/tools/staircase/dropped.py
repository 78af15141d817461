"""
The events that policies dropped, as an input's ``dropped_topic`` holds them.

Law: each is shown once, at its own time and its arrival, with the policy that dropped it and the place of its raw record. Only those are
shown that arrived within the section, from the first event of the ordered topic on that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.columns.framed_payloads import header_texts
from ordering.errors import TickRangeError
from ordering.ticks import parse_tick
from tidegate.basics.dead_letter_reasons import DropReason
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.tools.staircase.read import PREFETCH_BYTES, Section, Staircase, hash_key, hash_keys

# How many of the newest records are looked at.
RECORDS_MAX = 5_000
# So many are shown at least, if there are; else as large a part as of the other events, so that the picture shows how rare they are.
DROPPED_MIN = 50
WORDS = {
    DropReason.EARLY: "dropped as early",
    DropReason.LATE: "dropped as late",
    DropReason.OUT_OF_ORDER: "dropped as out of order",
    DropReason.CTI_VIOLATION: "dropped for a CTI",
}
_HEADERS = "origin", "reason", "event_time", "arrival"
# A partition's name, a place in it, what was done, event time and arrival.
_Letter = tuple[str, str, str, int, int]


@dataclass(frozen=True, slots=True)
class DroppedPiece:
    """Dropped events, and the hashes of their keys."""

    letters: Sequence[_Letter]
    key_hashes: Sequence[int]

    @classmethod
    def of(cls, headers: Iterable[Sequence[str | None]], keys: pa.Array) -> DroppedPiece:
        """Take the letters that have the *headers* of dropped events: dead letters may lie in the same topic, and whatever others write."""
        found = [(letter, key) for values, key in zip(headers, hash_keys(keys).tolist(), strict=True) if (letter := _read_letter(values))]
        return cls([letter for letter, _ in found], [key for _, key in found])


def _read_letter(values: Sequence[str | None]) -> _Letter | None:
    origin, reason, event, arrival = values
    if origin is None or event is None or arrival is None or reason not in WORDS:
        return None
    partition, _, place = origin.rpartition("@")
    try:
        return partition, place, WORDS[DropReason(reason)], parse_tick(event), parse_tick(arrival)
    except TickRangeError:
        return None


def read_dropped(kafka: Mapping[str, str], place: tuple[str, int], start: int, end: int) -> list[tuple[DroppedPiece, int]]:
    """Return a range of a partition of a ``dropped_topic`` in pieces, each with how many offsets it covers."""
    found = []
    with RangeReader(kafka, *place, prefetch_bytes=PREFETCH_BYTES, framed=_HEADERS) as reader:
        for records in reader.read(start, end):
            columns = [header_texts(records.value, name).to_pylist() for name in _HEADERS]
            found.append((DroppedPiece.of(zip(*columns, strict=True), records.key), len(records)))
    return found


def read_newest_dropped(admin: Admin, kafka: Mapping[str, str], topic_name: str | None) -> list[DroppedPiece]:
    """Return the newest letters of a ``dropped_topic``; none if there is no such topic."""
    topic = None if topic_name is None else admin.find(topic_name)
    if topic is None:
        return []
    starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions)
    share = max(RECORDS_MAX // topic.partitions, 1)
    return [
        piece
        for place in topic.all_partitions
        for piece, _ in read_dropped(kafka, place, max(starts[place], ends[place] - share), ends[place])
    ]


def choose_dropped(
    pieces: Iterable[DroppedPiece], stairs: Staircase, partitions: Sequence[str], shown: Section, over: bool
) -> list[list[Any]]:
    """
    Return the dropped events of a section as :func:`~tidegate.tools.staircase.figures.make_figures` writes events, by rising arrivals;
    *partitions* are the names of input partitions in the order of the roster. *over*: the input has substreams, of which a letter does not
    say its own: none is shown then if a key is asked for.
    """
    numbers = {name: number for number, name in enumerate(partitions)}
    from_us = max(shown.from_us, int(stairs.arrival_us[0])) if len(stairs.arrival_us) else shown.from_us
    wanted = None if shown.key is None else hash_key(shown.key)
    found: dict[tuple[int, str], list[Any]] = {}
    for piece in pieces if wanted is None or not over else ():
        for (partition, place, what, event_us, arrival_us), key in zip(piece.letters, piece.key_hashes, strict=True):
            # Dropped events of other inputs may lie in the same topic.
            number = numbers.get(partition)
            is_own = number is not None and shown.number in (None, number) and wanted in (None, key)
            if number is not None and is_own and from_us <= arrival_us < shown.until_us:
                found[number, place] = [arrival_us, event_us, event_us, what, number, place]
    events = sorted(found.values(), key=lambda each: each[0])
    part = len(events) * len(stairs.arrival_us) // max(stairs.events, 1)
    chosen = np.linspace(0, len(events) - 1, min(len(events), max(part, DROPPED_MIN))).round().astype(np.int64)
    return [events[place] for place in chosen.tolist()]
