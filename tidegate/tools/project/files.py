"""
The files of a new project.

Law: a project is written whole or not at all, and no file that is there is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ordering.errors import SettingError
from tidegate.platform.settings.json_schema import json_schema
from tidegate.platform.settings.load import DEFAULT_FILE, Settings

TEMPLATE = Path(__file__).parent / "template"
# A file of the template that has another name in a project.
_GIT_IGNORE = "gitignore"
SCHEMA_FILE = "tidegate.schema.json"
# By this line editors find it.
SCHEMA_LINE = f"#:schema ./{SCHEMA_FILE}\n"


def read_template() -> dict[str, str]:
    """Return the files of the example project: taxis, their rides of every minute, and a case of them."""
    files = {path.relative_to(TEMPLATE).as_posix(): path.read_text("utf-8") for path in sorted(TEMPLATE.rglob("*")) if path.is_file()}
    return with_shared_files(files)


def with_shared_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a project with those that are the same in each, and under the names that they have there."""
    project = {name: text for name, text in files.items() if name != _GIT_IGNORE}
    project[f".{_GIT_IGNORE}"] = (TEMPLATE / _GIT_IGNORE).read_text("utf-8")
    return with_schema(project)


def with_schema(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a project with the JSON schema of its configuration, which names it in its first line."""
    schema = json.dumps(json_schema(Settings), indent=2) + "\n"
    return {**files, DEFAULT_FILE: SCHEMA_LINE + files[DEFAULT_FILE], SCHEMA_FILE: schema}


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """
    Write the files of a project, by their names in *folder*, which is made if it is missing. Raises SettingError: one of them is there
    already (TG-NEW-EXISTS), or the folder cannot be written (TG-NEW-FOLDER).
    """
    present = [name for name in files if (folder / name).exists()]
    if present:
        what = f"{', '.join(present)} {'is' if len(present) == 1 else 'are'} there already"
        fix = "name a folder without them: a new project replaces nothing"
        raise SettingError(what, code="TG-NEW-EXISTS", where=str(folder), fix=fix, example="tidegate new rides")
    written: list[Path] = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        what = f"the project cannot be written: {error.strerror}"
        raise SettingError(what, code="TG-NEW-FOLDER", where=str(folder), fix="name a folder that can be written") from None
