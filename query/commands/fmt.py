"""
The command ``tidegate fmt``: scripts laid out in one way.

Law: a script means the same before and after, keeps its comments, and is not changed by a second run. If one script is wrong, none is
written; a script is replaced as a whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidegate.platform.observe.terminal import print_lines, print_text

_ENDINGS = (".sql", ".asaql")


def fmt(
    paths: Annotated[list[Path], typer.Argument(help="Scripts, or folders with .sql and .asaql files; -: standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a script would change.")] = False,
) -> None:
    """Lay scripts out in one way, without changing what they mean."""
    from query.formatting.format import format_script
    from query.script import read_script_text

    changed: list[tuple[str, Path | None, str]] = []
    for path in _scripts(paths):
        is_stream = str(path) == "-"
        name = "<stdin>" if is_stream else str(path)
        text = sys.stdin.read() if is_stream else read_script_text(path)
        laid_out = format_script(text, name)
        if is_stream and not check:
            print_text(laid_out)
        elif laid_out != text:
            changed.append((name, None if is_stream else path, laid_out))
    for _, file, laid_out in () if check else changed:
        if file is not None:
            _replace(file, laid_out)
    print_lines(f"{name}: {'would change' if check else 'laid out'}" for name, _, _ in changed)
    if check and changed:
        raise typer.Exit(1)


def _scripts(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (found for found in sorted(path.rglob("*")) if found.suffix in _ENDINGS and found.is_file())
        else:
            yield path


def _replace(file: Path, text: str) -> None:
    """Write a file anew; a reader finds the old one or the new one."""
    target = file.resolve()
    written = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        written.write_text(text, "utf-8", newline="")
        shutil.copymode(target, written)
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)
