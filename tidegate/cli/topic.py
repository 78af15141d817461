"""
The command ``tidegate topic create``: a raw topic for producers, since Kafka does not make one by itself here.

Law: a topic that is there is never changed. The ordered topics and those of results are made by the stages that write them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.observe.console import Format


class Action(StrEnum):
    """What is done with the topic."""

    CREATE = "create"


def topic(
    action: Annotated[Action, typer.Argument(help="create")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.")],
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions: as many as ingest shall read side by side.")] = 1,
    log_append_time: Annotated[
        bool, typer.Option("--log-append-time", help="The broker stamps the records, so that silence moves time; not for history.")
    ] = False,
    replication_factor: Annotated[int, typer.Option(min=1, help="Copies of each partition.")] = 1,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Create a raw topic; one that is there with as many partitions is left as it is."""
    from ordering.errors import RefusedError
    from tidegate.kafka.admin import Admin
    from tidegate.observe.console import print_json
    from tidegate.observe.terminal import print_lines
    from tidegate.settings.load import load_assigned

    settings = load_assigned(config, assign)
    admin = Admin.connect(settings.kafka)
    present = admin.find(name)
    wanted = {"message.timestamp.type": "LogAppendTime" if log_append_time else "CreateTime"}
    topic_used = present or admin.create(name, partitions, wanted, replication_factor)
    if topic_used.partitions != partitions or topic_used.uses_log_append_time != log_append_time:
        clock = topic_used.config.get("message.timestamp.type", "?")
        what = f"topic {name} is there already, with {topic_used.partitions} partitions and {clock}"
        raise RefusedError(what, code="TG-TOPIC-PARTITIONS", where=name, fix="use it as it is, or name another topic")
    if format is Format.JSON:
        print_json({"topic": name, "partitions": partitions, "timestamps": wanted["message.timestamp.type"], "created": present is None})
    else:
        stamped = "the broker stamps records" if log_append_time else "producers stamp records"
        print_lines([f"{'created' if present is None else 'there already:'} {name} (partitions: {partitions}; {stamped})"])
