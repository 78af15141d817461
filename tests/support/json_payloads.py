"""
JSON payloads made from a seed, the hostile among them: equal names and names in other letters, escapes, numbers of any size, broken texts.

Beside them stands what a query reads of a payload, computed by Python's parser: an oracle that shares no code with what it judges.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NAMES = (
    "a",
    "A",
    "b",
    "B",
    "ab",
    "Ab",
    "größe",
    "GRößE",
    "GRÖßE",
    "k",
    "K",
    "\u212a",
    "s",
    "\u017f",
    "",
    "x y",
    'q"',
    "a\\b",
    "long_name_1",
)
PATHS = (("a",), ("A", "B", "ab"), ("ab",), ("b", "a"), ("größe", "a"), ("a", "größe"), ("k",), ("s",), ("x y",), ("LONG_name_1",), ("b",))
_NUMBERS = (
    *(
        "0",
        "-0",
        "0.0",
        "-0.0",
        "-0.00",
        "0.10",
        "100.00",
        "0.0001",
        "0.00001000",
        "1e5",
        "1E+5",
        "1e-7",
        "0e99",
        "1e99",
        "1e400",
        "-1e-400",
    ),
    *("5e-324", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("18446744073709551616.5", "1844674407370955161.6", "123456789012345678901234567890", "9007199254740993", "9007199254740993.0"),
    *("123456789012345.67", "0.1234567890123456789", "9" * 400, "0." + "0" * 150 + "1"),
)
_PIECES = ("a", "Z", "é", "\u2028", "\U0001f600", "\x7f", "x" * 20, "0123456789abcdef", "/")
_ESCAPES = (
    "\\n",
    '\\"',
    "\\\\",
    "\\/",
    "\\u00e9",
    "\\u0041",
    "\\ud83d\\ude00",
    "\\u0000",
    "\\u001f",
    "\\b",
    "\\u0022",
    "\\u005C",
    "\\u212a",
)
_NO_NUMBERS = ("NaN", "Infinity", "-inf", "nan", "+1", ".5", "-", "0x1", "1e", "1.", "00", "01", "tru", "True", "'a'", "")
_NO_PIECES = ("\\ud800", "\\udc00", "\\x", "\x01", "\\u12", "\\", "\t", "\\ud83dx", "\\u00g0")


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes JSON texts; of *hostile* ones some parts are not JSON as RFC 8259 has it."""

    draw: random.Random
    hostile: bool

    def number(self) -> str:
        draw = self.draw
        if self.hostile and draw.random() < 0.1:
            return draw.choice(_NO_NUMBERS)
        kinds = (
            lambda: str(draw.randrange(-10, 10 ** draw.randrange(1, 22))),
            lambda: draw.choice(_NUMBERS),
            lambda: repr(draw.random() * 10 ** draw.randrange(-9, 20)),
            lambda: f"{draw.random() * 10 ** draw.randrange(5):.{draw.randrange(20)}f}",
            lambda: f"{draw.randrange(-(10**17), 10**18)}e{draw.randrange(-30, 30)}",
        )
        return draw.choice(kinds)()

    def string(self) -> str:
        pieces = (*_PIECES, *_ESCAPES) if self.draw.random() < 0.3 else _PIECES
        pieces = (*pieces, *_NO_PIECES) if self.hostile and self.draw.random() < 0.1 else pieces
        return '"' + "".join(self.draw.choice(pieces) for _ in range(self.draw.randrange(5))) + '"'

    def name(self) -> str:
        if self.hostile and self.draw.random() < 0.1:
            return self.string()
        # Most names are spelled plainly, or nearly every object would have an escape somewhere.
        names = NAMES if self.draw.random() < 0.3 else NAMES[:6]
        return json.dumps(self.draw.choice(names), ensure_ascii=self.draw.random() < 0.3)

    def value(self, depth: int = 0) -> str:
        kind = self.draw.randrange(10)
        if kind < 3 or depth > 3:
            return self.number()
        if kind < 5:
            return self.string()
        if kind == 5:
            return self.draw.choice(("true", "false", "null"))
        return self.object(depth + 1) if kind < 9 else f"[{self._joined([self.value(depth + 1) for _ in range(self.draw.randrange(4))])}]"

    def object(self, depth: int = 0) -> str:
        members = [f"{self.name()}{self._space()}:{self._space()}{self.value(depth)}" for _ in range(self.draw.randrange(6))]
        return f"{{{self._joined(members)}}}"

    def payload(self) -> bytes | None:
        text = f"{self._space()}{self.object()}{self._space()}".encode("utf-8", "surrogatepass")
        if not self.hostile or (kind := self.draw.randrange(20)) > 3:
            return text
        if kind == 0:
            return self.draw.choice((None, b"", b"[1]", b"\xff", b'\xef\xbb\xbf{"a":1}', b'{"a":' * 600 + b"1" + b"}" * 600, b"{" * 70))
        at, until = sorted((self.draw.randrange(len(text) + 1), self.draw.randrange(len(text) + 1)))
        return text[:at] + self.draw.choice((b"", b'"', b"}", b"]", b",", b":", b"\\", b"\xc3", b"\x00")) + text[min(until, at + 1) :]

    def _space(self) -> str:
        return self.draw.choice(("", "", "", " ", "\n\t "))

    def _joined(self, parts: Sequence[str]) -> str:
        comma = "," if self.hostile and self.draw.random() < 0.02 else ""
        return self._space() + f",{self._space()}".join(parts) + self._space() + comma


def payloads(seed: int, count: int, *, hostile: bool) -> list[bytes | None]:
    """Return *count* payloads made from *seed*."""
    maker = Maker(random.Random(seed), hostile)
    return [maker.payload() for _ in range(count)]


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object in their order."""


def read(payload: bytes) -> Any:
    """Return the value of a payload in strict JSON."""
    return json.loads(payload, object_pairs_hook=_Members, parse_int=_Number, parse_float=_Number)


def member_of(value: Any, path: Sequence[str]) -> tuple[str, Any] | None:
    """Return the letter of the kind of a member, and its value, that of a record as :func:`read` returns it; None for NULL."""
    for name in path:
        if not isinstance(value, _Members):
            return None
        exact = [inner for spelled, inner in value if spelled == name]
        found = exact or [inner for spelled, inner in value if spelled.lower() == name.lower()]
        value = found[0] if found else None
    if isinstance(value, _Number):
        if value.lstrip("-").isdigit() and -(2**63) <= int(value) < 2**63:
            return "i", int(value)
        number = float(value) + 0.0
        return ("f", number) if abs(number) < float("inf") else None
    kinds = {bool: "b", str: "s", _Members: "r", list: "a"}
    return None if value is None else (kinds[type(value)], value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, with numbers compared as floats: writers spell them in their own ways."""
    if isinstance(one, _Number) and isinstance(other, _Number):
        return float(one) == float(other)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)
