"""
The words of a script as they are spelled, each with the comments around it.

A comment at the end of a line belongs to the word before it, any other to the word after it. Law: words and comments, in their order, are
the whole script but for white space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tidegate.language.expressions.syntax.dialect import Asa
from tidegate.language.expressions.syntax.parse import Script

KEYWORDS = frozenset(
    {"SELECT", "INTO", "FROM", "WHERE", "HAVING", "AS", "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN"}
    | {"ELSE", "END", "JOIN", "LEFT", "RIGHT", "FULL", "OUTER", "INNER", "CROSS", "APPLY", "ON", "UNION", "ALL", "WITH", "OVER", "LIMIT"}
    | {"CREATE", "TABLE", "SET", "DISTINCT", "TOP", "ASC", "DESC", "ESCAPE", "TIMESTAMP", "BY"}
    | {"GROUP BY", "ORDER BY", "PARTITION BY", "CROSS APPLY", "OUTER APPLY"}
)
_TEXTS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER, TokenType.NUMBER)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment as it is written. *ends_line*: nothing follows on its line; *has_blank*: an empty line stands before it."""

    text: str
    ends_line: bool
    has_blank: bool


@dataclass(frozen=True, slots=True)
class Word:
    """A word or sign. *keyword*: in capitals, empty if it is none; *has_blank*: an empty line stands right before it."""

    start: int
    kind: TokenType
    text: str
    keyword: str = ""
    before: tuple[Comment, ...] = ()
    after: tuple[Comment, ...] = ()
    has_blank: bool = False


def read_words(script: Script) -> tuple[list[Word], list[Token]]:
    """Return the words of a parsed script, the last one empty with the comments at its end, and the tokens that they are."""
    text = script.source.text
    tokens = Asa().tokenize(text)
    names = {
        node.meta["start"]
        for tree in script.statements
        for node in tree.walk()
        if isinstance(node, exp.Identifier) and "start" in node.meta
    }
    words: list[Word] = []
    place = 0
    for index in range(len(tokens) + 1):
        token = tokens[index] if index < len(tokens) else None
        start = token.start if token else len(text)
        after, before, has_blank = _comments(text[place:start], is_first=not index, is_last=token is None)
        if after:
            words[-1] = replace(words[-1], after=after)
        if token is None:
            words.append(Word(start, TokenType.SEMICOLON, "", before=before, has_blank=has_blank))
            break
        keyword = "" if token.start in names else _keyword(tokens, index)
        words.append(Word(start, token.token_type, text[start : token.end + 1], keyword, before, (), has_blank))
        place = token.end + 1
    return words, tokens


def _keyword(tokens: list[Token], index: int) -> str:
    token = tokens[index]
    word = " ".join(token.text.upper().split())
    if token.token_type in _TEXTS or word not in KEYWORDS:
        return ""
    before, after = (tokens[place] if 0 <= place < len(tokens) else None for place in (index - 1, index + 1))
    if TokenType.DOT in (before and before.token_type, after and after.token_type):
        return ""
    if word in ("LEFT", "RIGHT") and after and after.token_type is TokenType.L_PAREN:
        return ""
    if word == "TIMESTAMP":
        return word if after and after.text.upper() == "BY" else ""
    if word == "BY":
        return word if before and before.text.upper() == "TIMESTAMP" else ""
    if word == "TOP":
        return word if before and before.text.upper() in ("SELECT", "DISTINCT") else ""
    return word


def _comments(gap: str, is_first: bool, is_last: bool) -> tuple[tuple[Comment, ...], tuple[Comment, ...], bool]:
    """Return the comments between two words: those at the end of the first one's line, the others, and whether an empty line is last."""
    found = list(_split(gap))
    after: list[Comment] = []
    before: list[Comment] = []
    has_newline, newlines = is_first, 0
    for number, piece in enumerate(found):
        if not piece.startswith(("--", "/*")):
            newlines = piece.count("\n")
            has_newline |= newlines > 0
            continue
        following = found[number + 1] if number + 1 < len(found) else ""
        ends_line = piece.startswith("--") or "\n" in following or (is_last and number + 1 == len(found))
        comment = Comment(piece.rstrip() if piece.startswith("--") else piece, ends_line, newlines > 1)
        (before if has_newline or before or not ends_line else after).append(comment)
        has_newline |= ends_line
        # The end of a line that ends a comment is in the white space behind it.
        newlines = 0
    return tuple(after), tuple(before), newlines > 1


def _split(gap: str) -> Iterator[str]:
    """Yield white space and comments by turns."""
    place = 0
    while place < len(gap):
        end = place
        if gap.startswith("--", place):
            end = gap.find("\n", place)
            end = len(gap) if end < 0 else end
        elif gap.startswith("/*", place):
            depth, end = 1, place + 2
            while depth and end < len(gap):
                sign = gap[end : end + 2]
                depth += (sign == "/*") - (sign == "*/")
                end += 2 if sign in ("/*", "*/") else 1
        else:
            while end < len(gap) and not gap.startswith(("--", "/*"), end):
                end += 1
        yield gap[place:end]
        place = end
