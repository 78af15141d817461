"""
The command ``tidegate test``: scripts held against results that were worked out by hand.

Law: a case gives the same verdict on every run; nothing is ever written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.errors import TidegateError
from tidegate.observe.console import Format

if TYPE_CHECKING:
    from tidegate.local.case_run import Comparison, Verdict

_SHOWN = 20
"""So many differences of an output are shown."""


def check_cases(
    folder: Annotated[Path, typer.Argument(help="A case, or a folder with cases in it, however deep.")],
    format: Annotated[Format, typer.Option("--format", help="How verdicts are printed; json: one object.")] = Format.TEXT,
) -> None:
    """Run cases: a script, its events, and the results it must give."""
    from tidegate.local.case_files import folders_of, read_case
    from tidegate.local.case_run import run_case

    verdicts: list[Verdict] = []
    broken: list[tuple[str, TidegateError]] = []
    for one in folders_of(folder):
        try:
            verdicts.append(run_case(read_case(one, folder)))
        except TidegateError as error:
            broken.append((str(one), error))
    if format is Format.JSON:
        print(json.dumps(_numbers(verdicts, broken)))
    else:
        _say(verdicts, broken)
    if broken:
        raise typer.Exit(2)
    if not all(verdict.is_good for verdict in verdicts):
        raise typer.Exit(1)


def _numbers(verdicts: list[Verdict], broken: list[tuple[str, TidegateError]]) -> dict[str, Any]:
    cases: list[dict[str, Any]] = [
        {
            "case": verdict.case.name,
            "verdict": "good" if verdict.is_good else "differs",
            "outputs": {name: _counts(one) | {"differences": _listed(one)} for name, one in verdict.comparisons.items()},
        }
        for verdict in verdicts
    ]
    cases += [{"case": name, "verdict": "broken", "error": error.as_dict()} for name, error in broken]
    good = sum(verdict.is_good for verdict in verdicts)
    return {"good": good, "differ": len(verdicts) - good, "broken": len(broken), "cases": cases}


def _counts(one: Comparison) -> dict[str, int]:
    kinds = [difference.kind for difference in one.differences]
    return {"matched": one.matched, **{kind: kinds.count(kind) for kind in ("differing", "missing", "unexpected")}}


def _listed(one: Comparison) -> list[dict[str, Any]]:
    return [{"line": each.line, "expected": each.expected, "found": each.found} for each in one.differences]


def _say(verdicts: list[Verdict], broken: list[tuple[str, TidegateError]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for verdict in verdicts:
        if verdict.is_good:
            console.print(Text.assemble(("good    ", "green"), verdict.case.name))
            continue
        console.print(Text.assemble(("differs ", "bold red"), verdict.case.name, f"  {verdict.case.description}".rstrip()))
        for style, line in _told(verdict):
            console.print(Text(line, style))
    for name, error in broken:
        console.print(Text.assemble(("broken  ", "bold red"), name))
        console.print(Text("\n".join(f"    {line}" for line in str(error).splitlines())))
    good = sum(verdict.is_good for verdict in verdicts)
    console.print(f"{good} good, {len(verdicts) - good} differ, {len(broken)} broken")


def _told(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for name, one in verdict.comparisons.items():
        if not one.differences:
            continue
        yield "", f"  {name}: {', '.join(f'{count} {kind}' for kind, count in _counts(one).items())}"
        for each in one.differences[:_SHOWN]:
            yield "dim", f"    line {each.line}, {each.kind}"
            if each.expected is not None:
                yield "green", f"      expected {each.expected}"
            if each.found is not None:
                yield "red", f"      found    {each.found}"
        if len(one.differences) > _SHOWN:
            yield "dim", f"    and {len(one.differences) - _SHOWN} more"
