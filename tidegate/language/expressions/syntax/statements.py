"""
The statements of a script: where one ends and the next begins, and the two kinds that are not queries.

Statements need no semicolon between them. A query ends at a word outside of all brackets that can only begin another statement: SELECT that
does not follow UNION, WITH that names steps, CREATE TABLE, SET. ``CREATE TABLE input (path type, ...)`` declares types of an input's
fields, and ``SET CASE_INSENSITIVE ON`` makes comparisons of texts ignore case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from tidegate.language.expressions.kinds import DECLARABLE
from tidegate.language.expressions.syntax.errors import Source, suggest, suggest_type

_SET_EXAMPLE = "SET CASE_INSENSITIVE ON"
_CREATE_EXAMPLE = "CREATE TABLE flights (delay bigint, plane.model nvarchar(max))"
_JOINING = {TokenType.UNION, TokenType.ALL, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.DISTINCT}
# The tokens that open and close a nested part.
OPENING = {TokenType.L_PAREN, TokenType.CASE}
CLOSING = {TokenType.R_PAREN, TokenType.END}
# Tokens that begin statements which this dialect does not have.
_REFUSED = {
    *(TokenType.INSERT, TokenType.UPDATE, TokenType.DELETE, TokenType.MERGE, TokenType.TRUNCATE, TokenType.CREATE, TokenType.ALTER),
    *(TokenType.DROP, TokenType.EXECUTE, TokenType.DECLARE, TokenType.USE, TokenType.GRANT),
}
_NO_NAMES = {TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT, TokenType.NUMBER, TokenType.STRING}


class DeclaredField(NamedTuple):
    """A field of CREATE TABLE: its path (``a.b``), its type as written in lower case, and where it stands in the script."""

    path: str
    type: str
    offset: int


@dataclass(frozen=True, slots=True)
class Declaration:
    """One CREATE TABLE: the input, where its name stands in the script, and its fields."""

    name: str
    offset: int
    fields: tuple[DeclaredField, ...]


@dataclass
class ScriptParts:
    """The tokens of a script's queries, and the contents of its other statements."""

    queries: list[list[Token]] = field(default_factory=list)
    declarations: list[Declaration] = field(default_factory=list)
    ignores_case: bool = False


def split_statements(tokens: Sequence[Token], source: Source) -> ScriptParts:
    """Split a script's tokens into statements. Raises QueryError: a statement that is not a query is wrong."""
    parts = ScriptParts()
    for statement in statement_tokens(tokens):
        first = statement[0]
        if _is_create(statement, 0):
            parts.declarations.append(_DeclarationReader(statement, source).read())
        elif first.token_type is TokenType.SET:
            if parts.queries:
                raise source.error("SYNTAX", first.start, "SET stands after a query", fix="write it before all queries")
            parts.ignores_case = _read_case_setting(statement, source)
        elif first.token_type in _REFUSED:
            fix, example = (
                "write SELECT ... INTO output FROM input; a view is a step, WITH name AS (...)",
                "SELECT origin, delay INTO delays FROM flights TIMESTAMP BY scheduled",
            )
            raise source.error("SYNTAX", first.start, "a script is a SELECT statement", fix=fix, example=example)
        else:
            parts.queries.append(statement)
    return parts


