"""
Where a writer continues if its state is lost: the last valid CTI of each channel of an ordered partition.

Law (PROTOCOL.md): a CTI is valid if it counts by the reader's rule (:mod:`ordering.protocol.reader`). The last one of a channel has the
largest (c, n), wherever it is in the log. If a writer replays its input with S = c, omits events with s < c, skips the first ``ahead`` of
the rest and continues numbering at n, it writes every channel as if it had never stopped.
"""

from __future__ import annotations

from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.reader import Log, PartitionReader
from ordering.ticks import NEVER


class LastPromises:
    """
    Reads one partition of an ordered topic and remembers the last valid CTI of each channel. It needs consecutive ranges of the partition's
    log up to its end, without payloads. *from_beginning*: the first range begins with the partition's first record ever. If not (retention,
    or a later start), a channel's first CTI is trusted: every event below its n had been acknowledged.
    """

    def __init__(self, partition: int, output_partitions: int, *, from_beginning: bool = True) -> None:
        self._reader = PartitionReader(partition, output_partitions, None if from_beginning else NEVER)
        self._valid: dict[int, Cti] = {}
        self._waiting: list[Cti] = []

    def accept(self, log: Log) -> None:
        self._reader.accept(log)
        waiting = self._waiting + [cti for _, cti in log.ctis if cti.part == cti.parts - 1]
        self._waiting = [cti for cti in waiting if cti.n > self._reader.last(cti.number) + 1]
        for cti in waiting:
            known = self._valid.get(cti.number)
            if cti.n <= self._reader.last(cti.number) + 1 and (known is None or (cti.c, cti.n) > (known.c, known.n)):
                self._valid[cti.number] = cti

    @property
    def promises(self) -> dict[int, Cti]:
        """The last valid CTI of each channel that has one, by roster number; of a CTI in parts the last part."""
        return dict(self._valid)

    @property
    def roster(self) -> Roster | None:
        return self._reader.roster

    def missing(self) -> list[int]:
        """Return the channels of the newest roster without a valid CTI, which must be rewritten from the beginning."""
        return self._reader.missing()


def last_promises(log: Log, partition: int, output_partitions: int, *, from_beginning: bool = True) -> dict[int, Cti]:
    """Return the last valid CTIs, by roster number, of a partition whose whole log is *log*; see :class:`LastPromises`."""
    walk = LastPromises(partition, output_partitions, from_beginning=from_beginning)
    walk.accept(log)
    return walk.promises
