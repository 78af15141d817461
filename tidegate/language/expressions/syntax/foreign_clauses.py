"""
Clauses of other streaming SQLs, recognized by their words: windows as ksqlDB and Spark write them, EMIT and LATERAL.

They are refused before parsing, because the parser would stop somewhere inside of them, at a word that is no mistake. Functions of other
SQLs are refused where calls are bound (:mod:`~.counterparts`). Law: only words that cannot stand together in this dialect are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS, WINDOWS_PAGE
from tidegate.language.expressions.syntax.errors import Source

_APPLY_FIX, _APPLY_EXAMPLE = COUNTERPARTS["unnest"]
# The windows of ksqlDB by their name there, as they are written here.
_KSQL_WINDOWS = {
    "TUMBLING": "GROUP BY origin, TumblingWindow(minute, 1)",
    "HOPPING": "GROUP BY origin, HoppingWindow(minute, 60, 15)",
    "SESSION": "GROUP BY origin, SessionWindow(minute, 5, 60) OVER (PARTITION BY origin)",
}
_WORDS_READ = 8  # words after the first one that decide what is meant
_TEXTS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER)


@dataclass(frozen=True, slots=True)
class _Foreign:
    """What is wrong, what to write instead, and an example."""

    what: str
    fix: str
    example: str
    code: str = "SYNTAX"


def refuse_foreign_clauses(tokens: Sequence[Token], source: Source) -> None:
    """Raise QueryError, with what is written here, if the script has a clause of another SQL."""
    for index, token in enumerate(tokens):
        if token.token_type in _TEXTS:
            continue
        following = tokens[index + 1 : index + 1 + _WORDS_READ]
        if found := _find(token.text.upper(), following):
            raise source.error(found.code, token.start, found.what, fix=found.fix, example=found.example)


def _find(word: str, following: Sequence[Token]) -> _Foreign | None:
    words = [token.text.upper() for token in following]
    kinds = [token.token_type for token in following]
    if word == "WINDOW" and kinds[1:2] == [TokenType.L_PAREN] and words[0] in _KSQL_WINDOWS:
        fix = f"write the window in GROUP BY; TIMESTAMP BY names the time ({WINDOWS_PAGE})"
        return _Foreign(f"there is no clause WINDOW {words[0]}", fix, _KSQL_WINDOWS[words[0]], "WINDOW")
    if word == "WINDOW" and _is_time_and_length(kinds):
        fix = f"write TumblingWindow, or HoppingWindow with the size before the hop; TIMESTAMP BY names the time ({WINDOWS_PAGE})"
        return _Foreign("there is no window of a time and a text", fix, _KSQL_WINDOWS["TUMBLING"], "WINDOW")
    if word == "EMIT" and words[:1] in (["CHANGES"], ["FINAL"]) and kinds[1:2] in ([], [TokenType.SEMICOLON]):
        fix = "leave it out: a result comes once, when it is final"
        return _Foreign(f"there is no clause EMIT {words[0]}", fix, "GROUP BY origin, TumblingWindow(minute, 1)")
    if word == "LATERAL" and words[:1] in (["VIEW"], ["TABLE"]):
        return _Foreign(f"there is no LATERAL {words[0]}", _APPLY_FIX, _APPLY_EXAMPLE)
    return None


def _is_time_and_length(kinds: Sequence[TokenType]) -> bool:
    """Return whether tokens are ``(name, 'text'``, as Spark writes a window, and not ``('id', ...``, as Windows takes them."""
    if kinds[:1] != [TokenType.L_PAREN] or TokenType.COMMA not in kinds or kinds[1] in _TEXTS:
        return False
    return kinds[kinds.index(TokenType.COMMA) + 1 :][:1] == [TokenType.STRING]
