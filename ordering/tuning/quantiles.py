"""
How durations are spread: the value that a share of them does not exceed, at some shares, and in between on a line.

Law: drawn at evenly spaced shares, as many as were measured, the kept values come back exactly; the least and the largest are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ordering.arrays import Ints

Floats = npt.NDArray[np.float64]
STEPS = 50
"""How many equal shares a distribution is kept at; nearer to its ends, at ever smaller ones."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution of durations."""

    # Shares between 0 and 1, rising.
    shares: Floats
    # The duration at each share, microseconds, never falling.
    values_us: Ints

    @classmethod
    def of(cls, durations_us: Ints, steps: int = STEPS) -> Quantiles:
        """Measure durations; of none, all are 0."""
        count = len(durations_us)
        if not count:
            return cls(np.array([0.5]), np.zeros(1, dtype=np.int64))
        ordered = np.sort(durations_us)
        ends = 2 ** np.arange(max(int(np.log2(count / steps)), 0) + 1) - 1 if count > steps else np.arange(count)
        ranks = np.unique(np.concatenate([np.linspace(0, count - 1, steps + 1).astype(np.int64), ends, count - 1 - ends]))
        shares, values = (ranks + 0.5) / count, ordered[ranks].astype(np.int64)
        # On a level stretch its two ends say everything.
        is_inside = np.zeros(len(values), dtype=np.bool_)
        is_inside[1:-1] = (values[:-2] == values[1:-1]) & (values[1:-1] == values[2:])
        return cls(shares[~is_inside], values[~is_inside])

    def at(self, shares: Floats) -> Ints:
        """Return the durations at shares."""
        found: Ints = np.rint(np.interp(shares, self.shares, self.values_us)).astype(np.int64)
        return found

    def value_us(self, share: float) -> int:
        """Return the duration at a share."""
        return int(self.at(np.array([share]))[0])

    @property
    def least_us(self) -> int:
        return int(self.values_us[0])

    @property
    def largest_us(self) -> int:
        return int(self.values_us[-1])
