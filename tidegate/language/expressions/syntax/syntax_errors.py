"""
Advice on text that is no SQL: the misspelled keyword, and an example that resembles the statement.

The parser stops at or after the mistake: a misspelled keyword reads like an alias, and only the word behind it is unexpected.

Law: a word is called misspelled only if it resembles a keyword without being one, and is the first word of the statement, the word at which
the parser stopped, or one of the two words before that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ordering.errors import QueryError
from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS
from tidegate.language.expressions.syntax.errors import Source, similarity

SCRIPT_EXAMPLE = "SELECT origin, COUNT(*) AS n INTO out FROM flights TIMESTAMP BY scheduled GROUP BY origin, TumblingWindow(hour, 1)"
_KEYWORDS = (
    *("SELECT", "INTO", "FROM", "TIMESTAMP BY", "OVER", "WHERE", "GROUP BY", "HAVING", "CASE", "WHEN", "THEN", "ELSE", "END", "AS"),
    *("AND", "OR", "ON", "LIKE", "BETWEEN", "WITH", "UNION", "JOIN", "LEFT JOIN", "CROSS APPLY", "OUTER APPLY", "PARTITION BY"),
)
# Correct words that must not be taken for a misspelled keyword.
_WORDS = {word for keyword in _KEYWORDS for word in keyword.split()} | {
    *("NOT", "IN", "IS", "NULL", "LEFT", "INNER", "OUTER", "CROSS", "APPLY", "PARTITION", "LIMIT", "ORDER", "COUNT", "SUM", "MIN", "MAX"),
    *("BIGINT", "FLOAT", "NVARCHAR", "DATETIME", "BIT", "RECORD", "ARRAY", "TIMESTAMP", "BY", "GROUP", "CAST", "TRY_CAST", "FOR"),
}
_SIMILARITY_MIN = 0.7  # least similarity of a word to a keyword for a suggestion
_OF_ANAGRAMS = 0.95  # similarity of a word with exchanged letters
_WORDS_BEFORE = 2  # words before the place where the parser stopped that may be the mistake
_EXAMPLE_LETTERS = 80  # longest part of the script in an example
# The text before a position right after an array index of other languages: ``a[0]``.
_ELEMENT_BEFORE = re.compile(r"[\w\])]\[\d+\]\s*$")
# The text before a position right after the name of a member in brackets, as other languages write it: ``a['x']``.
_MEMBER_BEFORE = re.compile(r"[\w\])]\['(\w+)'\]\s*$")
# The text before a position where such an index begins.
_ELEMENT_OF = re.compile(r"[\w\])]$")
# A date as other languages write it, right before or at the place where the parser stopped.
_DATE = re.compile(r"\b(?:DATE|DATETIME|TIMESTAMP)\s+('[^']*')\s*\w*$", re.IGNORECASE)
# The name of the call whose bracket is open at a position.
_OPEN_CALL = re.compile(r"\b(\w+)\s*\([^()]*$")
# The name of an input or an output right before a position, and the rest of one with hyphens.
_NAME_BEFORE = re.compile(r"\b(?:INTO|FROM|JOIN)\s+(\w+)$", re.IGNORECASE)
_HYPHENED = re.compile(r"(?:-\w+)+")
# Parts of a script without keywords: texts, names in brackets or quotes, and comments.
_SKIPPED = re.compile(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
# Examples of the clause in which the parser stopped, by its first word.
_CLAUSES = {
    "SELECT": "SELECT origin, delay / 60 AS hours INTO out FROM flights",
    "FROM": "FROM flights TIMESTAMP BY scheduled",
    "JOIN": "FROM a JOIN b ON DATEDIFF(minute, a, b) BETWEEN 0 AND 10 AND a.k = b.k",
    "WHERE": "WHERE delay > 15 AND origin <> 'ATL'",
    "GROUP": "GROUP BY origin, TumblingWindow(hour, 1)",
    "HAVING": "HAVING COUNT(*) > 1",
    "CASE": "CASE WHEN delay > 15 THEN 'late' ELSE 'on time' END",
    "OVER": "LAG(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1) WHEN delay > 0)",
    "WITH": "WITH late AS (SELECT origin FROM flights WHERE delay > 15) SELECT origin INTO out FROM late",
}


def syntax_error(source: Source, offset: int, reason: str, word: str) -> QueryError:
    """Return the error of a script in which the parser stopped for *reason* before *word*, at *offset* (-1: unknown)."""
    near, before = f" near {word!r}" if word else "", source.text[: max(offset, 0)]
    if _ELEMENT_BEFORE.search(before) or (word.startswith("[") and _ELEMENT_OF.search(before)):
        fix, example = "write GetArrayElement(array, index) for an element of an array", "GetArrayElement(readings, 0)"
        return source.error("SYNTAX", offset, f"{reason}{near}", fix=fix, example=example)
    if date := _DATE.search(before + word):
        fix = "write CAST(text AS datetime) for a moment"
        return source.error("SYNTAX", date.start(), f"{reason}{near}", fix=fix, example=f"CAST({date[1]} AS datetime)")
    if member := _MEMBER_BEFORE.search(before):
        fix = "write the name of a member behind a point"
        return source.error("SYNTAX", offset, f"{reason}{near}", fix=fix, example=f"place.{member[1]}")
    if (call := _OPEN_CALL.search(before)) and call[1].lower() in COUNTERPARTS:
        fix, example = COUNTERPARTS[call[1].lower()]
        return source.error("FUNCTION", call.start(), f"there is no function {call[1]}", fix=fix, example=example)
    if call and call[1].upper() in ("CAST", "TRY_CAST"):
        fix, example = f"write {call[1].upper()}(value AS type)", f"{call[1].upper()}(delay AS bigint)"
        return source.error("SYNTAX", offset, f"{reason}{near}", fix=fix, example=example)
    if (name := _NAME_BEFORE.search(before)) and (hyphened := _HYPHENED.match(source.text, max(offset, 0))):
        fix, example = "write brackets around a name with a hyphen", f"[{name[1]}{hyphened[0]}]"
        return source.error("SYNTAX", offset, f"{reason}{near}", fix=fix, example=example)
    if word.upper() == "TIMESTAMP":
        fix = "write TIMESTAMP BY right after the input and its alias"
        return source.error("SYNTAX", offset, f"{reason}{near}", fix=fix, example=f"{_CLAUSES['FROM']} WHERE delay > 15")
    if word.upper() in ("ROWS", "RANGE", "GROUPS"):
        fix = "say how far back in time rows count, by LIMIT DURATION; they come in the order of time"
        return source.error(
            "SYNTAX", offset, f"{reason}{near}", fix=fix, example="SUM(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))"
        )
    for place, misspelled, keyword in _misspellings(source.text, max(offset, 0)):
        rest = source.text[place + len(misspelled) :].partition("\n")[0][:_EXAMPLE_LETTERS].rstrip(" ;")
        return source.error(
            "SYNTAX", place, f"there is no keyword {misspelled}", fix=f"did you mean {keyword}?", example=f"{keyword}{rest}"
        )
    fix = "correct the script at this place"
    if word.upper() in _WORDS and before.count("(") > before.count(")"):
        fix = "close the bracket that is opened before it"
    elif word.upper() == "INTO":
        fix = "write INTO right after the columns, before FROM"
    example = _CLAUSES["SELECT"] if word.upper() == "INTO" else _clause_example(before if word.upper() in _WORDS else before + word)
    return source.error("SYNTAX", offset, f"{reason}{near}", fix=fix, example=example)


def _misspellings(text: str, offset: int) -> Iterator[tuple[int, str, str]]:
    """Yield (offset, words, keyword) of the words that are probably misspelled keywords, the likeliest first."""
    visible = _SKIPPED.sub(lambda match: " " * len(match[0]), text)
    statement = visible.rfind(";", 0, offset) + 1
    words = list(re.finditer(r"[^\W\d]\w*", visible[statement:]))
    stop = next((number for number, match in enumerate(words) if statement + match.start() >= offset), len(words))
    near = [*range(stop, max(stop - _WORDS_BEFORE, 0) - 1, -1), 0]
    hits = [hit for number in near if number < len(words) for hit in [_find_resemblance(words, number)] if hit]
    for _, number, count, keyword in sorted(hits, key=lambda hit: -hit.likeness):
        start, end = words[number].start() + statement, words[number + count - 1].end() + statement
        yield start, text[start:end], keyword


class _Resemblance(NamedTuple):
    """How much so many words, from *number* on, are like a keyword."""

    likeness: float
    number: int
    words: int
    keyword: str


def _find_resemblance(words: list[re.Match[str]], number: int) -> _Resemblance | None:
    """Return what a word, alone or with the next one, resembles most if it is no keyword."""
    hits = []
    for keyword in _KEYWORDS:
        # TIMESTAMPBY is one word for two.
        for parts in {(keyword,), tuple(keyword.split())}:
            written = [match[0].upper() for match in words[number : number + len(parts)]]
            if len(written) == len(parts) and not _WORDS.issuperset(written):
                likeness = min(map(_likeness, written, parts))
                hits += [_Resemblance(likeness, number, len(parts), keyword)] if likeness >= _SIMILARITY_MIN else []
    return max(hits, default=None, key=lambda hit: hit.likeness)


def _likeness(written: str, keyword: str) -> float:
    """Return how alike two words are; exchanged letters count little, also in short words."""
    is_anagram = written != keyword and sorted(written) == sorted(keyword)
    return _OF_ANAGRAMS if is_anagram else similarity(written, keyword)


def _clause_example(before: str) -> str:
    """Return an example of the clause that the text before the mistake ends in."""
    clauses = [match[0].upper() for match in re.finditer(rf"\b({'|'.join(_CLAUSES)})\b", _SKIPPED.sub(" ", before), re.IGNORECASE)]
    return _CLAUSES[clauses[-1]] if clauses else SCRIPT_EXAMPLE
