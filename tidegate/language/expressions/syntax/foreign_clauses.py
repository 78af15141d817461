"""
Clauses of other streaming SQLs, recognized by their words: windows as ksqlDB, Spark and Kinesis write them, pumps, EMIT and LATERAL.

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
_KINESIS_PAGE = "docs/queries/coming-from-kinesis.md"
_TUMBLING_FIX = f"write a window in GROUP BY; TIMESTAMP BY names the time ({_KINESIS_PAGE}#tumbling-windows)"
# What Kinesis calls in FROM TABLE(...), each with what is written here and an example.
_KINESIS_TABLES = {
    **dict.fromkeys(
        ("RANDOM_CUT_FOREST", "RANDOM_CUT_FOREST_WITH_EXPLANATION"),
        (
            f"it draws its trees at random; AnomalyDetection_SpikeAndDip judges one column ({_KINESIS_PAGE}#anomalies)",
            "AnomalyDetection_SpikeAndDip(v, 95, 120, 'spikesanddips') OVER (LIMIT DURATION(minute, 2))",
        ),
    ),
    "HOTSPOTS": (f"count the events of each of the cells of a grid ({_KINESIS_PAGE}#hotspots)", "HAVING COUNT(*) >= 20"),
    "TOP_K_ITEMS_TUMBLING": (
        f"write TOP 3 and ORDER BY over the counts of a window ({_KINESIS_PAGE}#the-most-frequent-the-different)",
        "SELECT TOP 3 origin, COUNT(*) AS n ... GROUP BY origin, TumblingWindow(minute, 1) ORDER BY n DESC, origin",
    ),
    "COUNT_DISTINCT_ITEMS_TUMBLING": (
        f"write COUNT(DISTINCT x) in a window ({_KINESIS_PAGE}#the-most-frequent-the-different)",
        "SELECT COUNT(DISTINCT origin) AS n ... GROUP BY TumblingWindow(minute, 1)",
    ),
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
    return _find_of_kinesis(word, words, kinds)


def _find_of_kinesis(word: str, words: Sequence[str], kinds: Sequence[TokenType]) -> _Foreign | None:
    if word == "CREATE" and {"STREAM", "PUMP"} & {*words[:1], *(words[2:3] if words[:2] == ["OR", "REPLACE"] else ())}:
        fix = f"write a step, WITH name AS (SELECT ...), or SELECT ... INTO output; columns need no types ({_KINESIS_PAGE}#the-application)"
        return _Foreign("there are no streams and pumps", fix, "WITH late AS (SELECT origin FROM flights) SELECT origin INTO out FROM late")
    if (
        word == "SELECT"
        and words[:1] == ["STREAM"]
        and kinds[1:2] not in ([TokenType.COMMA], [TokenType.FROM], [TokenType.ALIAS], [TokenType.DOT])
    ):
        fix = f"leave it out: every SELECT is over streams ({_KINESIS_PAGE})"
        return _Foreign("there is no SELECT STREAM", fix, "SELECT origin FROM flights")
    if word == "STEP" and kinds[:1] == [TokenType.L_PAREN] and "INTERVAL" in words:
        return _Foreign("there is no function STEP", _TUMBLING_FIX, _KSQL_WINDOWS["TUMBLING"], "WINDOW")
    if word == "FLOOR" and kinds[:1] == [TokenType.L_PAREN] and "TO" in words:
        return _Foreign("there is no FLOOR(... TO MINUTE)", _TUMBLING_FIX, _KSQL_WINDOWS["TUMBLING"], "WINDOW")
    if word == "WINDOWED" and words[:1] == ["BY"]:
        fix = f"write a window in GROUP BY: with event time it is complete ({_KINESIS_PAGE}#stagger-windows)"
        return _Foreign("there is no clause WINDOWED BY", fix, _KSQL_WINDOWS["TUMBLING"], "WINDOW")
    if word in _KINESIS_TABLES and kinds[:1] == [TokenType.L_PAREN]:
        fix, example = _KINESIS_TABLES[word]
        return _Foreign(f"there is no function {word}", fix, example, "FUNCTION")
    return None


def _is_time_and_length(kinds: Sequence[TokenType]) -> bool:
    """Return whether tokens are ``(name, 'text'``, as Spark writes a window, and not ``('id', ...``, as Windows takes them."""
    if kinds[:1] != [TokenType.L_PAREN] or TokenType.COMMA not in kinds or kinds[1] in _TEXTS:
        return False
    return kinds[kinds.index(TokenType.COMMA) + 1 :][:1] == [TokenType.STRING]
