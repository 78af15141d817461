"""
What the flags of ``tidegate order`` mean: policies, field paths, and files that do not stand in each other's way.

Law: a wrong flag is told before anything is read or written, by its name, with a correct one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ordering.errors import SettingError, TidegateError
from ordering.policies import Action, Policies
from ordering.ticks import parse_duration
from tidegate.cli.order_files import OrderFileError

OFF = "off"
STANDARD_INPUT = "-"


class OrderOutputError(TidegateError):
    """A file that the command writes does not take what it is given."""

    exit_code = 4
    default_code = "TG-ORDER-OUTPUT"


def policies(early: str, late: str, late_action: Action, reorder: str, out_of_order_action: Action) -> Policies:
    """
    Return the policies that the flags mean.

    Raises:
        SettingError: A duration cannot be read or is out of range.
    """
    return Policies(
        early_us=_duration(early, "--early"),
        late_us=_duration(late, "--late"),
        late_action=late_action,
        reorder_us=-1 if reorder == "-1us" else _tolerance(reorder),
        out_of_order_action=out_of_order_action,
    )


def _tolerance(text: str) -> int:
    found = _duration(text, "--reorder")
    if found is None:
        raise SettingError(
            "reorder cannot be off", code="TG-SETTING-VALUE", where="--reorder", fix="give a duration", example="--reorder 0s"
        )
    return found


def _duration(text: str, flag: str) -> int | None:
    if text == OFF:
        return None
    try:
        return parse_duration(text)
    except TidegateError as error:
        fix = error.fix if flag == "--reorder" else f"{error.fix}; or off"
        raise SettingError(error.what, code=error.code, where=flag, fix=fix, example=f"{flag} 5s") from None


def delimiter_of(path: str, given: str | None) -> str:
    """
    Return the character between the columns of a CSV.

    Raises:
        SettingError: What is given is not one character.
    """
    found = given if given is not None else "\t" if path.lower().endswith(".tsv") else ","
    found = "\t" if found == "\\t" else found
    if len(found) != 1 or found in '"\r\n':
        raise SettingError(
            f"{found!r} cannot stand between columns",
            code="TG-SETTING-VALUE",
            where="--delimiter",
            fix="give one character",
            example="--delimiter ';'",
        )
    return found


def check_paths(source: str, output: Path | None, dropped: Path | None) -> None:
    """
    Check that the files are three different ones.

    Raises:
        SettingError: Two of them are the same.
    """
    flags = {"the input": None if source == STANDARD_INPUT else Path(source), "--output": output, "--dropped": dropped}
    seen: dict[str, str] = {}
    for flag, path in flags.items():
        if path is None or (path.exists() and not path.is_file()):  # a pipe or a device may be named twice
            continue
        other = seen.setdefault(os.path.realpath(path), flag)
        if other != flag:
            raise SettingError(
                f"{other} and {flag} are the same file", code="TG-SETTING-CONFLICT", where=str(path), fix="name another file"
            )


@contextmanager
def opened_source(path: str) -> Iterator[BinaryIO]:
    """
    Open the file at *path*, or standard input.

    Raises:
        OrderFileError: It cannot be opened, or not be read on.
    """
    try:
        if path == STANDARD_INPUT:
            yield sys.stdin.buffer
        else:
            with Path(path).open("rb") as source:
                yield source
    except OSError as error:
        raise OrderFileError(
            f"the file cannot be read: {error.strerror or error}", where=path, fix="correct the path, or its permissions"
        ) from error


class Lines:
    """
    Where lines go: a file, standard output (*path* None), or nowhere (*wanted* False).

    Raises:
        OrderOutputError: The file cannot be written. A closed pipe is a ``BrokenPipeError``.
    """

    def __init__(self, path: Path | None, *, wanted: bool = True) -> None:
        self._path = path
        with self._writable():
            self._stream = None if not wanted else path.open("wb") if path else sys.stdout.buffer

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            where, fix = str(self._path or "standard output"), "make room, or name another file"
            raise OrderOutputError(f"the file cannot be written: {error.strerror or error}", where=where, fix=fix) from error

    def write(self, lines: list[bytes]) -> None:
        """Write lines, each with its end, at once."""
        if self._stream and lines:
            with self._writable():
                self._stream.write(b"".join(lines))
                self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self._stream and self._path:
            with self._writable():
                self._stream.close()


def leave_pipe() -> None:
    """End quietly after whoever read standard output has closed it: nothing more may be written there, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
