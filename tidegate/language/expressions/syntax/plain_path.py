"""
Plain paths: names joined by dots (``payload.at``), recognized without the SQL parser even if their words are keywords; and the paths of
several fields, with commas between them, as the ``over`` of an input may name them.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def listed_paths(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the path of each field in *text*, fields separated by commas."""
    return tuple(tuple(path.strip().split(".")) for path in text.split(","))


def plain_path(text: str) -> tuple[str, ...] | None:
    """Return the names of a plain path, or None if *text* is not one."""
    return tuple(text.split(".")) if _PLAIN.fullmatch(text) else None
