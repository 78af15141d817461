"""Bounds of a span of time in flags: a time, or an age as in ``6h``."""

from __future__ import annotations

import re

from ordering.ticks import parse_duration
from tidegate.platform.checkpoint.output_start import parse_time_flag


def parse_bound(text: str | None, flag: str, now_us: int) -> int | None:
    """Return the instant, microseconds; None: no bound. Raises TickRangeError: it is neither a time nor an age."""
    if text is None:
        return None
    if re.fullmatch(r"(\d+(\.\d+)?(us|ms|s|m|h|d))+", text):
        return max(now_us - parse_duration(text), 0)
    return parse_time_flag(text, flag)
