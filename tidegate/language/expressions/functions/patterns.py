"""
Patterns: LIKE, PATINDEX and REGEXMATCH.

A constant pattern is checked before the job starts; :mod:`~.column_patterns` has patterns that are columns. RE2 matches in time linear in
the text, so no pattern explodes. Positions count from 1; 0 means no match. As in Stream Analytics, REGEXMATCH ignores case and ``.``
matches line ends too. Look-ahead and back references are refused. RE2 unrolls counted repetitions before matching, and the time for each
character grows with the number of parts; so that number is limited.

>>> from tidegate.testing import run_query
>>> script = "SELECT PATINDEX('%d_', t) AS place, REGEXMATCH(t, 'D.$') AS matches INTO out FROM a WHERE t LIKE 't_d%'"
>>> run_query(script, {"a": [{"t": "tide"}]}).rows
[{'place': 3, 'matches': 3}]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tidegate.language.expressions.duckdb_pool import quote, run
from tidegate.language.expressions.functions.conversions import TypedSql
from tidegate.language.expressions.functions.definition import Function, as_text
from tidegate.language.expressions.kinds import Kind

PATTERN_CHARACTERS_MAX = 1_000  # longest pattern accepted
PATTERN_PARTS_MAX = 400  # most parts (characters, sets, ...) that counted repetitions may unroll to
_BRACKETED = r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
# One part of a regular expression, a bracket, a sign, or a counted repetition with its numbers.
_PART = re.compile(rf"\\Q.*?(?:\\E|$)|\\(?:[pPx]\{{[^}}]*\}}|.)|{_BRACKETED}|\(\?[\w^-]*[):]|\(\?P?<\w+>|\{{(\d+)(,?)(\d*)\}}|.", re.DOTALL)


def like_to_regex(pattern: str) -> str:
    """Translate a LIKE pattern of T-SQL (``%``, ``_``, ``[a-c]``, ``[^x]``) to a regular expression for the whole value."""
    out, rest = "", pattern
    while rest:
        bracket = re.match(r"\[(\^?)(\]?[^\]]*)\]", rest)
        if bracket and bracket[2]:
            out += f"[{bracket[1]}{_escape_set(bracket[2])}]"
            rest = rest[bracket.end() :]
        else:
            out += {"%": ".*", "_": "."}.get(rest[0]) or re.escape(rest[0])
            rest = rest[1:]
    return out


def regex_of(name: str, pattern: str) -> str:
    """Return the regular expression for the pattern of function *name* (lower case)."""
    if name == "like":
        return like_to_regex(pattern)
    if name == "regexmatch":
        return f"^(.*?)(?:{pattern})"
    if pattern.startswith("%"):
        return f"^(.*?){like_to_regex(pattern[1:])}$"
    return f"^(){like_to_regex(pattern)}$"


def pattern_problem(name: str, pattern: str) -> str:
    """Return what is wrong with the pattern of a function; empty if it is valid."""
    if problem := size_problem(name, pattern):
        return problem
    import duckdb

    try:
        # The pattern alone first: an unbalanced bracket would go unnoticed inside the brackets that regex_of adds.
        for regex in (pattern if name == "regexmatch" else "", regex_of(name, pattern)):
            run(f"SELECT regexp_matches('', {quote(regex)}, 's')")
    except duckdb.Error as error:
        return f"is not understood: {str(error).split(': ', 1)[-1].splitlines()[0]}"
    return ""


def size_problem(name: str, pattern: str) -> str:
    """Return why a pattern is too large; empty if it is not."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"has {len(pattern)} characters, more than {PATTERN_CHARACTERS_MAX}"
    if name == "regexmatch" and (parts := _repeated_parts(pattern)) > PATTERN_PARTS_MAX:
        return f"has repetitions that unroll to {parts} parts, more than {PATTERN_PARTS_MAX}"
    return ""


def _repeated_parts(regex: str) -> int:
    """Return how many parts the counted repetitions of a regular expression unroll to; 0 without any."""
    # For each open bracket: how many parts it has so far, and how many its last one has.
    groups, last, is_repeated = [0], 0, False
    for part in _PART.finditer(regex):
        text = part[0]
        if part[1] is not None:
            times = max(int(part[3] or part[1]), 1)
            groups[-1], last, is_repeated = groups[-1] + last * (times - 1), last * times, is_repeated or times > 1
        elif text.startswith("(") and not text.endswith(")"):
            groups.append(0)
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif text not in {"*", "+", "?", "|"} and not text.startswith("("):
            groups[-1], last = groups[-1] + 1, 1
    return sum(groups) if is_repeated else 0


def _escape_set(inside: str) -> str:
    return re.sub(r"([\\\[\]^&~])", r"\\\1", inside)


def _pattern(name: str, arg: TypedSql) -> str:
    assert arg.constant is not None, "the binder lets nothing but constants pass"
    return quote(regex_of(name, arg.constant))


def _like(args: Sequence[TypedSql]) -> TypedSql:
    if args[1].kind is Kind.NULL:
        return TypedSql("CAST(NULL AS BOOLEAN)", Kind.BIT)
    return TypedSql(f"regexp_full_match({as_text(args[0])}, {_pattern('like', args[1])}, 's')", Kind.BIT)


def _position(name: str, value: int, options: str) -> Callable[[Sequence[TypedSql]], TypedSql]:
    def rule(args: Sequence[TypedSql]) -> TypedSql:
        pattern, text = args[1 - value], as_text(args[value])
        if pattern.kind is Kind.NULL:
            return TypedSql("CAST(NULL AS BIGINT)", Kind.BIGINT)
        regex = _pattern(name, pattern)
        before = f"length(regexp_extract({text}, {regex}, 1, '{options}'))"
        position = f"CASE WHEN regexp_matches({text}, {regex}, '{options}') THEN {before} + 1 ELSE 0 END"
        return TypedSql(f"CASE WHEN {text} IS NOT NULL THEN CAST({position} AS BIGINT) END", Kind.BIGINT)

    return rule


LIKE = Function(2, 2, _like, Kind.BIT)
# The functions that take a pattern, by name in lower case.
PATTERN_FUNCTIONS: dict[str, Function] = {
    "patindex": Function(2, 2, _position("patindex", 1, "s"), Kind.BIGINT),
    "regexmatch": Function(2, 2, _position("regexmatch", 0, "si"), Kind.BIGINT),
}
# Index of the pattern among the arguments.
PATTERN_PLACES = {"like": 1, "patindex": 0, "regexmatch": 1}
# An example of each, for error messages.
PATTERN_EXAMPLES = {"like": "origin LIKE 'A%'", "patindex": "PATINDEX('%[0-9]%', origin)", "regexmatch": "REGEXMATCH(origin, '[0-9]+')"}
