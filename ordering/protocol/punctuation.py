"""
Punctuation: the CTI (current time increment), the record that carries a watermark inside the stream.

Law: a CTI ``(channel, c, n)`` promises that every event of the channel whose system timestamp is below ``c`` has a sequence number below
``n``. CTIs of a channel only rise. Their number and places may differ between runs, but no promise is ever broken (PROTOCOL.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ordering.protocol.facts import Fact
from ordering.ticks import INFINITY, NEVER


class Cause(StrEnum):
    """The cause of a watermark's rise: an event, an estimate, a source CTI, an imported CTI, or the end of the run."""

    EVENT = "event"
    IDLE = "idle"
    SOURCE = "source"
    IMPORT = "import"
    SHUTDOWN = "shutdown"


class Spread(StrEnum):
    """The channels: every input partition writes into ``ALL`` output partitions, or each into ``ONE`` (its number mod N)."""

    ALL = "all"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Roster:
    """
    The writers of an ordered topic: input partitions 0 to ``inputs - 1``. A reader releases nothing before it has a CTI of every channel of
    the newest roster. With *substreams* (``OVER``) a channel is ordered only within each substream.
    """

    # Rises whenever input partitions join.
    version: int
    inputs: int
    spread: Spread
    substreams: bool

    def save(self) -> list[Any]:
        """Return the roster for :meth:`restore`, as JSON values."""
        return [self.version, self.inputs, self.spread.value, self.substreams]

    @classmethod
    def restore(cls, saved: Sequence[Any]) -> Roster:
        version, inputs, spread, substreams = saved
        return cls(version, inputs, Spread(spread), substreams)

    def channels_of(self, output_partition: int, output_partitions: int) -> Sequence[int]:
        """Return the roster numbers of the input partitions that write into one output partition."""
        if self.spread is Spread.ALL:
            return range(self.inputs)
        return range(output_partition, self.inputs, output_partitions)


@dataclass(frozen=True, slots=True)
class Cti:
    """
    One promise of one channel. Times are microseconds.

    Args:
        number: The input partition's roster number; with ``output_partition`` it names the channel.
        c, n: Every event of the channel with a system timestamp below ``c`` has a sequence number below ``n``.
        ahead: How many events numbered below ``n`` have a system timestamp of ``c`` or more.
        next_offset: The first offset of the input partition not yet judged.
        arrival_us: The arrival frontier A of the input partition.
        largest_us: Largest system timestamp released in the channel; ``TICK_MIN`` before the first.
        listed: (substream key, w) of substreams whose watermark is ahead of their released events: every event of the substream in this
            channel with a system timestamp below ``w`` has a sequence number below ``n``. Only the changes since the channel's last CTI.
        part, parts: Index and number of the records of a CTI whose list needs several. They differ only in ``listed``, and the CTI counts
            with the last.
        facts: Journaled facts that the record carries, ignored by readers; None: its writer has no journal.
    """

    number: int
    output_partition: int
    c: int
    n: int
    ahead: int
    next_offset: int
    arrival_us: int
    largest_us: int
    roster: Roster
    cause: Cause
    listed: tuple[tuple[bytes, int], ...] = ()
    part: int = 0
    parts: int = 1
    facts: tuple[Fact, ...] | None = field(default=None, compare=False)


def shift_cti(c: int, by_us: int) -> int:
    """
    Return the CTI of a stream whose timestamps are moved by *by_us* microseconds, later or (negative) earlier. ``NEVER`` and ``INFINITY``
    stay, and any other result lies between them: a shift neither ends a stream nor overflows int64.
    """
    if c in (NEVER, INFINITY):
        return c
    return min(max(c + by_us, NEVER + 1), INFINITY - 1)
