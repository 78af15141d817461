"""
Substream key bytes: the bytes of a JSON value as a key (docs/operate/inputs.md#keys-and-spans).

Text becomes its UTF-8 bytes, the empty text two quotes, null zero bytes, true and false their names, and any other value canonical JSON.
Numbers that are equal are one key: a whole number that 64 bits hold is written in digits (1.0 is 1, -0.0 is 0), any other as the shortest
text that reads back as the same float. So are numbers in objects and arrays, whose members are sorted.

Law: the bytes depend on the JSON text alone, and no text that DuckDB's parser returns raises, even where DuckDB is more lenient than JSON.
Ingest and queries both write keys with this module, so they agree.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

# Most bytes of a substream's key, if no setting says otherwise: every key is kept as long as its substream is.
KEY_BYTES_MAX = 4096
# The key of the empty text. It is also that of a text of two quotes, as a number's key is also that of the text that spells it.
EMPTY_TEXT = b'""'
# Integers of 64 bits lie in [-2**63, 2**63) and have at most so many characters. Python refuses to read an integer of thousands of digits.
_INTEGER_MIN, _INTEGER_CHARACTERS = -(2**63), 20
# The most objects and arrays in a value that is made canonical: Python's parser recurses, and its depth limit is not fixed.
_BRACKETS_MAX = 200
_STRING_OR_NON_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?(?:nan|inf(?:inity)?)', re.IGNORECASE)


def key_bytes(text: str) -> bytes:
    """Return the key bytes of one JSON value, given as compact JSON text; NaN and infinities (no JSON) become null."""
    first = text[0]
    if first == '"':
        return text_key(json.loads(text) if "\\" in text else text[1:-1])
    if first in "{[":
        return canonical(text).encode()
    if text in ("true", "false"):
        return text.encode()
    if text.lstrip("-").isdigit() and len(text) <= _INTEGER_CHARACTERS:
        return number_key(int(text))
    return b"" if text == "null" else number_key(float(text))


def text_key(text: str) -> bytes:
    """Return the key bytes of a text; those of the empty text are not those of null."""
    return text.encode() or EMPTY_TEXT


def number_key(number: float) -> bytes:
    """Return the key bytes of a number; NaN and infinities become null. An integer beyond 64 bits counts as the float nearest to it."""
    if isinstance(number, int) and _INTEGER_MIN <= number < -_INTEGER_MIN:
        return b"%d" % number
    try:
        nearest = float(number)
    except OverflowError:
        return b""
    return number_text(nearest).encode() if math.isfinite(nearest) else b""


def list_part(key: bytes) -> bytes:
    """Return the bytes of one key as a part of the key of several, which is a JSON array of texts."""
    return json.dumps(key.decode(), ensure_ascii=False).encode()


def canonical(text: str) -> str:
    """
    Return an object or array, given as compact JSON text, in the form that all equal ones share: members sorted by name, the first of equal
    names; a whole number that 64 bits hold in digits (1.0 is 1), any other number as the shortest float; NaN, infinities and numbers beyond
    a float are null. The text is returned unchanged if Python cannot read it: an integer of thousands of digits, or more than 200 objects
    and arrays.
    """
    if text.count("[") + text.count("{") > _BRACKETS_MAX:
        return text
    try:
        value = json.loads(replace_non_numbers(text), parse_float=_number, parse_int=_integer, object_pairs_hook=first_members)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return text


def replace_non_numbers(text: str) -> str:
    """Return JSON text with null for NaN and infinities, in any case and spelling that DuckDB reads."""
    return _STRING_OR_NON_NUMBER.sub(lambda match: match[0] if match[0][0] == '"' else "null", text)


def first_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of which the first of members with equal names counts, as everywhere."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        members.setdefault(name, value)
    return members


def number_text(number: float) -> str:
    """Return the text that all equal numbers share: a whole number of 64 bits in digits (1.0 is 1), any other as the shortest float."""
    return repr(_unify(number))


def _integer(text: str) -> int | float | None:
    number = int(text)
    # Queries read an integer beyond 64 bits as the float nearest to it.
    return number if _INTEGER_MIN <= number < -_INTEGER_MIN else _number(text)


def _number(text: str) -> int | float | None:
    number = float(text)
    return _unify(number) if math.isfinite(number) else None


def _unify(number: float) -> int | float:
    return int(number) if number.is_integer() and _INTEGER_MIN <= number < -_INTEGER_MIN else number
