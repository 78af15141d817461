"""
Patterns that differ from row to row: LIKE, PATINDEX and REGEXMATCH with a column of an event or of reference data as pattern.

A pattern means here what it means as a constant (:mod:`~.patterns`), has the same limits, and matches in linear time, so one from outside
cannot stop a job either. All rows of one pattern are matched at once; what a pattern is translated to is remembered. A row whose pattern is
none fails. Law: its value depends on the text and the pattern alone.

>>> from tidegate.testing import run_query
>>> script = "SELECT CASE WHEN text LIKE pattern THEN 1 ELSE 0 END AS fits INTO out FROM a"
>>> run_query(script, {"a": [{"text": "abc", "pattern": "a%"}, {"text": "abc", "pattern": "b%"}]}).rows
[{'fits': 1}, {'fits': 0}]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.functions.column_functions import REGISTERED, ColumnFunction, ColumnRule, FailedRows
from tidegate.language.expressions.functions.patterns import PATTERN_CHARACTERS_MAX, PATTERN_PLACES, like_to_regex, size_problem
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant, valid_mask

# The functions whose pattern is a column, by the name of the function; a script cannot call these names.
PATTERN_CALLS = {name: f"{name} each" for name in PATTERN_PLACES}
# So many patterns are remembered, each of at most a thousand characters.
_REMEMBERED_MAX = 4_096


def column_pattern_problem(name: str, pattern: str) -> str:
    """Return what is wrong with a pattern of function *name* (lower case) that is not a constant; empty if it is valid."""
    # The length first: a long text is no key to remember it by.
    return size_problem(name, pattern) if len(pattern) > PATTERN_CHARACTERS_MAX else _translate(name, pattern)[1]


@lru_cache(maxsize=_REMEMBERED_MAX)
def _translate(name: str, pattern: str) -> tuple[str, str]:
    """Return the regular expression whose first match is that of a pattern, and what is wrong with the pattern."""
    if problem := size_problem(name, pattern):
        return "", problem
    # The pattern alone first: an unbalanced bracket would go unnoticed inside the brackets around it.
    for regex in (pattern if name == "regexmatch" else "", _regex_of(name, pattern)):
        try:
            pc.match_substring_regex(pa.array([""]), regex)
        except pa.ArrowInvalid as error:
            return "", f"is not understood: {str(error).split(': ', 1)[-1]}"
    return _regex_of(name, pattern), ""


def _regex_of(name: str, pattern: str) -> str:
    if name == "regexmatch":
        return f"(?si:{pattern})"
    if name == "patindex" and pattern.startswith("%"):
        return f"(?s:{like_to_regex(pattern[1:])}$)"
    return f"(?s:^{like_to_regex(pattern)}$)"


def _rule(name: str) -> ColumnRule:
    def compute(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
        texts, patterns = (args[place].of_kind(Kind.NVARCHAR) for place in (1 - PATTERN_PLACES[name], PATTERN_PLACES[name]))
        is_computed = valid_mask(texts) & valid_mask(patterns)
        found = np.zeros(length, dtype=np.int64)
        failures = []
        for pattern, rows in _rows_by_pattern(patterns, np.flatnonzero(is_computed).astype(np.int64)):
            if problem := column_pattern_problem(name, pattern):
                is_computed[rows] = False
                failures.append(FailedRows(rows, QueryReason.CALL.text(name.upper(), f"its pattern {problem}")))
            else:
                chosen = texts if len(rows) == length else texts.take(pa.array(rows))
                found[rows] = _positions(chosen, _translate(name, pattern)[0])
        kind, values = (Kind.BIT, found > 0) if name == "like" else (Kind.BIGINT, found)
        return Variant.of(length, {kind: pa.array(values, mask=~is_computed)}), failures

    return compute


def _rows_by_pattern(patterns: pa.Array, rows: Ints) -> list[tuple[str, Ints]]:
    """Return each pattern of the given rows with its rows, rising."""
    distinct = patterns.take(pa.array(rows)).dictionary_encode()
    numbers = distinct.indices.to_numpy().astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(distinct.dictionary) + 1))
    return [(text, rows[order[bounds[number] : bounds[number + 1]]]) for number, text in enumerate(distinct.dictionary.to_pylist())]


def _positions(texts: pa.Array, regex: str) -> Ints:
    """Return the place of the first match in each text, in characters from 1; 0 for none."""
    places = pc.find_substring_regex(texts, regex).to_numpy().astype(np.int64)
    matched = np.flatnonzero(places >= 0)
    found = np.zeros(len(places), dtype=np.int64)
    # Places are counted in bytes; only bytes that begin a character count.
    wide = texts.take(pa.array(matched)).cast(pa.large_string())
    _, ends, encoded = wide.buffers()
    if encoded is None:
        found[matched] = 1
        return found
    starts = np.frombuffer(ends, dtype=np.int64)[wide.offset : wide.offset + len(matched)]
    begins = np.concatenate([[0], np.cumsum((np.frombuffer(encoded, dtype=np.uint8) & 0xC0) != 0x80)])
    found[matched] = begins[starts + places[matched]] - begins[starts] + 1
    return found


for _name, _call in PATTERN_CALLS.items():
    REGISTERED[_call] = ColumnFunction(
        2, 2, _rule(_name), Kind.BIT if _name == "like" else Kind.BIGINT, argument_kinds=(Kind.NVARCHAR, Kind.NVARCHAR)
    )
