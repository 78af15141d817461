"""
Errors of scripts: each names its place, a fix, and the nearest correct spelling.

Inside the program a place is an offset into the script; a message shows it as ``file:line:column``, counted from 1. The stable codes:

========================  ==========================================================================================
``TG-QUERY-SYNTAX``       the text is no SQL of this dialect
``TG-QUERY-NOT-YET``      a construct of Stream Analytics that is not supported yet
``TG-QUERY-INPUT``        FROM names no configured input
``TG-QUERY-OUTPUT``       INTO is missing, or differs from the output on the command line
``TG-QUERY-TIMESTAMP``    TIMESTAMP BY contradicts the input's
``TG-QUERY-OVER``         OVER contradicts the input's, or its key is not among the grouping keys
``TG-QUERY-FIELD``        the input has no such field
``TG-QUERY-FUNCTION``     no such function, or a wrong number of arguments
``TG-QUERY-TYPE``         an operation cannot work on values of this type
``TG-QUERY-GROUP``        a selected value is neither grouped nor aggregated, or grouping lacks a window
``TG-QUERY-WINDOW``       a window's or a duration's arguments are wrong, or LIMIT DURATION is missing
``TG-QUERY-ZONE``         no such time zone, or two where one calendar must count
``TG-QUERY-JOIN``         ON leaves the time between two rows without limit, or the kind of join is unknown
``TG-QUERY-PATTERN``      MATCH_RECOGNIZE lacks a clause, or its PATTERN or DEFINE is wrong or too large
``TG-QUERY-NAME``         two output columns have the same name
``TG-QUERY-JAVASCRIPT``   a function in JavaScript cannot be read, or is no JavaScript
``TG-QUERY-SIZE``         the script is too big or nested too deeply
``TG-QUERY-SQLGLOT``      the installed sqlglot is the compiled one
========================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING

from ordering.errors import QueryError
from tidegate.language.expressions.kinds import Kind

if TYPE_CHECKING:  # suggestions are made in processes that do not need sqlglot
    from sqlglot import exp

# Longest name for which a similar one is sought: the time grows with the square of the length, and no keyword is as long.
_COMPARED_LETTERS_MAX = 100
# The longest message of an error.
_MESSAGE_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class Source:
    """
    A script's text and its name in messages. The first *prefix_length* characters are not the author's: columns are counted after them.
    *ignores_case*: the script asks for comparisons of texts that ignore case. *functions*: the registered name of each function that
    belongs to the script, by the name that it calls it by, in lower case.
    """

    text: str
    file: str = "<script>"
    prefix_length: int = 0
    ignores_case: bool = False
    functions: Mapping[str, str] = field(default_factory=dict, compare=False)

    def registered(self, name: str) -> str:
        """Return the name by which the function is registered that the script calls *name*."""
        return self.functions.get(name, name)

    def location(self, offset: int) -> str:
        """Return ``file:line:column`` of a character offset, counted from 1; the file alone if *offset* is negative."""
        if offset < 0:
            return self.file
        before = self.text[self.prefix_length : offset]
        return f"{self.file}:{before.count(chr(10)) + 1}:{len(before) - (before.rfind(chr(10)) + 1) + 1}"

    def error(self, code: str, place: exp.Expr | int, message: str, *, fix: str = "", example: str = "") -> QueryError:
        """Return the error at *place*: a node of the script's tree, or an offset (-1: the script as a whole)."""
        offset = place if isinstance(place, int) else offset_of(place)
        if len(message) > _MESSAGE_CHARACTERS_MAX:
            # It repeats an expression, which may be as long as the script.
            message = f"{message[:_MESSAGE_CHARACTERS_MAX]} ..."
        return QueryError(message, code=f"TG-QUERY-{code}", where=self.location(offset), fix=fix, example=example)

    def not_yet(self, place: exp.Expr | int, construct: str, *, fix: str = "", example: str = "") -> QueryError:
        """Return the error for a construct of Stream Analytics that is not supported yet; *construct* ends with its verb."""
        fix = fix or "leave it out, or compute it in a stage of its own"
        return self.error("NOT-YET", place, f"{construct} not supported yet", fix=fix, example=example)


def offset_of(node: exp.Expr) -> int:
    """Return the offset of the first word of *node* in its script, or -1 if the tree does not have it."""
    offsets = [start for part in node.walk() if isinstance(start := part.meta.get("start"), int)]
    return min(offsets, default=-1)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the candidate most like *name*, ignoring case, or an empty string if none is close or the name is very long."""
    if len(name) > _COMPARED_LETTERS_MAX:
        return ""
    by_folded_name = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_folded_name, n=1, cutoff=0.6)
    return by_folded_name[matches[0]] if matches else ""


def similarity(name: str, other: str) -> float:
    """Return how alike two names are, ignoring case: 1 if equal, 0 without a common letter, and if one is very long."""
    if max(len(name), len(other)) > _COMPARED_LETTERS_MAX:
        return 0.0
    return SequenceMatcher(None, other.lower(), name.lower()).ratio()


def suggest(name: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean X?`` for the nearest candidate, else *otherwise*."""
    candidate = nearest(name, candidates)
    return f"did you mean {candidate}?" if candidate else otherwise


_TYPE_NAMES = [kind.asa_name for kind in (Kind.BIGINT, Kind.FLOAT, Kind.NVARCHAR, Kind.DATETIME, Kind.BIT, Kind.RECORD, Kind.ARRAY)]
_INSTEAD = {
    # sqlglot calls T-SQL's tinyint utinyint.
    **dict.fromkeys(("int", "smallint", "tinyint", "utinyint", "integer", "long", "short", "int32", "int64"), "bigint"),
    **dict.fromkeys(("bool", "boolean"), "bit"),
    **dict.fromkeys(("json", "object", "struct", "map"), "record"),
    "list": "array",
    **dict.fromkeys(("decimal", "numeric", "money", "smallmoney"), "float, and ROUND what is shown; or bigint, for amounts in cents"),
    **dict.fromkeys(("real", "double", "number", "float32", "float64"), "float"),
    **dict.fromkeys(("timestamp", "timestamp_ltz", "datetime2", "smalldatetime"), "datetime"),
    "datetimeoffset": "datetime, a moment; x AT TIME ZONE 'Europe/Berlin' gives its local time",
    "date": "datetime; DATEDIFF and windows count days",
}


def suggest_type(spelled: str) -> str:
    """Return the fix for an unknown type."""
    word = spelled.lower().partition("(")[0].strip()
    instead = "nvarchar(max)" if word in ("text", "string") or "char" in word else _INSTEAD.get(word)
    return f"write {instead}" if instead else suggest(spelled, _TYPE_NAMES, f"types are {', '.join(_TYPE_NAMES)}")
