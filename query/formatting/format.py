"""
A script's layout: a clause begins a line, lists and conditions break where they are too long, keywords are in capitals.

Law: words, comments and the parsed tree are those of the script, and a script that is laid out stays as it is. The result is compared with
the script before it is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from query.formatting.clauses import ScriptLayout
from query.formatting.lines import render
from query.formatting.words import Word, read_words
from tidegate.language.expressions.syntax.parse import Script, parse_script
from tidegate.language.expressions.syntax.statements import statement_tokens

# A comment that moves to the end of its line may let a line break elsewhere; then all is at its place.
_ROUNDS_MAX = 6


def format_script(text: str, file: str = "<script>") -> str:
    """Return a script laid out. Raises QueryError: it is no SQL of this dialect."""
    script = parse_script(text, file)
    for has_capitals in (True, False):
        laid_out = _settle(script, text, has_capitals)
        if _meaning(laid_out) == _meaning(script):
            return laid_out.source.text
    raise AssertionError(f"{file}: the layout would change the script")


def _settle(script: Script, text: str, has_capitals: bool) -> Script:
    words, tokens = read_words(script)
    for _ in range(_ROUNDS_MAX):
        starts = {statement[0].start for statement in statement_tokens(tokens)}
        laid_out = render(ScriptLayout(words, starts, has_capitals).script()).strip("\n") + "\n"
        if laid_out == text:
            break
        script, text, spelling = parse_script(laid_out, script.source.file), laid_out, _spelling(words)
        words, tokens = read_words(script)
        assert _spelling(words) == spelling, f"{script.source.file}: the layout would change the script's words"
    return script


def _spelling(words: Sequence[Word]) -> tuple[list[tuple[TokenType, str]], list[str]]:
    """Return the words of a script, whatever their case, and its comments, in their order."""
    comments = [comment.text for word in words for comment in (*word.before, *word.after)]
    return [(word.kind, "".join((word.keyword or word.text).split()).upper()) for word in words], sorted(comments)


def _meaning(script: Script) -> Any:
    declared = [(each.name, [field[:2] for field in each.fields]) for each in script.declarations]
    return [[_node(node) for node in tree.walk()] for tree in script.statements], declared, script.source.ignores_case


def _node(node: exp.Expr) -> tuple[Any, ...]:
    values = [(name, str(value)) for name, value in node.args.items() if not isinstance(value, exp.Expr | list)]
    return type(node).__name__, node.arg_key, len(list(node.iter_expressions())), values
