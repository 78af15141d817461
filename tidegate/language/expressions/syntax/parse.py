"""
Text -> tree: one script, its statements, and the place of each word.

Text that is not SQL of this dialect is refused. Text that is too long or nested too deeply is refused before the parser could run out of
memory or stack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidegate.language.expressions.syntax.common_mistakes import refuse_common_mistakes
from tidegate.language.expressions.syntax.dialect import Asa
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.syntax.foreign_clauses import refuse_foreign_clauses
from tidegate.language.expressions.syntax.ignored_parts import refuse_ignored_parts
from tidegate.language.expressions.syntax.statements import CLOSING, OPENING, Declaration, split_statements
from tidegate.language.expressions.syntax.syntax_errors import SCRIPT_EXAMPLE, syntax_error

SCRIPT_CHARACTERS_MAX = 262_144  # longest script accepted
SCRIPT_WORDS_MAX = 30_000  # most words and signs accepted
NESTING_MAX = 100  # deepest nesting of brackets and CASE accepted
TREE_DEPTH_MAX = 120  # deepest tree accepted: a chain of operators nests the tree without brackets
OPEN_JOINS_MAX = 8  # most JOINs without ON accepted: behind each of them sqlglot parses the rest twice

_SELECT_PREFIX = "SELECT "
_JOINS = {TokenType.JOIN, TokenType.STRAIGHT_JOIN}
_ENDS_OF_JOINS = {TokenType.SELECT, TokenType.SEMICOLON}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
_REASONS = {
    "Invalid expression / Unexpected token": "unexpected word",
    "Required keyword": "an operand is missing",
    "Expected table name": "the name of an input or step is missing",
}


@dataclass(frozen=True)
class Script:
    """A parsed script: its source, its queries as sqlglot trees, and its declarations of inputs."""

    source: Source
    statements: tuple[exp.Expr, ...]
    declarations: tuple[Declaration, ...] = ()


def parse_script(text: str, file: str = "<script>", *, prefix_length: int = 0) -> Script:
    """Parse a script. Errors name *file* and count columns after the first *prefix_length* characters, which the author did not write."""
    # Some editors begin a file with a byte order mark.
    text = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
    source = Source(text, file, prefix_length)
    if len(text) > SCRIPT_CHARACTERS_MAX:
        message = f"the script has {len(text)} characters, more than {SCRIPT_CHARACTERS_MAX}"
        raise source.error("SIZE", -1, message, fix="split it into several queries; each runs as its own job")
    tokens = _tokens(source)
    _refuse_oversized(tokens, source)
    refuse_common_mistakes(tokens, source)
    refuse_foreign_clauses(tokens, source)
    parts = split_statements(tokens, source)
    source = replace(source, ignores_case=parts.ignores_case)
    queries = [token for query in parts.queries for token in (*query, _semicolon_after(query))]
    parser = Asa.Parser(dialect=Asa())
    try:
        trees = parser.parse(queries, text) if queries else []
    except ParseError as error:
        raise _syntax_error(error, source) from None
    except (AttributeError, LookupError, TypeError, ValueError):
        # On some malformed texts sqlglot fails with an error of its own code instead of a ParseError.
        offset, word = parser.place
        raise syntax_error(source, offset, _REASONS["Invalid expression / Unexpected token"], word) from None
    except RecursionError:
        raise source.error("SIZE", -1, "the script is nested too deeply", fix="write shorter expressions") from None
    statements = tuple(tree for tree in trees if tree is not None)
    for statement in statements:
        _refuse_deep_tree(statement, source)
        for node in statement.walk():
            refuse_ignored_parts(node, source)
    if not statements:
        raise source.error("SYNTAX", -1, "the script has no statement", fix="write a SELECT", example=SCRIPT_EXAMPLE)
    return Script(source, statements, tuple(parts.declarations))


def parse_expression(text: str, where: str) -> tuple[Source, exp.Expr]:
    """Parse one expression, such as ``timestamp_by`` of an input, called *where* in errors; also return the source of its offsets."""
    script = parse_script(f"{_SELECT_PREFIX}{text}", where, prefix_length=len(_SELECT_PREFIX))
    statement = script.statements[0]
    chosen = statement.expressions
    has_other_statements = len(script.statements) > 1 or script.declarations or script.source.ignores_case
    is_select = isinstance(statement, exp.Select) and not has_other_statements
    if not is_select or len(chosen) != 1 or any(value for name, value in statement.args.items() if name != "expressions"):
        raise script.source.error("SYNTAX", -1, f"{text!r} is not one expression", fix="give a field path or an expression")
    expression: exp.Expr = chosen[0]
    return script.source, expression


def _tokens(source: Source) -> list[Token]:
    try:
        return Asa().tokenize(source.text)
    except TokenError as error:
        comment = source.text.rfind("/*")
        if comment >= 0 and "*/" not in source.text[comment:]:
            raise source.error("SYNTAX", comment, "a comment is never closed", fix="close it by */") from error
        offset = max(source.text.rfind("'"), source.text.rfind("["), source.text.rfind('"'))
        raise source.error("SYNTAX", offset, f"{source.text[offset]} is never closed", fix="close every quote and bracket") from error


def _semicolon_after(query: list[Token]) -> Token:
    last = query[-1]
    return Token(TokenType.SEMICOLON, ";", last.line, last.col, last.end, last.end)


def _refuse_oversized(tokens: list[Token], source: Source) -> None:
    if len(tokens) > SCRIPT_WORDS_MAX:
        message = f"the script has {len(tokens)} words and signs, more than {SCRIPT_WORDS_MAX}"
        raise source.error("SIZE", -1, message, fix="split it into several queries; each runs as its own job")
    # JOINs whose ON has not come yet, at each level of brackets.
    open_joins, prefixes = [0], 0
    for token in tokens:
        kind = token.token_type
        if kind in OPENING:
            open_joins.append(0)
        elif kind in CLOSING and len(open_joins) > 1:
            open_joins.pop()
        elif kind in _JOINS:
            open_joins[-1] += 1
        elif kind is TokenType.ON and open_joins[-1]:
            open_joins[-1] -= 1
        elif kind in _ENDS_OF_JOINS:
            open_joins[-1] = 0
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if len(open_joins) - 1 > NESTING_MAX or prefixes > NESTING_MAX:
            raise source.error("SIZE", token.start, f"nested more than {NESTING_MAX} deep", fix="write shorter expressions")
        if sum(open_joins) > OPEN_JOINS_MAX:
            raise source.error("SIZE", token.start, f"more than {OPEN_JOINS_MAX} JOINs without ON", fix="write ON behind each JOIN")


def _refuse_deep_tree(statement: exp.Expr, source: Source) -> None:
    pending = [(statement, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > TREE_DEPTH_MAX:
            message = f"more than {TREE_DEPTH_MAX} operators in one chain"
            raise source.error("SIZE", node, message, fix="write shorter expressions; IN takes long lists of values")
        pending.extend((child, depth + 1) for child in node.iter_expressions())


def _syntax_error(error: ParseError, source: Source) -> Exception:
    first = error.errors[0] if error.errors else {}
    line, column, word = first.get("line"), first.get("col"), first.get("highlight") or ""
    offset = -1
    if isinstance(line, int) and isinstance(column, int):
        # sqlglot reports the column of a word's last character.
        offset = sum(len(text) + 1 for text in source.text.split("\n")[: line - 1]) + column - max(len(word), 1)
    reason = str(first.get("description") or "this is no SQL").partition(" but got <")[0].rstrip(".")
    reason = next((ours for theirs, ours in _REASONS.items() if reason.startswith(theirs)), reason)
    return syntax_error(source, offset, reason, word)
