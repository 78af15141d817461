"""
Documents: text with places at which a line may end, and the lines that come of it.

A group stands on one line if it fits, else each of its own breaks ends a line. Law: the visible text is that of the document in its
order; only a suffix (a comment at the end of a line) waits for the next end of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 100  # longest line, if the text can be broken
INDENT = 4


@dataclass(frozen=True, slots=True)
class Break:
    """A place at which a line may end; on one line it is *flat*. *is_forced*: it always ends; *is_fresh*: unless the line is empty."""

    flat: str = " "
    is_forced: bool = False
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class Suffix:
    """Text at the end of the line, whatever follows on it."""

    text: str


@dataclass(frozen=True, slots=True)
class Concat:
    """Documents one after another: a group of its own, or *indent* deeper, or neither."""

    docs: Sequence[Doc]
    is_group: bool = False
    indent: int = 0
    is_broken: bool = False


Doc = str | Break | Suffix | Concat
SPACE, SOFT, HARD, FRESH = Break(), Break(""), Break(is_forced=True), Break(is_forced=True, is_fresh=True)


def concat(*docs: Doc) -> Concat:
    """Return documents one after another."""
    return Concat(docs, is_broken=any(map(_is_broken, docs)))


def group(*docs: Doc) -> Concat:
    """Return documents that stand on one line if they fit."""
    return Concat(docs, is_group=True, is_broken=any(map(_is_broken, docs)))


def indented(*docs: Doc) -> Concat:
    """Return documents whose lines begin deeper."""
    return Concat(docs, indent=INDENT, is_broken=any(map(_is_broken, docs)))


def joined(separator: Sequence[Doc], docs: Iterable[Doc]) -> Concat:
    """Return documents with *separator* between them."""
    found: list[Doc] = []
    for doc in docs:
        found += [*(separator if found else ()), doc]
    return concat(*found)


def _is_broken(doc: Doc) -> bool:
    return isinstance(doc, Suffix) or (isinstance(doc, Break) and doc.is_forced) or (isinstance(doc, Concat) and doc.is_broken)


def render(doc: Doc) -> str:
    """Return the lines of a document."""
    out: list[str] = []
    suffixes: list[str] = []
    column, begins_line, indent_due = 0, True, 0
    stack: list[tuple[Doc, int, bool]] = [(doc, 0, False)]
    while stack:
        current, indent, is_flat = stack.pop()
        if isinstance(current, Break) and is_flat and not current.is_forced:
            current = current.flat
        if isinstance(current, str):
            if current and begins_line:
                out.append(" " * indent_due)
                column, begins_line = indent_due, False
            out.append(current)
            column = len(current) - current.rfind("\n") - 1 if "\n" in current else column + len(current)
        elif isinstance(current, Suffix):
            suffixes.append(current.text)
        elif isinstance(current, Break):
            if not (current.is_fresh and begins_line and not suffixes):
                out += [*_apart(suffixes, indent), "\n"]
                suffixes.clear()
            begins_line, indent_due = True, indent
        else:
            inner = indent + current.indent
            if current.is_group:
                start = indent_due if begins_line else column
                is_flat = not current.is_broken and (is_flat or _fits(current, stack, WIDTH - start))
            stack += [(each, inner, is_flat) for each in reversed(current.docs)]
    out += _apart(suffixes, 0)
    return "".join(out)


def _apart(suffixes: Sequence[str], indent: int) -> list[str]:
    """Return what ends a line: behind a comment up to the end of the line another one begins a line of its own."""
    lines: list[str] = []
    for number, text in enumerate(suffixes):
        is_behind_comment = number > 0 and suffixes[number - 1].startswith(" --")
        lines.append(f"\n{' ' * indent}{text.lstrip()}" if is_behind_comment else text)
    return lines


def _fits(doc: Concat, rest: Sequence[tuple[Doc, int, bool]], room: int) -> bool:
    """Return whether a group fits on the line, with what follows it up to the next place at which a line may end."""
    stack: list[tuple[Doc, bool]] = [(doc, True)]
    number = len(rest)
    while room >= 0:
        if not stack:
            if not number:
                return True
            number -= 1
            stack.append((rest[number][0], rest[number][2]))
        current, is_flat = stack.pop()
        if isinstance(current, Break):
            if current.is_forced or not is_flat:
                return True
            room -= len(current.flat)
        elif isinstance(current, str):
            if "\n" in current:
                return room >= current.index("\n")
            room -= len(current)
        elif isinstance(current, Concat):
            inner_flat = not current.is_broken and is_flat if current.is_group else is_flat
            stack += [(each, inner_flat) for each in reversed(current.docs)]
    return False
