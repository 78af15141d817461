"""
Cases: a folder with a script, its input events and the results it must give.

=============================================  ======================================================================
``query.sql``                                  the script, unless ``case.toml`` names another file
``input.NAME.ndjson`` (or csv, tsv, parquet)   the events of input NAME
``reference.NAME.ndjson`` (or csv, ...)        the records of a table that JOIN looks up
``reference.NAME.2001-01-02.ndjson``           the same, valid from that day on; any number of them
``expected.OUTPUT.ndjson``                     the results of OUTPUT, line by line; empty: none
``expected.dead.ndjson``                       records that cannot be used, in any order; no such file: none
``expected.error``                             instead of results: the whole text of the error
``case.toml``                                  ``description``, time policies as the flags of ``tidegate local``, and paths from
                                               this folder: ``script`` and ``config``, of a project whose own files are tested;
                                               ``disturbance``, and a table ``functions``: :mod:`query.testing.case_law`
``tidegate.toml``                              the configuration that the script must agree with, as ``--config``
=============================================  ======================================================================

Law: a folder with a ``query.sql`` or a ``case.toml`` is a case. A file with any other name is an error: a misspelled one would test
nothing.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ordering.errors import TidegateError
from ordering.policies import Action
from query.local.files import LocalFile
from query.local.output import DEAD
from query.local.run_setup import PolicyFlags
from tidegate.basics.bounded_files import RESULTS_BYTES_MAX, TEXT_BYTES_MAX, read_file_bytes, read_file_text
from tidegate.records.files.blocks import FileFormat
from tidegate.records.files.files import FORMAT_BY_SUFFIX

SCRIPT = "query.sql"
ERROR = "expected.error"
SETTINGS = "case.toml"
CONFIG = "tidegate.toml"
# Settings of a case that are no policies.
_OWN = ("description", "script", "config", "disturbance")
_FUNCTIONS = "functions"
_INPUT = re.compile(rf"(input|reference)\.(.+)(\.(?:{'|'.join(ending.removeprefix('.') for ending in FORMAT_BY_SUFFIX)}))", re.IGNORECASE)
_VERSION = re.compile(r"(.+)\.(\d{4}-\d\d-\d\d)")
_EXPECTED = re.compile(r"expected\.(.+)\.ndjson")
_DOCUMENTATION_SUFFIXES = (".md", ".txt")


class CaseError(TidegateError):
    """A case cannot be run as it stands."""

    exit_code = 2
    default_code = "TG-TEST-CASE"


@dataclass(frozen=True)
class Case:
    """
    One case: ``name`` is its folder relative to the folder under test; ``script`` is the file that is tested; ``expected`` and ``dead`` are
    lines. ``error`` is the text of the expected error, or None if results are expected. ``disturbance`` is what happens to another run of
    it, whose results must be the same; ``functions`` says where those of the script are that no package offers: ``FILE:NAME`` by name.
    """

    name: str
    folder: Path
    script: Path
    description: str
    flags: PolicyFlags
    files: tuple[LocalFile, ...]
    references: tuple[LocalFile, ...]
    expected: Mapping[str, tuple[bytes, ...]]
    dead: tuple[bytes, ...]
    error: str | None
    config: Path | None = None
    disturbance: str = ""
    functions: Mapping[str, str] = field(default_factory=dict)


def find_case_folders(root: Path) -> list[Path]:
    """Return the folders of cases below *root*, by name; raise CaseError if there is none."""
    folders = sorted({file.parent for name in (SCRIPT, SETTINGS) for file in root.rglob(name)})
    if not folders:
        fix = f"a case is a folder with {SCRIPT}, input.NAME.ndjson and expected.OUTPUT.ndjson"
        raise CaseError("there is no case in this folder", code="TG-TEST-NONE", where=str(root), fix=fix)
    return folders


def read_case(folder: Path, root: Path) -> Case:
    """Read a case; raise CaseError if a file of it is missing, unknown or malformed."""
    files: dict[str, list[LocalFile]] = {"input": [], "reference": []}
    expected: dict[str, tuple[bytes, ...]] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        if match := _INPUT.fullmatch(path.name):
            files[match[1].lower()].append(_case_file(path, match[1].lower(), match[2], FORMAT_BY_SUFFIX[match[3].lower()]))
        elif match := _EXPECTED.fullmatch(path.name):
            expected[match[1]] = tuple(_read(path, RESULTS_BYTES_MAX).splitlines())
        elif path.name not in (SCRIPT, ERROR, SETTINGS, CONFIG) and path.suffix not in _DOCUMENTATION_SUFFIXES:
            fix = f"a case has {SCRIPT}, input.NAME.ndjson, expected.OUTPUT.ndjson, {ERROR}, {SETTINGS}, {CONFIG}"
            raise CaseError(f"{path.name} is no file of a case", where=str(path), fix=fix)
    error = _read(folder / ERROR, TEXT_BYTES_MAX).decode("utf-8", "replace").rstrip("\n") if (folder / ERROR).exists() else None
    # A case without any expectation would always pass, so it must expect results or an error, and not both.
    if (error is None) == (not expected):
        fix = f"write expected.OUTPUT.ndjson, or {ERROR}" if error is None else "keep one of the two"
        raise CaseError("a case expects results or an error", where=str(folder), fix=fix)
    settings, functions, flags = _read_settings(folder / SETTINGS)
    dead = expected.pop(DEAD, ())
    references = tuple(dict.fromkeys(files["reference"]))
    duplicate = next((file for index, file in enumerate(references) if file.name in [other.name for other in references[:index]]), None)
    if duplicate is not None:
        what, fix = f"{duplicate.name} has versions and a file without a day, or of another format", "give each of them a day"
        raise CaseError(what, where=duplicate.path, fix=fix)
    name = "." if folder == root else folder.relative_to(root).as_posix()
    script, config = _find_file(folder, settings, "script", SCRIPT), _find_file(folder, settings, "config", CONFIG)
    if script is None:
        fix = f'write the script there, or where it is into {SETTINGS}: script = "../../rides.sql"'
        raise CaseError(f"there is no {SCRIPT}", where=str(folder), fix=fix)
    description, disturbance = settings.get("description", ""), settings.get("disturbance", "")
    inputs = tuple(files["input"])
    return Case(name, folder, script, description, flags, inputs, references, expected, dead, error, config, disturbance, functions)


def _find_file(folder: Path, settings: Mapping[str, str], setting: str, usual: str) -> Path | None:
    """Return the file that a setting of the case names, or the one in its folder with the *usual* name; None if there is neither."""
    own = folder / usual
    if setting not in settings:
        return own if own.exists() else None
    named = Path(os.path.normpath(folder / settings[setting]))
    if own.exists() or not named.is_file():
        what = f"there are {usual} and {setting}, of which one would not be used" if own.exists() else f"there is no file {named}"
        fix = f"keep one of them: {usual}, or {setting}" if own.exists() else "give its path from the folder of the case"
        raise CaseError(what, where=f"{folder / SETTINGS}: {setting}", fix=fix)
    return named


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        return read_file_bytes(path, bytes_max)
    except OSError as error:
        raise CaseError(f"the file cannot be read: {error.strerror}", where=str(path), fix="give a readable file") from None


def _case_file(path: Path, role: str, name: str, format: FileFormat) -> LocalFile:
    # The versions of a reference table are one file, with the day left open in its name.
    version = _VERSION.fullmatch(name) if role == "reference" else None
    if version is None:
        return LocalFile(name, str(path), format)
    return LocalFile(version[1], str(path.with_name(f"{role}.{version[1]}.{{date}}{path.suffix}")), format)


def _read_settings(path: Path) -> tuple[Mapping[str, str], Mapping[str, str], PolicyFlags]:
    """Return the settings of a case that are no policies, its functions, and its policies."""
    if not path.exists():
        return {}, {}, PolicyFlags()
    try:
        table = tomllib.loads(read_file_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CaseError(f"the file is no TOML: {error}", where=str(path), fix='write late = "5m"') from None
    known = {policy.name for policy in fields(PolicyFlags)}
    values: dict[str, str] = {}
    functions = table.pop(_FUNCTIONS, {})
    if not isinstance(functions, dict):
        raise CaseError(f"{_FUNCTIONS} is no table", where=str(path), fix=f'[{_FUNCTIONS}], and in it: kilometres = "rides.py:kilometres"')
    for name, value in _string_settings(table, path):
        if name not in _OWN and name not in known:
            fix = f"settings are {', '.join([*_OWN, *sorted(known)])}, and the table {_FUNCTIONS}"
            raise CaseError(f"there is no setting {name}", where=str(path), fix=fix)
        values[name] = value
    own = {name: values.pop(name) for name in _OWN if name in values}
    try:
        actions = {name: Action(value) for name, value in values.items() if name.endswith("_action")}
    except ValueError:
        raise CaseError("an action is adjust or drop", where=str(path), fix='late_action = "drop"') from None
    return own, dict(_string_settings(functions, path)), PolicyFlags(**{**values, **actions})  # type: ignore[arg-type]


def _string_settings(table: Mapping[str, object], path: Path) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if not isinstance(value, str):
            raise CaseError(f"{name} is no text", where=str(path), fix=f'{name} = "..."')
        yield name, value
