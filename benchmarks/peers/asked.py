"""
What a peer's program is asked for, and how it says how far it is. Standard library only: each peer has a Python of its own.

A window of Tidegate is (start, end], a peer's [start, end). Event times here are whole milliseconds, so a peer that counts
every event one millisecond earlier has the same windows: ``shift_ms`` says so.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

WINDOWS = "tumbling", "hopping"


@dataclass(frozen=True)
class Asked:
    """
    One run of one query.

    Args:
        query: tumbling, hopping, join or lag.
        bootstrap: Kafka's address.
        topics: What is read; the join reads two.
        sink: The topic that results go into.
        by_record: Whether event time is the record's timestamp (of a topic in order), else the field ``ts``.
        bound_ms: How far out of order events are expected to be.
        events: So many there are.
        cores: The run has so many.
        jars: Files of the peer's Kafka connector.
        scratch: A folder for state and checkpoints, empty at the start.
        port: A free port of this machine.
    """

    query: str
    bootstrap: str
    topics: list[str]
    sink: str
    by_record: bool
    bound_ms: int
    events: int
    cores: int
    jars: list[str]
    scratch: str
    port: int

    @property
    def shift_ms(self) -> int:
        """So much earlier each event counts."""
        return 1 if self.query in WINDOWS else 0

    def argument(self) -> str:
        """Return this as a program takes it."""
        return json.dumps(asdict(self))


def asked() -> Asked:
    """Return what this program was started with."""
    return Asked(**json.loads(sys.argv[1]))


def tell(events: int) -> None:
    """Say how many events have been taken."""
    print(json.dumps({"events": events}), flush=True)
