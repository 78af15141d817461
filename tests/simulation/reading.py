"""
Readers of the simulated ordered topic: they take it in random cuts, die and go on from what they saved, start in the middle.

What a reader accepted is kept as the log's own rows, so that bytes are compared, not what was read into them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from simulation.world import Row

from ordering.protocol.punctuation import Cti
from ordering.protocol.reader import Accepted, Log, PartitionReader
from ordering.protocol.wire import CTI_HEADER_BYTES, decode_cti, decode_event_headers
from ordering.ticks import NEVER


@lru_cache(maxsize=10_000)
def cti_of(row: Row, partition: int) -> Cti:
    """Return the CTI in a row; several readers and checks ask for the same."""
    return decode_cti(row[2], row[3], partition)


def log_of(rows: list[Row], position: int, partition: int) -> Log:
    """Return rows of an ordered partition, the first at *position*, as the reader's rule takes them."""
    placed = list(enumerate(rows, position))
    events = [(offset, row) for offset, row in placed if len(row[2]) != CTI_HEADER_BYTES]
    headers = decode_event_headers([row[2] for _, row in events])
    number, seq, system_us = (headers[name].astype(np.int64) for name in ("number", "seq", "system_us"))
    ctis = [(offset, cti_of(row, partition)) for offset, row in placed if len(row[2]) == CTI_HEADER_BYTES]
    return Log(np.array([offset for offset, _ in events], dtype=np.int64), number, seq, system_us, ctis)


@dataclass(slots=True)
class Kept:
    """What a reader saves: how far it came, its rule's state, how much it had accepted, and the rows it carries."""

    position: int
    rule: bytes
    accepted: int
    carried: list[Row]
    frontier: int


@dataclass(slots=True)
class Following:
    """
    A reader of one ordered partition.

    Args:
        partition: Which one.
        output_partitions: How many there are.
        start_us: X of a start in the middle; None: from the beginning.
        position: First log offset to read.
        over_gaps: Whether it takes any later number for the next (it breaks the rule on purpose).
    """

    partition: int
    output_partitions: int
    start_us: int | None = None
    position: int = 0
    over_gaps: bool = False
    accepted: list[Row] = field(default_factory=list)
    carried: list[Row] = field(default_factory=list)
    broken_promise: str = ""
    restarts: int = 0
    _frontier: int = NEVER
    _kept: Kept | None = None
    rule: PartitionReader = field(init=False)

    def __post_init__(self) -> None:
        self.rule = PartitionReader(self.partition, self.output_partitions, self.start_us)

    def read(self, log: list[Row], most: int) -> int:
        """Take up to *most* rows of *log*; return how many there were."""
        rows = log[self.position : self.position + most]
        if not rows:
            return 0
        events, columns = [row for row in rows if len(row[2]) != CTI_HEADER_BYTES], log_of(rows, self.position, self.partition)
        if self.over_gaps:
            _close_gaps(self, columns)
        taken = self.rule.accept(columns)
        known = self.carried + events
        fresh = [known[row] for row in taken.rows.tolist()]
        self._check_promises(taken, fresh)
        self.accepted += fresh
        self.carried = [known[row] for row in taken.carried.tolist()]
        self.position += len(rows)
        return len(rows)

    def _check_promises(self, taken: Accepted, rows: list[Row]) -> None:
        """Whoever trusts frontier and lists must never meet an event below: each accepted one is held against those before it."""
        rising = list(taken.frontier)
        for position, row in zip(taken.position.tolist(), rows, strict=True):
            while rising and rising[0][0] < position:
                self._frontier = rising.pop(0)[1]
            system_us = int.from_bytes(row[2][16:24], "little", signed=True)
            said_us = self._frontier
            for listed in taken.listed:
                if listed[0] < position and listed[1:3] == (int.from_bytes(row[2][4:8], "little"), row[1]):
                    said_us = max(said_us, listed[3])
            if system_us < said_us and not self.broken_promise:
                self.broken_promise = f"event with s = {system_us} accepted at {position} although time has come to {said_us}"
        self._frontier = self.rule.frontier

    def save(self) -> None:
        """Save all that a restart needs."""
        self._kept = Kept(self.position, self.rule.save(), len(self.accepted), list(self.carried), self._frontier)

    def restart(self) -> None:
        """Die, and go on from what was saved last."""
        if self._kept is None:
            return
        kept, self.restarts = self._kept, self.restarts + 1
        self.rule = PartitionReader.restore(kept.rule, self.partition, self.output_partitions)
        self.position, self.carried, self._frontier = kept.position, list(kept.carried), kept.frontier
        del self.accepted[kept.accepted :]


def _close_gaps(reader: Following, log: Log) -> None:
    """Renumber what lies beyond a gap so that the rule takes it (a breakage)."""
    for number in set(log.number.tolist()):
        rows = np.flatnonzero(log.number == number)
        channel = reader.rule._channels.get(number)  # the breakage reaches into the rule on purpose
        last = -1 if channel is None else channel.last
        for row in rows.tolist():
            if log.seq[row] > last:
                last += 1
                log.seq[row] = last


def start_in_the_middle(log: list[Row], partition: int, output_partitions: int, start_us: int, chance: random.Random) -> Following:
    """Return a reader of the events with s >= *start_us*, begun where the broker's time index says or a little before."""
    stamp_ms = start_us // 1000
    first = next((offset for offset, row in enumerate(log) if row[0] >= stamp_ms), len(log))
    return Following(partition, output_partitions, start_us, max(0, first - chance.choice([0, 0, 1, 7])))
