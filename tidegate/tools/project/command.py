"""
The command ``tidegate new``: a project that runs, in a folder.

Law: it asks nothing and replaces nothing; the commands that it prints work as they stand.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines


def new(
    folder: Annotated[Path, typer.Argument(help="Where the project goes; made if it is missing.")] = Path(),
    from_topic: Annotated[
        str | None,
        typer.Option("--from-topic", metavar="TOPIC", help="Propose the input from the newest records of this topic."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="With --from-topic: where the brokers are; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="With --from-topic: a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Write a project that runs: configuration with its schema, query, sample records, a case with its results, a compose file."""
    from tidegate.tools.project.files import read_template, write_project

    if from_topic is None:
        files, script, input_name = read_template(), "rides.sql", "taxis"
    else:
        files, script, input_name = _propose(from_topic, config, assign)
    write_project(folder, files)
    _print_end(folder, sorted(files), script, input_name, format, has_topic=from_topic is not None)


def _propose(name: str, config: Path | None, assign: list[str] | None) -> tuple[dict[str, str], str, str]:
    """Return the files of a project for a topic, the name of its script, and that of its input."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import load_assigned
    from tidegate.tools.project.proposal import OUTPUT, input_name, propose_project
    from tidegate.tools.project.survey import make_survey, read_sample

    settings = load_assigned(config, assign)
    admin = Admin.connect(settings.kafka)
    topic = admin.require(name, "tidegate topic list names those that are there")
    survey = make_survey(read_sample(admin, settings.kafka.client_properties(), topic))
    return propose_project(survey, settings.kafka.bootstrap), f"{OUTPUT}.sql", input_name(name)


def _print_end(folder: Path, files: list[str], script: str, input_name: str, format: Format, *, has_topic: bool) -> None:
    """Print what was written and what to do next."""
    go_there = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    commands = [
        ("tidegate test cases", "compares the query's results with the expected ones"),
        (f"tidegate local {script} --input {input_name}=sample.ndjson --config tidegate.toml", "runs the query on the sample"),
        _next_with_servers(input_name, has_topic=has_topic),
    ]
    if format is Format.JSON:
        print_json({"folder": str(folder), "files": files, "next": [*go_there, *(command for command, _ in commands)]})
        return
    print_lines([f"made {'here' if folder == Path() else folder}: {', '.join(files)}", "next:", *(f"  {line}" for line in go_there)])
    print_lines(f"  {command}  # {purpose}" for command, purpose in commands)


def _next_with_servers(input_name: str, *, has_topic: bool) -> tuple[str, str]:
    """Return the command that runs the stages, and what it does. A topic that is there has servers already."""
    if has_topic:
        return "tidegate run", "runs every stage, with the brokers of the topic and the Redis of redis.url"
    return (
        "tidegate run --stack",
        f"starts Kafka, Valkey and every stage; in a second terminal, events: tidegate produce --sample {input_name}",
    )
