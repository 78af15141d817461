"""
Where a writer goes on if its state is lost: the last valid CTI of each channel of an ordered partition.

Law (spec section 6): a CTI is valid if it counts by the reader's rule (:mod:`ordering.protocol.reader`); the last one of a channel is that
with the largest (c, n), wherever in the log it is. A writer that replays its input with S = c, leaves out events with s < c, skips the
first ``ahead`` of the rest and numbers on from n writes every channel on as if it had never stopped.
"""

from __future__ import annotations

from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.reader import Log, PartitionReader
from ordering.ticks import NEVER


class LastPromises:
    """
    Walks one partition of an ordered topic and remembers the last valid CTI of each channel.

    It is fed the partition's log in ranges that follow each other, up to its end; payloads are not needed.

    Args:
        partition: Partition of the ordered topic.
        output_partitions: How many partitions that topic has.
        from_beginning: Whether the walk begins with the partition's first record ever. If not, because retention has deleted it or the walk
            begins further on, a channel's first CTI is believed: its writer had every event below its n acknowledged.
    """

    def __init__(self, partition: int, output_partitions: int, *, from_beginning: bool = True) -> None:
        self._reader = PartitionReader(partition, output_partitions, None if from_beginning else NEVER)
        self._valid: dict[int, Cti] = {}
        self._waiting: list[Cti] = []

    def accept(self, log: Log) -> None:
        """Walk on through *log*, which starts where the last one ended."""
        self._reader.accept(log)
        waiting = self._waiting + [cti for _, cti in log.ctis if cti.part == cti.parts - 1]
        self._waiting = [cti for cti in waiting if cti.n > self._reader.last(cti.number) + 1]
        for cti in waiting:
            known = self._valid.get(cti.number)
            if cti.n <= self._reader.last(cti.number) + 1 and (known is None or (cti.c, cti.n) > (known.c, known.n)):
                self._valid[cti.number] = cti

    @property
    def promises(self) -> dict[int, Cti]:
        """The last valid CTI of each channel that has one, by roster number; of one in parts the last part."""
        return dict(self._valid)

    @property
    def roster(self) -> Roster | None:
        """The newest roster met, None before the first CTI."""
        return self._reader.roster

    def missing(self) -> list[int]:
        """Return the channels of the newest roster without a valid CTI: they must be written again from the beginning."""
        return self._reader.missing()


def last_promises(log: Log, partition: int, output_partitions: int, *, from_beginning: bool = True) -> dict[int, Cti]:
    """Return the last valid CTI of each channel, by roster number, of a partition whose whole log is *log*; see :class:`LastPromises`."""
    walk = LastPromises(partition, output_partitions, from_beginning=from_beginning)
    walk.accept(log)
    return walk.promises
