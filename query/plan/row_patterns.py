"""
Row patterns: what PATTERN of MATCH_RECOGNIZE describes, and the automaton that finds it.

A pattern is a variable, a sequence, a choice, or a repetition. A choice prefers its first parts, a repetition as many rounds as possible;
a round without rows is no round. Of all matches that begin at a row the preferred one counts.

Law: the automaton has a place for each variable that stands in the pattern, quantifiers written out. The places that follow one are in the
order of preference, so threads that are kept in this order find the preferred match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# A variable that every row fits.
ANY = "."
# Stands for the end of the pattern among places that follow.
ACCEPT = -1
# Most places of an automaton.
PLACES_MAX = 256
# Most ways from the places of an automaton to those that follow them: a thread that reads a row takes all ways of its place.
WAYS_MAX = 2_048


class TooManyPlaces(Exception):
    """A pattern has more than ``PLACES_MAX`` places with its quantifiers written out."""


class TooManyWays(Exception):
    """A pattern has more than ``WAYS_MAX`` ways from place to place."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One row that fits a variable, by its name as the script spells it; the subclasses consist of other patterns."""

    name: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sequence(Pattern):
    """One part after the other."""

    parts: tuple[Pattern, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Choice(Pattern):
    """One of the parts."""

    parts: tuple[Pattern, ...] = ()

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Repetition(Pattern):
    """A part *least* to *most* times; *most* is None without limit."""

    part: Pattern = Pattern()
    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.least, self.most))
        inner = str(self.part) if type(self.part) is Pattern else f"({self.part})"
        return inner + (sign or f"{{{self.least},{'' if self.most is None else self.most}}}")


def names_in(pattern: Pattern) -> Iterator[str]:
    """Yield the variables of a pattern, each as often as it stands there."""
    if isinstance(pattern, (Sequence, Choice)):
        for part in pattern.parts:
            yield from names_in(part)
    elif isinstance(pattern, Repetition):
        yield from names_in(pattern.part)
    else:
        yield pattern.name


@dataclass(frozen=True, slots=True)
class Automaton:
    """The places with the name of the variable of each, the places a match can begin with, and those that follow each."""

    names: tuple[str, ...]
    first: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]


# A node of the graph from which an automaton is made: the variable that it waits for, if any, and the nodes after it.
_Node = tuple[str | None, list[int]]


def make_automaton(pattern: Pattern) -> Automaton:
    """Return the automaton of a pattern. Raises TooManyPlaces, TooManyWays."""
    builder = _Builder()
    begin = builder.add(pattern, builder.new(None, []))
    waiting = [number for number, (name, _) in enumerate(builder.nodes) if name is not None]
    places = {number: place for place, number in enumerate(waiting)}
    follow = tuple(tuple(builder.closure(builder.nodes[number][1][0], places)) for number in waiting)
    if sum(map(len, follow)) > WAYS_MAX:
        raise TooManyWays
    first = tuple(place for place in builder.closure(begin, places) if place != ACCEPT)
    return Automaton(tuple(str(builder.nodes[number][0]) for number in waiting), first, follow)


class _Builder:
    """Builds the graph from its end to its beginning; node 0 is the end."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self._places = 0

    def new(self, name: str | None, after: list[int]) -> int:
        self._places += name is not None
        # Nested quantifiers without rows of their own add nodes too.
        if self._places > PLACES_MAX or len(self.nodes) > 16 * PLACES_MAX:
            raise TooManyPlaces
        self.nodes.append((name, after))
        return len(self.nodes) - 1

    def add(self, pattern: Pattern, after: int) -> int:
        """Add the nodes of *pattern*, which node *after* follows; return the node that it begins with."""
        if isinstance(pattern, Sequence):
            for part in reversed(pattern.parts):
                after = self.add(part, after)
            return after
        if isinstance(pattern, Choice):
            return self.new(None, [self.add(part, after) for part in pattern.parts])
        if not isinstance(pattern, Repetition):
            return self.new(pattern.name, [after])
        begin = after
        if pattern.most is None:
            begin = self.new(None, [])
            self.nodes[begin][1].extend([self.add(pattern.part, begin), after])
        else:
            for _ in range(pattern.most - pattern.least):
                begin = self.new(None, [self.add(pattern.part, begin), after])
        for _ in range(pattern.least):
            begin = self.add(pattern.part, begin)
        return begin

    def closure(self, begin: int, places: dict[int, int]) -> Iterator[int]:
        """Yield the places that are reached from a node without a row, the preferred ones first."""
        stack, seen = [begin], set()
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            name, after = self.nodes[number]
            if number == 0:
                yield ACCEPT
            elif name is not None:
                yield places[number]
            else:
                stack.extend(reversed(after))
