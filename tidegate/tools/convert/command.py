"""
The command ``tidegate convert``: a project of Azure Stream Analytics, or the definition of a Fabric Eventstream, as a project of Tidegate.

Law: it changes nothing in the folder that it reads, replaces nothing, and says of each part what became of it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_lines, standard_output


def convert(
    folder: Annotated[Path, typer.Argument(help="The folder with asaproj.json, an .asaql file, or eventstream.json.")],
    into: Annotated[
        Path | None, typer.Option("--into", help="Where the new project goes; default: the folder's name + -tidegate, here.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How the report is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Convert a project of Azure Stream Analytics, or a Fabric Eventstream."""
    from tidegate.tools.convert.project import REPORT, convert_folder

    target = into or Path(f"{folder.resolve().name}-tidegate")
    files, notes = convert_folder(folder, target)
    following = ["tidegate lint", *(["tidegate test cases"] if any(name.startswith("cases/") for name in files) else [])]
    if format is Format.JSON:
        print_json({"folder": str(target), "files": sorted(files), "parts": [asdict(note) for note in notes], "next": following})
        return
    table = TextTable([TextColumn("part"), TextColumn("here", is_whole=True), TextColumn("why"), TextColumn("what is left to do")])
    for note in notes:
        table.add(note.part, note.outcome, note.why, note.fix)
    standard_output().table(table)
    print_lines([f"made {target}: {', '.join(sorted(files))}", f"the table is in {target / REPORT} too", f"next, in {target}:"])
    print_lines(f"  {command}" for command in following)
