"""
The SELECTs of a script that is being written: what each reads, what it gives, and where it stands.

They are found by their words alone. Law: any text has scopes, at most one for each SELECT in it; of a script that can be run they have the
names that the script has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from query.editor.words import ScriptWord, meaningful

_CLAUSES = frozenset(
    {"SELECT", "INTO", "FROM", "JOIN", "ON", "WHERE", "GROUP", "HAVING", "ORDER", "TIMESTAMP", "OVER", "APPLY", "MATCH_RECOGNIZE", "WHEN"}
)
# Words behind the name of an input that are not its alias.
_NO_ALIAS = _CLAUSES | {"AS", "PARTITION", "CROSS", "OUTER", "LEFT", "RIGHT", "FULL", "INNER", "UNION", "WITH", "CREATE", "BY", "LIMIT"}


@dataclass(frozen=True, slots=True)
class SourceName:
    """A name in FROM, JOIN or APPLY, and the name by which the SELECT calls it. *name* is empty for a function or a subquery."""

    name: str
    alias: str


@dataclass
class Scope:
    """One SELECT: from *start* until before *end*."""

    start: int
    end: int = 0
    # The name of the step that it is.
    step: str = ""
    origins: list[SourceName] = field(default_factory=list)
    # The columns that it names.
    columns: list[str] = field(default_factory=list)
    has_star: bool = False
    # The keywords that begin its clauses, with their offsets, in order.
    clauses: list[tuple[int, str]] = field(default_factory=list)

    def clause_at(self, offset: int) -> str:
        """Return the keyword of the clause in which an offset lies, in capitals."""
        return next((clause for start, clause in reversed(self.clauses) if start < offset), "SELECT")


@dataclass
class ScriptScopes:
    """All of a script."""

    scopes: list[Scope]
    # The columns and types of each CREATE TABLE.
    tables: dict[str, dict[str, str]]

    def at(self, offset: int) -> Scope | None:
        """Return the innermost SELECT around an offset."""
        around = [scope for scope in self.scopes if scope.start < offset <= scope.end]
        return max(around, key=lambda scope: scope.start, default=None)

    def steps(self) -> list[str]:
        """Return the names of steps."""
        return list(dict.fromkeys(scope.step for scope in self.scopes if scope.step))

    def step(self, name: str) -> Scope | None:
        """Return the SELECT of a step."""
        return next((scope for scope in self.scopes if scope.step and scope.step.lower() == name.lower()), None)


def read_scopes(words: Sequence[ScriptWord], length: int) -> ScriptScopes:
    """Return the scopes of a script with these words and so many characters."""
    reader = _Reader(list(meaningful(words)), length)
    return ScriptScopes(reader.read(), _tables(reader.words))


@dataclass
class _Level:
    """What is open between two brackets."""

    scope: Scope | None = None
    # The step that a SELECT in these brackets is.
    step: str = ""
    # The words of the column that is being read.
    item: list[ScriptWord] = field(default_factory=list)


class _Reader:
    def __init__(self, words: list[ScriptWord], length: int) -> None:
        self.words, self._length = words, length
        self._scopes: list[Scope] = []
        self._levels = [_Level()]

    def read(self) -> list[Scope]:
        for number, word in enumerate(self.words):
            self._take(number, word)
        while self._levels:
            self._close(self._levels.pop(), self._length)
        return self._scopes

    def _take(self, number: int, word: ScriptWord) -> None:
        level = self._levels[-1]
        if word.text == "(":
            level.item.append(word)
            self._levels.append(_Level(step=self._step_before(number)))
        elif word.text == ")":
            self._close(level, word.start)
            self._levels.pop()
            self._levels = self._levels or [_Level()]
        elif word.text == ";" or word.is_word("UNION", "WITH", "CREATE"):
            self._close(level, word.start)
        elif word.is_word("SELECT"):
            self._close(level, word.start)
            level.scope = Scope(word.start, step=level.step)
            level.scope.clauses.append((word.end, "SELECT"))
            self._scopes.append(level.scope)
        elif level.scope is not None:
            self._take_of_select(number, word, level, level.scope)

    def _take_of_select(self, number: int, word: ScriptWord, level: _Level, scope: Scope) -> None:
        in_select = scope.clauses[-1][1] == "SELECT"
        # A CASE has WHEN too, and LAG its OVER.
        if word.is_word(*_CLAUSES) and not (in_select and word.is_word("ON", "WHEN", "OVER", "ORDER")):
            self._end_item(level)
            scope.clauses.append((word.end, word.text.upper()))
            if word.is_word("FROM", "JOIN", "APPLY"):
                scope.origins.append(self._origin(number + 1))
        elif in_select and word.text == ",":
            self._end_item(level)
        elif in_select:
            level.item.append(word)

    def _close(self, level: _Level, end: int) -> None:
        self._end_item(level)
        if level.scope is not None:
            level.scope.end = end
        level.scope = None

    def _end_item(self, level: _Level) -> None:
        """Take the column whose words are read."""
        item, scope = level.item, level.scope
        level.item = []
        if scope is None or scope.clauses[-1][1] != "SELECT" or not item:
            return
        last = item[-1]
        if last.text == "*":
            scope.has_star = True
        elif last.is_name and (len(item) == 1 or item[-2].text == "." or item[-2].is_word("AS")):
            scope.columns.append(last.name)

    def _step_before(self, number: int) -> str:
        """Return the name of the step whose brackets open at word *number*: ``name AS (``."""
        before = self.words[max(number - 3, 0) : number]
        if len(before) == 3 and before[2].is_word("AS") and before[1].is_name and (before[0].is_word("WITH") or before[0].text == ","):
            return before[1].name
        return ""

    def _origin(self, number: int) -> SourceName:
        """Return what FROM, JOIN or APPLY names from word *number* on."""
        name, number = self._named(number)
        following: Sequence[ScriptWord] = self.words[number : number + 2]
        if following and following[0].is_word("AS"):
            following = following[1:]
        elif following and following[0].is_word("TIMESTAMP"):
            # The alias may stand behind the event time: FROM taxis TIMESTAMP BY at t.
            following = _behind_expression(self.words[number + 2 :])
        alias = following[0].name if following and following[0].is_name and not following[0].is_word(*_NO_ALIAS) else ""
        return SourceName(name, alias or name)

    def _named(self, number: int) -> tuple[str, int]:
        """Return the name that begins at a word, and the number of the word behind; of brackets and calls no name, and what is behind."""
        if number >= len(self.words):
            return "", number
        name = self.words[number].name if self.words[number].is_name else ""
        is_call = number + 1 < len(self.words) and bool(name) and self.words[number + 1].text == "("
        if name and not is_call:
            return name, number + 1
        return "", _behind_brackets(self.words, number + 1 if is_call else number)


def _behind_brackets(words: Sequence[ScriptWord], number: int) -> int:
    """Return the number of the word behind the brackets that open at *number*; the end if they are not closed."""
    depth = 0
    for place in range(number, len(words)):
        depth += (words[place].text == "(") - (words[place].text == ")")
        if depth == 0:
            return place + 1
    return len(words)


def _behind_expression(words: Sequence[ScriptWord]) -> Sequence[ScriptWord]:
    """Return the words behind a path or call that begins with them."""
    number = 1
    while number < len(words):
        if words[number].text == ".":
            number += 2
        elif words[number].text == "(":
            number = _behind_brackets(words, number)
        else:
            break
    return words[number:]


def _tables(words: Sequence[ScriptWord]) -> dict[str, dict[str, str]]:
    """Return the columns of each CREATE TABLE by its name."""
    tables: dict[str, dict[str, str]] = {}
    for number, word in enumerate(words[:-3]):
        if word.is_word("CREATE") and words[number + 1].is_word("TABLE") and words[number + 2].is_name and words[number + 3].text == "(":
            tables[words[number + 2].name] = _declared(words[number + 4 : _behind_brackets(words, number + 3)])
    return tables


def _declared(words: Sequence[ScriptWord]) -> dict[str, str]:
    """Return the types of columns by their names: ``a bigint, b.c nvarchar(max)``."""
    columns: dict[str, str] = {}
    path: list[str] = []
    depth = 0
    for number, word in enumerate(words):
        depth += (word.text == "(") - (word.text == ")")
        if word.text == "," and depth == 0:
            path = []
        elif word.is_name and depth == 0:
            if path and words[number - 1].text != ".":
                columns[".".join(path)] = "nvarchar(max)" if word.text.lower() == "nvarchar" else word.text.lower()
            else:
                path.append(word.name)
    return columns
