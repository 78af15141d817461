"""
Common mistakes in scripts: superfluous commas, typographic quotes, invisible and full-width characters, operators and comments of other
languages.

They are refused before parsing, because the parser would ignore some and misread others. Law: only text that cannot be valid in this
dialect is refused, at its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from unicodedata import category, name

from sqlglot.tokenizer_core import Token, TokenType

from tidegate.language.expressions.syntax.dialect import NAMES
from tidegate.language.expressions.syntax.errors import Source

_INSTEAD = {
    "==": "write = to compare",
    "&&": "write AND",
    "||": "write OR between conditions, + or CONCAT to join texts",
    "=>": "write >=",
    "::": "write CAST(value AS type)",
    "<=>": "write =, and IS NULL where NULL counts",
}
# Typographic quotes and dashes, and the fix: the parser would read them as parts of a name, as it would invisible characters.
_CURLY = dict.fromkeys("\u201c\u201d\u201e\u2018\u2019\u201a", "write ' around a text, [ and ] around a name")
_CURLY["`"] = "write [ and ] around a name"
_DASHES = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "write -")
# Signs of East Asian keyboards as wide as their letters, and how far they are from the plain ones.
_WIDE = range(0xFF01, 0xFF5F)
_WIDE_TO_PLAIN = 0xFF01 - ord("!")
_COMMENT = "begin a comment with --, or write it between /* and */"
# Categories of characters that cannot be seen: spaces, formatting and control characters.
_INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cf", "Cc"})
# Tokens that cannot be the name of an output.
_NO_OUTPUTS = {TokenType.FROM, TokenType.WHERE, TokenType.SEMICOLON, TokenType.L_PAREN, TokenType.NUMBER, TokenType.STRING}
# Tokens after which UNION joins SELECTs; before them, names too.
_PAST_FROM = {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING}
# Tokens that end PARTITION BY of an input.
_NO_KEYS = {TokenType.SELECT, TokenType.FROM, TokenType.R_PAREN, TokenType.SEMICOLON}
# Tokens that cannot begin an item of a list.
_PAST_A_LIST = {
    *(TokenType.FROM, TokenType.INTO, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.SELECT, TokenType.UNION),
    *(TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON),
}


def refuse_common_mistakes(tokens: Sequence[Token], source: Source) -> None:
    """Raise QueryError, with a fix, if the script contains a common mistake."""
    partitions_input = is_past_from = False
    for token, following in zip_longest(tokens, tokens[1:]):
        # INTO after PARTITION BY of an input takes a number, any other INTO a name.
        partitions_input = (partitions_input or token.token_type is TokenType.PARTITION_BY) and token.token_type not in _NO_KEYS
        if token.token_type is TokenType.COMMA and (following is None or following.token_type in _PAST_A_LIST):
            message = "nothing stands behind the comma" if following is None else f"nothing stands between the comma and {following.text}"
            raise source.error("SYNTAX", token.start, message, fix="leave the comma out, or write what is missing")
        if token.token_type is TokenType.INTO and not partitions_input and (following is None or following.token_type in _NO_OUTPUTS):
            fix = "write the name of the output after INTO"
            raise source.error("OUTPUT", token.start, "INTO names no output", fix=fix, example="INTO out")
        if token.token_type in (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER):
            continue
        _refuse_odd_characters(token, source)
        slashes = [token.token_type, following and following.token_type] == [TokenType.SLASH, TokenType.SLASH]
        if token.token_type is TokenType.HASH or slashes:
            raise source.error("SYNTAX", token.start, f"{'//' if slashes else '#'} begins no comment", fix=_COMMENT)
        if token.token_type is TokenType.UNION and following is not None and following.token_type is TokenType.DISTINCT:
            fix = "write UNION, which keeps duplicates; a window that is grouped by all columns has each row once"
            raise source.not_yet(token.start, "UNION DISTINCT is", fix=fix, example="GROUP BY origin, TumblingWindow(hour, 1)")
        is_past_from = (is_past_from or token.token_type in _PAST_FROM) and token.token_type is not TokenType.SELECT
        if is_past_from and token.token_type is TokenType.UNION and following is not None and following.token_type in NAMES:
            fix, example = "write a SELECT on each side", f"SELECT * FROM a WHERE delay > 15 UNION SELECT * FROM {following.text}"
            raise source.error("SYNTAX", following.start, f"UNION joins SELECTs, and {following.text} is a name", fix=fix, example=example)
        if token.text in _INSTEAD:
            raise source.error("SYNTAX", token.start, f"there is no operator {token.text}", fix=_INSTEAD[token.text])


def _refuse_odd_characters(token: Token, source: Source) -> None:
    for place, sign in enumerate(token.text, token.start):
        if sign in _CURLY:
            raise source.error("SYNTAX", place, f"{sign} is no quote", fix=_CURLY[sign])
        if sign in _DASHES:
            raise source.error("SYNTAX", place, f"{sign} (U+{ord(sign):04X}) is no minus sign", fix=_DASHES[sign])
        if ord(sign) in _WIDE and not sign.isalnum():
            fix = f"write {chr(ord(sign) - _WIDE_TO_PLAIN)}"
            raise source.error("SYNTAX", place, f"{sign} (U+{ord(sign):04X}) is no plain sign", fix=fix)
        if category(sign) in _INVISIBLE and sign not in " \t\r\n":
            message = f"an invisible character stands here: U+{ord(sign):04X} {name(sign, '')}".rstrip()
            raise source.error("SYNTAX", place, message, fix="delete it, or write a plain space")
