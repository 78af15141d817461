"""
Floats at which a reader of times errs first, and the time that a decimal means, by exact arithmetic: an oracle that shares no code with
what it judges.
"""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np

from ordering.ticks import TICK_MAX, TICK_MIN

_PER_UNIT_US = {"s": Decimal(1_000_000), "ms": Decimal(1_000), "us": Decimal(1), "ns": Decimal("0.001")}
# How many drawn decimals each size and number of digits has.
_DRAWN = 100


def decimal_tick(value: Decimal, unit: str) -> int | None:
    """Return the tick that *value* means in *unit*, rounded down; None if no event may have it."""
    if unit == "auto":
        unit = "s" if value < 10**11 else "ms" if value < 10**14 else "us" if value < 10**17 else "ns"
    return within_range(int((value * _PER_UNIT_US[unit]).__floor__()))


def within_range(tick: int) -> int | None:
    """Return *tick* if an event may have it."""
    return tick if TICK_MIN <= tick <= TICK_MAX else None


def floats_on_edges() -> list[float]:
    """
    Return floats of every size: powers of two and ten, the first and the last time in each unit, decimals of every length, whole
    microseconds written in each unit; and the floats on both sides of each of them.
    """
    powers = [*(10.0**power for power in range(-12, 23)), *(2.0**power for power in range(-40, 73))]
    ends = [float(tick) * per_us for tick in (TICK_MIN, TICK_MAX, TICK_MAX + 1) for per_us in (1e-6, 1e-3, 1.0, 1e3)]
    dice = random.Random(1)
    decimals = [float(f"{dice.randrange(10**digits)}e{-dice.randrange(10)}") for digits in range(1, 21) for _ in range(_DRAWN)]
    wholes = [dice.randrange(2**bits) for bits in range(10, 60) for _ in range(_DRAWN)]
    written = [float(Decimal(whole) / _PER_UNIT_US[unit]) for whole in wholes for unit in ("s", "ms", "ns")]
    floats = np.array([*powers, *ends, *decimals, *written, 9.112147936468087e18, 4382047762.677069])
    around = [floats]
    for towards in (0.0, np.inf):
        around += [np.nextafter(floats, towards), np.nextafter(np.nextafter(floats, towards), towards)]
    return [float(value) for value in np.unique(np.concatenate(around))]
