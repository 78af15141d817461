"""Plain paths: names joined by dots (``payload.at``), recognized without the SQL parser even if their words are keywords."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def plain_path(text: str) -> tuple[str, ...] | None:
    """Return the names of a plain path, or None if *text* is not one."""
    return tuple(text.split(".")) if _PLAIN.fullmatch(text) else None
