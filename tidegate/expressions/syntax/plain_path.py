"""
PlainTexts paths: names joined by dots, such as ``payload.at``.

A plain path is known at a glance, whatever SQL thinks of its words, and without anything that reads SQL.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def plain_path(text: str) -> tuple[str, ...] | None:
    """Return the names of a plain path, None when *text* is none."""
    return tuple(text.split(".")) if _PLAIN.fullmatch(text) else None
