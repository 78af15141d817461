"""
What the flags of ``tidegate order`` mean: policies, what stands between columns, and the input.

Law: a wrong flag is told before anything is read or written, by its name, with a correct one.
"""

from __future__ import annotations

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
