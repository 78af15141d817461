"""The naive notion of the same value, and the form in which such values are written; it shares no code with the engine."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

INTEGERS = range(-(2**63), 2**63)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same value: numbers by what they are worth, everything else by its kind and its contents."""
    one, other = as_read(one), as_read(other)
    if is_number(one) and is_number(other):
        return Fraction(one) == Fraction(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return bool(one == other)


def as_read(value: Any) -> Any:
    """The value that a query reads: an integer beyond 64 bits is the float nearest to it."""
    return float(value) if is_number(value) and isinstance(value, int) and value not in INTEGERS else value


def is_number(value: Any) -> bool:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def form(value: Any) -> Any:
    """The one value that stands for all that are the same: whole numbers of 64 bits as integers, members in order."""
    value = as_read(value)
    if isinstance(value, float) and math.isfinite(value) and value == math.floor(value) and int(value) in INTEGERS:
        return int(value)
    if isinstance(value, list):
        return [form(element) for element in value]
    return {name: form(value[name]) for name in sorted(value)} if isinstance(value, dict) else value


def text(value: Any) -> str:
    """A value in its form, as JSON."""
    return json.dumps(form(value), separators=(",", ":"), ensure_ascii=False)


def key_bytes(value: Any) -> bytes:
    """The bytes of a key of one value."""
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) and value else text(value).encode()
