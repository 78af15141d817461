"""
Foreign text as it is shown: keys, payloads, names, whatever others have written.

Law: what passed :func:`visible` is one line, and a terminal shows all of it and obeys none of it. JSON stays the same JSON.
"""

from __future__ import annotations

import json
import unicodedata


def visible(text: str) -> str:
    """Return *text* with an escape, as JSON writes it, for each character without a shape: controls, line ends, direction marks, halves."""
    if text.isprintable():
        return text
    return "".join(character if _has_shape(character) else _escape(character) for character in text)


def visible_lines(text: str) -> str:
    """As :func:`visible`, for several lines: line feeds stay."""
    return "\n".join(map(visible, text.split("\n")))


def _has_shape(character: str) -> bool:
    # The wide space of Japanese text, say.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    # json.dumps writes this control character as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
