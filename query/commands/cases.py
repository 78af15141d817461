"""
The command ``tidegate test``: scripts and their expected results, which were worked out by hand, or failures that ``law_of`` found.

Law: a case gives the same verdict on every run; nothing is ever written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.errors import TidegateError
from tidegate.platform.observe.console import Format
from tidegate.platform.observe.terminal import Styled, print_text, standard_output

if TYPE_CHECKING:
    from query.local.case_files import Case
    from query.local.case_run import CaseVerdict, Comparison

_SHOWN_DIFFERENCES = 20  # how many differences of an output are shown


def check_cases(
    folder: Annotated[Path, typer.Argument(help="A case, or a folder with cases in it, however deep.")],
    format: Annotated[Format, typer.Option("--format", help="How verdicts are printed; json: one object.")] = Format.TEXT,
) -> None:
    """Run cases: a script, its events, and the results it must give."""
    from query.local.case_files import find_case_folders, read_case

    verdicts: list[CaseVerdict] = []
    broken: list[tuple[str, TidegateError]] = []
    for case_folder in find_case_folders(folder):
        try:
            verdicts.append(_run(read_case(case_folder, folder)))
        except TidegateError as error:
            broken.append((str(case_folder), error))
    if format is Format.JSON:
        print_text(json.dumps(_as_dict(verdicts, broken)) + "\n")
    else:
        _print_text(verdicts, broken)
    if broken:
        raise typer.Exit(2)
    if not all(verdict.is_good for verdict in verdicts):
        raise typer.Exit(1)


def _run(case: Case) -> CaseVerdict:
    if case.disturbance or case.functions:
        from query.testing.case_law import check_case

        return check_case(case)
    from query.local.case_run import run_case

    return run_case(case)


def _as_dict(verdicts: list[CaseVerdict], broken: list[tuple[str, TidegateError]]) -> dict[str, Any]:
    cases: list[dict[str, Any]] = []
    for verdict in verdicts:
        outputs = {name: _output_dict(output) for name, output in verdict.comparisons.items()}
        summary = {"case": verdict.case.name, "verdict": "good" if verdict.is_good else "differs", "outputs": outputs}
        cases.append(summary | ({"disturbed": verdict.broken_law or None} if verdict.case.disturbance else {}))
    cases += [{"case": name, "verdict": "broken", "error": error.as_dict()} for name, error in broken]
    good = sum(verdict.is_good for verdict in verdicts)
    return {"good": good, "differ": len(verdicts) - good, "broken": len(broken), "cases": cases}


def _counts(comparison: Comparison) -> dict[str, int]:
    kinds = [difference.kind for difference in comparison.differences]
    return {"matched": comparison.matched, **{kind: kinds.count(kind) for kind in ("differing", "missing", "unexpected")}}


def _output_dict(comparison: Comparison) -> dict[str, Any]:
    lines = [{"line": line.line, "expected": line.expected, "found": line.actual} for line in comparison.differences]
    return {**_counts(comparison), "differences": lines}


def _print_text(verdicts: list[CaseVerdict], broken: list[tuple[str, TidegateError]]) -> None:
    terminal = standard_output()
    for verdict in verdicts:
        if verdict.is_good:
            terminal.line(Styled("good    ", "green"), verdict.case.name)
            continue
        terminal.line(Styled("differs ", "bold red"), verdict.case.name, f"  {verdict.case.description}".rstrip())
        if verdict.broken_law:
            terminal.line(Styled(f"  disturbed: {verdict.broken_law}", "red"))
        for style, line in _difference_lines(verdict):
            terminal.line(Styled(line, style))
    for name, error in broken:
        terminal.line(Styled("broken  ", "bold red"), name)
        for line in str(error).split("\n"):
            terminal.line(f"    {line}")
    good = sum(verdict.is_good for verdict in verdicts)
    terminal.line(f"{good} good, {len(verdicts) - good} differ, {len(broken)} broken")


def _difference_lines(verdict: CaseVerdict) -> Iterator[tuple[str, str]]:
    for name, comparison in verdict.comparisons.items():
        if not comparison.differences:
            continue
        yield "", f"  {name}: {', '.join(f'{count} {kind}' for kind, count in _counts(comparison).items())}"
        for difference in comparison.differences[:_SHOWN_DIFFERENCES]:
            yield "dim", f"    line {difference.line}, {difference.kind}"
            if difference.expected is not None:
                yield "green", f"      expected {difference.expected}"
            if difference.actual is not None:
                yield "red", f"      found    {difference.actual}"
        if len(comparison.differences) > _SHOWN_DIFFERENCES:
            yield "dim", f"    and {len(comparison.differences) - _SHOWN_DIFFERENCES} more"
