"""
The events ahead of their channel's CTI: released and numbered, with a system timestamp at or above its ``c``.

A CTI contains their number, so that a writer can resume without a checkpoint. Law: the count of each channel is exact. Adding events costs
time in proportion to the added events, passing a CTI in proportion to the passed events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints

Partitions = NDArray[np.int32]


@dataclass(slots=True)
class Ahead:
    """System timestamps (rising) and output partitions of released events; the CTI has passed the first *passed_count*."""

    system_us: Ints
    partition: Partitions
    passed_count: int = 0

    def __len__(self) -> int:
        return len(self.system_us) - self.passed_count

    @staticmethod
    def of(system_us: Ints, partition: Partitions) -> Ahead:
        """Return events given in any order."""
        if len(system_us) > 1 and not (system_us[1:] >= system_us[:-1]).all():
            order = np.argsort(system_us)
            system_us, partition = system_us[order], partition[order]
        return Ahead(system_us, partition)

    @staticmethod
    def merge(parts: Iterable[Ahead]) -> Ahead:
        left = [(part.system_us[part.passed_count :], part.partition[part.passed_count :]) for part in parts if len(part)]
        if not left:
            return Ahead.empty()
        return Ahead.of(np.concatenate([system_us for system_us, _ in left]), np.concatenate([partition for _, partition in left]))

    @staticmethod
    def empty() -> Ahead:
        return Ahead(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))

    def pop_below(self, c: int) -> tuple[Ints, Partitions]:
        """Pass the events below *c*; return their system timestamps (rising) and output partitions."""
        until = int(np.searchsorted(self.system_us, c))
        until = max(until, self.passed_count)
        below = self.system_us[self.passed_count : until], self.partition[self.passed_count : until]
        self.passed_count = until
        if 2 * until > len(self.system_us):
            # Copies: a slice would keep all of it in memory.
            self.system_us, self.partition, self.passed_count = self.system_us[until:].copy(), self.partition[until:].copy(), 0
        return below
