"""
Running a case and comparing its results with the expected ones.

Law: lines are compared as bytes and in the order in which the run writes them, also among results of one instant. Each expected line
is matched, differing or missing; each actual line is matched, differing or unexpected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from ordering.errors import QueryError
from query.local.case_files import Case, CaseError
from query.local.output import DEAD, dead_line
from query.local.run_setup import RunSetup, open_run
from query.local.script import BoundScript, bind_script, unread_inputs
from tidegate.records.files.files import BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One line that is not as expected. ``expected`` is None if the actual line is unexpected, ``actual`` if the expected line is missing.
    """

    # The line of the expected file, from 1; for an unexpected line, the expected line before which it came.
    line: int
    expected: str | None
    actual: str | None

    @property
    def kind(self) -> str:
        return "unexpected" if self.expected is None else "missing" if self.actual is None else "differing"


@dataclass
class Comparison:
    """How many lines of an output were as expected, and which were not."""

    matched: int = 0
    differences: list[Difference] = field(default_factory=list)


@dataclass
class CaseVerdict:
    """The comparison of each output of a case, of its error, and of its dead records."""

    case: Case
    comparisons: dict[str, Comparison]
    # What differed in a disturbed run of the case, as a sentence; empty: nothing did, or none was asked for.
    broken_law: str = ""

    @property
    def is_good(self) -> bool:
        return not self.broken_law and not any(comparison.differences for comparison in self.comparisons.values())


def run_case(case: Case, block_bytes: int = BLOCK_BYTES) -> CaseVerdict:
    """
    Run a case; *block_bytes* changes no result. Raises CaseError: the outputs that the case expects are not those of the script;
    TidegateError: a file or a setting of the case is wrong.
    """
    setup = RunSetup.of(case.files, case.flags, case.config, case.references)
    try:
        script = bind_script(case.script, setup.settings, name=case.script.name)
    except QueryError as error:
        return CaseVerdict(case, {"error": compare_lines((case.error or "").splitlines(), str(error).splitlines())})
    if unread := unread_inputs(script, setup.settings):
        raise CaseError(unread[0].what, where=str(case.folder), fix="remove the file, or name it after FROM or JOIN")
    if case.error is not None:
        return CaseVerdict(case, {"error": compare_lines(case.error.splitlines(), [])})
    lines_by_output = collect_results(case, script, setup, block_bytes)
    return CaseVerdict(case, {name: compare_lines(_expected_lines(case, name), lines) for name, lines in lines_by_output.items()})


def compute_results(case: Case) -> dict[str, list[str]]:
    """Return the lines of each output of a case's script, whatever the case expects. Raises TidegateError: script or files are wrong."""
    setup = RunSetup.of(case.files, case.flags, case.config, case.references)
    script = bind_script(case.script, setup.settings, name=case.script.name)
    outputs = [plan.output for plan in script.plans]
    lines = collect_results(replace(case, expected=dict.fromkeys(outputs, ())), script, setup, BLOCK_BYTES)
    return {name: lines[name] for name in outputs}


def collect_results(case: Case, script: BoundScript, setup: RunSetup, block_bytes: int) -> dict[str, list[str]]:
    """Return the lines of each output, and of dead records if there are or should be any."""
    outputs = [plan.output for plan in script.plans]
    unmatched = sorted({*outputs} ^ {*case.expected})
    if unmatched or DEAD in outputs:
        name = (unmatched or [DEAD])[0]
        what = f"{name} is no output of the script" if name in case.expected else f"nothing is expected of output {name}"
        fix = f"the script writes INTO {', '.join(outputs)}: write expected.OUTPUT.ndjson for each; empty: no results"
        raise CaseError(what, where=str(case.folder), fix=fix)
    lines_by_output, dead = run_to_lines(script, setup, block_bytes)
    return lines_by_output | ({DEAD: dead} if dead or case.dead else {})


def run_to_lines(script: BoundScript, setup: RunSetup, block_bytes: int = BLOCK_BYTES) -> tuple[dict[str, list[str]], list[str]]:
    """Return the lines of each output, and those of dead records: of several inputs they have no common order, so they are sorted."""
    lines_by_output: dict[str, list[str]] = {plan.output: [] for plan in script.plans}
    dead: list[str] = []
    with open_run(script, setup, block_bytes) as run:
        for piece in run.steps():
            for lines, results in zip(lines_by_output.values(), piece.results, strict=True):
                lines += [value.decode() for _, value in results.timed_values()]
            dead += [dead_line(bad).decode().rstrip("\n") for bad in piece.bad]
    return lines_by_output, sorted(dead)


def _expected_lines(case: Case, name: str) -> list[str]:
    lines = [line.decode(errors="replace") for line in (case.dead if name == DEAD else case.expected[name])]
    return sorted(lines) if name == DEAD else lines


def compare_lines(expected: Sequence[str], actual: Sequence[str]) -> Comparison:
    """Compare two sequences of lines."""
    comparison = Comparison()
    # autojunk would ignore lines that occur often, such as equal results of many windows.
    for tag, expected_start, expected_end, actual_start, actual_end in SequenceMatcher(
        None, expected, actual, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            comparison.matched += expected_end - expected_start
            continue
        for offset in range(max(expected_end - expected_start, actual_end - actual_start)):
            expected_line = expected[expected_start + offset] if expected_start + offset < expected_end else None
            actual_line = actual[actual_start + offset] if actual_start + offset < actual_end else None
            comparison.differences.append(Difference(min(expected_start + offset, expected_end) + 1, expected_line, actual_line))
    return comparison
