"""
The words of a script that is being written: names, signs, texts and comments, with their places.

Law: every text has words, and together with the blanks between them they are the text. A quote or bracket that is not closed yet reaches
to the end of its line, a text or a comment to the end of the script.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class WordKind(Enum):
    """What a word is."""

    COMMENT = "comment"
    TEXT = "text"
    # In brackets or double quotes.
    QUOTED = "quoted"
    NAME = "name"
    NUMBER = "number"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class ScriptWord:
    """One word; its text is from *start* until before *end*."""

    kind: WordKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.start + len(self.text)

    @property
    def is_name(self) -> bool:
        """Whether it may name something."""
        return self.kind in (WordKind.NAME, WordKind.QUOTED)

    @property
    def name(self) -> str:
        """The name without its quotes."""
        return self.text.strip('[]"') if self.kind is WordKind.QUOTED else self.text

    def is_word(self, *keywords: str) -> bool:
        """Return whether it is one of these keywords, which are in capitals."""
        return self.kind is WordKind.NAME and self.text.upper() in keywords


_WORD = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<text>'(?:[^']|'')*(?:'|\Z))
    | (?P<quoted>\[[^\]\n]*\]?|"[^"\n]*"?)
    | (?P<name>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<sign>\S)""",
    re.VERBOSE | re.DOTALL,
)


def words_of(text: str) -> list[ScriptWord]:
    """Return the words of a script in their order."""
    return [ScriptWord(WordKind(found.lastgroup), found[0], found.start()) for found in _WORD.finditer(text)]


def word_at(words: Sequence[ScriptWord], offset: int) -> int:
    """Return the number of the word around an offset, or of one that ends or begins there, a name before a sign; -1: there is none."""
    number = bisect_right(words, offset, key=lambda word: word.start) - 1
    if number < 0 or words[number].end < offset:
        return -1
    before = words[number - 1] if number else None
    touches = before is not None and before.end == offset == words[number].start
    return number - 1 if touches and before is not None and before.is_name and not words[number].is_name else number


def path_before(words: Sequence[ScriptWord], number: int) -> list[ScriptWord]:
    """Return the names with a point behind each that lead up to word *number*: ``a``, ``b`` before the c of ``a.b.c``."""
    path: list[ScriptWord] = []
    while number >= 2 and words[number - 1].text == "." and words[number - 2].is_name:
        path.insert(0, words[number - 2])
        number -= 2
    return path


def meaningful(words: Sequence[ScriptWord]) -> Iterator[ScriptWord]:
    """Yield the words without comments."""
    return (word for word in words if word.kind is not WordKind.COMMENT)
