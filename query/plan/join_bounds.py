"""
Time bounds of a join: how far apart in time matching rows may be.

A bound holds for a left and a right row if ``low <= DATEDIFF(unit, left, right) <= high``. DATEDIFF counts crossed boundaries:
``floor(right / unit) - floor(left / unit)``. So the right times that match one left time are whole units, and vice versa.

Law: *right* lies in ``right_range(left)`` if and only if *left* lies in ``left_range(right)``, and if and only if every bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from query.plan.row_tables import Ticks

# First instant, and the first instant after the last, microseconds.
Range = tuple[Ticks, Ticks]
# Longer than all time, and so short that a tick and several of these still add up within 64 bits.
_FAR_US = 2**60


@dataclass(frozen=True, slots=True)
class Bound:
    """One condition on the distance in time."""

    # The unit as DATEDIFF spells it.
    unit: str
    # Its length.
    unit_us: int
    # Added to a time before its units are counted, since weeks do not begin at the epoch.
    offset_us: int = 0
    # The fewest boundaries from left to right; None: no lower end.
    low: int | None = None
    # The most boundaries; None: no upper end.
    high: int | None = None

    def swap_sides(self) -> Bound:
        """Return the same condition with the sides exchanged."""
        return Bound(self.unit, self.unit_us, self.offset_us, _negate(self.high), _negate(self.low))

    def starts(self, units: Ticks) -> Ticks:
        """Return the instants at which these units begin."""
        return units * self.unit_us - self.offset_us

    def units(self, system_us: Ticks) -> Ticks:
        return (system_us + self.offset_us) // self.unit_us

    def __str__(self) -> str:
        datediff = f"DATEDIFF({self.unit}, left, right)"
        if self.low is not None and self.high is not None:
            return f"{datediff} = {self.low}" if self.low == self.high else f"{datediff} BETWEEN {self.low} AND {self.high}"
        return f"{datediff} <= {self.high}" if self.low is None else f"{datediff} >= {self.low}"


@dataclass(frozen=True)
class Bounds:
    """All bounds of a join; at least one has a lower end and at least one has an upper end."""

    parts: tuple[Bound, ...]

    @property
    def after_us(self) -> int:
        """A matching right row is less than this after the left one, microseconds; if it is 0 or less, the right row is before it."""
        # n boundaries lie less than n + 1 units apart.
        return min((part.high + 1) * part.unit_us for part in self.parts if part.high is not None)

    @property
    def before_us(self) -> int:
        """A matching right row is less than this before the left one, microseconds; if it is 0 or less, the right row is after it."""
        return min((1 - part.low) * part.unit_us for part in self.parts if part.low is not None)

    @property
    def width_us(self) -> int:
        """The length of the time in which all right rows lie that match one left row, microseconds."""
        lengths = [(part.high - part.low + 1) * part.unit_us for part in self.parts if part.low is not None and part.high is not None]
        # Bounds of different units can leave less than each of them alone.
        return min([*lengths, self.after_us + self.before_us])

    def right_range(self, left_us: Ticks) -> Range:
        """Return the range of instants at which right rows match each left one."""
        return _range(self.parts, left_us)

    def left_range(self, right_us: Ticks) -> Range:
        """Return the range of instants at which left rows match each right one."""
        return _range([part.swap_sides() for part in self.parts], right_us)

    def __str__(self) -> str:
        return " AND ".join(map(str, self.parts))


def _range(parts: Sequence[Bound], system_us: Ticks) -> Range:
    first = [part.starts(part.units(system_us) + _clip(part.low, part.unit_us)) for part in parts if part.low is not None]
    until = [part.starts(part.units(system_us) + _clip(part.high, part.unit_us) + 1) for part in parts if part.high is not None]
    return reduce(np.maximum, first), reduce(np.minimum, until)


def _clip(count: int, unit_us: int) -> int:
    """Return a number of units, or if they last longer than all time, so few that their microseconds fit 64 bits and still do."""
    return max(min(count, _FAR_US // unit_us), -_FAR_US // unit_us)


def _negate(count: int | None) -> int | None:
    return None if count is None else -count
