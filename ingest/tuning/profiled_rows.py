"""
Rows with the disorder of a profile (``tidegate profile --write``): as late, as often out of order, tied and repeated as real events.

Law: the rows depend on the profile and the arguments alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.tuning import rows_like as drawn_rows
from ingest.tuning.profile import read_profile
from ordering.ticks import parse_tick


def rows_like(
    profile: Path | str,
    count: int | None = None,
    *,
    seed: int = 0,
    rate_per_s: float | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
    start: str = "2026-01-01T00:00:00Z",
) -> list[dict[str, Any]]:
    """
    Return rows in the order of their arrival, an input of ``run_query``.

    Args:
        profile: The file that ``tidegate profile --write`` made.
        count: How many; None: as many as were measured.
        rate_per_s: How many come in a second on average; None: as measured.
        examples: Rows whose fields the events get, one after the other; time and key are the profile's.
        start: The first arrival.

    Raises:
        SettingError: The file is no profile.
    """
    drawn = drawn_rows.rows_like(
        read_profile(Path(profile)), count, start_us=parse_tick(start), seed=seed, rate_per_s=rate_per_s, examples=examples
    )
    return [row.in_file() for row in drawn]
