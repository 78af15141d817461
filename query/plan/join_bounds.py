"""
Time bounds of a join: how far apart in time two rows may be that match.

A bound holds of a left and a right row when ``low <= DATEDIFF(unit, left, right) <= high``, and DATEDIFF counts crossed
boundaries: ``floor(right / unit) - floor(left / unit)``. So the right times that fit a left one are whole units, and the
other way round. Law: *right* lies in ``right_range(left)`` exactly when *left* lies in ``left_range(right)``, which is
exactly when every bound holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ticks = npt.NDArray[np.int64]
Range = tuple[Ticks, Ticks]
"""First instant, and the first instant after the last, microseconds."""


@dataclass(frozen=True, slots=True)
class Bound:
    """
    One condition on the distance in time.

    Args:
        unit: The unit as DATEDIFF spells it.
        unit_us: Its length, microseconds.
        offset_us: What is added to a time before its units are counted: weeks do not begin at the epoch.
        low: Fewest boundaries from left to right; None: no lower end.
        high: Most of them; None: no upper end.
    """

    unit: str
    unit_us: int
    offset_us: int = 0
    low: int | None = None
    high: int | None = None

    def swap_sides(self) -> Bound:
        """Return the same condition with the sides exchanged."""
        return Bound(self.unit, self.unit_us, self.offset_us, _negated(self.high), _negated(self.low))

    def starts(self, units: Ticks) -> Ticks:
        """Return where these units begin."""
        return units * self.unit_us - self.offset_us

    def units(self, system_us: Ticks) -> Ticks:
        """Return the unit each instant lies in."""
        return (system_us + self.offset_us) // self.unit_us

    def __str__(self) -> str:
        datediff = f"DATEDIFF({self.unit}, left, right)"
        if self.low is not None and self.high is not None:
            return f"{datediff} = {self.low}" if self.low == self.high else f"{datediff} BETWEEN {self.low} AND {self.high}"
        return f"{datediff} <= {self.high}" if self.low is None else f"{datediff} >= {self.low}"


@dataclass(frozen=True)
class Bounds:
    """
    All bounds of a join; at least one has a lower end and at least one an upper end.

    Args:
        parts: The bounds.
    """

    parts: tuple[Bound, ...]

    @property
    def after_us(self) -> int:
        """A right row that matches comes less than this after the left one, microseconds; 0 or less: it comes before it."""
        return min((part.high + 1) * part.unit_us for part in self.parts if part.high is not None)

    @property
    def before_us(self) -> int:
        """A right row that matches comes less than this before the left one, microseconds; 0 or less: it comes after it."""
        return min((1 - part.low) * part.unit_us for part in self.parts if part.low is not None)

    @property
    def width_us(self) -> int:
        """How much time all right rows that match one left row lie in, microseconds."""
        lengths = [(part.high - part.low + 1) * part.unit_us for part in self.parts if part.low is not None and part.high is not None]
        return min([*lengths, self.after_us + self.before_us])

    def right_range(self, left_us: Ticks) -> Range:
        """Return between which instants right rows match a left one."""
        return _range(self.parts, left_us)

    def left_range(self, right_us: Ticks) -> Range:
        """Return between which instants left rows match a right one."""
        return _range([part.swap_sides() for part in self.parts], right_us)

    def __str__(self) -> str:
        return " AND ".join(map(str, self.parts))


def _range(parts: Sequence[Bound], system_us: Ticks) -> Range:
    first = [part.starts(part.units(system_us) + part.low) for part in parts if part.low is not None]
    until = [part.starts(part.units(system_us) + part.high + 1) for part in parts if part.high is not None]
    return _all_of(np.maximum, first), _all_of(np.minimum, until)


def _all_of(choose: Callable[[Ticks, Ticks], Ticks], ends: Sequence[Ticks]) -> Ticks:
    found = ends[0]
    for other in ends[1:]:
        found = choose(found, other)
    return found


def _negated(count: int | None) -> int | None:
    return None if count is None else -count
