"""
PlainTexts paths: names joined by dots, such as ``payload.at``.

A plain path is recognized without a parser of SQL, even if its words are keywords.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def plain_path(text: str) -> tuple[str, ...] | None:
    """Return the names of a plain path, None when *text* is none."""
    return tuple(text.split(".")) if _PLAIN.fullmatch(text) else None
