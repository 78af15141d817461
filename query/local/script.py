"""
A script that runs on files: the script alone decides the event time and the substream key.

Law: each input has one event time and one key in the whole script, as an ordered topic has. A script that contradicts itself, or
has OVER after only some of its inputs, is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ordering.errors import QueryError, SettingError
from query.lint import MISTAKES, Finding, LintContext, lint_script, undeclared_inputs
from query.plan.nodes import Plan, Scan
from query.script import read_script
from query.sql.bind import bind_outputs
from query.sql.windows.window_functions import WINDOW_US_MAX
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.syntax.parse import Script
from tidegate.language.expressions.tree import Field, Leaf

if TYPE_CHECKING:  # settings import pydantic, which is slow to load
    from tidegate.platform.settings.tables.functions import FunctionSettings


@dataclass(frozen=True)
class ScriptSettings:
    """Settings for binding a script: the inputs it may read, and the longest window accepted, in microseconds."""

    schemas: Sequence[InputSchema]
    window_us_max: int = WINDOW_US_MAX
    # The tables [functions.NAME].
    functions: Mapping[str, FunctionSettings] = field(default_factory=dict)


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
    """
    return bind_parsed(read_script(path, name, settings.functions), settings, into=into)


def bind_parsed(script: Script, settings: ScriptSettings, *, into: str | None = None) -> BoundScript:
    """Bind a script that is parsed already, as :func:`bind_script` does."""
    plans = bind_outputs(script, settings.schemas, into=into, window_us_max=settings.window_us_max)
    scans = tuple(dict.fromkeys(scan for plan in plans for scan in plan.scans))
    for number, scan in enumerate(scans):
        _check_time(scan, script.source)
        earlier_scan = next((other for other in scans[:number] if other.input == scan.input), None)
        if earlier_scan is not None:
            raise _contradiction(earlier_scan, scan, script.source)
        if (scan.over is None) != (scans[0].over is None):
            with_over, without_over = (scans[0], scan) if scan.over is None else (scan, scans[0])
            what = f"{with_over.input} has OVER, and {without_over.input} has not"
            offset = with_over.over.offset if with_over.over else -1
            raise script.source.error("OVER", offset, what, fix="write OVER after each input, or after none")
    return BoundScript(plans, scans)


def find_mistakes(path: Path, settings: ScriptSettings, into: str | None) -> list[Finding]:
    """Return the findings of ``tidegate lint`` that are probably mistakes."""
    surroundings = LintContext(settings.schemas, settings={"into": into, "window_us_max": settings.window_us_max})
    return [finding for finding in lint_script(read_script(path, functions=settings.functions), surroundings) if finding.code in MISTAKES]


def unread_inputs(script: BoundScript, settings: ScriptSettings) -> list[Finding]:
    """Return a warning for each file that the script does not read."""
    named = {*(scan.input for scan in script.scans), *(name for plan in script.plans for name in plan.references)}
    fix = "leave the file out, or name it after FROM or JOIN"
    unread = [schema for schema in settings.schemas if schema.name not in named]
    flags = ["--reference" if schema.is_reference else "--input" for schema in unread]
    return [
        Finding("TG-LOCAL-INPUT", flag, f"the script does not read {schema.name}", fix) for flag, schema in zip(flags, unread, strict=True)
    ]


def refuse_no_files(path: Path, references: Sequence[str]) -> None:
    """Raise SettingError, with a flag for each input of the script. Raises QueryError: the text is no SQL."""
    names = sorted(schema.name for schema in undeclared_inputs(read_script(path), references) if not schema.is_reference)
    fix = "name a file for each input; a table without times by --reference NAME=FILE"
    example = " ".join(f"--input {shlex.quote(f'{name}={name}.ndjson')}" for name in names)
    raise SettingError("no file is given", code="TG-SETTING-FLAG", where="--input", fix=fix, example=example)


def check_without_files(path: Path, inputs: Sequence[str], references: Sequence[str], into: str | None) -> None:
    """
    Raise the QueryError of a script that is wrong whatever its files contain. The columns of reference data decide what some names mean, so
    an unknown or ambiguous name is no error here.
    """
    schemas = [InputSchema(name, is_free=True) for name in inputs] + [InputSchema(name, is_reference=True) for name in references]
    try:
        bind_outputs(read_script(path), schemas, into=into)
    except QueryError as error:
        if error.code != "TG-QUERY-FIELD":
            raise


def _check_time(scan: Scan, source: Source) -> None:
    """Check that event time and key use fields of the payload only."""
    for expr, clause, code in ((scan.timestamp_by, "TIMESTAMP BY", "TIMESTAMP"), (scan.over, "OVER", "OVER")):
        foreign = next((part for part in expr.walk() if isinstance(part, Leaf) and not isinstance(part, Field)), None) if expr else None
        if foreign is not None:
            what = f"{clause} {expr}: {foreign} is no part of the payload"
            raise source.error(code, foreign.offset, what, fix="name a field of the payload")


def _contradiction(before: Scan, scan: Scan, source: Source) -> Exception:
    clause, code = ("TIMESTAMP BY", "TIMESTAMP") if before.timestamp_by != scan.timestamp_by else ("OVER", "OVER")
    exprs = [other.timestamp_by if code == "TIMESTAMP" else other.over for other in (before, scan)]
    contradiction = " and ".join(f"{clause} {expr}" if expr else f"no {clause}" for expr in exprs)
    offset = next((expr.offset for expr in reversed(exprs) if expr), -1)
    return source.error(code, offset, f"{scan.input} has {contradiction}", fix="write the same each time the input is named")
