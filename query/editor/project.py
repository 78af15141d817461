"""
The project around a script: the nearest ``tidegate.toml``, with its inputs, outputs, reference data and functions.

Law: it is read again as soon as the file is another one. While the file cannot be used, what it said last still counts, and its problems
are known with their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ordering.errors import TidegateError
from query.lint import LintContext, context_of
from tidegate.language.expressions.binding.input_schema import InputSchema

if TYPE_CHECKING:  # settings import pydantic, which is slow to load
    from tidegate.platform.settings.load import Settings

CONFIGURATION = "tidegate.toml"
# The functions of a script may lie beside it.
_FUNCTIONS = "functions"


@dataclass(frozen=True)
class Problem:
    """What is wrong with a configuration, and on which of its lines, from 0."""

    line: int
    text: str
    code: str


@dataclass(frozen=True)
class ScriptProject:
    """What is known around a script; without a configuration nothing."""

    configuration: Path | None = None
    settings: Settings | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def streams(self) -> dict[str, InputSchema]:
        """The inputs, and the outputs that are topics, which other queries read, by name."""
        if self.settings is None:
            return {}
        inputs = {name: table.schema_of_events(name) for name, table in self.settings.inputs.items()}
        return inputs | {name: InputSchema(name, is_result=True) for name, table in self.settings.outputs.items() if table.topic}

    @property
    def references(self) -> dict[str, InputSchema]:
        """The tables of reference data, by name."""
        tables = {} if self.settings is None else self.settings.references
        return {name: InputSchema(name, fields=table.fields, is_reference=True) for name, table in tables.items()}

    @property
    def outputs(self) -> list[str]:
        """The names of outputs."""
        return [] if self.settings is None else list(self.settings.outputs)

    def functions(self, script: Path | None) -> dict[str, str]:
        """Return the functions in JavaScript that a script may call, each with where it is."""
        beside = {} if script is None else {path.stem: f"{_FUNCTIONS}/{path.name}" for path in _scripts_beside(script)}
        tables = {} if self.settings is None else self.settings.functions
        return beside | {name: table.script or f"[functions.{name}]" for name, table in tables.items()}

    def into(self, script: Path | None) -> str | None:
        """Return the output that ``[queries]`` gives to a script."""
        if self.settings is None or script is None:
            return None
        paths = ((Path(table.script), table.into) for table in self.settings.queries.values())
        return next((into for path, into in paths if into is not None and path.resolve() == script.resolve()), None)

    def lint_context(self, script: Path | None) -> LintContext:
        """Return what the linter knows beside a script."""
        return LintContext() if self.settings is None else context_of(self.settings, self.into(script))


def _scripts_beside(script: Path) -> list[Path]:
    folder = script.parent / _FUNCTIONS
    return sorted(folder.glob("*.js")) if folder.is_dir() else []


@dataclass
class Projects:
    """The projects of all scripts that are open; *given* is the configuration for all of them, None: each has the nearest."""

    given: Path | None = None
    # By configuration: a sign of its last version, and the settings in it.
    _known: dict[Path, tuple[tuple[int, int] | None, ScriptProject]] = field(default_factory=dict)

    def around(self, script: Path | None) -> ScriptProject:
        """Return the project of a script, read again if its configuration has changed."""
        path = self.given or _nearest(script)
        if path is None:
            return ScriptProject()
        stamp = _stamp(path)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            self._known[path] = known = stamp, _read(path, known[1].settings if known else None)
        return known[1]


def _nearest(script: Path | None) -> Path | None:
    """Return the configuration in the folder of a script or the nearest one above it."""
    folders: Iterator[Path] = iter(()) if script is None else iter(script.absolute().parents)
    return next((path for folder in folders if (path := folder / CONFIGURATION).is_file()), None)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _read(path: Path, before: Settings | None) -> ScriptProject:
    """Return what a configuration says; *before* is what it said last."""
    from tidegate.platform.settings.load import load
    from tidegate.platform.settings.problems import SettingsReport

    try:
        return ScriptProject(path, load(path))
    except SettingsReport as report:
        return ScriptProject(path, before, tuple(_problem(path, error) for error in report.problems))
    except TidegateError as error:
        return ScriptProject(path, before, (_problem(path, error),))


def _problem(path: Path, error: TidegateError) -> Problem:
    """Return a problem with its line: ``where`` begins with the file's name and the line, if it has one."""
    line = error.where.removeprefix(f"{path}:").partition(":")[0].partition(",")[0] if error.where.startswith(f"{path}:") else ""
    fix = f"\n{error.fix}" if error.fix else ""
    return Problem(int(line) - 1 if line.isdigit() else 0, f"{error.what}{fix}", error.code)
