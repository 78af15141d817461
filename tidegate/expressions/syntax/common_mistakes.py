"""
Common mistakes in scripts: superfluous commas, typographic quotes, operators of other languages.

They are refused before parsing, because the parser would ignore some and misread others. Law: only text that cannot be valid in this
dialect is refused, at its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from sqlglot.tokenizer_core import Token, TokenType

from tidegate.expressions.syntax.errors import Source

_INSTEAD = {
    "==": "write = to compare",
    "&&": "write AND",
    "||": "write OR between conditions, + or CONCAT to join texts",
    "=>": "write >=",
    "<=>": "write =, and IS NULL where NULL counts",
}
# Typographic quotes and the invisible NUL: the parser would read them as parts of a name.
_CURLY = dict.fromkeys("\u201c\u201d\u201e\u2018\u2019\u201a", "write ' around a text, [ and ] around a name") | {"\0": "leave it out"}
# Tokens that cannot be the name of an output.
_NO_OUTPUTS = {TokenType.FROM, TokenType.WHERE, TokenType.SEMICOLON, TokenType.L_PAREN, TokenType.NUMBER, TokenType.STRING}
# Tokens that cannot begin an item of a list.
_PAST_A_LIST = {
    *(TokenType.FROM, TokenType.INTO, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.SELECT, TokenType.UNION),
    *(TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON),
}


def refuse_common_mistakes(tokens: Sequence[Token], source: Source) -> None:
    """Raise QueryError, with a fix, if the script contains a common mistake."""
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.token_type is TokenType.COMMA and (following is None or following.token_type in _PAST_A_LIST):
            message = "nothing stands behind the comma" if following is None else f"nothing stands between the comma and {following.text}"
            raise source.error("SYNTAX", token.start, message, fix="leave the comma out, or write what is missing")
        if token.token_type is TokenType.INTO and (following is None or following.token_type in _NO_OUTPUTS):
            fix = "write the name of the output after INTO"
            raise source.error("OUTPUT", token.start, "INTO names no output", fix=fix, example="INTO out")
        if token.token_type in (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER):
            continue
        if (sign := next((sign for sign in token.text if sign in _CURLY), None)) is not None:
            message = f"{sign} is no quote" if sign.isprintable() else "a character of code 0 stands in a name"
            raise source.error("SYNTAX", token.start + token.text.index(sign), message, fix=_CURLY[sign])
        if token.text in _INSTEAD:
            raise source.error("SYNTAX", token.start, f"there is no operator {token.text}", fix=_INSTEAD[token.text])