def statement_tokens(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens of each statement, without semicolons."""
    statements: list[list[Token]] = [[]]
    depth, has_select = 0, False
    for index, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.SEMICOLON or (depth == 0 and statements[-1] and _starts_statement(tokens, index, statements[-1], has_select)):
            statements.append([])
            depth, has_select = 0, False
        if kind is not TokenType.SEMICOLON:
            statements[-1].append(token)
        has_select |= depth == 0 and kind is TokenType.SELECT
        depth += (kind in OPENING) - (kind in CLOSING)
    return [statement for statement in statements if statement]


def _starts_statement(tokens: Sequence[Token], index: int, statement: list[Token], has_select: bool) -> bool:
    """Return whether the token at *index*, outside of brackets, begins another statement."""
    kind, following = tokens[index].token_type, [token.token_type for token in tokens[index + 1 : index + 3]]
    is_over = has_select or statement[0].token_type in (TokenType.CREATE, TokenType.SET)
    if not is_over or tokens[index - 1].token_type is TokenType.DOT:
        return False
    if kind is TokenType.SELECT:
        return tokens[index - 1].token_type not in _JOINING
    if kind is TokenType.WITH:
        return len(following) == 2 and following[0] is not TokenType.L_PAREN and following[1] in (TokenType.ALIAS, TokenType.L_PAREN)
    if kind is TokenType.SET:
        return len(following) == 2 and following[1] in (TokenType.ON, TokenType.VAR, TokenType.EQ)
    return _is_create(tokens, index)


def _is_create(tokens: Sequence[Token], index: int) -> bool:
    return [token.token_type for token in tokens[index : index + 2]] == [TokenType.CREATE, TokenType.TABLE]


def _read_case_setting(statement: list[Token], source: Source) -> bool:
    words = [token.text.upper() for token in statement]
    if len(words) > 1 and words[1] != "CASE_INSENSITIVE":
        fix = suggest(statement[1].text, ["CASE_INSENSITIVE"], "the only setting is CASE_INSENSITIVE")
        raise source.error("SYNTAX", statement[1].start, f"there is no setting {statement[1].text}", fix=fix, example=_SET_EXAMPLE)
    if words[2:] not in (["ON"], ["OFF"]):
        raise source.error("SYNTAX", statement[0].start, "SET takes a name, and ON or OFF", example=_SET_EXAMPLE)
    return words[2] == "ON"


class _DeclarationReader:
    def __init__(self, statement: list[Token], source: Source) -> None:
        self._tokens, self._source, self._index = statement, source, 2

    def read(self) -> Declaration:
        name = self._name("the name of an input")
        self._expect(TokenType.L_PAREN, "(")
        fields = [self._field()]
        while self._next_is(TokenType.COMMA):
            self._index += 1
            fields.append(self._field())
        self._expect(TokenType.R_PAREN, ", or )")
        if self._index < len(self._tokens):
            raise self._error("the end of CREATE TABLE")
        for number, (path, _, offset) in enumerate(fields):
            if path.lower() in [other.lower() for other, _, _ in fields[:number]]:
                raise self._source.error("NAME", offset, f"{name.text} has two fields {path}", fix="declare each field once")
        return Declaration(name.text, name.start, tuple(fields))

    def _field(self) -> DeclaredField:
        first = self._name("the name of a field")
        path = [first.text]
        while self._next_is(TokenType.DOT):
            self._index += 1
            path.append(self._name("the name of a member").text)
        return DeclaredField(".".join(path), self._type(), first.start)

    def _type(self) -> str:
        word = self._name("a type")
        spelled = word.text.lower()
        if self._next_is(TokenType.L_PAREN):
            self._index += 1
            spelled += f"({self._name('max').text.lower()})" if not self._next_is(TokenType.NUMBER) else f"({self._next().text})"
            self._expect(TokenType.R_PAREN, ")")
        if spelled not in DECLARABLE:
            raise self._source.error("TYPE", word.start, f"there is no type {spelled}", fix=suggest_type(spelled), example=_CREATE_EXAMPLE)
        return spelled

    def _name(self, message: str) -> Token:
        if self._index >= len(self._tokens) or self._tokens[self._index].token_type in _NO_NAMES or "." in self._tokens[self._index].text:
            raise self._error(message)
        return self._next()

    def _next(self) -> Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _next_is(self, kind: TokenType) -> bool:
        return self._index < len(self._tokens) and self._tokens[self._index].token_type is kind

    def _expect(self, kind: TokenType, message: str) -> None:
        if not self._next_is(kind):
            raise self._error(message)
        self._index += 1

    def _error(self, expected: str) -> Exception:
        last = self._tokens[min(self._index, len(self._tokens) - 1)]
        near = f" near {last.text!r}"
        return self._source.error("SYNTAX", last.start, f"expecting {expected}{near}", fix="correct the script", example=_CREATE_EXAMPLE)
