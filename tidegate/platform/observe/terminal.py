"""
Writes to the terminal; all text of commands goes through this module.

Law: every text of a record, key or name is shown as text. Characters that would move the cursor, change colours, reverse the line or begin
a new one are shown as escapes (``\\x1b``), and no text is read as markup. tests/house/test_terminal.py checks that no other module of the
commands prints, or uses rich.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, NamedTuple, TextIO

from tidegate.basics.visible_text import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_PIPE_WIDTH = 1_000
# What terminals take for the words of a style.
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Styled(NamedTuple):
    """A piece of a line, in a style of the words of ``_CODES``, as ``bold red``."""

    text: str
    style: str


Piece = str | Styled
# A line, or a cell of a table: one piece, or several side by side.
Line = Piece | Sequence[Piece]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table; long texts are broken if *is_folded*, shown in full if *is_whole*, else cut."""

    name: str
    is_right: bool = False
    is_folded: bool = False
    is_whole: bool = False


@dataclass(slots=True)
class TextTable:
    """A table to show; *is_plain* leaves out lines and padding."""

    columns: Sequence[TextColumn]
    is_plain: bool = False
    rows: list[tuple[Sequence[Line], str]] = field(default_factory=list)

    def add(self, *cells: Line, style: str = "") -> None:
        self.rows.append((cells, style))

    @property
    def width(self) -> int:
        """The characters of its longest row."""
        rows = [[column.name for column in self.columns], *([_plain(cell) for cell in cells] for cells, _ in self.rows)]
        return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True))


class Terminal:
    """
    Standard output, or standard error. Into a pipe no line is cut or broken, since grep needs whole lines. Tables and live
    lines are drawn by rich, which is imported only for them.
    """

    def __init__(self, console: Console | None = None, *, stderr: bool = False) -> None:
        self._given, self._is_error = console, stderr

    @property
    def is_terminal(self) -> bool:
        return _is_terminal(self._stream) if self._given is None else self._given.is_terminal

    def line(self, *pieces: Piece) -> None:
        """Show one line, as long as it is."""
        has_colors = self.is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") not in ("dumb", "unknown")
        self._stream.write("".join(_shown(piece, has_colors) for piece in pieces) + "\n")
        self._stream.flush()

    @property
    def _stream(self) -> IO[str]:
        if self._given is not None:
            return self._given.file
        return sys.stderr if self._is_error else sys.stdout

    @cached_property
    def _console(self) -> Console:
        if self._given is not None:
            return self._given
        from rich.console import Console

        width = None if self.is_terminal else _PIPE_WIDTH
        return Console(stderr=self._is_error, markup=False, highlight=False, emoji=False, width=width)

    def table(self, table: TextTable) -> None:
        self._console.print(self._fit(table))

    def _fit(self, table: TextTable) -> RenderableType:
        """Return a table, or its rows as lines if the terminal is too narrow for it: a table would break words."""
        return _as_table(table) if table.width <= self._console.width else _as_lines(table)

    @contextmanager
    def live_table(self) -> Iterator[Callable[[TextTable], None]]:
        """Show a table that the yielded function replaces; it disappears at the end."""
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            yield lambda table: live.update(self._fit(table), refresh=True)

    @contextmanager
    def spinner(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show that something is under way; the yielded function replaces the text."""
        with self._console.status(_as_text([text])) as status:
            yield lambda now: status.update(_as_text([now]))

    @contextmanager
    def progress(self, tasks: Sequence[tuple[str, int | None]]) -> Iterator[Callable[[int, int, str], None]]:
        """
        Show a live line for each of *tasks*, a title with the total or None. The yielded function takes the number of the task, how much of
        the total is done, and a text.
        """
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        title, text = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[text]}", markup=False)
        bar = [BarColumn(bar_width=20)] if any(total for _, total in tasks) else []
        columns = (SpinnerColumn(), title, *bar, text, TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as shown:
            ids = [shown.add_task(visible(title), total=total or None, text="") for title, total in tasks]
            yield lambda number, done, text: shown.update(ids[number], completed=done, text=visible(text))


def standard_output() -> Terminal:
    """Return standard output, for the result of a command."""
    return Terminal()


def standard_error() -> Terminal:
    """Return standard error, for messages."""
    return Terminal(stderr=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output; a line end within one is shown as an escape."""
    for line in lines:
        print_text(f"{visible(line)}\n")


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print text with its line ends on standard output, or *stream*."""
    out = stream or sys.stdout
    out.write(visible_lines(text))
    out.flush()


def _is_terminal(stream: IO[str]) -> bool:
    """Return whether rich takes the stream for a terminal: the environment may say so, or otherwise."""
    if (compatible := os.environ.get("TTY_COMPATIBLE", "")) in ("0", "1"):
        return compatible == "1"
    if (color := os.environ.get("FORCE_COLOR")) is not None:
        return color != ""
    return stream.isatty()


def _shown(piece: Piece, has_colors: bool) -> str:
    if isinstance(piece, str):
        return visible(piece)
    text = visible(piece.text)
    codes = ";".join(_CODES[word] for word in piece.style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if has_colors and codes else text


def _as_text(pieces: Iterable[Piece]) -> Text:
    from rich.text import Text

    return Text.assemble(*(visible(piece) if isinstance(piece, str) else (visible(piece.text), piece.style) for piece in pieces))


def _plain(line: Line) -> str:
    pieces: Sequence[Piece] = [line] if isinstance(line, str | Styled) else line
    return "".join(visible(piece if isinstance(piece, str) else piece.text) for piece in pieces)


def _as_lines(table: TextTable) -> Text:
    """Return each row as one line: its first two cells, then the others behind their columns' names."""
    from rich.text import Text

    lines = []
    for cells, _ in table.rows:
        first, *others = [_plain(cell) for cell in cells]
        named = [f"{column.name} {text}" for column, text in zip(table.columns[1:], others, strict=True) if text.strip() not in ("", "-")]
        lines.append(f"{first}: {', '.join(named)}" if first.strip() else f"  {', '.join(named)}")
    return Text("\n".join(lines))


def _as_table(table: TextTable) -> Table:
    from rich import box
    from rich.table import Table

    shown = Table(box=None if table.is_plain else box.SIMPLE, pad_edge=not table.is_plain)
    for column in table.columns:
        shown.add_column(
            column.name,
            justify="right" if column.is_right else "left",
            overflow="fold" if column.is_folded else "ellipsis",
            no_wrap=column.is_whole,
        )
    for cells, style in table.rows:
        shown.add_row(*(_as_text([cell] if isinstance(cell, str | Styled) else cell) for cell in cells), style=style or None)
    return shown
