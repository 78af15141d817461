"""The text of PATTERN -> :mod:`query.plan.row_patterns`. Errors name the place of a sign in the script."""

from __future__ import annotations

import re
from dataclasses import dataclass

from query.plan.row_patterns import PLACES_MAX, WAYS_MAX, Choice, Pattern, Repetition, Sequence, TooManyPlaces, TooManyWays, make_automaton
from tidegate.language.expressions.syntax.errors import Source

PATTERN_EXAMPLE = "PATTERN (A+ B{2,} (C | D)?)"
_WORD = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|\[(?P<quoted>[^\]]+)\]|\"(?P<double>[^\"]+)\"|(?P<name>[^\W\d]\w*|\.)"
    r"|\{\s*(?P<least>\d*)\s*(?P<comma>,?)\s*(?P<most>\d*)\s*\}|(?P<sign>[()|*+?])",
    re.DOTALL,
)
# The longest number of a quantifier, in digits.
_DIGITS_MAX = 18


def parse_pattern(source: Source, begin: int, end: int) -> Pattern:
    """Return the pattern that stands between two offsets of the script. Raises QueryError: it is wrong, or too large."""
    reader = _Reader(source, end, begin)
    pattern = reader.choice()
    if reader.at < end:
        raise reader.error("a sign is missing before this one")
    try:
        automaton = make_automaton(pattern)
    except TooManyPlaces:
        message = f"the pattern describes more than {PLACES_MAX} rows with its quantifiers written out"
        fix = "take smaller numbers, or + and * without limit"
        raise source.error("PATTERN", begin, message, fix=fix, example=PATTERN_EXAMPLE) from None
    except TooManyWays:
        message = f"the pattern has more than {WAYS_MAX:,} ways from one row to the next"
        fix = "write A{0,n} instead of (A?){n} and of A? A? A?"
        raise source.error("PATTERN", begin, message, fix=fix, example="PATTERN (A{0,60} B)") from None
    if not automaton.first:
        raise source.error("PATTERN", begin, "the pattern describes no row", fix="name a variable", example=PATTERN_EXAMPLE)
    return pattern


@dataclass
class _Reader:
    source: Source
    end: int
    at: int

    def __post_init__(self) -> None:
        self._skip()

    def choice(self) -> Pattern:
        parts = [self._sequence()]
        while self._sign() == "|":
            self._take()
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(parts=tuple(parts))

    def _sequence(self) -> Pattern:
        parts = []
        while self.at < self.end and self._sign() not in ("|", ")"):
            parts.append(self._repeated())
        if not parts:
            raise self.error("a variable is missing here")
        return parts[0] if len(parts) == 1 else Sequence(parts=tuple(parts))

    def _repeated(self) -> Pattern:
        part = self._atom()
        if self.at < self.end and (found := self._match()) is not None and (found["sign"] in ("*", "+", "?") or found["least"] is not None):
            part = self._quantified(part, found)
            if (
                self.at < self.end
                and (found := self._match()) is not None
                and (found["sign"] in ("*", "+", "?") or found["least"] is not None)
            ):
                raise self.error("a quantifier stands after another: each takes as many rows as it can", "leave it out, or use brackets")
        return part

    def _quantifier(self) -> re.Match[str] | None:
        found = self._match() if self.at < self.end else None
        is_one = found is not None and (found["sign"] in ("*", "+", "?") or found["least"] is not None)
        return found if is_one else None

    def _quantified(self, part: Pattern, found: re.Match[str]) -> Pattern:
        sign = found["sign"]
        if sign:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        else:
            if len(found["least"]) > _DIGITS_MAX or len(found["most"]) > _DIGITS_MAX:
                raise self.error("the number is too large", "take a smaller one")
            least = int(found["least"] or 0)
            most = least if not found["comma"] else int(found["most"]) if found["most"] else None
            if (not found["least"] and not found["most"]) or (most is not None and (most < least or most == 0)):
                raise self.error(f"{found[0]} is no quantifier", "write {n}, {n,}, {n,m} or {,m}, with m at least n and 1")
        self._take()
        return Repetition(part=part, least=least, most=most)

    def _atom(self) -> Pattern:
        found = self._match()
        name = found and (found["quoted"] or found["double"] or found["name"])
        if name:
            self._take()
            return Pattern(name)
        if found is not None and found["sign"] == "(":
            opening = self.at
            self._take()
            inner = self.choice()
            if self._sign() != ")":
                raise self.source.error("PATTERN", opening, "the bracket is never closed", fix="close it", example=PATTERN_EXAMPLE)
            self._take()
            return inner
        word = self.source.text[self.at : self.at + 1]
        raise self.error(f"{word} cannot stand here")

    def _match(self) -> re.Match[str] | None:
        return _WORD.match(self.source.text, self.at, self.end)

    def _sign(self) -> str | None:
        found = self._match() if self.at < self.end else None
        return found["sign"] if found is not None else None

    def _take(self) -> None:
        found = self._match()
        assert found is not None
        self.at = found.end()
        self._skip()

    def _skip(self) -> None:
        while self.at < self.end and (found := self._match()) is not None and found["skip"] is not None:
            self.at = found.end()

    def error(self, message: str, fix: str = "write variables, with spaces between, and * + ? {n,m} | ( )") -> Exception:
        return self.source.error("PATTERN", min(self.at, self.end), message, fix=fix, example=PATTERN_EXAMPLE)
