"""
``tidegate convert``: the project that is found in a folder, converted, checked and written.

Law: the other project is only read; the new one is written whole or not at all. It has been checked: an error of the script is a note.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from ordering.errors import SettingError, TidegateError
from tidegate.platform.settings.load import DEFAULT_FILE
from tidegate.tools.convert.draft import Draft, Note
from tidegate.tools.convert.eventstream import FILE, convert_eventstream
from tidegate.tools.convert.stream_analytics import convert_project, is_project
from tidegate.tools.project.files import with_schema, write_project

REPORT = "conversion.md"


def convert_folder(folder: Path, into: Path) -> tuple[dict[str, str], list[Note]]:
    """
    Write the project made out of the one in *folder* into another folder; return its files and what became of each part. Raises
    SettingError: *folder* has no project (TG-CONVERT-PROJECT), a file of it cannot be read (TG-CONVERT-FILE), or see
    :func:`~tidegate.tools.project.files.write_project`.
    """
    draft = _convert(folder)
    files = with_schema({draft.script_name: draft.script, DEFAULT_FILE: draft.configuration(folder.resolve().name), **draft.files})
    files |= _check(draft, files)
    files[REPORT] = draft.report(folder.resolve().name)
    write_project(into, files)
    return files, draft.notes


def _convert(folder: Path) -> Draft:
    if (folder / FILE).is_file():
        return convert_eventstream(folder)
    if is_project(folder):
        return convert_project(folder)
    fix = f"name the folder of asaproj.json, of an .asaql file, or of {FILE}"
    what = "there is no project of Stream Analytics, and no definition of an Eventstream"
    raise SettingError(what, code="TG-CONVERT-PROJECT", where=str(folder), fix=fix, example="tidegate convert job --into tide")


def _check(draft: Draft, files: Mapping[str, str]) -> dict[str, str]:
    """Return the expected results that no test case gave, from the query; add a note for each error of script and configuration."""
    from query.script_plans import read_plans
    from tidegate.platform.settings.load import load

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        write_project(root, files)
        try:
            read_plans(load(root / DEFAULT_FILE, env={}), root / draft.script_name, None)
        except TidegateError as error:
            draft.note(f"script {draft.script_name}", "partly", f"{error.where}: {error}".replace(f"{root}/", ""), error.fix)
            return {}
        return _unchecked_outputs(root)


def _unchecked_outputs(root: Path) -> dict[str, str]:
    """Return the results of outputs that a test case did not compare: each output of a case needs its file."""
    from query.local.case_files import find_case_folders, read_case
    from query.local.case_run import compute_results

    found: dict[str, str] = {}
    for folder in find_case_folders(root) if (root / "cases").exists() else ():
        if not any(path.name.startswith("expected.") for path in folder.iterdir()):
            # A case without any expectation is none.
            (folder / "expected.none.ndjson").touch()
        case = read_case(folder, root)
        for name, lines in compute_results(case).items():
            if name not in case.expected:
                place = f"{folder.relative_to(root).as_posix()}/expected.{name}.ndjson"
                found[place] = "".join(f"{line}\n" for line in lines)
    return found
