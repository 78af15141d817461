"""
A script that runs on files: the script alone decides the event time and the substream key.

Law: each input has one event time and one key in the whole script, as an ordered topic has. A script that contradicts itself, or
has OVER after only some of its inputs, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ordering.errors import SettingError
from query.lint import MISTAKES, Finding, LintContext, lint
from query.plan.nodes import Plan, Scan
from query.script import read_script
from query.sql.bind import bind_outputs
from query.sql.window_functions import WINDOW_US_MAX
from tidegate.expressions.binding.input_schema import InputSchema
from tidegate.expressions.syntax.errors import Source
from tidegate.expressions.tree import Expr, Field, Leaf


@dataclass(frozen=True)
class ScriptSettings:
    """Settings for binding a script: the inputs it may read, and the longest window accepted, in microseconds."""

    schemas: Sequence[InputSchema]
    window_us_max: int = WINDOW_US_MAX


@dataclass(frozen=True)
class BoundScript:
    """A bound script: a plan for each output, and the inputs that it reads, each once and in its order."""

    plans: tuple[Plan, ...]
    scans: tuple[Scan, ...]

    @property
    def has_over(self) -> bool:
        """Whether the inputs have substreams."""
        return any(scan.over is not None for scan in self.scans)


def bind_script(path: Path, settings: ScriptSettings, *, name: str | None = None, into: str | None = None) -> BoundScript:
    """
    Read a script and bind it to files.

    Args:
        name: The script's name in errors; by default its path.
        into: The output's name if the script names none.

    Raises:
        QueryError: The script is wrong.
        SettingError: There is a file that the script does not read.
    """
    script = read_script(path, name)
    plans = bind_outputs(script, settings.schemas, into=into, window_us_max=settings.window_us_max)
    scans = tuple(dict.fromkeys(scan for plan in plans for scan in plan.scans))
    for number, scan in enumerate(scans):
        _check_time(scan, script.source)
        earlier_scan = next((other for other in scans[:number] if other.input == scan.input), None)
        if earlier_scan is not None:
            raise _contradiction(earlier_scan, scan, script.source)
        if (scan.over is None) != (scans[0].over is None):
            raise script.source.error(
                "OVER",
                _over_position(_scan_with_over(scan, scans[0])),
                f"{_scan_with_over(scan, scans[0]).input} has OVER, and {_scan_without_over(scan, scans[0]).input} has not",
                fix="write OVER after each input, or after none",
            )
    named = {*(scan.input for scan in scans), *(name for plan in plans for name in plan.references)}
    unread_files = [schema.name for schema in settings.schemas if schema.name not in named]
    if unread_files:
        raise SettingError(
            f"the script does not read {', '.join(unread_files)}",
            code="TG-LOCAL-INPUT",
            where="--input",
            fix="leave the file out, or name the input after FROM",
        )
    return BoundScript(plans, scans)


def find_mistakes(path: Path, settings: ScriptSettings, into: str | None = None) -> list[Finding]:
    """Return the findings of ``tidegate lint`` that are probably mistakes."""
    surroundings = LintContext(settings.schemas, settings={"into": into, "window_us_max": settings.window_us_max})
    return [finding for finding in lint(read_script(path), surroundings) if finding.code in MISTAKES]


def _check_time(scan: Scan, source: Source) -> None:
    """Check that event time and key use fields of the payload only."""
    for expr, clause, code in ((scan.timestamp_by, "TIMESTAMP BY", "TIMESTAMP"), (scan.over, "OVER", "OVER")):
        foreign = next((part for part in expr.walk() if isinstance(part, Leaf) and not isinstance(part, Field)), None) if expr else None
        if foreign is not None:
            what = f"{clause} {expr}: {foreign} is no part of the payload"
            raise source.error(code, foreign.offset, what, fix="name a field of the payload")


def _contradiction(before: Scan, scan: Scan, source: Source) -> Exception:
    clause, code = ("TIMESTAMP BY", "TIMESTAMP") if before.timestamp_by != scan.timestamp_by else ("OVER", "OVER")
    exprs = [each_scan.timestamp_by if code == "TIMESTAMP" else each_scan.over for each_scan in (before, scan)]
    contradiction = " and ".join(f"{clause} {expr}" if expr else f"no {clause}" for expr in exprs)
    offset = next((expr.offset for expr in reversed(exprs) if expr), -1)
    return source.error(code, offset, f"{scan.input} has {contradiction}", fix="write the same each time the input is named")


def _scan_with_over(one: Scan, other: Scan) -> Scan:
    return one if one.over is not None else other


def _scan_without_over(one: Scan, other: Scan) -> Scan:
    return one if one.over is None else other


def _over_position(scan: Scan) -> int:
    over: Expr | None = scan.over
    return over.offset if over else -1
