"""
What may come next in a script that is being written: inputs, columns, functions, keywords.

Law: nothing is offered within a text, a number or a comment, and what is offered begins with what is typed, whatever the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from query.editor.names import EditedScript, NamedColumn
from query.editor.words import ScriptWord, WordKind, path_before, word_at
from tidegate.language.expressions.functions.manual import FunctionEntry, function_entries
from tidegate.language.expressions.kinds import DECLARABLE
from tidegate.language.expressions.tree import UNITS_US


class OfferKind(Enum):
    """What an offered name is."""

    INPUT = "input"
    REFERENCE = "reference data"
    STEP = "step"
    OUTPUT = "output"
    COLUMN = "column"
    FUNCTION = "function"
    KEYWORD = "keyword"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class Offer:
    """A name that may come next."""

    label: str
    kind: OfferKind
    # What it is, in some words.
    detail: str = ""
    # What is written; empty: the label.
    text: str = ""
    entry: FunctionEntry | None = None

    @property
    def written(self) -> str:
        """What stands in the script afterwards."""
        return self.text or self.label


@dataclass(frozen=True, slots=True)
class Completion:
    """The offers for what is typed from *start* on."""

    start: int
    offers: tuple[Offer, ...]


_KEYWORDS = (
    *("SELECT", "INTO", "FROM", "JOIN", "LEFT JOIN", "ON", "WHERE", "GROUP BY", "HAVING", "WITH", "AS", "UNION", "TOP", "ORDER BY"),
    *("TIMESTAMP BY", "OVER", "PARTITION BY", "LIMIT DURATION", "WHEN", "CROSS APPLY", "OUTER APPLY", "MATCH_RECOGNIZE", "CREATE TABLE"),
    *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "THEN", "ELSE", "END", "NULL", "DISTINCT"),
    *("AT TIME ZONE", "MEASURES", "PATTERN", "DEFINE", "AFTER MATCH SKIP TO NEXT ROW"),
)
_UNIT_CALLS = ("DATEADD", "DATEDIFF", "DATENAME", "DATEPART", "DURATION", "HOP", "OFFSET", "TIMEOUT", "MAXDURATION", "ISFIRST")
_PARTS = (*UNITS_US, "month", "quarter", "year", "dayofyear", "weekday")
_CASTS = ("CAST", "TRY_CAST")


def complete(script: EditedScript, offset: int) -> Completion:
    """Return what may stand at an offset, in place of the name that is typed there."""
    words = script.words
    number = word_at(words, offset)
    word = words[number] if number >= 0 else None
    if word is not None and not word.is_name and _is_within(word, offset):
        return Completion(offset, ())
    if word is None or not word.is_name:
        # The place is behind a sign or a blank: the name begins here.
        before = sum(1 for each in words if each.end <= offset)
        return _narrow(script, before, offset, offset)
    return _narrow(script, number, word.start, offset)


def _is_within(word: ScriptWord, offset: int) -> bool:
    """Return whether an offset lies in a text, number or comment; at the end of one that is closed it does not."""
    if word.kind is WordKind.SIGN:
        return False
    if word.kind is WordKind.NUMBER:
        return True
    is_open = word.kind is WordKind.COMMENT and word.text.startswith("--")
    is_closed = len(word.text) > 1 and word.text.endswith("'" if word.kind is WordKind.TEXT else "*/") and not is_open
    return word.start < offset < word.end or (offset == word.end and not is_closed)


def _narrow(script: EditedScript, number: int, start: int, offset: int) -> Completion:
    """Return the offers for the place before word *number* that begin with what is typed from *start* until *offset*."""
    typed = script.text[start:offset]
    is_bracketed = typed.startswith("[")
    wanted = typed.strip('["').lower()
    found = (offer for offer in _offers(script, number, start) if offer.label.lower().startswith(wanted))
    if is_bracketed:
        closing = "" if script.text[offset : offset + 1] == "]" else "]"
        names = (OfferKind.COLUMN, OfferKind.INPUT, OfferKind.REFERENCE, OfferKind.STEP, OfferKind.OUTPUT)
        found = (replace(offer, text=f"[{offer.label}{closing}") for offer in found if offer.kind in names)
    return Completion(start, tuple(dict.fromkeys(found)))


def _offers(script: EditedScript, number: int, start: int) -> Iterator[Offer]:
    path = [word.name for word in path_before(script.words, number)]
    before = _word_before(script.words, number - 2 * len(path))
    if path:
        yield from _members(script, path, start)
    elif before is not None and before.is_word("FROM", "JOIN"):
        yield from _sources(script)
    elif before is not None and before.is_word("INTO"):
        yield from (Offer(name, OfferKind.OUTPUT, "output", _quoted(name)) for name in script.project.outputs)
    elif _is_type(script.words, number):
        yield from (Offer(name, OfferKind.TYPE, "type") for name in DECLARABLE)
    else:
        if _is_unit(script.words, number):
            yield from (Offer(name, OfferKind.KEYWORD, "unit") for name in dict.fromkeys(_PARTS))
        yield from _columns(script.columns_at(start))
        yield from _aliases(script, start)
        yield from _functions(script)
        yield from (Offer(name, OfferKind.KEYWORD) for name in _KEYWORDS)


def _word_before(words: list[ScriptWord], number: int) -> ScriptWord | None:
    """Return the last word before *number* that is no comment."""
    return next((word for word in reversed(words[:number]) if word.kind is not WordKind.COMMENT), None)


def _is_type(words: list[ScriptWord], number: int) -> bool:
    """Return whether a type stands at a place: ``CAST(x AS``, and in CREATE TABLE behind a name."""
    before = words[:number]
    if not before or not before[-1].is_word("AS"):
        return False
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        depth += (before[place].text == ")") - (before[place].text == "(")
        if depth < 0:
            return place > 0 and before[place - 1].is_word(*_CASTS)
    return False


def _is_unit(words: list[ScriptWord], number: int) -> bool:
    """Return whether a unit of time stands at a place: the first argument of a window, a duration, DATEADD and the like."""
    if number < 2 or words[number - 1].text != "(":
        return False
    called = words[number - 2].text.upper()
    return called in _UNIT_CALLS or called.startswith(("TUMBLING", "HOPPING", "SLIDING", "SESSION"))


def _sources(script: EditedScript) -> Iterator[Offer]:
    yield from (Offer(name, OfferKind.STEP, "step", _quoted(name)) for name in script.scopes.steps())
    for name, schema in script.project.streams.items():
        yield Offer(name, OfferKind.INPUT, "results of a query" if schema.is_result else "input", _quoted(name))
    yield from (Offer(name, OfferKind.REFERENCE, "reference data", _quoted(name)) for name in script.project.references)
    yield from (Offer(name, OfferKind.INPUT, "CREATE TABLE", _quoted(name)) for name in script.scopes.tables)


def _aliases(script: EditedScript, offset: int) -> Iterator[Offer]:
    for origin in script.origins_at(offset):
        if origin.alias:
            yield Offer(
                origin.alias, OfferKind.INPUT, origin.name if origin.name != origin.alias else "input or step", _quoted(origin.alias)
            )


def _functions(script: EditedScript) -> Iterator[Offer]:
    yield from (Offer(entry.name, OfferKind.FUNCTION, entry.syntax, entry=entry) for entry in function_entries())
    for name, place in script.project.functions(script.path).items():
        yield Offer(f"udf.{name}", OfferKind.FUNCTION, place)


def _members(script: EditedScript, path: list[str], offset: int) -> Iterator[Offer]:
    """Yield what may stand behind ``path.``."""
    first = path[0].lower()
    if first in ("udf", "uda"):
        yield from (Offer(name, OfferKind.FUNCTION, place) for name, place in script.project.functions(script.path).items())
    elif first == "system" and len(path) == 1:
        yield Offer("Timestamp()", OfferKind.FUNCTION, "the time of the event, or the end of the window")
        yield Offer("Window().Id", OfferKind.FUNCTION, "which of several windows a result is of")
    else:
        called = {name.lower() for origin in script.origins_at(offset) for name in (origin.alias, origin.name)}
        if first in called:
            yield from _columns(script.columns_at(offset, path[0]), path[1:])
        yield from _columns(script.columns_at(offset), path)


def _columns(columns: Iterable[NamedColumn], above: Iterable[str] = ()) -> Iterator[Offer]:
    """Yield the columns below a path, each step of a path once."""
    folded = [name.lower() for name in above]
    for column in columns:
        if [name.lower() for name in column.path[: len(folded)]] == folded and len(column.path) > len(folded):
            name, is_whole = column.path[len(folded)], len(column.path) == len(folded) + 1
            kind = column.kind if is_whole else "record"
            yield Offer(name, OfferKind.COLUMN, f"{kind} of {column.owner}" if kind else f"of {column.owner}", _quoted(name))


def _quoted(name: str) -> str:
    """Return a name as it must be written."""
    return "" if name.isidentifier() and name.upper() not in _KEYWORDS else f"[{name}]"
