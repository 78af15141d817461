"""
Running a case and holding what came against what was expected.

Law: results are compared as sequences of bytes, in the order in which they leave: equal instants have an order too. Every
expected line is matched, differing or missing, every line that came is matched, differing or unexpected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from ordering.errors import QueryError
from tidegate.cli.local import BLOCK_BYTES
from tidegate.local.case_files import SCRIPT, Case, CaseError
from tidegate.local.given import Given, opened_run
from tidegate.local.output import DEAD, dead_line
from tidegate.local.script import Reads, bound_script


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One place at which what came is not what was expected.

    Args:
        line: Line of the expectation, from 1; of an unexpected one the line before which it came.
        expected: What should have come; None: nothing.
        found: What came; None: nothing.
    """

    line: int
    expected: str | None
    found: str | None

    @property
    def kind(self) -> str:
        """``differing``, ``missing`` or ``unexpected``."""
        return "unexpected" if self.expected is None else "missing" if self.found is None else "differing"


@dataclass
class Comparison:
    """What came of one output: how many lines were as expected, and where others were."""

    matched: int = 0
    differences: list[Difference] = field(default_factory=list)


@dataclass
class Verdict:
    """What became of a case: for each output (and the error, and the dead records) the comparison."""

    case: Case
    comparisons: dict[str, Comparison]

    @property
    def is_good(self) -> bool:
        """Tell whether all came as expected."""
        return not any(one.differences for one in self.comparisons.values())


def run_case(case: Case, block_bytes: int = BLOCK_BYTES) -> Verdict:
    """
    Run a case.

    Args:
        case: The case.
        block_bytes: About how much of a file is read at a time; nothing may depend on it.

    Raises:
        CaseError: It expects results of an output that the script does not have, or the other way about.
        TidegateError: A file or a setting of it is wrong.
    """
    given = Given.of(case.files, case.flags, case.config, case.references)
    try:
        reads = bound_script(case.folder / SCRIPT, given.settings, name=SCRIPT)
    except QueryError as error:
        return Verdict(case, {"error": compare((case.error or "").splitlines(), str(error).splitlines())})
    if case.error is not None:
        return Verdict(case, {"error": compare(case.error.splitlines(), [])})
    found = results_of(case, reads, given, block_bytes)
    return Verdict(case, {name: compare(_texts(case, name), lines) for name, lines in found.items()})


def results_of(case: Case, reads: Reads, given: Given, block_bytes: int = BLOCK_BYTES) -> dict[str, list[str]]:
    """Return the lines that each output gives, and what is said of dead records where there are or should be any."""
    outputs = [plan.output for plan in reads.plans]
    wrong = sorted({*outputs} ^ {*case.expected})
    if wrong or DEAD in outputs:
        name = (wrong or [DEAD])[0]
        what = f"{name} is no output of the script" if name in case.expected else f"nothing is expected of output {name}"
        fix = f"the script writes INTO {', '.join(outputs)}: write expected.OUTPUT.ndjson for each; empty: no results"
        raise CaseError(what, where=str(case.folder), fix=fix)
    found: dict[str, list[str]] = {name: [] for name in outputs}
    dead: list[str] = []
    with opened_run(reads, given, block_bytes) as run:
        for piece in run.slices():
            for name, results in zip(outputs, piece.results, strict=True):
                found[name] += [value.decode() for value in results["value"].to_pylist()]
            dead += [dead_line(bad).decode().rstrip("\n") for bad in piece.bad]
    return found | ({DEAD: sorted(dead)} if dead or case.dead else {})


def _texts(case: Case, name: str) -> list[str]:
    lines = [line.decode(errors="replace") for line in (case.dead if name == DEAD else case.expected[name])]
    return sorted(lines) if name == DEAD else lines


def compare(expected: Sequence[str], found: Sequence[str]) -> Comparison:
    """Hold two sequences of lines against each other."""
    comparison = Comparison()
    for what, low, high, low_found, high_found in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if what == "equal":
            comparison.matched += high - low
            continue
        for step in range(max(high - low, high_found - low_found)):
            wanted = expected[low + step] if low + step < high else None
            came = found[low_found + step] if low_found + step < high_found else None
            comparison.differences.append(Difference(min(low + step, high) + 1, wanted, came))
    return comparison
