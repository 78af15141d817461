"""
The command ``tidegate new``: a project that runs, in a folder.

Law: it asks nothing and replaces nothing; the commands that it prints work as they stand.
"""

from __future__ import annotations

import shlex
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines


def new(
    folder: Annotated[Path, typer.Argument(help="Where the project goes; made if it is missing.")] = Path(),
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Write a project that runs: configuration, query, sample records, a case with its results, a compose file."""
    from tidegate.tools.project.files import read_template, write_project

    files = read_template()
    write_project(folder, files)
    _print_end(folder, sorted(files), "rides.sql", "taxis", format)


def _print_end(folder: Path, files: list[str], script: str, input_name: str, format: Format) -> None:
    """Print what was written and what to do next."""
    go_there = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    commands = [
        ("tidegate test cases", "compares the query's results with the expected ones"),
        (f"tidegate local {script} --input {input_name}=sample.ndjson --config tidegate.toml", "runs the query on the sample"),
        _next_with_servers(),
    ]
    if format is Format.JSON:
        print_json({"folder": str(folder), "files": files, "next": [*go_there, *(command for command, _ in commands)]})
        return
    print_lines([f"made {'here' if folder == Path() else folder}: {', '.join(files)}", "next:", *(f"  {line}" for line in go_there)])
    print_lines(f"  {command}  # {purpose}" for command, purpose in commands)


def _next_with_servers() -> tuple[str, str]:
    """Return the command that starts servers, and what it does: every stage too, where there is a command for that."""
    if any(entry.name == "run" for entry in entry_points(group="tidegate.commands")):
        return "tidegate run --stack", "starts Kafka, Valkey and every stage"
    return "tidegate up", "starts Kafka and Valkey; tidegate.toml has the next steps"
