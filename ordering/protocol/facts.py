"""
Facts of the journal, and their transport in the ordered topic.

A fact is an input of the time model that is not in the input's log and must be the same in every replay: three numbers, *kind*, *position*
and *value*. The header ``tf`` of a CTI carries the facts that took effect since the channel's last CTI, so that the journal can be rebuilt
from the topic (PROTOCOL.md, "The header tf").

Law: decoding returns the encoded facts in the same order. A fact of an unknown kind is decoded too, but a rebuild of the journal omits it;
readers of the ordered topic ignore facts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ordering.errors import ProtocolError

FACTS_HEADER_NAME = "tf"
# Not a fact of the journal: sent with a channel's first CTI, it names the input partition. *position* is the Kafka partition, *value* is
# :func:`text_digest` of the topic's name. Without it the topic alone would not show whose facts these are.
ORIGIN = 8
# Not a fact of the journal: each CTI of a result topic names how its query splits work between partitions. *position* is 0, *value* is
# :func:`text_digest` of the split's text.
SPLIT = 10
_FACT_BYTES = 24


class FactKind(IntEnum):
    """The kinds of facts. The numbers are stored in topics and are never reused."""

    # From the record at *position* on, the arrival frontier is at least *value* microseconds.
    ESTIMATE = 1
    # From the record at *position* on, a CTI of another input with c = *value* counts.
    IMPORT = 2
    # From *position* to the next stamp, the arrival time of records is *value*, microseconds (``arrival = "ingest"``).
    STAMP = 3
    # From *position* to the next clock reading, a record's timestamp is absurd if it is too far above *value*, microseconds.
    CLOCK = 4
    # A partition without any record starts at the arrival frontier *value*, microseconds; *position* is 0.
    BASE = 5
    # The input partition joined a running topic at J = *value*, microseconds, as roster number *position*.
    JOIN = 6
    # All positions below *position* are closed; *value* is 0.
    CLOSED = 7
    # The records with *position* <= offset < *value* are not read: as if they had never been in the log.
    SKIP = 9

    @property
    def is_planning_time(self) -> bool:
        """Whether the fact says when records were first planned; it holds from its position to the next of its kind."""
        return self in (FactKind.STAMP, FactKind.CLOCK)


_KNOWN = frozenset(map(int, FactKind))


class Fact(NamedTuple):
    """One fact of an input partition; *kind* is a :class:`FactKind` if it is known."""

    kind: int
    position: int
    value: int


def text_digest(text: str) -> int:
    """Return the number of a text, such as a topic's name in ORIGIN: the first eight bytes of its SHA-256, little-endian, signed."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)


def encode_facts(facts: Iterable[Fact]) -> bytes:
    """Return the value of a header ``tf``: three little-endian signed 64-bit integers a fact."""
    return np.array(list(facts), dtype="<i8").tobytes()


def decode_facts(value: bytes, where: str = "") -> list[Fact]:
    """Decode the value of a header ``tf``; ProtocolError, naming *where*, if its length is no multiple of a fact's."""
    if len(value) % _FACT_BYTES:
        raise ProtocolError(f"the header tf has {len(value)} bytes, no multiple of {_FACT_BYTES}", where=where)
    return [Fact(*row) for row in np.frombuffer(value, dtype="<i8").reshape(-1, 3).tolist()]


class FactMerger:
    """
    Merges facts, added in the order in which they took effect, into one fact for each kind and position. For estimates, imports, skips and
    CLOSED the largest value or position counts; for all others the first. Unknown kinds are omitted.
    """

    def __init__(self) -> None:
        self._in_force: dict[tuple[int, int], int] = {}
        self._closed = 0

    def add(self, facts: Iterable[Fact]) -> None:
        for kind, position, value in facts:
            if kind == FactKind.CLOSED:
                self._closed = max(self._closed, position)
            elif kind in (FactKind.ESTIMATE, FactKind.IMPORT, FactKind.SKIP):
                self._in_force[kind, position] = max(value, self._in_force.get((kind, position), value))
            elif kind in _KNOWN:
                self._in_force.setdefault((kind, position), value)

    @property
    def facts(self) -> list[Fact]:
        """The merged facts, by position and kind."""
        in_force = [Fact(kind, position, value) for (kind, position), value in self._in_force.items()]
        return sort_facts([*in_force, Fact(FactKind.CLOSED, self._closed, 0)] if self._closed else in_force)


def sort_facts(facts: Iterable[Fact]) -> list[Fact]:
    """Return *facts* by position, then kind."""
    return sorted(facts, key=lambda fact: (fact.position, fact.kind, fact.value))
