"""
Makes foreign text visible: keys, payloads, names; and quotes it where we write TOML.

Law: text that passed :func:`visible` is one line, and a terminal shows all of it and obeys none of it. JSON stays the same JSON.
"""

from __future__ import annotations

import json
import unicodedata


def visible(text: str) -> str:
    """Return *text* with a JSON escape for each invisible character: controls, line ends, direction marks, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(character if _has_shape(character) else _escape(character) for character in text)


def visible_lines(text: str) -> str:
    """Return *text* like :func:`visible`, but keep its line feeds."""
    return "\n".join(map(visible, text.split("\n")))


def quote_toml(text: str) -> str:
    """Return *text* as a basic string of TOML: one of JSON, but for a control character. Escapes of surrogates would be none in TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _has_shape(character: str) -> bool:
    # Spaces of other scripts, such as the wide space of Japanese text, are not printable to Python.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    # json.dumps writes this control character as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
