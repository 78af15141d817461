"""
Slips: commas too many, quotes that are none, and operators of other languages, told before the parser meets them.

The parser would pass over some of them and read others as something else. Law: only what no script of this dialect can mean
is refused, at the place where it stands.
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
_CURLY = dict.fromkeys("\u201c\u201d\u201e\u2018\u2019\u201a", "write ' around a text, [ and ] around a name") | {"\0": "leave it out"}
"""Signs that editors put in the place of quotes, and one that nobody sees: the parser takes them for parts of a name."""
_NO_OUTPUTS = {TokenType.FROM, TokenType.WHERE, TokenType.SEMICOLON, TokenType.L_PAREN, TokenType.NUMBER, TokenType.STRING}
"""What cannot be the name of an output."""
_PAST_A_LIST = {
    *(TokenType.FROM, TokenType.INTO, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.SELECT, TokenType.UNION),
    *(TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON),
}
"""What cannot begin a member of a list."""


def refuse_common_mistakes(tokens: Sequence[Token], source: Source) -> None:
    """
    Refuse a script that holds one.

    Raises:
        QueryError: It does; with what to write instead.
    """
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.token_type is TokenType.COMMA and (following is None or following.token_type in _PAST_A_LIST):
            message = "nothing stands behind the comma" if following is None else f"nothing stands between the comma and {following.text}"
            raise source.error(message, code="SYNTAX", offset=token.start, fix="leave the comma out, or write what is missing")
        if token.token_type is TokenType.INTO and (following is None or following.token_type in _NO_OUTPUTS):
            fix = "write the name of the output after INTO"
            raise source.error("INTO names no output", code="OUTPUT", offset=token.start, fix=fix, example="INTO out")
        if token.token_type in (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER):
            continue
        if (sign := next((sign for sign in token.text if sign in _CURLY), None)) is not None:
            message = f"{sign} is no quote" if sign.isprintable() else "a character of code 0 stands in a name"
            raise source.error(message, code="SYNTAX", offset=token.start + token.text.index(sign), fix=_CURLY[sign])
        if token.text in _INSTEAD:
            raise source.error(f"there is no operator {token.text}", code="SYNTAX", offset=token.start, fix=_INSTEAD[token.text])
