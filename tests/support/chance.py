"""
Chance in tests that draw without Hypothesis.

Law: ``make check`` and ``make test`` draw the same on every machine and in every run. If ``TIDEGATE_TEST_ALL_CASES`` is set, as by
``make test-deep``, each run draws something else; the seed is shown if the test fails.
"""

from __future__ import annotations

import os
import random
import zlib

SEED_VARIABLE = "TIDEGATE_TEST_SEED"


def dice_of(name: str) -> random.Random:
    """Return the dice of the test called *name*; ``TIDEGATE_TEST_SEED`` repeats a run that failed."""
    drawn = random.SystemRandom().randrange(2**32) if os.environ.get("TIDEGATE_TEST_ALL_CASES") else zlib.crc32(name.encode())
    seed = int(os.environ.get(SEED_VARIABLE, drawn))
    print(f"dice of {name}: {SEED_VARIABLE}={seed}")
    return random.Random(seed)
