"""
Punctuation: the CTI (current time increment), the record that carries a watermark inside the stream.

Law: a CTI ``(channel, c, n)`` promises that every event of the channel whose system timestamp is below ``c`` has a sequence number below
``n``. CTIs of a channel only rise; how many there are and when they are written may differ between runs, what they say may never be broken
(spec section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ordering.protocol.facts import Fact
from ordering.ticks import INFINITY, NEVER


class Cause(StrEnum):
    """What moved time: an event, an idle estimate, a CTI of the source, an imported CTI, or the end of the run."""

    EVENT = "event"
    IDLE = "idle"
    SOURCE = "source"
    IMPORT = "import"
    SHUTDOWN = "shutdown"


class Spread(StrEnum):
    """Which channels exist: every input partition into ``ALL`` output partitions, or each into ``ONE`` (its number mod N)."""

    ALL = "all"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Roster:
    """
    Who writes into an ordered topic. A reader releases nothing before it has a CTI of every channel of the newest roster.

    Args:
        version: Rises whenever input partitions join.
        inputs: Number of input partitions; they are numbered 0 to ``inputs - 1``.
        spread: Which channels those make.
        substreams: Whether a channel is in order only within each substream (``OVER``) or as a whole.
    """

    version: int
    inputs: int
    spread: Spread
    substreams: bool

    def channels_of(self, output_partition: int, output_partitions: int) -> Sequence[int]:
        """Return the roster numbers of the input partitions that write into one output partition."""
        if self.spread is Spread.ALL:
            return range(self.inputs)
        return range(output_partition, self.inputs, output_partitions)


@dataclass(frozen=True, slots=True)
class Cti:
    """
    One promise about one channel. Times are microseconds.

    Args:
        number: The input partition's roster number; with ``output_partition`` it names the channel.
        output_partition: Partition of the ordered topic.
        c: Every event of the channel with system timestamp below ``c`` has ...
        n: ... a sequence number below ``n``.
        ahead: How many events numbered below ``n`` have a system timestamp of ``c`` or more.
        next_offset: The first offset of the input partition not yet judged.
        arrival_us: The arrival frontier A of the input partition.
        largest_us: Largest system timestamp released in the channel; ``TICK_MIN`` before the first.
        roster: Who else writes into the topic.
        cause: What moved time.
        listed: (substream key, w) of substreams whose watermark is ahead of what their released events show: every event of the substream
            in this channel with system timestamp below ``w`` has a sequence number below ``n``. Only what changed since the channel's last
            CTI.
        part, parts: Place of this record in a CTI whose list needs several, counted from 0; all but ``listed`` is the same in each, and it
            counts with the last.
        facts: Facts of the journal it carries beside its promise, which no reader looks at; None: its writer keeps none.
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
    Return the CTI of a stream whose timestamps are moved by *by_us* microseconds, later or (negative) earlier.

    ``NEVER`` and ``INFINITY`` stay: a stream without a promise has none after a shift, and one that has ended has ended. Any other result
    lies between them, so a shift never ends a stream and never leaves int64.
    """
    if c in (NEVER, INFINITY):
        return c
    return min(max(c + by_us, NEVER + 1), INFINITY - 1)
